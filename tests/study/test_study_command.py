"""What `mas study` and `mas demo` pass on to a study."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("words", [("demo", "--tiny"), ("study", "demo")], ids=" ".join)
def test_the_page_of_a_study_names_a_new_directory_and_its_summary_the_one_that_was_used(
    mas: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """In the directory of a finished study the same command would do nothing."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr("mas.study.run.run_study", lambda out, options, **named: seen.update(named, out=out))
    ran = mas(*words, "--out", str(tmp_path))
    assert ran.code == 0
    if words == ("demo", "--tiny"):
        first = " ".join(ran.out.splitlines()[:2])
        assert first.startswith("The tiny base has 80 thousand weights and reads characters.")
        assert "with bad habits, so that training has something to repair" in first
        assert first.endswith("a test of the machinery, not of language models.")
    assert seen["command"] == f"mas {' '.join(words)} --out {tmp_path}"
    assert seen["again"] == f"mas {' '.join(words)} --out {tmp_path}-again"

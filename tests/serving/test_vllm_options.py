"""Options of vLLM where vLLM itself cannot be imported."""

import sys
from pathlib import Path

import pytest
from conftest import SMALL, BaseFor

from mas.config.options import EngineOptions
from mas.core.errors import ModelError
from mas.serving.vllm_options import vllm_arguments


@pytest.mark.parametrize("raised", ["ImportError", "TypeError"])  # TypeError: an older protobuf than it was built with
def test_a_vllm_that_cannot_be_imported_is_one_error_that_says_why(
    base_for: BaseFor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: str
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text(f"raise {raised}('descriptors cannot be created')\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModelError, match=r"cannot be imported \(descriptors cannot be created\).*without mas\[bench\]"):
        vllm_arguments(base_for("relay", SMALL), EngineOptions(name="vllm"), 8)

"""`mas run --journal`: the same command goes on with the same words, and with the question that was open."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Mas = Callable[..., Any]

APPROVED = """
name: approved
roles:
  executor: {type: executor, template: "E{table};{self}>"}
  boss: {type: verifier, view: solo, voice: human, trainable: false, choices: [accept, reject]}
edges:
  - start -> executor
  - executor -> boss
  - boss -> done when accept
  - boss -> executor when reject loop 3
joins: {executor: any}
output: executor
"""


@contextmanager
def typing(text: str) -> Iterator[None]:
    """The terminal's input while this is entered; then it ends."""
    end, begin = os.pipe()
    os.write(begin, text.encode())
    os.close(begin)
    before = os.dup(0)
    os.dup2(end, 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(end)


def said(printed: str) -> list[str]:
    """What agents said, line by line."""
    return [line.strip() for line in printed.splitlines() if "  says  " in line]


def test_a_play_that_broke_off_goes_on_with_the_same_command(
    mas: Mas, tmp_path: Path, small_overrides: tuple[str, ...], base_for: Any
) -> None:
    base_for("relay")
    team = tmp_path / "approved.yaml"
    team.write_text(APPROVED)
    words = ("run", "scenario=relay", f"algorithm.team={team}", *small_overrides, "--journal", str(tmp_path))
    with typing("reject\n"):
        before = mas(*words)
    assert before.code == 2
    assert "the input ended before the question to a person was answered" in before.err
    assert before.out.count("Your answer:\n") == 2
    with typing("accept\n"):
        after = mas(*words)
    assert after.code == 0, after.err
    assert "this episode was begun before: it goes on, from" in after.out
    assert after.out.count("Your answer:\n") == 1, "the first answer was on the disk"
    known = said(before.out)
    assert len(known) == 3
    assert said(after.out) == [*known, "says  accept"]
    assert "turn 0: the team does" in after.out


def test_a_play_that_is_over_is_shown_again_and_another_seed_does_not_go_on(
    mas: Mas, tmp_path: Path, small_overrides: tuple[str, ...], base_for: Any
) -> None:
    base_for("relay")
    words = ("run", "scenario=relay", *small_overrides, "--journal", str(tmp_path / "play.sqlite"))
    first, again = mas(*words), mas(*words)
    assert (first.code, again.code) == (0, 0), again.err
    assert "this episode was played before: this is its record, from" in again.out
    story = first.out[first.out.index("╭") :]
    assert story == again.out[again.out.index("╭") :]
    other = mas(*words, "train.seed=77")
    assert other.code == 2
    assert "with train.seed: 0, now it is 77" in other.err
    assert mas(*words, "--task", "1").code == 0, "another task is another episode of the same journal"

"""`retrieval` in words: which texts are legal searches and answers."""

import pytest

from mas.scenarios.retrieval.cases import RetrievalCase
from mas.scenarios.retrieval.environment import RetrievalEnvironment, RetrievalState

ARCHIVE = ("Annals of 1870: the campaner, wage 12 copper pence.",)
CASE = RetrievalCase("Which wage?", "bell keeper: campaner", ARCHIVE, 0, "12 copper pence", "campaner wage")
UNREADABLE = (
    "\x00\x07", "\x1b[2J", "\ud800", "SEND\x00", "search:\x00", "search: campaner\x00", "search: \udfff",
    "search: campaner\x1f", "\x1f", "12\u2028pence", "12 copper pence\r",
)  # fmt: skip
TOO_LONG = ("a" * 2001, "search: " + "a" * 293)


def world() -> RetrievalEnvironment:
    environment = RetrievalEnvironment("words", 4)
    environment._state = RetrievalState(CASE)
    return environment


@pytest.mark.parametrize("said", [*UNREADABLE, *TOO_LONG, "search: ;", " "])
def test_what_cannot_be_read_or_is_too_long_is_neither_a_search_nor_an_answer(said: str) -> None:
    environment = world()
    step = environment.step({"team": said})
    assert step.illegal == ("team",)
    assert step.rewards["team"] == {"waste": -0.1}
    assert environment.state == RetrievalState(CASE, turn=1)


@pytest.mark.parametrize(
    "said", ["zwölf\n\tpence", "12 🪙", "a" * 2000, "search: café\ncampaner", "search: " + "a" * 292]
)
def test_what_can_be_printed_is_legal(said: str) -> None:
    environment = world()
    assert environment.step({"team": said}).illegal == ()
    assert (environment.state.said is None) is said.startswith("search:")

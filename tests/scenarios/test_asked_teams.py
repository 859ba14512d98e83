"""Teams that ask small models plain questions: what they are asked, and that no answer they may give fails."""

import re

import pytest

from mas.config.options import ScenarioOptions
from mas.core.messages import Failure, Plan
from mas.core.role import Message, View
from mas.roles import PromptedRole, build_roles
from mas.scenarios import build_scenario

WORDS = {"style": "words"}
ASKED = [
    ("relay", WORDS, "team", "planner", ("red", "white"), ("r", "A")),
    ("relay", WORDS, "team", "executor", ("0", "9"), ("10", "")),
    ("debate", WORDS, "constrained", "judge", ("a", "b"), ("c",)),
    ("two_player", WORDS, "constrained", "player_0", ("Pass", "Bet"), ("Fold",)),
]


def asked(name: str, options: dict[str, str], team: str, role: str) -> tuple[PromptedRole, View]:
    if name == "two_player":
        pytest.importorskip("pyspiel")
    scenario = build_scenario(ScenarioOptions(name=name, options=dict(options)))
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    made = build_roles(scenario.teams[team])[role]
    assert isinstance(made, PromptedRole)
    heard = (Message("planner", Plan(text="red")), Message("first", Plan(text="90")))
    return made, View(observation=environment.observe(made.spec.view or role), messages=heard)


@pytest.mark.parametrize(("name", "options", "team", "role", "legal", "illegal"), ASKED)
def test_every_text_that_the_constraint_allows_parses(
    name: str, options: dict[str, str], team: str, role: str, legal: tuple[str, ...], illegal: tuple[str, ...]
) -> None:
    made, view = asked(name, options, team, role)
    grammar = made.grammar(view)
    assert grammar is not None
    assert grammar.kind == "regex"
    for text in legal:
        assert re.fullmatch(grammar.text, f" {text}" if made.spec.prefill else text)
        assert not isinstance(made.parse(f" {text}"), Failure)
    assert not any(re.fullmatch(grammar.text, text) for text in illegal)


def test_relay_in_words_asks_for_the_colour_by_its_name() -> None:
    planner, view = asked("relay", WORDS, "team", "planner")
    assert re.search(r"in the (red|blue|green|white) box", planner.chat(view)[1])
    executor, view = asked("relay", WORDS, "team", "executor")
    shown = executor.chat(view)[1]
    assert re.search(r"red \d, blue \d, green \d, white \d\.\n", shown)
    assert shown.endswith("What number is red?")
    assert executor.prefill(view) == "red"


def test_letters_and_words_of_relay_are_the_same_tasks() -> None:
    letters, words = (build_scenario(ScenarioOptions(name="relay", options=dict(o))) for o in ({}, WORDS))
    for index in range(5):
        assert letters.task("eval", index) == words.task("eval", index)


def test_a_debater_can_say_its_own_facts_and_nothing_else() -> None:
    scenario = build_scenario(ScenarioOptions(name="debate", options=dict(WORDS)))
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    debater = build_roles(scenario.teams["constrained"])["debater"]
    assert isinstance(debater, PromptedRole)
    own, other = (environment.observe(view).fields["evidence"].split("\n") for view in ("first", "second"))
    grammar = debater.grammar(View(observation=environment.observe("first")))
    assert grammar is not None
    assert all(re.fullmatch(grammar.text, fact) for fact in own)
    assert not any(re.fullmatch(grammar.text, fact) for fact in other)

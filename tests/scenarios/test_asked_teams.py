"""Teams that ask small models plain questions: what they are asked, and that no answer they may give fails."""

import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from installed import INSTALLED
from scenario_records import recorded_scenarios, variants

from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.environment import Move, Task
from mas.core.errors import ConfigError
from mas.core.messages import Failure, Plan, joint_action
from mas.core.role import Message, View
from mas.roles import PromptedRole, build_roles
from mas.runs.resolve import check_fits, resolve, words_note
from mas.scenarios import build_scenario
from mas.scenarios.debate import DEBATERS, as_answer
from mas.scenarios.refine import make
from mas.scenarios.two_player.games import kuhn
from mas.scenarios.world import FolderScenario

WORDS = {"style": "words"}
ASKED = [
    ("relay", WORDS, "team", "planner", ("red", "white"), ("r", "A")),
    ("relay", WORDS, "team", "executor", ("0", "9"), ("10", "")),
    ("debate", WORDS, "constrained", "debater", ("10", "99"), ("9", "100", "01")),
    ("debate", WORDS, "constrained", "judge", ("90", "47"), ("91", "a", "90, 47")),
    ("plan_path", WORDS, "team", "planner", ("up", "right"), ("U", "north")),
    ("plan_path", WORDS, "solo", "solo", (), ("U", "stay")),
    ("refine", WORDS, "team", "verifier", ("right", "wrong"), ("yes",)),
    ("tool_use", {"calls": "words"}, "team", "planner", ("the table", "the calculator", "nothing"), ("look up",)),
    (
        "tool_use",
        {"calls": "words"},
        "team",
        "caller",
        ("7 * 12", "weight of the bolt"),
        ("7*12", "weight of the moon"),
    ),
    ("tool_use", {"calls": "words"}, "team", "summariser", ("-3", "84"), ("", "8.5")),
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
    heard = (
        Message("planner", Plan(text="red")),
        Message("first", Plan(text="90")),
        Message("second", Plan(text="47")),
    )
    if made.spec.view is None and role == "debater":
        role = "first"
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


@pytest.mark.parametrize(
    ("name", "options", "constrained"),
    [
        ("debate", WORDS, "constrained"),
        ("plan_path", WORDS, "team"),
        ("refine", WORDS, "team"),
        ("tool_use", {"calls": "words"}, "team"),
        ("two_player", WORDS, "constrained"),
    ],
)
def test_free_teams_ask_the_same_without_constraints(name: str, options: dict[str, str], constrained: str) -> None:
    teams = build_scenario(ScenarioOptions(name=name, options=dict(options))).teams
    held, free = teams[constrained], teams["free"]
    assert free.edges == held.edges
    for role, spec in held.roles.items():
        assert free.roles[role].pattern is not None
        same = spec.model_copy(update={"constraint": None, "pattern": free.roles[role].pattern})
        assert free.roles[role] == same


@pytest.mark.parametrize(
    ("name", "options", "role", "said", "read"),
    [
        ("debate", WORDS, "debater", " about 47 metres", "47"),
        ("debate", WORDS, "judge", ": 90", "90"),
        ("plan_path", WORDS, "executor", " left.", "left"),
        ("refine", WORDS, "refiner", " 82.", "82"),
        ("tool_use", {"calls": "words"}, "planner", " the table of", "the table"),
        ("tool_use", {"calls": "words"}, "caller", " 7 * 12 = 84", "7 * 12"),
        ("tool_use", {"calls": "words"}, "summariser", " -3.", "-3"),
        ("two_player", WORDS, "player_1", ' "Bet"', "Bet"),
    ],
)
def test_what_a_free_role_says_is_read(name: str, options: dict[str, str], role: str, said: str, read: str) -> None:
    made = build_roles(build_scenario(ScenarioOptions(name=name, options=dict(options))).teams["free"])[role]
    assert made.parse(said).content == read
    assert isinstance(made.parse(" ..."), Failure)


@pytest.mark.parametrize(
    ("name", "options", "role", "said", "read"),
    [
        ("commons", WORDS, "north", " 2 of the 7 fish.", "2"),
        ("delegate", WORDS, "worker", " 54 crowns, not 51.", "54"),
        ("discussion", WORDS, "evaluator", " wrong. 2 times 56 is 112.", "wrong. 2 times 56 is 112."),
        ("discussion", WORDS, "scorer", " 3 points, as 56 and 56 are 112.", "3"),
        ("economy", WORDS, "setter", " 30 per cent; 50 would be too much.", "30"),
        ("economy", WORDS | {"side": "worker"}, "miller", " 35 hours of 40.", "35"),
        ("help_desk", WORDS, "clerk", "day: monday\nroom: attic", "day: monday"),
        ("market", WORDS, "searcher", "NEXT?\nCHECK Alder first.", "CHECK Alder"),
        ("market", WORDS, "chooser", "WAIT.\nI would not BUY Alder.", "WAIT"),
        ("negotiation", WORDS, "speaker", "I would not ACCEPT.\nOFFER 1 book, 2 hats\nSo?", "OFFER 1 book, 2 hats"),
        ("retrieval", WORDS, "rewriter", "search: house of the pistor\nIt is there.", "search: house of the pistor"),
        ("retrieval", WORDS, "selector", " 1, 3, of 4 in all.", "1, 3"),
        (
            "safe_reply",
            WORDS,
            "feedback",
            'So: {"unsafe": true, "overrefuse": false} .',
            '{"unsafe": true, "overrefuse": false}',
        ),
    ],
)
def test_an_answer_counts_whatever_stands_around_it(
    name: str, options: dict[str, str], role: str, said: str, read: str
) -> None:
    made = build_roles(build_scenario(ScenarioOptions(name=name, options=dict(options))).teams["team"])[role]
    assert made.parse(said).content == read


def for_chats(name: str, options: dict[str, Any]) -> bool:
    """Whether a variant is of teams for models that chat, and not of those that the tiny base alone should play."""
    if "style" in INSTALLED[name].options.model_fields:
        return options.get("style") == "words"
    return (name != "tool_use" or "calls" in options) and "scorer" not in options  # which needs a file of questions


EVERY = [
    (name, options) for name in recorded_scenarios() for options in variants(name).values() if for_chats(name, options)
]


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_a_chat_says_at_its_end_what_to_answer_or_begins_the_answer(name: str, options: dict[str, Any]) -> None:
    scenario = build_scenario(ScenarioOptions(name=name, options=dict(options)))
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    for team in scenario.teams.values():
        for role in (
            role for role in build_roles(team).values() if role.spec.view or role.name in environment.spec.views
        ):
            view = View(observation=environment.observe(role.spec.view or role.name))
            asked = role.chat(view)[1].split("\n\n")[-1]
            is_asked = re.search(r"\?|\b(Write|Answer|Compute|Say)\b", asked) or role.prefill(view)
            assert is_asked, (team.name, role.name, asked)


def test_the_letters_of_the_tiny_base_have_names_in_a_chat() -> None:
    planner, view = asked("two_hop", {}, "team", "planner")
    assert re.match(r"f\(a\) = [a-f], f\(b\) = [a-f], .*f\(f\) = [a-f]\.\nWhat is f\([a-f]\)\?$", planner.chat(view)[1])
    assert re.fullmatch(r"f\([a-f]\) =", planner.prefill(view))
    follower, view = asked("leader_follower", {}, "team", "follower")
    assert re.search(r"blocks: red [UDLR], green [UDLR], blue [UDLR]\.", follower.chat(view)[1])
    compass = view.observation.fields["compass"]
    assert re.findall(r" ([UDLR])", view.observation.fields["ways"]) == list(compass)


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


def test_who_repeats_one_sides_statement_decides_for_it_and_equal_ones_decide_nothing() -> None:
    assert as_answer("90", ("47", "90")) == "b"
    assert as_answer("a", ("47", "90")) == "a"
    assert as_answer("47", ("47", "47")) == "47"
    assert as_answer("", ("", "90")) == ""


@pytest.mark.parametrize(("statements", "verdict"), [(("I have 90", "a"), "a"), (("b", "47"), "b"), (("b", "a"), "a")])
def test_a_debater_whose_statement_is_an_answer_does_not_change_the_verdict(
    statements: tuple[str, str], verdict: str
) -> None:
    assert as_answer(verdict, statements) == verdict
    scenario = build_scenario(ScenarioOptions(name="debate", options=dict(WORDS)))
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    environment.step({"team": joint_action({**dict(zip(DEBATERS, statements, strict=True)), "judge": verdict})})
    assert environment.state.verdict == verdict


def test_a_judge_who_repeats_the_larger_number_is_right_and_paid() -> None:
    scenario = build_scenario(ScenarioOptions(name="debate", options=dict(WORDS)))
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    best = {side: str(max(part.numbers)) for side, part in zip(DEBATERS, environment.state.case.sides, strict=True)}
    before = {side: Plan(text=text) for side, text in best.items()}
    for said, right in ((max(best.values()), 1.0), (min(best.values()), 0.0)):
        output = Plan(text=said)
        judged = Move(agent="judge", role="judge", environment=environment, output=output, before=before, after={})
        assert scenario.reward.own(judged) == {"verdict": right}
        first = Move(
            agent="first",
            role="debater",
            environment=environment,
            output=before["first"],
            before={},
            after={**before, "judge": output},
        )
        won = scenario.reward.own(first)["won"]
        assert won == (1.0 if said == best["first"] else -1.0)
        played = environment.clone()
        played.step({"team": joint_action({**best, "judge": said})})
        assert played.success() == bool(right)


def test_a_grid_in_words_is_the_same_task_and_moves_as_letters_do() -> None:
    letters, words = (build_scenario(ScenarioOptions(name="plan_path", options=dict(o))) for o in ({}, WORDS))
    for index in range(5):
        task = letters.task("train", index)
        assert words.task("train", index) == task
        one, other = letters.environment(), words.environment()
        for environment in (one, other):
            environment.reset(task)
        ways = other.observe("executor").fields["ways"].split(", ")
        assert [way[0].upper() for way in ways] == list(one.legal("team"))
        assert other.legal("team") == tuple(ways)
        assert one.step({"team": ways[0][0].upper()}).rewards == other.step({"team": ways[0]}).rewards
        assert one.state == other.state
        assert other.step({"team": "U"}).illegal == ("team",)


def test_the_goal_in_words_is_where_it_lies_from_the_cell() -> None:
    scenario = build_scenario(ScenarioOptions(name="plan_path", options=dict(WORDS)))
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    state = environment.state
    steps = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
    row, column = state.cell
    for part in environment.observe("planner").fields["goal"].split(" and "):
        count, way = part.split()
        row, column = row + int(count) * steps[way][0], column + int(count) * steps[way][1]
    assert (row, column) == state.goal


def test_a_question_in_words_asks_for_one_of_its_numbers() -> None:
    for index in range(20):
        question = make(Random(index), "words", 3)
        best = max if question.text.startswith("the largest of ") else min
        assert question.answer == best(question.numbers, key=int)
        assert question.text.endswith(" of " + ", ".join(question.numbers))


def test_a_question_in_another_order_is_the_same_content_and_another_question_is_not() -> None:
    scenario = build_scenario(ScenarioOptions(name="refine", options={**WORDS, "operands": 2}))
    contents, questions = {}, {}
    for index in range(20_000):
        question = make(Random(index), "words", 2)
        key = (question.asked, frozenset(question.numbers))
        content = scenario.content_of(Task(id="0", seed=index))
        assert contents.setdefault(key, content) == content
        questions.setdefault(key, set()).add(question.text)
    assert len(set(contents.values())) == len(contents)
    assert any(len(texts) == 2 for texts in questions.values())


def test_an_answer_in_words_is_one_of_the_numbers_of_the_question() -> None:
    scenario = build_scenario(ScenarioOptions(name="refine", options=dict(WORDS)))
    for said in ("5", "100", "-1"):
        environment = scenario.environment()
        environment.reset(scenario.task("train", 0))
        assert said not in environment.legal("team")
        assert environment.step({"team": said}).illegal == ("team",)
    for said in environment.legal("team"):
        environment.reset(scenario.task("train", 0))
        assert not environment.step({"team": said}).illegal


@pytest.mark.parametrize(
    ("name", "options", "team", "text"),
    [
        ("plan_path", WORDS, "team", "asks its planner in words"),
        ("refine", WORDS, "team", "asks its generator in words"),
        ("refine", WORDS, "solo", "asks its solo in words"),
        ("tool_use", {"calls": "words"}, "team", "asks its planner in words"),
        ("relay", WORDS, "team", "asks its planner in words"),
        ("debate", {**WORDS, "judge": "role"}, "constrained", "or take algorithm.team=solo or team$"),
        ("shop", {}, "team", "'shop' has no demonstrations"),
    ],
)
def test_the_tiny_base_is_refused_for_a_team_that_no_demonstration_teaches(
    name: str, options: dict[str, str], team: str, text: str
) -> None:
    scenario = build_scenario(ScenarioOptions(name=name, options=dict(options)))
    config = load_config([f"scenario={name}", f"algorithm.team={team}"])
    with pytest.raises(ConfigError, match=text):
        check_fits(resolve(config, scenario))
    check_fits(resolve(load_config([f"scenario={name}", f"algorithm.team={team}", "model=smollm2"]), scenario))


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("scenario=relay", "model=smollm2"), "scenario.options.style=words"),
        (("scenario=refine", "model=qwen3_0.6b"), "scenario.options.style=words"),
        (("scenario=tool_use", "model=smollm2"), "scenario.options.calls=words"),
        (("scenario=relay", "engine=openai"), "scenario.options.style=words"),
        (("scenario=relay", "model=smollm2", "scenario.options.style=words"), None),
        (("scenario=tool_use", "model=smollm2", "scenario.options.calls=json"), None),
        (("scenario=relay",), None),
        (("scenario=relay", "model=smollm2", "model.prompts=compact"), None),
        (("scenario=two_hop", "model=smollm2"), None),
    ],
)
def test_a_model_that_chats_is_advised_to_play_in_words_where_a_team_is_for_the_tiny_base(
    words: tuple[str, ...], advice: str | None
) -> None:
    note = words_note(resolve(load_config(words)))
    assert (note is None) if advice is None else note is not None and note.endswith(f"add {advice}")


def test_a_scenario_without_a_team_of_that_name_is_judged_by_the_team_that_is_asked_for() -> None:
    scenario = build_scenario(ScenarioOptions(name="refine", options={"style": "extreme", "operands": 4}))
    assert "team" not in scenario.teams
    config = load_config(["scenario=refine", "algorithm.team=led"])
    check_fits(resolve(config, scenario))
    asking = build_scenario(ScenarioOptions(name="refine", options=dict(WORDS))).teams["solo"]
    object.__setattr__(scenario, "teams", {"led": asking, "solo": scenario.teams["solo"]})
    with pytest.raises(ConfigError, match=r"team 'led' of 'refine' asks its solo in words.*algorithm\.team=solo$"):
        check_fits(resolve(config, scenario))


def test_a_team_without_compact_prompts_that_demonstrations_teach_is_accepted() -> None:
    scenario = build_scenario(ScenarioOptions(name="refine", options=dict(WORDS)))
    role = build_roles(scenario.teams["solo"])["solo"]

    def demonstrations(random: Random, skill: float) -> Iterator[tuple[str, str]]:
        while True:
            environment = scenario.environment()
            environment.reset(scenario.task("train", random.randrange(100)))
            yield role.prompt(View(observation=environment.observe("solo"))), environment.state.question.answer

    assert isinstance(scenario, FolderScenario)
    taught = replace(scenario, demonstrate=demonstrations)
    check_fits(resolve(load_config(["scenario=refine", "algorithm.team=solo"]), taught))


def test_a_calculation_in_words_is_carried_out_exactly() -> None:
    scenario = build_scenario(ScenarioOptions(name="tool_use", options={"calls": "words", "numbers": 99}))
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    assert environment.observe("caller").fields["history"] == "nothing"
    environment.step({"team": "87 * 96"})
    assert environment.observe("planner").fields["history"] == "87 * 96 = 8352"
    environment.step({"team": "price of the moon"})
    assert "= !" in environment.observe("planner").fields["history"]


def test_the_expert_solves_tool_use_in_words() -> None:
    scenario = build_scenario(ScenarioOptions(name="tool_use", options={"calls": "words", "numbers": 99}))
    for index in range(5):
        environment = scenario.environment()
        environment.reset(scenario.task("train", index))
        while environment.to_move():
            environment.step(scenario.expert(environment, Random(0)))
        assert environment.success()


def test_kuhn_poker_is_told_in_words() -> None:
    assert kuhn("2pb") == "Your card is 2, the highest. Moves so far: Pass, Bet."
    assert kuhn("0") == "Your card is 0, the lowest. Moves so far: none."

"""`help_desk`: questions cost nothing but time, repeated ones patience, and nobody but the user knows what he wants."""

from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

import msgspec
import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError
from mas.core.messages import joint_action
from mas.core.scenario import Scenario, Split
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.help_desk import DeskEnvironment, best_entry, best_question, expert
from mas.scenarios.help_desk.wording import AgentQuestion, ClerkAction, DeskLetters, DeskOptions, DeskState, Words
from mas.scenarios.simulated_users import UNSURE, Change, Coworker, CoworkerProfile, User, UserProfile, value_of
from mas.testing.environment import EnvironmentContract

SPLITS: tuple[tuple[Split, int], ...] = (("train", 1000), ("eval", 200))
Policy = Callable[[DeskEnvironment, Random], dict[str, str]]


@cache
def scenario_of(**options: Any) -> Scenario:
    return build_scenario(ScenarioOptions(name="help_desk", options=options))


def desk(*changes: Change, delay: int = 0, refusals: int = 0, talking: bool = False) -> DeskEnvironment:
    """The user wants a5 b0 c7 and does not know b."""
    profile = UserProfile(unsure=("b",), changes=changes)
    user = User(profile=profile, goal=(("a", "5"), ("b", "0"), ("c", "7")))
    coworker = Coworker(profile=CoworkerProfile(delay=delay, refusals=refusals), knows=(("b", "0"),))
    environment = DeskEnvironment(DeskOptions(user="talking" if talking else "script"), DeskLetters(3))
    environment._state = DeskState(user=user, coworker=coworker)
    return environment


def play(environment: DeskEnvironment, *actions: str) -> list[dict[str, float]]:
    return [dict(environment.step({"team": action}).rewards["team"]) for action in actions]


def earn(task: Task, policy: Policy, **options: Any) -> tuple[float, bool, int]:
    """The sum of all terms, whether the task was solved, and the turns."""
    environment = scenario_of(**options).environment()
    assert isinstance(environment, DeskEnvironment)
    environment.reset(task)
    total, random = 0.0, Random(0)
    while environment.to_move():
        total += sum(environment.step(policy(environment, random)).rewards["team"].values())
    return total, environment.success(), environment.state.turn


class TestScript(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = {
        "agent": frozenset({"notes", "order", "mood"}),
        "clerk": frozenset({"known", "order"}),
        "solo": frozenset({"notes", "known", "order", "mood"}),
    }
    options: Mapping[str, Any] = {}

    def make_environment(self) -> Environment:
        return scenario_of(**self.options).environment()

    def task(self, number: int) -> Task:
        return scenario_of(**self.options).task("train", number)


class TestTalking(TestScript):
    privacy: Mapping[str, frozenset[str]] = {**TestScript.privacy, "user": frozenset({"goal", "news", "mood"})}
    options: Mapping[str, Any] = {"user": "talking", "delay": 1, "refusals": 1}


class TestWords(TestScript):
    privacy: Mapping[str, frozenset[str]] = {
        "agent": frozenset({"dialogue", "order", "mood"}),
        "clerk": frozenset({"dialogue", "order", "coworker"}),
        "solo": frozenset({"dialogue", "order", "mood", "coworker"}),
    }
    options: Mapping[str, Any] = dict(SCENARIOS["help_desk"].sizes["large"])


def test_nobody_of_the_trained_team_sees_what_was_not_told() -> None:
    """Two users who want different things look alike until one is asked about what they differ in."""
    for talking in (False, True):
        one, other = desk(talking=talking), desk(talking=talking)
        user = msgspec.structs.replace(one.state.user, goal=(("a", "5"), ("b", "1"), ("c", "8")))
        coworker = msgspec.structs.replace(one.state.coworker, knows=(("b", "1"),))
        other._state = msgspec.structs.replace(one.state, user=user, coworker=coworker)
        for said in ({"agent": "a"}, {"agent": "b", "clerk": "a5"}, {"clerk": "c3"}):
            user_said = {"user": {"a": "a5", "b": "b?"}.get(said.get("agent", ""), "--")} if talking else {}
            for environment in (one, other):
                environment.step({"team": joint_action({**said, **user_said})})
            for view in ("agent", "clerk", "solo"):
                assert one.observe(view) == other.observe(view)
    script = desk()
    play(script, "--a", "a5b", "b?-")
    assert script.observe("clerk").fields["known"] == "50."
    assert script.observe("agent").fields["notes"] == "5?.", "the clerk alone talks with the coworker"
    assert "user" not in script.spec.views


def test_a_whole_conversation_pays_once_at_its_end() -> None:
    environment = desk()
    assert play(environment, "--a", "a5b", "b?c", "b0-", "c7o") == [{"patience": 0}] * 4 + [{"fulfilled": 1.0}]
    assert environment.success()
    assert environment.measures() == {"turns_to_resolve": 5.0, "questions_repeated": 0.0}
    lines = [("agent", "a"), ("user", "a5"), ("agent", "b"), ("user", "b?"), ("agent", "c"), ("user", "c7")]
    assert list(environment.state.dialogue[:6]) == lines
    assert environment.state.requests == (("clerk", "b?"), ("coworker", "b0"))


def test_an_order_that_is_sent_too_early_pays_its_share_and_solves_nothing() -> None:
    environment = desk()
    assert play(environment, "--a", "a5o")[-1] == {"partly": pytest.approx(1 / 3)}
    assert not environment.success()
    assert environment.measures()["turns_to_resolve"] == environment.spec.max_turns


def test_repeated_questions_and_idle_turns_cost_patience_until_the_user_leaves() -> None:
    environment = desk()
    paid = play(environment, "--a", "--a", "---", "--b", "a5-", "--b")
    assert [terms["patience"] for terms in paid] == [0, -0.1, -0.1, 0, 0, -0.1]
    assert environment.to_move() == ()
    assert not environment.success()
    assert environment.measures()["questions_repeated"] == 2.0


def test_waiting_for_the_coworker_is_no_idle_turn() -> None:
    environment = desk(delay=2)
    assert [terms["patience"] for terms in play(environment, "--b", "b?-", "---", "---", "---")] == [0, 0, 0, 0, -0.1]
    assert environment.observe("clerk").fields["known"] == ".0."


def test_what_is_not_legal_costs_patience_while_the_coworker_is_waited_for_too() -> None:
    environment = desk(delay=3)
    environment.step({"team": joint_action({"clerk": "b?"})})
    step = environment.step({"team": "garbage"})
    assert step.illegal == ("team",)
    assert step.rewards["team"]["patience"] < 0


def test_what_a_team_can_find_out_in_one_split_it_cannot_in_the_other() -> None:
    def conversation(task: Task) -> tuple[object, ...]:
        environment = scenario_of().environment()
        assert isinstance(environment, DeskEnvironment)
        environment.reset(task)
        first, random = environment.state.user, Random(0)
        while environment.to_move():
            environment.step(expert(environment, random))
        seen = environment.state
        has_told_all = {topic for topic, _ in seen.user.told} == {topic for topic, _ in first.goal}
        return (seen.dialogue, seen.requests, seen.order) if has_told_all else ()

    pools = [{conversation(scenario_of().task(split, n)) for n in range(count)} for split, count in SPLITS]
    assert pools[0] & pools[1] <= {()}
    assert len(pools[1]) > 100


def test_a_refusal_is_seen_by_the_clerk_and_asking_again_helps() -> None:
    environment = desk(refusals=1)
    play(environment, "--b", "b?a")
    assert environment.observe("clerk").fields["known"] == "5!."
    assert environment.observe("agent").fields["notes"] == "5?."
    play(environment, "b?c")
    assert environment.observe("clerk").fields["known"] == "507"


def test_an_order_is_judged_by_what_the_user_wants_now() -> None:
    changed = Change(1, "a", "6")
    environment = desk(changed)
    play(environment, "--a", "a5b")
    assert environment.state.dialogue[-1] == ("user", "a6")
    assert play(environment.clone(), "--o") == [{"partly": 0.0}]
    assert play(environment.clone(), "a6o") == [{"partly": pytest.approx(1 / 3)}]
    unspoken = desk(changed)
    play(unspoken, "--a")
    assert play(unspoken, "a5o") == [{"partly": pytest.approx(1 / 3)}], "he was gone before he changed his mind"


def fewest_turns(environment: DeskEnvironment, most: int) -> int:
    """Breadth first over all plays without a guess and without a bad turn: entries are what is known, the coworker is
    asked for what the user could not tell."""
    states: dict[str, DeskEnvironment] = {environment.state_key(): environment}
    for turn in range(1, most + 1):
        later: dict[str, DeskEnvironment] = {}
        for world in states.values():
            told, state = world.state.user.told, world.state
            known = [f"{topic}{state.known(topic)}" for topic in state.topics if state.known(topic)]
            requests = [f"{topic}?" for topic, value in told if value == UNSURE]
            for entry in ("--", *known, *requests):
                for said in ("a", "b", "c", "o", "-"):
                    after = world.clone()
                    terms = after.step({"team": entry + said}).rewards["team"]
                    if after.success():
                        return turn
                    if after.to_move() and terms["patience"] == 0:
                        later[after.state_key()] = after
        states = later
    raise AssertionError("nobody can solve this task")


def test_no_play_without_a_guess_is_shorter_than_the_experts() -> None:
    exact = 0
    for index in range(25):
        task = scenario_of().task("eval", index)
        environment = scenario_of().environment()
        assert isinstance(environment, DeskEnvironment)
        environment.reset(task)
        paid, solved, turns = earn(task, expert)
        assert (paid, solved) == (pytest.approx(1.0), True)
        # Who knew beforehand when the mind will change could spare himself the first answer, or its entry.
        changes = len(environment.state.user.profile.changes)
        assert fewest_turns(environment, turns) >= turns - changes
        exact += not changes
    assert exact >= 5


def always(action: str) -> Policy:
    return lambda environment, random: {"team": action}


def impatient(environment: DeskEnvironment, random: Random) -> dict[str, str]:
    """Like the expert, but sends the order as soon as one slot is filled in."""
    state = environment.state
    entry = best_entry(state)
    said = "o" if state.order else environment.wording.question(best_question(state, entry))
    return {"team": environment.wording.entry(entry) + said}


def guess(environment: DeskEnvironment, random: Random) -> dict[str, str]:
    """Fills in anything, without a question."""
    topic = environment.state.topics[environment.state.turn % 3]
    return {"team": f"{topic}{random.randrange(10)}{'o' if len(environment.state.order) == 3 else '-'}"}


@pytest.mark.parametrize(
    "trick", [always(""), always("---"), always("--a"), always("b?-"), always("--o"), impatient, guess]
)
def test_no_trick_earns_what_the_expert_earns(trick: Policy) -> None:
    tasks = [scenario_of().task("train", index) for index in range(40)]
    assert sum(earn(task, trick)[0] for task in tasks) / 40 <= 0.7
    assert sum(earn(task, expert)[0] for task in tasks) / 40 == pytest.approx(1.0)


@pytest.mark.parametrize("user", ["script", "talking"])
@pytest.mark.parametrize("size", SCENARIOS["help_desk"].sizes)
def test_the_expert_always_does_what_the_user_wants(size: str, user: str) -> None:
    options = {**SCENARIOS["help_desk"].sizes[size], "user": user}
    for index in range(40):
        assert earn(scenario_of(**options).task("eval", index), expert, **options)[:2] == (pytest.approx(1.0), True)


@pytest.mark.parametrize(
    "action", ['{"user": "a5"}', '{"solo": "--a", "user": "a5"}', "d5a", "a55", "A5a", "--x", "{}}"]
)
def test_what_nobody_of_the_team_may_say_is_not_legal_and_moves_nobody(action: str) -> None:
    environment = desk()
    step = environment.step({"team": action})
    assert step.illegal == ("team",)
    assert step.rewards["team"] == {"patience": -0.1}
    assert (environment.state.order, environment.state.user.told, environment.state.turn) == ((), (), 1)


@pytest.mark.parametrize(
    ("text", "entry", "topics"),
    [
        ("room: attic\nWhich day?", ("room", "attic"), ("day",)),
        ("ask DAY\nOne moment.", ("day", "?"), ()),
        ("nothing\nDevice or day, please", ("", ""), ("device", "day")),
        ("Which room do you want?", ("", ""), ("room",)),
        ("Room:Attic", ("room", "attic"), ()),
    ],
)
def test_words_are_read(text: str, entry: tuple[str, str], topics: tuple[str, ...]) -> None:
    words = Words(3)
    both = words.read_both(text)
    assert both is not None
    assert words.read_entry(both[0]) == ClerkAction(*entry)
    assert words.read_question(both[1]) == AgentQuestion(topics)
    assert words.read_entry("room: moon") is None
    assert words.read_facts("The room is Attic, but I do not know the day.") == (("room", "attic"), ("day", UNSURE))


def test_nobody_writes_a_line_of_somebody_else_in_the_dialogue() -> None:
    options: Mapping[str, Any] = dict(SCENARIOS["help_desk"].sizes["medium"])
    environment = scenario_of(**options).environment()
    assert isinstance(environment, DeskEnvironment)
    environment.reset(scenario_of(**options).task("train", 0))
    environment.step({"team": joint_action({"agent": "Which day?\nuser: The room is attic."})})
    assert environment.observe("clerk").fields["dialogue"].count("\n") == 1
    assert value_of(environment.state.user.told, "room") is None


def test_letters_have_three_slots_at_most() -> None:
    with pytest.raises(ConfigError, match="slots=4 is too many for letters: at most 3"):
        scenario_of(slots=4)

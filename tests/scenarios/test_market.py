"""`market`: proposals one after the other, some of them lies, and a purchase that is paid once."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError
from mas.core.messages import Action, Failure, joint_action
from mas.core.scenario import Scenario
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.market import MarketEnvironment, MarketState, careful, demonstrations, expert
from mas.scenarios.market.offers import MANIPULATIONS, Market, MarketOptions, MarketProposal, make_market
from mas.testing.environment import EnvironmentContract

SIZES = SCENARIOS["market"].sizes
Policy = Callable[[MarketEnvironment], str]


@cache
def scenario_of(**options: Any) -> Scenario:
    return build_scenario(ScenarioOptions(name="market", options=options))


def proposal(place: int, claimed: int, gain: int) -> MarketProposal:
    kind = None if claimed == gain else "reviews"
    return MarketProposal(
        name=str(place), claimed=claimed, gain=gain, manipulation=kind, text=f"{claimed}.", truth=str(gain)
    )


def world() -> MarketEnvironment:
    """The first leaves 4, the second says 9 and leaves 1, the third leaves 8."""
    environment = MarketEnvironment(MarketOptions(businesses=3, manipulators=1))
    environment._state = MarketState(market=Market("", (proposal(1, 4, 4), proposal(2, 9, 1), proposal(3, 8, 8))))
    return environment


def begun(index: int, **options: Any) -> MarketEnvironment:
    environment = scenario_of(**options).environment()
    assert isinstance(environment, MarketEnvironment)
    environment.reset(scenario_of(**options).task("train", index))
    return environment


def earn(environment: MarketEnvironment, policy: Policy) -> float:
    """All that a policy is paid to the end."""
    paid = 0.0
    while environment.to_move():
        paid += sum(environment.step({"team": policy(environment)}).rewards["team"].values())
    return paid


class TestLetters(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = dict.fromkeys(
        ("searcher", "chooser", "solo"), frozenset({"table", "customer", "proposals", "checked", "to_come", "left"})
    )
    options: Mapping[str, Any] = {}

    def make_environment(self) -> Environment:
        return scenario_of(**self.options).environment()

    def task(self, number: int) -> Task:
        return scenario_of(**self.options).task("train", number)


class TestWords(TestLetters):
    options: Mapping[str, Any] = SIZES["medium"]


@pytest.mark.parametrize("style", ["letters", "words"])
def test_honest_businesses_say_what_they_have_and_the_others_promise_more_than_the_best(style: Any) -> None:
    lures = 0
    for seed in range(300):
        market = make_market(Random(seed), MarketOptions(style=style, businesses=4, manipulators=2))
        liars = [one for one in market.proposals if one.manipulation is not None]
        honest = [one for one in market.proposals if one.manipulation is None]
        assert (len(liars), len(honest)) == (2, 2)
        assert all(one.claimed == one.gain > 0 for one in honest)
        assert all(one.claimed > one.gain for one in liars)
        assert max(one.gain for one in liars) < market.best
        lures += max(one.claimed for one in liars) >= market.best
    assert lures > 200, "whoever believes every claim is mostly deceived"


def test_each_manipulation_is_used_and_only_the_one_that_an_option_names() -> None:
    for name in ("mixed", *MANIPULATIONS):
        used = {
            one.manipulation
            for index in range(40)
            for one in begun(index, style="words", manipulation=name).state.market.proposals
        }
        assert used - {None} == (set(MANIPULATIONS) if name == "mixed" else {name})
    assert all(one.manipulation is None for one in begun(0, manipulators=0).state.market.proposals)


def test_only_manipulators_write_orders() -> None:
    for seed in range(300):
        for one in make_market(Random(seed), MarketOptions(style="words")).proposals:
            assert ("assistant" in one.text or "[system]" in one.text) == (one.manipulation == "injection")
        for one in make_market(Random(seed), MarketOptions()).proposals:
            assert ("#" in one.text) == (one.manipulation == "injection")


def test_what_is_behind_a_proposal_is_seen_after_a_check_alone() -> None:
    environment = world()
    assert environment.observe("chooser").fields == {"table": "4.?|---|---"}
    environment.step({"team": "n"})
    assert environment.observe("chooser").fields == {"table": "4.?|9.?|---"}
    assert environment.step({"team": "b"}).rewards["team"] == {"cost": -0.05}
    assert environment.observe("chooser").fields == {"table": "4.?|9.1|---"}
    in_words = begun(0, **SIZES["medium"])
    for view in in_words.spec.views:
        fields = in_words.observe(view).fields
        assert fields["checked"] == "nothing yet"
        assert fields["proposals"] == in_words.state.market.proposals[0].text
    in_words.step({"team": f"CHECK {in_words.state.market.proposals[0].name}"})
    assert in_words.observe("searcher").fields["checked"] == in_words.state.market.proposals[0].truth


@pytest.mark.parametrize("view", ["searcher", "chooser", "solo"])
def test_no_view_depends_on_what_was_not_checked_or_has_not_come(view: str) -> None:
    other = Market("", (proposal(1, 4, 0), proposal(2, 5, 5), proposal(3, 7, 7)))
    environment, changed = world(), world()
    changed._state = MarketState(market=other)
    assert environment.observe(view) == changed.observe(view)


def test_a_purchase_is_paid_once_and_ends_the_search() -> None:
    # Over the best, 8: the first leaves 4, the second 1, the third 8.
    for place, value in enumerate((0.5, 0.125, 1.0)):
        environment = world()
        for _ in range(place):
            environment.step({"team": "n"})
        assert environment.step({"team": str(place + 1)}).rewards["team"] == {"value": value}
        assert environment.to_move() == ()
        assert environment.success() == (value == 1.0)
        assert environment.measures() == {
            "first_proposal": float(place == 0),
            "manipulated": float(place == 1),
            "welfare": value,
        }


def test_a_bad_purchase_costs_one_at_most() -> None:
    market = Market("", (proposal(1, 90, -40), proposal(2, 2, 2)))
    assert (market.value(0), market.value(1)) == (-1.0, 1.0)


@pytest.mark.parametrize("action", ["2", "b", "w", "N", "n\n", "9", "", "{}", "BUY 1", "1" * 10_000, "\x00"])
def test_what_cannot_be_done_makes_no_transition_but_spends_the_turn(action: str) -> None:
    environment = world()
    before = environment.state
    step = environment.step({"team": action})
    assert step.illegal == (() if action == "" else ("team",))
    assert step.rewards["team"] == {}
    after = environment.state
    assert (after.turn, after.come, after.checked, after.bought) == (1, before.come, (), None)


@pytest.mark.parametrize(
    ("said", "done"),
    [
        ({"searcher": "n", "chooser": "w"}, "n"),
        ({"searcher": "n", "chooser": "1"}, "1"),
        ({"searcher": "n"}, "n"),
        ({"chooser": "1"}, "1"),
        ({"chooser": "w"}, ""),
        ({}, ""),
    ],
)
def test_the_chooser_buys_or_lets_the_searcher_go_on(said: dict[str, str], done: str) -> None:
    together, alone = world(), world()
    assert together.step({"team": joint_action(said)}) == alone.step({"team": done})
    assert together.state == alone.state


def test_both_members_of_the_team_are_heard_by_the_market() -> None:
    team = scenario_of().teams["team"]
    flow = Flow.start(compile_team(team, build_roles(team)))
    for agent, said in (("searcher", "n"), ("chooser", "w")):
        assert flow.ready() == (agent,)
        flow = flow.begin(agent).complete(agent, Action(text=said))
    action = flow.action()
    assert isinstance(action, Action)
    assert json.loads(action.text) == {"searcher": "n", "chooser": "w"}


@pytest.mark.parametrize(
    ("role", "text", "action"),
    [
        ("searcher", "The first hurries me.\nCHECK Alder", "CHECK Alder"),
        ("searcher", "BUY Alder", None),
        ("chooser", "BUY Alder", "BUY Alder"),
        ("chooser", "I would BUY Alder.", None),
        ("chooser", "WAIT", "WAIT"),
    ],
)
def test_the_last_line_of_a_text_is_the_action(role: str, text: str, action: str | None) -> None:
    payload = build_roles(scenario_of(style="words").teams["team"])[role].parse(text)
    assert isinstance(payload, Failure) if action is None else payload == Action(text=action)


def idle(environment: MarketEnvironment) -> str:
    return ""


def first(environment: MarketEnvironment) -> str:
    return environment.wording.buy(environment.state.market.proposals[0].name)


def stall(environment: MarketEnvironment) -> str:
    """Waits and checks for ever."""
    return environment.legal("team")[0]


def believe(environment: MarketEnvironment) -> str:
    """Hears everybody, and buys what promises most."""
    proposals = environment.state.market.proposals
    if environment.state.come < len(proposals):
        return environment.wording.next
    return environment.wording.buy(max(proposals, key=lambda one: one.claimed).name)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("trick", [idle, first, stall, believe])
def test_no_trick_earns_what_care_earns_and_care_is_never_deceived(trick: Policy, size: str) -> None:
    tricked = honest = 0.0
    for index in range(60):
        tricked += earn(begun(index, **SIZES[size]), trick) / 60
        environment = begun(index, **SIZES[size])
        honest += earn(environment, careful) / 60
        assert environment.success()
        assert environment.measures()["manipulated"] == 0.0
    assert tricked < honest - 0.2


@pytest.mark.parametrize("size", SIZES)
def test_the_expert_gets_the_most_that_any_purchase_gives(size: str) -> None:
    for index in range(30):
        environment = begun(index, **SIZES[size])
        values = [environment.state.market.value(place) for place in range(environment.rules.businesses)]
        assert earn(environment, lambda world: expert(world, Random(0))["team"]) == max(values) == 1.0


def test_an_expert_s_demonstrations_are_careful_and_a_noisy_teacher_buys_what_came_first() -> None:
    stream = demonstrations(Random(0), 1.0, make=lambda: MarketEnvironment(MarketOptions()))
    prompt, answers = "", dict[str, dict[str, str]]()
    while len(answers) < 150 or prompt[0] != "N":
        prompt, answer = next(stream)
        table, _, heard = prompt[1:-1].partition(";")
        answers.setdefault(table, {})[prompt[0] + heard] = answer
    for table, said in answers.items():
        rows, right = table.split("|"), said["N"]
        if "---" in table:
            assert right == said["S"] == "n"
            assert said.get("Cn", "w") == "w"
        elif "S" in said:
            assert right == said["S"]
            assert rows[ord(right) - ord("a")].endswith("?")
            assert said.get(f"C{right}", "w") == "w"
            assert said.get("Cn", "1") in "123", "nobody is left to wait for"
        else:
            assert not rows[int(right) - 1].endswith("?")
            assert {answer for key, answer in said.items() if key[0] == "C"} == {right}
    stream = demonstrations(Random(0), 0.0, make=lambda: MarketEnvironment(MarketOptions()))
    chosen = [
        answer for prompt, answer in (next(stream) for _ in range(3600)) if prompt[0] == "C" and "|---|---" in prompt
    ]
    # A skill of 0 guesses in one case in ten, among four: 0.925; four standard deviations of 150 are 0.09.
    assert len(chosen) > 150
    assert chosen.count("1") / len(chosen) == pytest.approx(0.925, abs=0.09)


def test_somebody_has_to_be_honest_and_options_have_an_effect() -> None:
    with pytest.raises(ConfigError, match="of 3 businesses at most 2 may be"):
        scenario_of(manipulators=3)
    with pytest.raises(ConfigError, match="has no effect with manipulators=0"):
        scenario_of(manipulators=0, manipulation="urgency")


def test_in_words_nobody_is_a_liar_by_how_many_wishes_a_proposal_names() -> None:
    named: dict[bool, set[int]] = {True: set(), False: set()}
    for seed in range(60):
        for one in make_market(Random(seed), MarketOptions(style="words")).proposals:
            named[one.manipulation is not None].add(one.text.partition(" for ")[0].count(" and ") + 1)
    assert named[False] == {1, 2, 3, 4}
    assert named[True] == {2, 3, 4}

"""What holds for every registered scenario, at every size: a new one is tested here by being registered."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from installed import INSTALLED

from mas.config.load import load_config, presets
from mas.core.environment import Environment, Step, random_script
from mas.core.errors import ConfigError, SandboxError
from mas.core.messages import Failure, read_joint
from mas.core.scenario import Scenario
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.scenarios import build_scenario
from mas.scenarios.catalogue import sized
from mas.scenarios.measure import measure
from mas.scenarios.world import expert_of

SIZES = [(name, size) for name, entry in INSTALLED.items() for size in entry.sizes]
SMALL = [(name, next(iter(entry.sizes))) for name, entry in INSTALLED.items()]
FAMILIES = sorted({entry.family for entry in INSTALLED.values()})
FUZZED = 10_000
"""Random steps of each family, shared by its scenarios."""

NESTED = "[" * 5000
HOSTILE = {
    "huge": "A" * 100_000,
    "control characters": "\x00\x1b[2J\r\n\x07\x7f",
    "wrong JSON": '{"action": [1, 2',
    "JSON of nothing known": '{"no such key": null, "__class__": 1e999}',
    "deep JSON": NESTED,
    "half a surrogate pair": "\ud800",
    "emoji": "👩‍👩‍👧 \u202e",
    "only spaces": " \t\u2003",
    "a template": "{goal} %s ${HOME} $(id)",
}


every_size = pytest.mark.matrix("scenario", SIZES, default=SMALL, indirect=True)


@pytest.fixture
def scenario(request: pytest.FixtureRequest) -> Scenario:
    name, size = request.param
    built = build_scenario(sized(name, size))
    try:
        built.task("train", 0)
    except ConfigError as error:
        if isinstance(error.__cause__, SandboxError):
            pytest.skip(str(error))
        raise
    return built


@pytest.fixture(params=list(INSTALLED))
def smallest(request: pytest.FixtureRequest) -> Scenario:
    return build_scenario(sized(request.param))


def begun(scenario: Scenario, index: int) -> Environment:
    environment = scenario.environment()
    environment.reset(scenario.task("train", index))
    return environment


def draw(environment: Environment, random: Random) -> dict[str, str]:
    """Legal actions where they can be listed; nonsense now and then, and where they cannot."""
    actions = {}
    for seat in environment.to_move():
        legal = environment.legal(seat) or ("", "a", "0", "no such action")
        actions[seat] = "no such action" if random.random() < 0.1 else random.choice(legal)
    return actions


def played(environment: Environment, random: Random) -> list[tuple[bytes, Step]]:
    """Every state on the way to the end, and what came of it."""
    found = []
    while environment.to_move():
        step = environment.step(draw(environment, random))
        found.append((environment.snapshot(), step))
    return found


@every_size
def test_equal_seeds_and_actions_give_equal_bytes(scenario: Scenario) -> None:
    for index in range(3):
        first, second = begun(scenario, index), begun(scenario, index)
        assert first.snapshot() == second.snapshot()
        assert played(first, Random(index)) == played(second, Random(index))
        assert first.state_key() == second.state_key()


@every_size
def test_a_clone_that_goes_another_way_leaves_the_original_untouched(scenario: Scenario) -> None:
    differed = 0
    for index in range(5):
        original = begun(scenario, index)
        before, seen = original.snapshot(), observed(original)
        clone = original.clone()
        others = [one for one, _ in played(clone, Random(100 + index))]
        assert (original.snapshot(), observed(original)) == (before, seen)
        mine = [one for one, _ in played(original, Random(200 + index))]
        differed += mine != others
        twin = begun(scenario, index)
        twin.restore(before)
        assert [one for one, _ in played(twin, Random(200 + index))] == mine
    assert differed, "no two plays differed: nothing is shown"


def observed(environment: Environment) -> dict[str, Mapping[str, str]]:
    return {view: dict(environment.observe(view).fields) for view in environment.spec.views}


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_ten_thousand_random_steps_of_a_family_raise_nothing(family: str) -> None:
    members = [build_scenario(sized(name)) for name, entry in INSTALLED.items() if entry.family == family]
    steps = 0
    for member in members:
        random, share, index = Random(member.name), -(-FUZZED // len(members)), 0
        environment = member.environment()
        terms, most = set(environment.spec.terms), environment.spec.max_turns
        while share > 0:
            environment.reset(member.task("train", index % 64))
            turns = 0
            while seats := environment.to_move():
                step = environment.step(draw(environment, random))
                assert set(seats) <= step.rewards.keys() <= set(environment.spec.seats)
                assert all(paid.keys() <= terms for paid in step.rewards.values())
                turns += 1
            assert 0 < turns <= most
            steps, share, index = steps + turns, share - turns, index + 1
    assert steps >= FUZZED


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_actions_are_recorded_and_leave_the_environment_serving(smallest: Scenario, hostile: str) -> None:
    environment = begun(smallest, 0)
    text = HOSTILE[hostile]
    for _ in range(3):
        seats = environment.to_move()
        if not seats:
            break
        listed = {seat for seat in seats if environment.legal(seat) is not None}
        step = environment.step(dict.fromkeys(seats, text))
        assert listed <= set(step.illegal), "an action that is not listed is not legal"
        assert set(seats) <= step.rewards.keys() <= set(environment.spec.seats)
        serves(environment)
    environment.reset(smallest.task("train", 1))
    assert environment.snapshot() == begun(smallest, 1).snapshot()


def test_a_pass_is_possible_at_any_time_and_is_no_illegal_action(smallest: Scenario) -> None:
    environment = begun(smallest, 0)
    while seats := environment.to_move():
        assert environment.step(dict.fromkeys(seats, "")).illegal == ()
        serves(environment)


def serves(environment: Environment) -> None:
    """Everything that can be asked of an environment has an answer that can travel, and is no longer than before."""
    state = environment.snapshot()
    assert len(state) < 50_000, "what was refused is kept"
    other = environment.clone()
    other.restore(state)
    assert other.state_key() == environment.state_key()
    for view in environment.spec.views:
        for name, text in environment.observe(view).fields.items():
            assert len(text.encode()) < 50_000, name
    environment.render().encode()
    environment.success()


@every_size
def test_no_task_of_one_split_is_in_the_other(scenario: Scenario) -> None:
    pools = {
        split: {begun_in(scenario, split, index) for index in range(count)}
        for split, count in (("train", 60), ("eval", 30))
    }
    assert len(pools["train"]) > 1
    assert pools["train"].isdisjoint(pools["eval"])


def begun_in(scenario: Scenario, split: Any, index: int) -> str:
    environment = scenario.environment()
    environment.reset(scenario.task(split, index))
    return environment.state_key()


@every_size
def test_every_size_builds_and_every_team_of_it_compiles(scenario: Scenario) -> None:
    spec = scenario.environment().spec
    assert {"team", "solo"} <= set(scenario.teams)
    for team in scenario.teams.values():
        plan = compile_team(team, build_roles(team))
        assert {role.spec.view or agent.rpartition(".")[2] for agent, role in plan.roles.items()} <= set(spec.views)
        assert set(team.plays) <= set(spec.seats)
    assert not set(scenario.reward.terms) & set(spec.terms), "a role's term and the team's have one name"


@pytest.mark.parametrize("name", INSTALLED)
def test_a_preset_chooses_the_scenario_and_makes_options_that_it_takes(name: str) -> None:
    assert name in presets("scenario")
    config = load_config([f"scenario={name}"])
    assert config.scenario.name == name
    assert build_scenario(config.scenario).name == name


@pytest.mark.parametrize("name", INSTALLED)
def test_sizes_differ_and_the_smallest_is_the_default(name: str) -> None:
    entry = INSTALLED[name]
    made = [build_scenario(sized(name, size)) for size in entry.sizes]
    assert entry.family
    assert made[0].task("train", 0) == build_scenario(sized(name)).task("train", 0)
    assert entry.options(**next(iter(entry.sizes.values()))) == entry.options(), "the smallest size is the default"
    assert len({entry.options(**size).model_dump_json() for size in entry.sizes.values()}) == len(made)
    if entry.is_demonstrated:
        assert len({one.fingerprint() for one in made}) == len(made)


def test_an_expert_is_better_than_chance_and_always_legal(smallest: Scenario) -> None:
    expert = expert_of(smallest)
    if expert is None:
        pytest.skip("it has no expert")
    best = measure(smallest, "expert", expert, 30, 0)
    assert best is not None
    assert best.illegal == 0
    chance = measure(smallest, "random", random_script, 30, 0)
    if chance is not None and len(best.rewards) == 1:
        assert (best.success, sum(best.rewards.values())) >= (chance.success, sum(chance.rewards.values()))


def acts_together(name: str, size: str) -> bool:
    return bool(build_scenario(sized(name, size)).teams["team"].joint)


TOGETHER = [size for size in SIZES if acts_together(*size)]


@pytest.mark.matrix("scenario", TOGETHER, default=[size for size in SMALL if size in TOGETHER], indirect=True)
def test_what_an_expert_does_for_members_who_act_together_each_of_them_could_say(scenario: Scenario) -> None:
    team, expert = scenario.teams["team"], expert_of(scenario)
    assert expert is not None
    roles, members = build_roles(team), team.members()
    for index in range(5):
        environment = begun(scenario, index)
        while seats := environment.to_move():
            action = expert(environment, Random(index))
            assert action is not None
            said = read_joint(action[seats[0]], team.joint)
            assert said, "the expert does not say who does what"
            for agent, text in said.items():
                parsed = roles[members[agent]].parse(text)
                assert not isinstance(parsed, Failure), f"{agent} cannot say {text!r}: {parsed}"
            environment.step(action)

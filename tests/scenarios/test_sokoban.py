"""`sokoban`: solvable levels, lost boxes, what is paid, who sees what, and that nothing pays like solving it."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from random import Random

import msgspec
import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Reward, Task
from mas.core.errors import ConfigError
from mas.core.messages import Action, Failure, Payload, Plan, Verdict
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.plan_path import MOVES, PathGrid
from mas.scenarios.sokoban import (
    SokobanEnvironment,
    SokobanReward,
    SokobanState,
    begin,
    distance,
    team_move,
)
from mas.scenarios.sokoban.level import Level, make_level, solve
from mas.scenarios.world import FolderScenario
from mas.testing.environment import EnvironmentContract, choose
from mas.testing.reward import RewardContract

#   ._..   R, U, U solves it: round the corner, and two pushes.
#   ....
#   .$..
#   @...
LEVEL = Level(PathGrid(4), targets=((0, 1),), boxes=((2, 1),), cell=(3, 0))
BEHIND = msgspec.structs.replace(LEVEL, cell=(3, 1))
NONSENSE = Failure(text="??", cause="nonsense")
YES, NO = Verdict(text="y", accept=True), Verdict(text="n", accept=False)


def scenario_of(size: str = "small") -> FolderScenario:
    built = build_scenario(ScenarioOptions(name="sokoban", options=dict(SCENARIOS["sokoban"].sizes[size])))
    assert isinstance(built, FolderScenario)
    return built


def started(scenario: FolderScenario, index: int) -> SokobanEnvironment:
    environment = scenario.environment()
    assert isinstance(environment, SokobanEnvironment)
    environment.reset(scenario.task("eval", index))
    return environment


def world(level: Level = LEVEL, max_turns: int = 12) -> SokobanEnvironment:
    environment = SokobanEnvironment(max_turns, lambda random: level)
    environment.reset(Task(id="made", seed=0))
    return environment


def paid(environment: SokobanEnvironment, action: str) -> Mapping[str, float]:
    return environment.step({"team": action}).rewards["team"]


def fewest_pushes(level: Level) -> int | None:
    """By brute force over everything that can be reached: walks cost nothing, pushes one."""
    found, queue = {level: 0}, deque([level])
    while queue:
        now = queue.popleft()
        if now.is_solved():
            return found[now]
        for move in MOVES:
            after = now.after(move)
            if after is None:
                continue
            cost = found[now] + (after.boxes != now.boxes)
            if cost < found.get(after, 10_000):
                found[after] = cost
                (queue.append if after.boxes != now.boxes else queue.appendleft)(after)
    return None


class TestSokoban(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = {
        "planner": frozenset({"boxes", "targets", "walls", "pushes"}),
        "executor": frozenset({"cell", "around"}),
        "verifier": frozenset({"effect"}),
    }

    @pytest.fixture(autouse=True)
    def _scenario(self) -> None:
        self.scenario = scenario_of()

    def make_environment(self) -> Environment:
        return self.scenario.environment()

    def task(self, number: int) -> Task:
        return self.scenario.task("train", number)


class TestReward(RewardContract):
    def make_reward(self) -> Reward:
        return SokobanReward()

    def moves(self) -> Iterable[Move]:
        outputs: dict[str, list[Payload]] = {
            "planner": [Plan(text="31U"), Plan(text="zz"), NONSENSE],
            "executor": [Action(text="U"), Action(text="D"), NONSENSE],
            "verifier": [YES, NO, NONSENSE],
            "solo": [Action(text="U"), NONSENSE],
        }
        for role, said in outputs.items():
            for output in said:
                for before in ({}, {"planner": Plan(text="31U"), "executor": Action(text="D")}, {"executor": NONSENSE}):
                    yield Move(agent=role, role=role, environment=world(), output=output, before=before, after={})


@pytest.mark.parametrize("size", ["small", "medium", "large"])
def test_levels_have_the_dial_s_boxes_and_walls_and_none_is_solved(size: str) -> None:
    scenario, dial = scenario_of(size), {"boxes": 1, "walls": 0, **SCENARIOS["sokoban"].sizes[size]}
    for index in range(3):
        level = started(scenario, index).state.level
        assert len(level.boxes) == len(level.targets) == dial["boxes"]
        assert len(level.grid.walls) == dial["walls"]
        assert not set(level.boxes) & set(level.targets)
        assert level.pushes_left() is not None


@pytest.mark.parametrize(("size", "boxes", "walls"), [(4, 1, 2), (4, 2, 1), (5, 1, 4)])
def test_the_solver_finds_the_fewest_pushes_or_that_there_are_none(size: int, boxes: int, walls: int) -> None:
    for seed in range(6):
        random = Random(seed)
        level = make_level(random, size, boxes, walls, 6)
        for _ in range(4):
            found, least, now = solve(level), fewest_pushes(level), level
            assert (found is None) == (least is None)
            pushed = 0
            for move in found or "":
                after = now.after(move)
                assert after is not None
                pushed += after.boxes != now.boxes
                now = after
            assert now.is_solved() == (least is not None)
            assert pushed == (least or 0)
            bound = level.pushes_left()
            # The estimate never says more than is needed, and a box is lost only where nothing solves the level.
            assert bound is None or least is None or bound <= least
            assert bound is not None or least is None
            level = random.choice([after for move in MOVES if (after := level.after(move)) is not None])


def test_a_solver_that_may_not_look_far_finds_nothing() -> None:
    assert solve(LEVEL) == "RUU"
    assert solve(LEVEL, positions=1) is None


@pytest.mark.parametrize(("size", "tasks"), [("small", 30), ("medium", 5), ("large", 1)])
def test_the_expert_reaches_the_best_score(size: str, tasks: int) -> None:
    scenario, random = scenario_of(size), Random(0)
    assert scenario.expert is not None
    for index in range(tasks):
        environment = started(scenario, index)
        while environment.to_move():
            assert "waste" not in paid(environment, scenario.expert(environment, random)["team"])
        assert environment.success()


def test_the_expert_comes_back_from_a_detour() -> None:
    scenario, environment, random = scenario_of(), world(), Random(0)
    assert scenario.expert is not None
    for move in "UUR":
        environment.step({"team": move})
    while environment.to_move():
        environment.step(dict(scenario.expert(environment, random)))
    assert environment.success()


def test_a_team_that_does_all_right_from_its_own_views_solves_most() -> None:
    scenario, random, solved = scenario_of(), Random(0), 0
    for index in range(60):
        environment = started(scenario, index)
        while environment.to_move():
            environment.step({"team": team_move(environment.state, random)})
        solved += environment.success()
    assert solved >= 54


def idle(state: SokobanState) -> str:
    return ""


def bump(state: SokobanState) -> str:
    blocked = [move for move in MOVES if state.level.after(move) is None]
    return blocked[0] if blocked else to_and_fro(state)


def to_and_fro(state: SokobanState) -> str:
    free = [move for move, seen in zip(MOVES, state.effect(), strict=True) if seen == "."]
    return free[0] if free else ""


def lose(state: SokobanState) -> str:
    losing = [move for move, seen in zip(MOVES, state.effect(), strict=True) if seen == "x"]
    return losing[0] if losing else (solve(state.level) or "U")[0]


def stop_before_the_end(state: SokobanState) -> str:
    move = (solve(state.level) or "U")[0]
    after = state.level.after(move)
    return to_and_fro(state) if after is not None and after.is_solved() else move


@pytest.mark.parametrize("trick", [idle, bump, to_and_fro, lose, stop_before_the_end])
def test_no_trick_earns_what_solving_earns(trick: Callable[[SokobanState], str]) -> None:
    scenario, random = scenario_of(), Random(0)
    assert scenario.expert is not None
    for index in range(8):
        honest, tricky = started(scenario, index), started(scenario, index)
        far, earned, other = distance(honest.state.level), 0.0, 0.0
        while honest.to_move():
            earned += sum(paid(honest, scenario.expert(honest, random)["team"]).values())
        while tricky.to_move():
            other += sum(paid(tricky, trick(tricky.state)).values())
        # All progress (0.1 a step) and at least half a point for the end; who does not solve it has at most the first.
        assert earned >= 0.1 * far + 0.5
        assert tricky.success() or other <= 0.1 * far + 1e-9


def test_each_member_sees_its_own_part() -> None:
    environment = world()
    # Down, and to the left, there is an edge without a target; to the right leads away from it.
    assert environment.observe("planner").fields == {
        "boxes": "21",
        "targets": "01",
        "walls": "",
        "pushes": "21+xx-",
    }
    assert environment.observe("executor").fields == {"cell": "30", "around": ".##."}
    assert environment.observe("verifier").fields == {"effect": ".##."}
    environment.step({"team": "R"})
    assert environment.observe("executor").fields == {"cell": "31", "around": "$#o."}
    assert environment.observe("verifier").fields == {"effect": "p#.."}
    # A push lets the player forget where it was.
    environment.step({"team": "U"})
    assert environment.observe("executor").fields == {"cell": "21", "around": "$..."}


def test_the_solo_agent_sees_what_the_team_sees_together() -> None:
    environment = world()
    together: dict[str, str] = {}
    for view in ("planner", "executor", "verifier"):
        together |= environment.observe(view).fields
    assert environment.observe("solo").fields == together


def test_progress_is_paid_by_the_step_and_sums_to_the_distance() -> None:
    # Two pushes of 4 steps each (4 rows) and a walk of 1: 9. Then 8, 4 and 0.
    environment = world()
    assert distance(LEVEL) == 9
    assert paid(environment, "R") == {"progress": pytest.approx(0.1)}
    assert paid(environment, "U") == {"progress": pytest.approx(0.4)}
    # The end comes in turn 2 (from 0) of 12: 1 - 0.5 x 2 / 12.
    assert paid(environment, "U") == {"progress": pytest.approx(0.4), "solved": pytest.approx(1 - 0.5 * 2 / 12)}
    assert environment.success()


def test_a_lost_box_ends_the_episode_and_takes_all_progress_back() -> None:
    # One push up is made (0.4 and 0.1 of progress), then the box is pushed into the column at the left edge.
    environment = world()
    gained = sum(paid(environment, move)["progress"] for move in "RURU")
    assert environment.state.level.cell == (1, 2)
    assert environment.observe("verifier").fields["effect"] == "..x."
    last = paid(environment, "L")
    assert last["lost"] == -1
    assert gained + last["progress"] == pytest.approx(0)
    assert not environment.success()
    assert environment.to_move() == ()


def test_a_box_does_not_move_into_a_box_or_a_wall() -> None:
    #   .#_.   The box above the player stands under the wall, the one to its right beside another.
    #   .$..
    #   .@$$
    #   ..__
    grid = PathGrid(4, ((0, 1),))
    level = Level(grid, ((0, 2), (3, 2), (3, 3)), ((1, 1), (2, 2), (2, 3)), (2, 1))
    assert level.after("U") is None
    assert level.after("R") is None
    assert level.after("L") == msgspec.structs.replace(level, cell=(2, 0))


HOSTILE = ["D", "L", "u", "UU", "U ", "\x00", "U\n", "{}", '{"move": "U"}', "U" * 100_000, "31U", "²"]


@pytest.mark.parametrize("action", ["", *HOSTILE])
def test_what_is_no_move_changes_nothing_and_is_recorded(action: str) -> None:
    environment = world()
    step = environment.step({"team": action})
    assert step.illegal == (("team",) if action else ())
    assert step.rewards["team"] == {"waste": environment.waste}
    assert environment.state == msgspec.structs.replace(begin(LEVEL), turn=1)


def test_ten_thousand_random_steps_keep_the_rules() -> None:
    scenario, random, steps = scenario_of(), Random(0), 0
    while steps < 10_000:
        environment = started(scenario, steps % 50)
        while environment.to_move():
            before = environment.state
            hostile = {"team": random.choice(HOSTILE[2:])}
            step = environment.step(hostile if steps % 5 == 0 else choose(environment, random))
            now = environment.state
            assert now.turn == before.turn + 1
            assert (now.level == before.level) == ("waste" in step.rewards["team"])
            assert len(now.level.boxes) == len(set(now.level.boxes)) == 1
            assert now.level.cell not in now.level.boxes
            steps += 1


BLOCKED: Mapping[str, Payload] = {"executor": Action(text="D")}
PLANNED: Mapping[str, Payload] = {"planner": Plan(text="31U")}


@pytest.mark.parametrize(
    ("role", "output", "before", "expected"),
    [
        ("planner", Plan(text="31U"), {}, {"nearer": 0.0}),
        ("planner", Plan(text="20R"), {}, {"nearer": -0.2}),
        ("planner", NONSENSE, {}, {"nearer": -0.2}),
        ("executor", Action(text="U"), PLANNED, {"valid": 0.0}),
        ("executor", Action(text="L"), PLANNED, {"valid": 0.0}),
        ("executor", Action(text="D"), PLANNED, {"valid": -0.2}),
        ("executor", NONSENSE, PLANNED, {"valid": -0.2}),
        ("executor", Action(text="U"), {"planner": Plan(text="20R")}, {"valid": -0.2}),
        ("executor", Action(text="L"), {**PLANNED, "executor": Action(text="L")}, {"valid": -0.2}),
        ("verifier", YES, {"executor": Action(text="U")}, {"verdict": 0.0}),
        ("verifier", NO, {"executor": Action(text="U")}, {"verdict": -1.0}),
        ("verifier", NO, BLOCKED, {"verdict": 0.0}),
        ("verifier", YES, BLOCKED, {"verdict": -1.0}),
        ("verifier", NO, {"executor": NONSENSE}, {"verdict": 0.0}),
        ("verifier", NONSENSE, BLOCKED, {}),
        ("solo", Action(text="U"), {}, {}),
    ],
)
def test_each_role_is_judged_by_what_it_sees(
    role: str, output: Payload, before: Mapping[str, Payload], expected: Mapping[str, float]
) -> None:
    move = Move(agent=role, role=role, environment=world(BEHIND), output=output, before=before, after={})
    assert SokobanReward().own(move) == expected


@pytest.mark.parametrize(("verdict", "term"), [(YES, -1.0), (NO, 0.0)])
def test_a_verifier_must_reject_a_push_that_loses_a_box(verdict: Verdict, term: float) -> None:
    above = msgspec.structs.replace(LEVEL, cell=(1, 1))
    move = Move(agent="verifier", role="verifier", environment=world(above), output=verdict, before=BLOCKED, after={})
    assert SokobanReward().own(move) == {"verdict": term}


@pytest.mark.parametrize(
    "options",
    [{"size": 3}, {"size": 11}, {"walls": 5}, {"boxes": 3}, {"boxes": 0}, {"pulls": 0}, {"boxes": 2, "pulls": 1}],
)
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="scenario 'sokoban'"):
        build_scenario(ScenarioOptions(name="sokoban", options=options))

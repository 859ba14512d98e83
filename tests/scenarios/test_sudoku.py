"""`sudoku`: puzzles with one solution, what is paid, who sees what, and that nothing pays like solving it."""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from random import Random

import msgspec
import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Reward, Task
from mas.core.errors import ConfigError
from mas.core.messages import Action, Failure, Payload, Plan, Verdict
from mas.core.scenario import Split
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.sudoku import WIPE, SudokuEnvironment, SudokuOptions, SudokuReward, SudokuState, proposal
from mas.scenarios.sudoku.puzzle import BLANK, fill_forced, is_unique, make_puzzle, solutions
from mas.scenarios.world import FolderScenario
from mas.testing.environment import EnvironmentContract, choose
from mas.testing.reward import RewardContract

# Blanks a to f in reading order; the solution is 1234 3412 2143 4321, so they hold 1 2 3 4 2 4.
#   ab34
#   cd12
#   e143
#   f321
STATE = SudokuState("..34..12.143.321", "1234341221434321", "......")
NONSENSE = Failure(text="??", cause="nonsense")
YES, NO = Verdict(text="y", accept=True), Verdict(text="n", accept=False)


def scenario_of(size: str = "small") -> FolderScenario:
    options = dict(SCENARIOS["sudoku"].sizes[size])
    built = build_scenario(ScenarioOptions(name="sudoku", options=options))
    assert isinstance(built, FolderScenario)
    return built


def begin(scenario: FolderScenario, index: int) -> SudokuEnvironment:
    environment = scenario.environment()
    assert isinstance(environment, SudokuEnvironment)
    environment.reset(scenario.task("eval", index))
    return environment


def world(written: str = "......", max_turns: int = 12) -> SudokuEnvironment:
    environment = SudokuEnvironment(SudokuOptions(blanks=6, max_turns=max_turns))
    environment._state = msgspec.structs.replace(STATE, written=written)
    return environment


def paid(environment: SudokuEnvironment, action: str) -> Mapping[str, float]:
    return environment.step({"team": action}).rewards["team"]


class TestSudoku(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = {
        "planner": frozenset({"counts", "written"}),
        "executor": frozenset({"rows"}),
        "verifier": frozenset({"around"}),
    }
    size = "small"

    @pytest.fixture(autouse=True)
    def _scenario(self) -> None:
        self.scenario = scenario_of(self.size)

    def make_environment(self) -> Environment:
        return self.scenario.environment()

    def task(self, number: int) -> Task:
        return self.scenario.task("train", number)


class TestReward(RewardContract):
    def make_reward(self) -> Reward:
        return SudokuReward()

    def moves(self) -> Iterable[Move]:
        outputs: dict[str, list[Payload]] = {
            "planner": [Plan(text="b"), Plan(text="zz"), NONSENSE],
            "executor": [Action(text="b2"), Action(text="b0"), NONSENSE],
            "verifier": [YES, NO, NONSENSE],
            "solo": [Action(text="b2"), NONSENSE],
        }
        for role, said in outputs.items():
            for output in said:
                for before in ({}, {"planner": Plan(text="b"), "executor": Action(text="b1")}, {"executor": NONSENSE}):
                    yield Move(agent=role, role=role, environment=world(), output=output, before=before, after={})


@pytest.mark.parametrize(("size", "blanks", "forced"), [(4, 4, True), (4, 10, False), (9, 45, True), (9, 50, False)])
def test_a_puzzle_has_its_blanks_and_one_solution(size: int, blanks: int, forced: bool) -> None:
    for seed in range(2):
        puzzle, solution = make_puzzle(Random(seed), size, blanks, forced=forced)
        assert puzzle.count(BLANK) == blanks
        assert list(solutions(puzzle)) == [solution]
        if forced:
            assert fill_forced(puzzle) == solution
        side = range(size)
        rows = [solution[row * size : (row + 1) * size] for row in side]
        for line in (*rows, *("".join(row[column] for row in rows) for column in side)):
            assert sorted(line) == list("123456789"[:size])


def test_no_held_out_puzzle_looks_to_the_team_like_one_for_training() -> None:
    seen = {split: {_seen(split, index) for index in range(150)} for split in ("train", "eval")}
    assert not seen["train"] & seen["eval"]


def _seen(split: Split, index: int) -> str:
    scenario = build_scenario(ScenarioOptions(name="sudoku"))
    environment = scenario.environment()
    environment.reset(scenario.task(split, index))
    return str(environment.observe("solo").fields)


def test_the_solver_counts_all_grids_of_four_rows() -> None:
    # 288 is the known number of 4 x 4 Sudoku grids.
    found = list(solutions(BLANK * 16))
    assert len(found) == len(set(found)) == 288


def test_the_solver_guesses_where_nothing_is_forced() -> None:
    # A puzzle from the literature, with its solution: it was set so that singles do not suffice.
    puzzle = "4.....8.5.3..........7......2.....6.....8.4......1.......6.3.7.5..2.....1.4......"
    solution = "417369825632158947958724316825437169791586432346912758289643571573291684164875293"
    assert fill_forced(puzzle) != solution
    assert list(islice(solutions(puzzle), 2)) == [solution]


def test_a_puzzle_with_two_solutions_or_none_is_not_unique() -> None:
    # The four blanks hold 1 2 above 2 1, or the other way round.
    assert sorted(solutions("..343412..434321")) == ["1234341221434321", "2134341212434321"]
    assert not is_unique("..343412..434321")
    # The last cell of the first row can be nothing: 1 2 3 stand beside it, 4 below.
    assert list(solutions("123....4........")) == []
    assert not is_unique("123....4........")
    assert is_unique("1234341221434321")


@pytest.mark.parametrize(("size", "tasks"), [("small", 60), ("medium", 3), ("large", 2)])
def test_the_expert_reaches_the_best_score_without_a_wasted_turn(size: str, tasks: int) -> None:
    scenario, random = scenario_of(size), Random(0)
    assert scenario.expert is not None
    for index in range(tasks):
        environment, total = begin(scenario, index), 0.0
        while environment.to_move():
            total += paid(environment, scenario.expert(environment, random)["team"])["progress"]
        assert environment.success()
        assert environment.state.turn == environment.rules.blanks
        assert total == pytest.approx(1)


def test_the_expert_recovers_from_wrong_digits() -> None:
    scenario = scenario_of()
    assert scenario.expert is not None
    environment, random = world("2.4..."), Random(0)
    while environment.to_move():
        environment.step(dict(scenario.expert(environment, random)))
    # Two wipes and six digits.
    assert (environment.success(), environment.state.turn) == (True, 8)


def team_move(state: SudokuState, random: Random) -> str:
    """What the perfect team does in one turn; empty if every proposal is sent back."""
    plan, tried = random.choice(state.sensible_blanks()), ""
    for _ in range(4):
        move = proposal(state, plan, tried, random)
        if move[1] == WIPE or move[1] in state.around_digits()[plan]:
            return move
        tried += move[1]
    return ""


def test_a_team_that_does_all_right_from_its_own_views_solves_every_small_puzzle() -> None:
    scenario, random = scenario_of(), Random(0)
    for index in range(60):
        environment = begin(scenario, index)
        while environment.to_move():
            environment.step({"team": team_move(environment.state, random)})
        assert environment.success()
        assert environment.state.turn == environment.rules.blanks


def idle(state: SudokuState) -> str:
    return ""


def illegal(state: SudokuState) -> str:
    return "a9"


def write_and_wipe(state: SudokuState) -> str:
    return "a" + ("0" if state.written[0] != BLANK else state.answers[0])


def wipe_when_nearly_done(state: SudokuState) -> str:
    """Collect progress, give some back, collect it again."""
    name = next((n for n, now in zip("abcdef", state.written, strict=False) if now == BLANK), "a")
    nearly = state.written.count(BLANK) == 1
    return "a0" if nearly and state.written[0] != BLANK else name + state.answers["abcdef".index(name)]


@pytest.mark.parametrize("trick", [idle, illegal, write_and_wipe, wipe_when_nearly_done])
def test_no_trick_earns_what_solving_earns(trick: Callable[[SudokuState], str]) -> None:
    scenario, random = scenario_of(), Random(0)
    assert scenario.expert is not None
    for index in range(20):
        honest, tricky, earned = begin(scenario, index), begin(scenario, index), 0.0
        while honest.to_move():
            earned += sum(paid(honest, scenario.expert(honest, random)["team"]).values())
        other = 0.0
        while tricky.to_move():
            other += sum(paid(tricky, trick(tricky.state)).values())
        # The solution pays 1 of progress and at least half a point for the end; no other sum of progress is above 1.
        assert earned >= 1.5
        assert other <= 1.0


def test_each_member_sees_its_own_constraint() -> None:
    environment = world()
    assert environment.observe("planner").fields == {
        "counts": "a2 b1 c2 d1 e1 f1",
        "written": "a. b. c. d. e. f.",
    }
    assert environment.observe("executor").fields == {"rows": "a12.. b12.. c..34 d..34 e.2.. f...4"}
    assert environment.observe("verifier").fields == {"around": "a1234 b.2.4 c1234 d.2.4 e.2.4 f.2.4"}
    # With a wrong 2 in a, nothing is left for b and e: the planner is told, and names what may be wiped.
    environment.step({"team": "a2"})
    assert environment.observe("planner").fields["counts"] == "a- b0 c2 d1 e0 f1"
    assert environment.state.sensible_blanks() == "a"


def test_the_solo_agent_sees_what_the_team_sees_together() -> None:
    environment = world()
    together: dict[str, str] = {}
    for view in ("planner", "executor", "verifier"):
        together |= environment.observe(view).fields
    assert environment.observe("solo").fields == together


def test_a_wrong_digit_is_written_wiped_or_written_over_and_progress_follows() -> None:
    environment = world()
    # Sixths, as there are six blanks: a right digit is one, a wrong one minus one.
    assert paid(environment, "a2") == {"progress": pytest.approx(-1 / 6)}
    assert paid(environment, "a0") == {"progress": pytest.approx(1 / 6)}
    assert paid(environment, "a2") == {"progress": pytest.approx(-1 / 6)}
    assert paid(environment, "a1") == {"progress": pytest.approx(2 / 6)}
    for action in ("b2", "c3", "d4", "e2"):
        assert paid(environment, action) == {"progress": pytest.approx(1 / 6)}
    # The last digit comes in turn 8 (from 0) of 12: 1 - 0.5 x 8 / 12.
    assert paid(environment, "f4") == {"progress": pytest.approx(1 / 6), "solved": pytest.approx(1 - 0.5 * 8 / 12)}
    assert environment.success()


HOSTILE = [
    "a3",
    "a9",
    "a0",
    "g1",
    "A1",
    "1a",
    "a",
    "1",
    "a11",
    "a1 ",
    "\x00a1",
    "a\n",
    "{}",
    '{"a":1}',
    "a" * 100_000,
    "²1",
]


@pytest.mark.parametrize("action", ["", *HOSTILE])
def test_what_is_no_action_changes_nothing_and_is_recorded(action: str) -> None:
    environment = world()
    step = environment.step({"team": action})
    assert step.illegal == (("team",) if action else ())
    assert step.rewards["team"] == {"waste": environment.waste}
    assert environment.state == msgspec.structs.replace(STATE, turn=1)


def test_ten_thousand_random_steps_keep_the_rules() -> None:
    scenario, random, steps = scenario_of(), Random(0), 0
    while steps < 10_000:
        environment = begin(scenario, steps % 50)
        while environment.to_move():
            before = environment.state
            step = environment.step({"team": random.choice(HOSTILE)} if steps % 5 == 0 else choose(environment, random))
            now = environment.state
            assert now.turn == before.turn + 1
            assert bool(step.illegal) <= (now.written == before.written)
            steps += 1
        assert environment.success() == (environment.state.cells == environment.state.solution)


@pytest.mark.parametrize(
    ("role", "output", "before", "expected"),
    [
        ("planner", Plan(text="b"), {}, {"narrow": 0.0}),
        ("planner", Plan(text="a"), {}, {"narrow": -0.2}),
        ("planner", Plan(text="bd"), {}, {"narrow": -0.2}),
        ("planner", NONSENSE, {}, {"narrow": -0.2}),
        ("executor", Action(text="b1"), {"planner": Plan(text="b")}, {"valid": 0.0}),
        ("executor", Action(text="b3"), {"planner": Plan(text="b")}, {"valid": -0.2}),
        ("executor", Action(text="b0"), {"planner": Plan(text="b")}, {"valid": -0.2}),
        ("executor", Action(text="d4"), {"planner": Plan(text="b")}, {"valid": -0.2}),
        ("executor", Action(text="b1"), {"planner": Plan(text="b"), "executor": Action(text="b1")}, {"valid": -0.2}),
        ("executor", Action(text="b2"), {"planner": Plan(text="b"), "executor": Action(text="b1")}, {"valid": 0.0}),
        ("verifier", YES, {"executor": Action(text="b2")}, {"verdict": 0.0}),
        ("verifier", NO, {"executor": Action(text="b2")}, {"verdict": -1.0}),
        ("verifier", YES, {"executor": Action(text="b1")}, {"verdict": -1.0}),
        ("verifier", NO, {"executor": Action(text="b1")}, {"verdict": 0.0}),
        ("verifier", NO, {"executor": NONSENSE}, {"verdict": 0.0}),
        ("verifier", NONSENSE, {"executor": Action(text="b2")}, {}),
        ("solo", Action(text="b2"), {}, {}),
    ],
)
def test_each_role_is_judged_by_what_it_sees(
    role: str, output: Payload, before: Mapping[str, Payload], expected: Mapping[str, float]
) -> None:
    move = Move(agent=role, role=role, environment=world(), output=output, before=before, after={})
    assert SudokuReward().own(move) == expected


def test_wiping_is_valid_and_accepted_where_something_is_written() -> None:
    environment = world("2.....")
    before: Mapping[str, Payload] = {"planner": Plan(text="a"), "executor": Action(text="a0")}
    wiped = Move(
        agent="executor",
        role="executor",
        environment=environment,
        output=Action(text="a0"),
        before={"planner": Plan(text="a")},
        after={},
    )
    judged = Move(agent="verifier", role="verifier", environment=environment, output=YES, before=before, after={})
    assert SudokuReward().own(wiped) == {"valid": 0.0}
    assert SudokuReward().own(judged) == {"verdict": 0.0}


@pytest.mark.parametrize("options", [{"size": 6}, {"blanks": 0}, {"blanks": 11}, {"max_turns": 3}, {"skill": 1.0}])
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="scenario 'sudoku'"):
        build_scenario(ScenarioOptions(name="sudoku", options=options))

"""`subagents`: a planner that calls workers over several turns, and workers with contexts of their own."""

from collections.abc import Iterable, Mapping
from functools import cache

import pytest
from parts import runtime_of, sample, turns_of

from mas.algorithms.parts.advantages.pipeline import turn_advantages
from mas.algorithms.parts.rewards.terms import total_reward
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Reward, Task
from mas.core.messages import Action, Failure, Plan
from mas.core.records import Episode
from mas.core.role import RoleSpec
from mas.scenarios import build_scenario
from mas.scenarios.delegate import DelegateCase, page, value
from mas.scenarios.subagents import CallEnvironment, CallingPlanner, CallReward, ChoosingPlanner, Coordinator
from mas.scenarios.world import FolderScenario
from mas.testing.environment import EnvironmentContract
from mas.testing.reward import RewardContract
from mas.testing.scripted import ScriptedEngine
from mas.training.rollout import SAMPLERS
from mas.training.stages import rewards_of

PARALLEL = SamplerOptions.model_validate({"mode": "parallel", "candidates": 4})
TASKS = range(6)
CALLED, SHOWN = frozenset({"question", "reports"}), frozenset({"archive"})


@cache
def scenario() -> FolderScenario:
    built = build_scenario(ScenarioOptions(name="subagents"))
    assert isinstance(built, FolderScenario)
    return built


def case_of(index: int) -> DelegateCase:
    environment = scenario().environment()
    assert isinstance(environment, CallEnvironment)
    environment.reset(scenario().task("train", index))
    return environment.state.case


class TestSubagents(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = {
        "planner": CALLED,
        "searcher": frozenset(),
        "reader": SHOWN,
        "coordinator": frozenset(),
        "left_clerk": SHOWN,
        "right_clerk": SHOWN,
        "refiner": frozenset(),
    }

    def make_environment(self) -> Environment:
        return scenario().environment()

    def task(self, number: int) -> Task:
        return scenario().task("train", number)


class TestCallReward(RewardContract):
    def make_reward(self) -> Reward:
        return CallReward()

    def moves(self) -> Iterable[Move]:
        environment = scenario().environment()
        environment.reset(scenario().task("train", 0))
        for output in (Plan(text="bp"), Action(text="3"), Failure(text="?", cause="nonsense")):
            for role in ("planner", "local"):
                plan = {"planner": Plan(text="lbp")}
                yield Move(agent=role, role=role, environment=environment, output=output, before=plan, after={})


def script(prompt: str, adapter: str | None, seed: int) -> str:
    """A team that works, but for readers with an odd seed, who report 0."""
    kind, text = prompt[0], prompt[1:].rstrip(">")
    first, _, rest = text.partition(";")
    if kind in "PH":
        question, reports = first, rest
        parts = (question[:2], question[3:])
        made = len(reports) // 3
        if made < 2:
            where = ("l" if parts[made][1] == "p" else "w") if kind == "H" else ""
            return where + parts[made]
        if "-" in reports:
            return "=0"
        a, b = int(reports[2]), int(reports[5])
        return f"={(a + b if question[2] == '+' else a - b) % 10}"
    if kind == "W":
        return first
    if kind == "K":
        return ("l" if first[1] == "p" else "r") + first
    key = first[-2:]
    if kind == "F":
        return rest[2] if rest[:2] == key else "-"
    entry = rest[rest.index(key) :][:3]
    if kind == "L":
        return entry
    return "0" if kind == "R" and seed % 2 else entry[2]


async def played(team: str, index: int) -> list[Episode]:
    spec = scenario().teams[team]
    engine = ScriptedEngine(script, adapters=tuple(spec.roles))
    async with runtime_of(spec, engine) as runtime:
        return await sample(runtime, scenario(), [index], PARALLEL)


# MATPO


async def test_a_planner_calls_reads_the_report_calls_again_and_answers() -> None:
    for index in TASKS:
        case = case_of(index)
        for episode in await played("team", index):
            lines = [(line.turn, line.agent, line.prompt, line.text) for line in episode.lines]
            plans = [(turn, prompt, text) for turn, agent, prompt, text in lines if agent == "planner"]
            reports = [text for _, agent, _, text in lines if agent == "worker.reader"]
            assert [turn for turn, _, _ in plans] == [0, 1, 2]
            assert [text for _, _, text in plans[:2]] == list(case.parts)
            assert len(reports) == 2
            one, two = (part + report for part, report in zip(case.parts, reports, strict=True))
            shown = [prompt.partition(";")[2].rstrip(">") for _, prompt, _ in plans]
            assert shown == ["", one, one + two]
            right = reports == [value(case.documents[at]) for at in case.needed]
            assert episode.success or not right


async def test_a_workers_context_holds_its_call_and_its_page_and_nothing_else() -> None:
    for index in TASKS:
        case = case_of(index)
        for episode in await played("team", index):
            workers = [line for line in episode.lines if line.agent.startswith("worker.")]
            assert [line.agent for line in workers] == ["worker.searcher", "worker.reader"] * 2
            for number, part in enumerate(case.parts):
                search, read = workers[2 * number : 2 * number + 2]
                assert search.prompt == f"W{part}>"
                assert read.prompt == f"R{part};{page(case.archive, part, 'letters')}>"
            pages = [page(case.archive, part, "letters") for part in case.parts]
            for line in episode.lines:
                if line.agent == "planner":
                    assert not [shown for shown in pages if shown in line.prompt]


async def test_the_final_reward_is_the_planners_and_all_its_workers_and_holds_no_dense_terms() -> None:
    options = load_config(["scenario=subagents", "algorithm=matpo"]).algorithm
    differed = 0
    for index in TASKS:
        episodes = await played("team", index)
        turns = turns_of(episodes)
        terms = {name for turn in turns for name in turn.rewards}
        assert terms == {"team.right", "own.format"}
        advantages = turn_advantages(turns, options.reward, options.advantage)
        by_episode: dict[str, set[float]] = {}
        for turn, advantage in zip(turns, advantages, strict=True):
            by_episode.setdefault(turn.episode, set()).add(advantage)
        assert all(len(values) == 1 for values in by_episode.values())
        successes = {episode.id: episode.success for episode in episodes}
        if len(set(successes.values())) == 2:
            differed += 1
            assert all((by_episode[one].pop() > 0) == won for one, won in successes.items())
    assert differed


async def test_workers_of_matpo_have_the_planners_advantage_and_none_of_their_own() -> None:
    def mumbles(prompt: str, adapter: str | None, seed: int) -> str:
        """Of three reports one is 0 and one cannot be read, which the planner takes for a 0."""
        is_bad = prompt[0] == "R" and seed % 3 < 2
        return "0x"[seed % 3] if is_bad else script(prompt.replace("?", "0"), adapter, 0)

    options = load_config(["scenario=subagents", "algorithm=matpo"]).algorithm
    spec, alone = scenario().teams["team"], options.advantage.model_copy(update={"inherit": None})
    compared = 0
    for index in TASKS:
        async with runtime_of(spec, ScriptedEngine(mumbles, adapters=tuple(spec.roles))) as runtime:
            turns = turns_of(await sample(runtime, scenario(), [index], PARALLEL))
        advantages = turn_advantages(turns, options.reward, options.advantage)
        planners = {
            turn.episode: value for turn, value in zip(turns, advantages, strict=True) if turn.agent == "planner"
        }
        readers = [number for number, turn in enumerate(turns) if turn.agent == "worker.reader"]
        wanted = [planners[turns[number].episode] for number in readers]
        assert [advantages[number] for number in readers] == wanted
        own = turn_advantages(turns, options.reward, alone)
        compared += [own[number] for number in readers] != pytest.approx(wanted)
    assert compared, "by what readers are paid themselves, they would have had other advantages"


def test_matpo_by_name_pays_the_papers_reward() -> None:
    reward = load_config(["scenario=subagents", "algorithm=matpo"]).algorithm.reward
    assert (reward.weights, reward.failure) == ({"right": 0.9, "format": 0.1}, 0.0)


# OWL and HierSearch


def test_a_search_agent_is_paid_for_the_entry_that_it_was_asked_for() -> None:
    environment = scenario().environment()
    environment.reset(scenario().task("train", 0))
    right, other = (case_of(0).documents[at] for at in (2, 4))

    def paid(text: str) -> float:
        before = {"planner": Plan(text=f"l{right[:2]}")}
        output = Action(text=text)
        move = Move(agent="local", role="local", environment=environment, output=output, before=before, after={})
        return CallReward().own(move)["found"]

    wrong_digit = right[:2] + str(9 - int(right[2]))
    assert [paid(text) for text in (right, other, wrong_digit)] == [1.0, 0.0, 0.0]


def test_the_search_agents_learn_by_what_they_find_before_the_planner_learns_by_the_answer() -> None:
    algorithm = load_config(["scenario=subagents", "algorithm=hiersearch"]).algorithm
    assert [one.roles for one in algorithm.stages] == [("local", "web"), ("planner",)]
    paid = [rewards_of(algorithm, step).weights for step in (0, 8)]
    assert (paid[0]["right"], paid[1]["found"]) == (0.0, 0.0)
    assert "found" not in paid[0]
    assert "right" not in paid[1]


@pytest.mark.parametrize("name", ["owl", "hiersearch"])
async def test_a_planner_whose_output_cannot_be_read_is_charged_for_it_once(name: str) -> None:
    algorithm = load_config(["scenario=subagents", f"algorithm={name}"]).algorithm
    spec = scenario().teams[algorithm.team]
    engine = ScriptedEngine(lambda *_: "=", adapters=tuple(spec.roles))
    async with runtime_of(spec, engine) as runtime:
        sampler = SAMPLERS["parallel"](runtime, scenario().reward, PARALLEL, algorithm.reward)
        episodes = await sampler.sample(scenario().task("train", 0), scenario().environment(), 0)
    turns = [turn for turn in turns_of(episodes) if turn.role == "planner"]
    assert all(turn.failure is not None for turn in turns)
    assert [total_reward(turn.paid, rewards_of(algorithm, 8)) for turn in turns] == [-1.0] * len(turns)


async def test_a_coordinator_assigns_each_call_to_the_clerk_who_has_the_entry() -> None:
    clerks = set()
    for index in TASKS:
        case = case_of(index)
        for episode in await played("workforce", index):
            assert episode.success
            speakers = [line.agent for line in episode.lines]
            assigned = [name for name in speakers if name.endswith("_clerk")]
            assert assigned == ["left_clerk" if part[1] == "p" else "right_clerk" for part in case.parts]
            assert speakers[:2] == ["planner", "coordinator"]
            clerks |= set(assigned)
            for line in episode.lines:
                if line.agent.endswith("_clerk"):
                    other = "q" if line.agent == "left_clerk" else "p"
                    assert other not in line.prompt
    assert clerks == {"left_clerk", "right_clerk"}


async def test_what_a_search_agent_found_reaches_the_planner_through_the_refiner_alone() -> None:
    def mistaken(prompt: str, adapter: str | None, seed: int) -> str:
        """Every search takes the first entry of its page."""
        return prompt.partition(";")[2][:3] if prompt[0] == "L" else script(prompt, adapter, seed)

    spec = scenario().teams["hierarchy"]
    refused = 0
    for index in TASKS:
        case = case_of(index)
        engine = ScriptedEngine(mistaken, adapters=tuple(spec.roles))
        async with runtime_of(spec, engine) as runtime:
            (episode, *_) = await sample(runtime, scenario(), [index], PARALLEL)
        found = [line.text for line in episode.lines if line.agent in ("local", "web")][:2]
        shown = next(line.prompt for line in episode.lines if (line.turn, line.agent) == (2, "planner"))
        told = [one[2] if one[:2] == part else "-" for one, part in zip(found, case.parts, strict=True)]
        assert shown.partition(";")[2] == "".join(part + one for part, one in zip(case.parts, told, strict=True)) + ">"
        refused += told.count("-")
    assert refused


@pytest.mark.parametrize("text", ["b", "bpq", "=", "=12", "7"])
def test_what_is_neither_a_call_nor_an_answer_is_a_failure(text: str) -> None:
    assert isinstance(CallingPlanner("planner", RoleSpec()).parse(text), Failure)


def test_planners_and_coordinators_choose_who_speaks_next() -> None:
    calling, choosing = CallingPlanner("planner", RoleSpec()), ChoosingPlanner("planner", RoleSpec())
    assert [calling.parse(text).route for text in ("bp", "=7")] == ["call", "answer"]
    assert [choosing.parse(text).route for text in ("lbp", "wbp", "=7")] == ["local", "web", "answer"]
    coordinator = Coordinator("coordinator", RoleSpec())
    assert [coordinator.parse(text).route for text in ("lbp", "rbq")] == ["left", "right"]

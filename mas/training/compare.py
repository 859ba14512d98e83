"""A trained team next to the same team untrained, on the same held-out tasks."""

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from mas.config.options import Config
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.scenario import Scenario
from mas.graph.find import find_team
from mas.observe.progress import Counted, uncounted
from mas.runtime.interrupt import drains_on_interrupt
from mas.runtime.team import TeamRuntime
from mas.serving.model import BaseModel
from mas.serving.weights import AdapterWeights
from mas.training.baselines import Matched, beside_team
from mas.training.crew import new_adapters, open_crew, start_engine, trainable_adapters
from mas.training.evaluate import Evaluation, check_played, evaluate
from mas.training.libraries import open_taught
from mas.training.saved import started
from mas.training.served import open_served


def untrained(config: Config, scenario: Scenario, base: BaseModel) -> dict[str, AdapterWeights]:
    """The adapters that training starts from: they change nothing yet, or are those of `train.start`.

    Raises:
        ConfigError, RunDirectoryError, CheckpointError: see `started`.
    """
    team = find_team(scenario, config.algorithm.team)
    fresh = new_adapters(base, set(trainable_adapters(team, config.algorithm.policy).values()), config.train.seed)
    return fresh if config.train.start is None else started(fresh, config.train.start, base)


async def compare(
    config: Config,
    scenario: Scenario,
    base: BaseModel,
    adapters: Mapping[str, AdapterWeights],
    *,
    tasks: int,
    is_sampled: bool = False,
    swap: Sequence[str] = (),
    taken: Mapping[str, Mapping[str, AdapterWeights]] = MappingProxyType({}),
    counted: Counted = uncounted,
    matched: Matched | None = None,
) -> dict[str, Evaluation]:
    """Evaluations by name: `untrained`, `trained` and, with two roles to swap, `A and B swapped`.

    Args:
        matched: adds the leader alone and best of N, with no fewer calls (or tokens) than the trained team; see
            `mas.training.baselines`.
        taken: role -> the adapters of another run, in which it played with others; adds `ROLE untrained` and `ROLE of
            the other run`, each with the other roles as they are trained here.
        counted: told (evaluation, tasks played, tasks) after every task, here and below.

    Raises:
        ConfigError: a swap that is not possible; see `swapped`. A role to be taken that is not trained, or has no
            adapter there. RunError: no task could be played. Halted: Ctrl-C.
    """
    team = find_team(scenario, config.algorithm.team)
    speakers = trainable_adapters(team, config.algorithm.policy)
    arms: dict[str, tuple[Mapping[str, AdapterWeights], Mapping[str, str]]] = {
        "untrained": (untrained(config, scenario, base), speakers),
        "trained": (adapters, speakers),
    }
    for role, others in taken.items():
        _check_taken(role, others, speakers, adapters)
        name = speakers[role]
        arms[f"{role} untrained"] = ({**adapters, name: arms["untrained"][0][name]}, speakers)
        arms[f"{role} of the other run"] = ({**adapters, name: others[name]}, speakers)
    if swap:
        arms[f"{' and '.join(swap)} swapped"] = (adapters, swapped(speakers, swap))
    results = {}
    engine = await start_engine(config.engine, base)
    try:
        for name, (weights, speaking) in arms.items():
            async with open_crew(config, scenario, base, weights, speaking, engine=engine) as crew:
                results[name] = await _evaluated(name, crew.runtime, config, scenario, tasks, is_sampled, counted)
        if matched is not None:
            temperature = None if is_sampled else 0.0
            results |= await beside_team(
                config,
                scenario,
                base,
                adapters,
                results["trained"],
                engine=engine,
                matched=matched,
                temperature=temperature,
                told=lambda name: counted(name, 0, tasks),
            )
    finally:
        await engine.close()
    return results


async def evaluate_served(
    config: Config, scenario: Scenario, *, tasks: int, is_sampled: bool = False, counted: Counted = uncounted
) -> dict[str, Evaluation]:
    """The evaluation of what the server of `engine=openai` serves, by the name `served`.

    Raises:
        ConfigError, EngineError: see `open_served`. RunError: no task could be played. Halted: Ctrl-C.
    """
    name = "served"
    async with open_served(config, scenario) as players:
        return {name: await _evaluated(name, players.runtime, config, scenario, tasks, is_sampled, counted)}


async def compare_taught(
    config: Config,
    scenario: Scenario,
    base: BaseModel | None,
    experiences: Mapping[str, Sequence[str]],
    *,
    tasks: int,
    is_sampled: bool = False,
    counted: Counted = uncounted,
) -> dict[str, Evaluation]:
    """Evaluations of the team without and with what its roles have learned as text, `untrained` and `trained`.

    Args:
        base: None with `engine=openai`, whose server has it.

    Raises:
        RunError: no task could be played. Halted: Ctrl-C. Otherwise as `open_taught`.
    """
    results = {}
    for name, known in (("untrained", {}), ("trained", experiences)):
        async with open_taught(config, scenario, base, known) as players:
            results[name] = await _evaluated(name, players.runtime, config, scenario, tasks, is_sampled, counted)
    return results


async def _evaluated(
    name: str, runtime: TeamRuntime, config: Config, scenario: Scenario, tasks: int, is_sampled: bool, counted: Counted
) -> Evaluation:
    """One evaluation, which Ctrl-C ends."""
    temperature, seed, progress = None if is_sampled else 0.0, config.train.seed, partial(counted, name)
    with drains_on_interrupt(runtime):
        found = await evaluate(runtime, scenario, tasks, temperature=temperature, seed=seed, progress=progress)
    check_played(found)
    return found


def _check_taken(
    role: str,
    others: Mapping[str, AdapterWeights],
    speakers: Mapping[str, str],
    adapters: Mapping[str, AdapterWeights],
) -> None:
    if role not in speakers:
        raise ConfigError(f"no trained role {role!r} to take from another run. {did_you_mean(role, speakers)}")
    name = speakers[role]
    if name not in others:
        raise ConfigError(f"the other run has no adapter {name!r} for role {role!r}. {did_you_mean(name, others)}")
    if others[name].options != adapters[name].options:
        raise ConfigError(
            f"adapter {name!r} of the other run is {others[name].options}, that of this run {adapters[name].options}: "
            "take it from a run with the same model.lora"
        )


def swapped(speakers: Mapping[str, str], pair: Sequence[str]) -> dict[str, str]:
    """Role -> adapter with the adapters of two roles exchanged.

    Raises:
        ConfigError: not two roles, an unknown role, or two roles that speak through one adapter.
    """
    if len(pair) != 2:
        raise ConfigError(f"{','.join(pair)!r} are not two roles; write two, such as planner,executor")
    for role in pair:
        if role not in speakers:
            raise ConfigError(f"no trained role {role!r} to swap. {did_you_mean(role, speakers)}")
    first, second = pair
    if speakers[first] == speakers[second]:
        raise ConfigError(f"{first!r} and {second!r} speak through one adapter, {speakers[first]!r}: nothing to swap")
    return {**speakers, first: speakers[second], second: speakers[first]}

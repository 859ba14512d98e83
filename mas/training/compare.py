"""A trained team next to the same team untrained, on the same held-out tasks."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.tracing import Counted, uncounted
from mas.runtime.team import drains_on_interrupt
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.training.baselines import Matched, beside_team
from mas.training.engines import start_engine
from mas.training.evaluate import Evaluation, check_played, evaluate
from mas.training.saved import initial_adapters
from mas.training.session import TeamSession, open_team
from mas.training.setup import Setup


async def compare(
    setup: Setup,
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
    adapter_of = setup.trained_adapters
    arms: dict[str, tuple[Mapping[str, AdapterWeights], Mapping[str, str]]] = {
        "untrained": (initial_adapters(setup, base), adapter_of),
        "trained": (adapters, adapter_of),
    }
    for role, others in taken.items():
        _check_taken(role, others, adapter_of, adapters)
        name = adapter_of[role]
        arms[f"{role} untrained"] = ({**adapters, name: arms["untrained"][0][name]}, adapter_of)
        arms[f"{role} of the other run"] = ({**adapters, name: others[name]}, adapter_of)
    if swap:
        arms[f"{' and '.join(swap)} swapped"] = (adapters, swapped(adapter_of, swap))
    results = {}
    engine = await start_engine(setup.engine, base)
    try:
        for name, (weights, uses) in arms.items():
            async with open_team(setup, base, weights, uses, engine=engine) as session:
                results[name] = await _evaluated(name, session, tasks, is_sampled, counted)
        if matched is not None:
            temperature = None if is_sampled else 0.0
            results |= await beside_team(
                setup,
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
    setup: Setup,
    saved: Mapping[str, str] = MappingProxyType({}),
    *,
    tasks: int,
    is_sampled: bool = False,
    counted: Counted = uncounted,
) -> dict[str, Evaluation]:
    """The evaluation of what the server of `engine=openai` or `engine=tinker` serves, by the name `served`.

    Args:
        saved: as in `open_team`.

    Raises:
        ConfigError, EngineError: see `open_team`. RunError: no task could be played. Halted: Ctrl-C.
    """
    name = "served"
    async with open_team(setup, None, saved=saved) as session:
        return {name: await _evaluated(name, session, tasks, is_sampled, counted)}


async def compare_taught(
    setup: Setup,
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
        RunError: no task could be played. Halted: Ctrl-C. Otherwise as `open_team`.
    """
    results = {}
    for name, known in (("untrained", {}), ("trained", experiences)):
        async with open_team(setup.with_experiences(known), base) as session:
            results[name] = await _evaluated(name, session, tasks, is_sampled, counted)
    return results


async def _evaluated(name: str, session: TeamSession, tasks: int, is_sampled: bool, counted: Counted) -> Evaluation:
    temperature, seed, progress = None if is_sampled else 0.0, session.setup.train.seed, partial(counted, name)
    runtime = session.runtime
    with drains_on_interrupt(runtime):
        found = await evaluate(runtime, session.scenario, tasks, temperature=temperature, seed=seed, progress=progress)
    check_played(found)
    return found


def _check_taken(
    role: str,
    others: Mapping[str, AdapterWeights],
    adapter_of: Mapping[str, str],
    adapters: Mapping[str, AdapterWeights],
) -> None:
    name = adapter_to_take(role, others, adapter_of)
    if others[name].options != adapters[name].options:
        raise ConfigError(
            f"adapter {name!r} of the other run is {others[name].options}, that of this run {adapters[name].options}: "
            "take it from a run with the same model.lora"
        )


def adapter_to_take(role: str, others: Iterable[str], adapter_of: Mapping[str, str]) -> str:
    """The adapter that is taken from another run for a role.

    Args:
        others: names of the other run's adapters. adapter_of: role -> adapter of this run.

    Raises:
        ConfigError: the role is not trained here, or the other run has no adapter of the name.
    """
    if role not in adapter_of:
        raise ConfigError(f"no trained role {role!r} to take from another run. {did_you_mean(role, adapter_of)}")
    name, there = adapter_of[role], list(others)
    if name not in there:
        raise ConfigError(f"the other run has no adapter {name!r} for role {role!r}. {did_you_mean(name, there)}")
    return name


def swapped(adapter_of: Mapping[str, str], pair: Sequence[str]) -> dict[str, str]:
    """Role -> adapter with the adapters of two roles exchanged.

    Raises:
        ConfigError: not two roles, an unknown role, or two roles that use one adapter.
    """
    if len(pair) != 2:
        raise ConfigError(f"{','.join(pair)!r} are not two roles; write two, such as planner,executor")
    for role in pair:
        if role not in adapter_of:
            raise ConfigError(f"no trained role {role!r} to swap. {did_you_mean(role, adapter_of)}")
    first, second = pair
    if adapter_of[first] == adapter_of[second]:
        raise ConfigError(f"{first!r} and {second!r} use one adapter, {adapter_of[first]!r}: nothing to swap")
    return {**adapter_of, first: adapter_of[second], second: adapter_of[first]}

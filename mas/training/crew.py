"""A team ready to play: plan, engine, bus and runtime put together for one scenario and one base."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mas.bus.memory import MemoryBus
from mas.config.options import AlgorithmOptions, Config, EngineOptions, ModelOptions
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.role import View
from mas.core.scenario import Scenario
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.graph.find import find_team
from mas.graph.plan import Plan, compile_team
from mas.roles import PromptedRole, build_roles
from mas.runtime.team import TeamRuntime
from mas.serving.model import BaseModel
from mas.serving.store import ServingEngine
from mas.serving.transformers_engine import TransformersEngine
from mas.serving.vllm_engine import VllmEngine
from mas.serving.vllm_options import vllm_arguments
from mas.serving.weights import AdapterWeights
from mas.training.rewards import FAILURE, OWN


@dataclass(frozen=True, slots=True)
class Crew:
    """Everything that plays. `adapter_of`: role -> the trainable adapter that it speaks through."""

    scenario: Scenario
    plan: Plan
    engine: ServingEngine
    runtime: TeamRuntime
    adapter_of: Mapping[str, str]


def trainable_adapters(team: TeamSpec, policy: str) -> dict[str, str]:
    """Role -> adapter for every trainable role: one `shared` by all, or one per role (or as the role names it)."""
    return {
        name: "shared" if policy == "shared" else (role.adapter or name)
        for name, role in team.roles.items()
        if role.trainable
    }


def check_trainable(algorithm: AlgorithmOptions, scenario: Scenario, model: ModelOptions) -> None:
    """Refuse what would change nothing, or could never be played. Needs no model.

    Raises:
        ConfigError: reward weights of terms that nobody pays, no trainable role, options of an adapter that no role
            trains, a trainable role that is sampled greedily, a frozen role that speaks through an adapter that nobody
            trains, or a template that reads what its view does not show.
    """
    team = find_team(scenario, algorithm.team)
    _check_templates(scenario, team)
    adapters = set(trainable_adapters(team, algorithm.policy).values())
    if not adapters:
        raise ConfigError(f"team {team.name!r} has no trainable role: set trainable: true on one")
    for name in model.adapters:
        if name not in adapters:
            raise ConfigError(f"model.adapters has {name!r}, which no role trains. {did_you_mean(name, adapters)}")
    terms = {*scenario.environment().spec.terms, *scenario.reward.terms, FAILURE.removeprefix(OWN)}
    for name in algorithm.reward.weights:
        if name not in terms:
            raise ConfigError(f"algorithm.reward.weights has {name!r}, a term never paid. {did_you_mean(name, terms)}")
    for name, role in team.roles.items():
        if not role.trainable and role.adapter is not None and role.adapter not in adapters:
            raise ConfigError(
                f"role {name!r} is frozen and speaks through adapter {role.adapter!r}, which nobody trains. "
                f"{did_you_mean(role.adapter, adapters)} Without an adapter it speaks through the bare base."
            )
        if role.trainable and role.temperature == 0:
            raise ConfigError(f"role {name!r} is trainable but its temperature is 0: its candidates would all be equal")


def _check_templates(scenario: Scenario, team: TeamSpec) -> None:
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    roles = build_roles(team)
    for agent, name in team.members().items():
        role = roles[name]
        if isinstance(role, PromptedRole):
            role.prompt(View(observation=environment.observe(role.spec.view or agent)))


def new_adapters(base: BaseModel, names: set[str], seed: int) -> dict[str, AdapterWeights]:
    """Fresh adapters that change nothing yet."""
    return {
        name: base.bank.create(base.options.lora_of(name), derive_seed("adapter", seed, name)) for name in sorted(names)
    }


def check_engine(options: EngineOptions, base: BaseModel) -> None:
    """Find out before anything is written whether `start_engine` has what it needs.

    Raises:
        ModelError: it is not installed, or cannot serve the model. ConfigError: it has no such option.
    """
    if options.name == "vllm":
        vllm_arguments(base, options, base.options.highest_rank)


async def start_engine(options: EngineOptions, base: BaseModel) -> ServingEngine:
    """The engine that the options name, with nothing published yet.

    Raises:
        ModelError: it is not installed, or cannot serve the model. ConfigError: it has no such option.
    """
    if options.name == "vllm":
        return await VllmEngine.start(base, options, rank=base.options.highest_rank)
    return TransformersEngine(base)


@asynccontextmanager
async def open_crew(
    config: Config,
    scenario: Scenario,
    base: BaseModel,
    adapters: Mapping[str, AdapterWeights],
    speakers: Mapping[str, str] | None = None,
    *,
    engine: ServingEngine | None = None,
) -> AsyncIterator[Crew]:
    """Publish the adapters and put the configured team on a bus of its own.

    A frozen role speaks through the adapter that it names, else through the bare base.

    Args:
        speakers: overrides which adapter a role speaks through (to exchange two roles' adapters, say).
        engine: serves them and stays open afterwards; None: one of the crew's own.
    """
    team, policy = find_team(scenario, config.algorithm.team), config.algorithm.policy
    plan = compile_team(team, build_roles(team))
    adapter_of = trainable_adapters(team, policy)
    serving = engine or await start_engine(config.engine, base)
    bus = MemoryBus()
    named = {name: role.adapter for name, role in team.roles.items()}
    speaking: dict[str, str | None] = {**named, **adapter_of, **(speakers or {})}
    limit = config.train.answer_timeout_s
    try:
        for name, weights in adapters.items():
            await serving.store.publish(name, weights)
        runtime = TeamRuntime(plan, serving, bus, adapters=speaking, chats=base.chats, timeout_s=limit)
        async with runtime:
            yield Crew(scenario, plan, serving, runtime, adapter_of)
    finally:
        await bus.close()
        if engine is None:
            await serving.close()

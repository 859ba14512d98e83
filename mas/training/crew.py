"""A team ready to play: plan, engine, bus and runtime put together for one scenario and one base."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType

from mas.bus.envelopes import EnvelopeFactory
from mas.bus.memory import MemoryBus
from mas.config.options import AlgorithmOptions, Config, EngineOptions
from mas.config.peers import check_peers
from mas.core.blocking import run_blocking
from mas.core.bus import Bus
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.scenario import Scenario
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.graph.find import find_team
from mas.graph.plan import Plan, compile_team
from mas.roles import build_roles
from mas.roles.experiences import taught
from mas.runtime.human import HumanDesk
from mas.runtime.place import RUN, Place
from mas.runtime.runlog import RunLog
from mas.runtime.team import TeamRuntime
from mas.serving.model import BaseModel
from mas.serving.remote_vllm import RemoteVllmEngine
from mas.serving.store import ServingEngine
from mas.serving.transformers_engine import TransformersEngine
from mas.serving.vllm_engine import VllmEngine
from mas.serving.vllm_options import vllm_arguments
from mas.serving.vllm_supports import check_limits
from mas.serving.weights import AdapterWeights
from mas.training.casting import Casting
from mas.training.checks import (
    check_answers,
    check_fork,
    check_inherit,
    check_late,
    check_repairs,
    check_seats,
    check_shared,
    check_siblings,
    check_spending,
    check_templates,
    check_turns,
    check_warm_start,
)
from mas.training.costs import check_costs
from mas.training.experience.readers import check_editor, check_readers
from mas.training.following import Follower
from mas.training.opponents import check_opponents
from mas.training.rewards import FAILURE, MODEL, OWN
from mas.training.shaping.proposing import check_proposer
from mas.training.timing import check_untimed
from mas.training.voices import open_peer, open_peers, start_voice

_NOT_PUBLISHED = (
    "engine=openai plays what a server serves; nothing can be published to it, so nothing can be trained or served "
    "with it: use engine=transformers, engine=vllm or engine=vllm_server. `mas run` and `mas eval` play with it, and "
    "algorithm=training_free learns with it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A bus that is open, and stays so, with other processes on it, and what of a team this one does."""

    bus: Bus
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Players:
    """A team that plays a scenario."""

    scenario: Scenario
    plan: Plan
    runtime: TeamRuntime


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew(Players):
    """A team whose adapters can be published. `adapter_of`: role -> the trainable adapter that it speaks through."""

    engine: ServingEngine
    adapter_of: Mapping[str, str]


Opening = Callable[[BaseModel | None], AbstractAsyncContextManager[Players]]
"""Puts the team that is trained on a bus, with a base; a `Crew` where adapters are trained."""


def trainable_adapters(team: TeamSpec, policy: str) -> dict[str, str]:
    """Role -> adapter for every trainable role: one `shared` by all, or one per role (or as the role names it)."""
    return {
        name: "shared" if policy == "shared" else (role.adapter or name)
        for name, role in team.roles.items()
        if role.trainable
    }


def check_trainable(config: Config, scenario: Scenario) -> None:
    """Refuse what would change nothing, or could never be played. Needs no model.

    Raises:
        ConfigError: an engine that nothing can be published to, peers that are not configured or not used, reward
            weights of terms that nobody pays, no agent to inherit from, no trainable role, options of an adapter that
            no role trains, a role that a person plays, a trainable role that is sampled greedily, a frozen role that
            speaks through an adapter that nobody trains, a template that reads what its view does not show, limits on
            tokens that vLLM cannot say the supports of, or a team in which time decides what is said; see
            `check_untimed` and `check_siblings`; without gradients a trainable role that does not read experiences.
    """
    algorithm = config.algorithm
    if not algorithm.is_training_free:
        check_published(config)
    team = find_team(scenario, algorithm.team)
    check_peers(config, team)
    check_templates(scenario, team)
    if config.engine.name == "vllm":
        check_limits(team)
    check_untimed(team)
    check_siblings(algorithm, team, scenario.environment().spec.max_turns)
    trained = trainable_adapters(team, algorithm.policy)
    adapters = set() if algorithm.is_training_free else set(trained.values())
    if not trained:
        raise ConfigError(f"team {team.name!r} has no trainable role: set trainable: true on one")
    for name in config.model.adapters:
        if name not in adapters:
            raise ConfigError(f"model.adapters has {name!r}, which no role trains. {did_you_mean(name, adapters)}")
    terms = {*scenario.environment().spec.terms, *scenario.reward.terms, FAILURE.removeprefix(OWN)}
    if algorithm.reward.model is not None and algorithm.reward.model.joins != "step":
        terms.add(MODEL)
    terms |= check_costs(algorithm.reward.cost, team)
    terms |= check_late(algorithm, terms)
    _check_weights(algorithm, terms)
    if not algorithm.reward.alpha and not scenario.reward.terms and algorithm.update != "preference":
        raise ConfigError(
            f"algorithm.reward.alpha is 0, and scenario {scenario.name!r} pays no role a term of its own: nobody would "
            "be paid for anything but output that parses. Give alpha a weight, or choose a scenario with own terms"
        )
    _check_roles(team, adapters)
    Casting(algorithm, trained)
    check_fork(config, adapters)
    check_turns(config.algorithm, scenario, team)
    check_seats(algorithm, scenario, team)
    check_warm_start(algorithm, scenario)
    check_proposer(algorithm, scenario, team)
    check_spending(algorithm, team)
    check_inherit(algorithm, team)
    check_answers(algorithm, scenario, team)
    check_shared(algorithm, scenario, team)
    check_opponents(config, scenario, team)
    check_repairs(algorithm, scenario, team)
    if algorithm.is_training_free:
        check_editor(config)
        check_readers(scenario, team)


def _check_weights(algorithm: AlgorithmOptions, terms: Collection[str]) -> None:
    weights = {f"stages[{number}].weights": stage.weights for number, stage in enumerate(algorithm.stages)}
    for key, own in {"reward.weights": algorithm.reward.weights, **weights}.items():
        for name in own:
            if name not in terms:
                raise ConfigError(f"algorithm.{key} has {name!r}, a term never paid. {did_you_mean(name, terms)}")


def check_published(config: Config) -> None:
    """Refuse an engine that nothing can be published to.

    Raises:
        ConfigError: it is one.
    """
    if config.engine.name == "openai":
        raise ConfigError(_NOT_PUBLISHED)


def _check_roles(team: TeamSpec, adapters: set[str]) -> None:
    for name, role in team.roles.items():
        if role.voice == "human":
            raise ConfigError(f"role {name!r} is played by a person (voice: human): such a team cannot be trained")
        if not role.trainable and role.adapter is not None and role.adapter not in adapters:
            raise ConfigError(
                f"role {name!r} is frozen and speaks through adapter {role.adapter!r}, which nobody trains. "
                f"{did_you_mean(role.adapter, adapters)} Without an adapter it speaks through the bare base."
            )
        if role.trainable and role.temperature == 0:
            raise ConfigError(f"role {name!r} is trainable but its temperature is 0: its candidates would all be equal")


def new_adapters(base: BaseModel, names: set[str], seed: int) -> dict[str, AdapterWeights]:
    """Fresh adapters that change nothing yet."""
    return {
        name: base.bank.create(base.options.lora_of(name), derive_seed("adapter", seed, name)) for name in sorted(names)
    }


def check_engine(config: Config, team: TeamSpec, base: BaseModel | None) -> None:
    """Find out before anything is written whether the engine and the peers have what they need; servers are asked.

    Raises:
        ModelError: it is not installed, or cannot serve the model. ConfigError: it has no such option.
        EngineError: a server cannot be reached, or cannot do what is wanted.
    """
    if config.engine.name == "vllm" and base is not None:
        vllm_arguments(base, config.engine, base.options.highest_rank)

    async def ask_servers() -> None:
        late, training_free = config.algorithm.reward.late, config.algorithm.is_training_free
        judge = late.judge if late is not None and late.judge in config.peers else None
        editor = config.algorithm.experience.peer if training_free else None
        async with open_peers(config, team), open_peer(config, editor), open_peer(config, judge):
            if config.engine.name == "openai":
                voice = await start_voice(config.engine.remote, config.model, "engine.remote")
                await voice.engine.close()
            if config.engine.name == "vllm_server" and base is not None:
                await (await start_engine(config.engine, base)).close()

    run_blocking(ask_servers())


async def start_engine(options: EngineOptions, base: BaseModel) -> ServingEngine:
    """The engine that the options name, with nothing published yet.

    Raises:
        ModelError: it is not installed, or cannot serve the model. ConfigError: it has no such option, or nothing can
            be published to it. EngineError: its server cannot be reached.
    """
    if options.name == "vllm":
        return await VllmEngine.start(base, options, rank=base.options.highest_rank)
    if options.name == "vllm_server":
        return await RemoteVllmEngine.start(base, options.remote)
    if options.name == "openai":
        raise ConfigError(_NOT_PUBLISHED)
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
    desk: HumanDesk | None = None,
    shared: Shared | None = None,
    log: RunLog | None = None,
    experiences: Mapping[str, Sequence[str]] = MappingProxyType({}),
    versions: Mapping[str, int] = MappingProxyType({}),
) -> AsyncIterator[Crew]:
    """Publish the adapters and put the configured team on a bus.

    A frozen role speaks through the adapter that it names, else through the bare base; without gradients every role
    speaks through the bare base.

    Args:
        speakers: overrides which adapter a role speaks through (to exchange two roles' adapters, say).
        engine: serves them and stays open afterwards; None: one of the crew's own.
        desk: where people are asked; None: a team with a role that a person plays is refused.
        shared: the bus, and what of the team is here; None: all of it, on a bus of its own.
        log: where every play is written down; None: nowhere.
        experiences: role -> what it has learned as text; roles that are left out have what the team's file says.
        versions: adapter -> the version that it is published as; adapters that are left out begin with 0.
    """
    team, policy = taught(find_team(scenario, config.algorithm.team), experiences), config.algorithm.policy
    plan = compile_team(team, build_roles(team))
    adapter_of = {} if config.algorithm.is_training_free else trainable_adapters(team, policy)
    speaking = {} if config.algorithm.is_training_free else {**spoken(team, policy), **(speakers or {})}
    limit = config.train.answer_timeout_s
    async with AsyncExitStack() as stack:
        peers = await stack.enter_async_context(open_peers(config, team))
        serving = engine or await start_engine(config.engine, base)
        if engine is None:
            stack.push_async_callback(serving.close)
        bus, place = await stack.enter_async_context(bus_of(shared))
        for name, weights in adapters.items():
            await serving.store.publish(name, weights, version=versions.get(name))
        runtime = TeamRuntime(
            plan,
            serving if shared is None else _following(serving, base, team.name, shared),
            bus,
            adapters=speaking,
            chats=base.chats,
            timeout_s=limit,
            peers=peers,
            desk=desk,
            place=place,
            log=log,
        )
        async with runtime:
            yield Crew(scenario=scenario, plan=plan, runtime=runtime, engine=serving, adapter_of=adapter_of)


@asynccontextmanager
async def bus_of(shared: Shared | None) -> AsyncIterator[tuple[Bus, Place | None]]:
    """The shared bus with what of the team is here; None: a bus of its own for all of it."""
    if shared is not None:
        yield shared.bus, shared.place
        return
    bus = MemoryBus()
    try:
        yield bus, None
    finally:
        await bus.close()


def _following(engine: ServingEngine, base: BaseModel, team: str, shared: Shared) -> Follower:
    """The engine, with what another process on the bus trains."""
    place = shared.place
    envelopes = EnvelopeFactory(place.principal, process=place.process)
    return Follower(engine, base.bank, shared.bus, trainer=f"{team}/{RUN}", envelopes=envelopes)


def spoken(team: TeamSpec, policy: str) -> dict[str, str | None]:
    """Role -> the adapter that it trains, else the one that it names, else None."""
    return {name: role.adapter for name, role in team.roles.items()} | trainable_adapters(team, policy)

"""The gateway: an endpoint whose clients are trained, as the team of a training run.

opening = program_opening(setup, listener, note=print)
train_in_directory(config, scenario, opening=opening)
"""

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace

import msgspec
from starlette.applications import Starlette

from mas.core.engine import AdapterRef, Engine, EngineWrapper, Generation, Request
from mas.core.errors import ConfigError
from mas.endpoint.app import build_app
from mas.endpoint.client_keys import ANYBODY, Entrance
from mas.endpoint.command import base_name, role_model
from mas.endpoint.models import Served
from mas.endpoint.server import running
from mas.gateway.pages import LEASE_WAIT_S, EpisodePages
from mas.gateway.queue import EpisodeQueue
from mas.gateway.recorder import EpisodePaths, GatewayRecorder
from mas.scenarios.program import NAME, ProgramScenario
from mas.serving.model import BaseModel
from mas.training.session import Opening, TeamSession, open_team
from mas.training.setup import Setup, TrainSetup

LINGER_S = 3.0
"""How long programs are still told that training is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """Times in seconds.

    Attributes:
        idle_s: an episode without a call for so long is given up.
        wait_s: how long an episode of a program's own task waits for a place.
        lease_s: how long a program waits for an episode before it is told to ask again.
        linger_s: how long programs are told that training is over.
    """

    idle_s: float = 600.0
    wait_s: float = 300.0
    lease_s: float = LEASE_WAIT_S
    linger_s: float = LINGER_S


def check_program(setup: Setup) -> None:
    """Refuse what needs a world that mas plays itself.

    Raises:
        ConfigError: says what, and what to write.
    """
    algorithm, cluster = setup.algorithm, setup.cluster
    if not isinstance(setup.scenario, ProgramScenario):
        raise ConfigError(f"mas gateway plays scenario={NAME}, not {setup.scenario.name!r}: leave scenario out")
    by_turn = setup.scenario.options.compare == "turn"
    odd: Sequence[tuple[bool, str, str]] = (
        (algorithm.sampler.mode != "parallel", f"algorithm.sampler.mode={algorithm.sampler.mode} asks several "
         "candidates of one state, and a program cannot be put back", "choose one with parallel sampling, such as "
         "algorithm=parallel_grpo"),
        (algorithm.is_training_free, "roles that learn as text need prompts of mas", "choose another algorithm"),
        (algorithm.opponents is not None, "algorithm.opponents needs a game", "leave it out"),
        (algorithm.warm_start is not None, "algorithm.warm_start plays a team's graph", "leave it out"),
        (algorithm.sampler.resample is not None, "algorithm.sampler.resample plays more episodes", "leave it out"),
        (algorithm.sampler.horizon is not None, "algorithm.sampler.horizon ends episodes early", "leave it out"),
        (algorithm.reward.gain is not None, "algorithm.reward.gain needs a right answer", "leave it out"),
        (algorithm.reward.partial is not None, "algorithm.reward.partial needs named entities", "leave it out"),
        (setup.is_served_elsewhere, "adapters are trained on a base that is loaded here", "leave engine out"),
        (cluster.workers > 0, "cluster.workers play a team's graph", "leave it out"),
        (algorithm.reward.of != "trajectory", f"algorithm.reward.of={algorithm.reward.of} needs rewards turn by turn",
         "leave it out"),
        (bool(algorithm.reward.cost), "algorithm.reward.cost is paid turn by turn", "leave it out"),
        ((algorithm.reward.discount < 1 or algorithm.advantage.step is not None) and by_turn,
         "this algorithm follows an episode from turn to turn", "write scenario.options.compare=episode"),
        (algorithm.swap is not None, "algorithm.swap exchanges the adapters of roles", "leave it out"),
        (any(role.peer or role.a2a for role in setup.team.roles.values()), "peers and agents elsewhere play a graph",
         "let the program ask them itself"),
        (setup.train.target is not None and setup.scenario.rows is None, "train.target needs tasks that are evaluated",
         "name a file with scenario.options.path"),
        (setup.train.staleness > 0, "train.staleness plays batches ahead", "leave it out"),
        (bool(setup.team.tools), "a program calls its tools itself", "leave tools out of the team"),
    )  # fmt: skip
    for is_odd, why, remedy in odd:
        if is_odd:
            raise ConfigError(f"mas gateway: {why}: {remedy}")


class RoleEngine(EngineWrapper[Engine]):
    """An engine whose adapters are called as the roles that sample with them. `adapters`: role -> its adapter, None:
    the base."""

    def __init__(self, engine: Engine, adapters: Mapping[str, str | None]) -> None:
        super().__init__(engine)
        self._adapters = adapters

    def adapters(self) -> Mapping[str, AdapterRef]:
        """Role -> the version that it samples with now; of the base 0."""
        published = self._engine.adapters()
        return {
            role: AdapterRef(role, 0) if name is None else published[name]
            for role, name in self._adapters.items()
            if name is None or name in published
        }

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        return await self._engine.generate(self._translated(request))

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        async with aclosing(self._engine.stream(self._translated(request))) as pieces:
            async for piece in pieces:
                yield piece

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        used = None if adapter is None else self._adapters[adapter]
        return await self._engine.score(prompt_ids, completion_ids, used)

    def _translated(self, request: Request) -> Request:
        used = None if request.adapter is None else self._adapters[request.adapter]
        return msgspec.structs.replace(request, adapter=used)


def program_opening(
    setup: TrainSetup | Setup,
    listener: socket.socket,
    *,
    note: Callable[[str], None],
    entrance: Entrance = ANYBODY,
    limits: GatewayLimits | None = None,
) -> Opening:
    """Puts programs in the place of the team's graph.

    Args:
        listener: of `mas.endpoint.address.bind`; closed at the end.
        note: told where programs find it.
        entrance: who may ask.
    """
    limits = limits or GatewayLimits()

    @asynccontextmanager
    async def opening(base: BaseModel | None) -> AsyncIterator[TeamSession]:
        assert base is not None
        async with open_team(setup, base) as session:
            resolved, scenario = session.setup, session.setup.scenario
            assert isinstance(resolved, TrainSetup)
            assert isinstance(scenario, ProgramScenario)
            queue = EpisodeQueue(
                scenario,
                resolved.arms,
                session.publishing.tokenizer,
                candidates=resolved.algorithm.sampler.candidates,
                idle_s=limits.idle_s,
            )
            app = _app(session, base, queue, entrance, limits)
            async with queue.watching(), running(app, listener) as address:
                note(_greeting(address, session.setup, has_tasks=queue.has_tasks))
                yield replace(session, programs=queue)
                await queue.close("all steps are done")  # where it failed programs ask until it is started again
                await asyncio.sleep(limits.linger_s)

    return opening


def _app(
    session: TeamSession, base: BaseModel, queue: EpisodeQueue, entrance: Entrance, limits: GatewayLimits
) -> Starlette:
    setup = session.setup
    models = {role.name: role_model(role, session.scenario, chats=base.chats) for role in session.plan.roles.values()}
    served = Served(
        engine=RoleEngine(session.publishing, setup.sampling_adapters),
        base=base_name(setup.model.path, {*models}),
        context=base.limits.context,
        roles={role: replace(model, most_tokens=model.max_tokens) for role, model in models.items()},
        teams=(),
        created=int(time.time()),
        longest_token=base.tokenizer.longest_token,
    )
    temperatures = {role: spec.temperature for role, spec in setup.team.roles.items()}
    return gateway_app(served, queue, GatewayRecorder(queue, temperatures, limits.wait_s), entrance, limits)


def gateway_app(
    served: Served, queue: EpisodeQueue, recorder: GatewayRecorder, entrance: Entrance, limits: GatewayLimits
) -> Starlette:
    """The endpoint with the pages of episodes."""
    app = build_app(served, entrance=entrance, recording=recorder.recording)
    app.add_middleware(EpisodePaths)
    app.router.routes.extend(EpisodePages(queue, app.state.gate, limits.wait_s, limits.lease_s).routes())
    return app


def _greeting(address: str, setup: Setup, *, has_tasks: bool) -> str:
    """Where it is, and what a program does."""
    roles = ", ".join(setup.team.roles)
    how = (
        f'for episode in mas.gateway.client.Gateway("{address}").episodes(): ...'
        if has_tasks
        else f'base_url="{address}/v1", with the headers X-Mas-Episode and X-Mas-Task'
    )
    return f"Programs are trained at {address} as {roles}: {how}"

"""A team spread over processes that share a bus: one for each agent, and one that plays the team."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.coordination import accept_shutdown, ask_for_lease
from mas.bus.mqtt.topics import Peer
from mas.core.engine import AdapterRef, Generation, Request, Tokenizer
from mas.core.errors import ConfigError, EngineError, NoRoute
from mas.core.naming import listed
from mas.core.team import COORDINATOR, TeamSpec
from mas.runtime.agents import ModelEndpoint
from mas.runtime.human import HumanDesk
from mas.runtime.payloads import TEAM_PAYLOADS
from mas.runtime.placement import ENVIRONMENT, USUAL, ProcessRole
from mas.runtime.processes import (
    ShutdownSignals,
    agent_principal,
    check_room,
    check_user,
    listening,
    share_of,
    shut_down_in_order,
    team_owns,
    who_is_there,
)
from mas.runtime.replay_log import ReplayLog
from mas.runtime.team import TeamRuntime
from mas.training.base import Note
from mas.training.engines import Reading, model_text, peer_texts
from mas.training.saved import open_run
from mas.training.session import Shared, TeamSession
from mas.training.setup import Setup

WAIT_S = 30.0
"""How long whoever plays waits for agents that are not there yet."""
LOOK_S = 0.1
"""How often it is looked who is there, in seconds."""


class Elsewhere:
    """Stands for the engines of other processes: it knows how texts become tokens, and generates nothing.

    `restricts`: whether they can restrict what is drawn is checked where they are.
    """

    restricts = True

    def __init__(self, text: Reading) -> None:
        self._text = text

    @property
    def tokenizer(self) -> Tokenizer:
        return self._text.tokenizer

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return self._text.stop_ids

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        raise _nothing_here()

    def stream(self, request: Request) -> AsyncGenerator[Generation]:
        raise _nothing_here()

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        raise _nothing_here()

    def adapters(self) -> Mapping[str, AdapterRef]:
        return {}

    async def close(self) -> None:
        """Nothing is open."""


def peers_elsewhere(setup: Setup) -> dict[str, ModelEndpoint]:
    """Role -> what stands for its peer, which is asked by the process of the agent."""
    texts = peer_texts(setup)
    return {role: ModelEndpoint(engine=Elsewhere(text), chats=text.chats) for role, text in texts.items()}


def _nothing_here() -> EngineError:
    return EngineError("the agents of this team speak in other processes: nothing can be generated or scored here")


@asynccontextmanager
async def open_distributed(
    setup: Setup,
    url: str,
    note: Note,
    *,
    ca_file: Path | None = None,
    store: str | None = None,
    desk: HumanDesk | None = None,
    log: ReplayLog | None = None,
) -> AsyncIterator[TeamSession]:
    """The configured team, whose agents are processes of `serve_agent` on the bus at `url`. No weights are loaded here.

    Args:
        log: where every play is written down, and what the bus comes back with after a kill; None: nowhere.

    Raises:
        ConfigError: somebody plays this team on this bus. NoRoute: an agent is not on it. Otherwise as
        `MqttBus.connect` and `model_text`.
    """
    team = setup.team
    text = model_text(setup.model)
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(
            MqttBus.connect(
                url,
                payloads=TEAM_PAYLOADS,
                ca_file=ca_file,
                store=store,
                journal=None if log is None else log.journal,
                owns=team_owns(team),
            )
        )
        watch_connection(bus, note)
        runtime = TeamRuntime(
            setup.plan,
            Elsewhere(text),
            bus,
            adapters={},
            chats=text.chats,
            timeout_s=setup.train.answer_timeout_s,
            peers=peers_elsewhere(setup),
            desk=desk,
            place=ProcessRole(
                hosts=frozenset((ENVIRONMENT,)),
                principal=bus.me.principal,
                process=bus.me.process,
                comes_back=log is not None,
            ),
            log=log,
        )
        async with ask_for_lease(bus, f"{team.name}/{ENVIRONMENT}", most=1) as first:
            check_alone(first)
            await stack.enter_async_context(runtime)
        await _everybody(bus, team, note)
        yield TeamSession(setup=setup, runtime=runtime)


def check_alone(first: Sequence[Peer]) -> None:
    """Refuse to play beside somebody who does, or who comes first: they would share one address for two worlds.

    Raises:
        ConfigError: another process plays this team here.
    """
    if first:
        raise ConfigError(
            f"process {first[0].process!r} plays this team on this bus; wait until it has ended (a few seconds longer "
            "if it was killed), or use another space"
        )


def watch_connection(bus: MqttBus, note: Note) -> None:
    """Say once when the broker is lost, and once when it is back."""

    def say(is_up: bool) -> None:
        note("the broker is back" if is_up else "the connection to the broker is lost; waiting for it to come back")

    bus.on_connection(say)


async def _everybody(bus: MqttBus, team: TeamSpec, note: Note) -> None:
    """Wait until as many listen for each member as must, and say for whom.

    Raises:
        NoRoute: some do not come.
    """

    def missing() -> list[str]:
        absent = []
        for name in (*team.members(), *team.stand_ins()):
            least = team.replicas.get(name, USUAL).least
            more = least - len(listening(bus, f"{team.name}/{name}"))
            if more > 0:
                absent.append(name if least == 1 else f"{name} ({more} more)")
        return absent

    told: list[str] = []
    try:
        async with asyncio.timeout(WAIT_S):
            while absent := missing():
                if absent != told:
                    note(f"waiting up to {WAIT_S:g} s for agents to come to the bus: {', '.join(absent)}")
                    told = absent
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise NoRoute(
            f"after {WAIT_S:g} s no process serves {listed(missing())} of team {team.name!r} on this bus "
            f"({who_is_there(bus)}): start each with `mas agent NAME --bus URL`"
        ) from None


async def serve_agent(
    name: str,
    setup: Setup,
    run: Path | None,
    url: str,
    note: Note,
    *,
    ca_file: Path | None = None,
    store: str | None = None,
    desk: HumanDesk | None = None,
) -> None:
    """Serve one agent (or stand-in) of the configured team on the bus at `url`, until SIGINT, SIGTERM or
    `mas stop`.

    Several processes may serve one agent, as many as the team's `replicas` allow where it has limits: they share
    its work. Told to end, it finishes the requests that it has and takes no new one; told again, it stops at once, and
    whoever waits for an answer gets Closed.

    Raises:
        ConfigError: the team has no such agent, as many as may be serve it, or the URL's user is not the agent's
        principal. Otherwise as `open_run` and `MqttBus.connect`.
    """
    team = setup.team
    principal = agent_principal(team, name)
    check_user(url, principal, ca_file=ca_file)
    connection = MqttBus.connect(url, payloads=TEAM_PAYLOADS, ca_file=ca_file, store=store, owns=team_owns(team))
    watch_connection(connection, note)
    place = ProcessRole(hosts=frozenset((name,)), principal=principal, process=connection.me.process)
    # The base is loaded here, before the broker expects to hear of this process.
    opening = open_run(setup, run, note, desk, shared=Shared(bus=connection, place=place))
    limits = team.replicas.get(name)
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(connection)
        if limits is None:
            session = await stack.enter_async_context(opening)
        else:
            async with ask_for_lease(bus, principal, most=limits.most) as first:
                check_room(principal, first, limits)
                session = await stack.enter_async_context(opening)
        accept_shutdown(bus, COORDINATOR)
        note(f"{principal} serves on the bus as {bus.me.process}{share_of(bus, principal, limits)}; Ctrl-C ends it")
        told = ShutdownSignals(bus)
        with told.by_signals():
            await told.until(1)
            note("leaving: requests that have begun are finished, no new one is taken; Ctrl-C again stops at once")
            await shut_down_in_order(session.runtime, told)

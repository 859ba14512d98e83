"""A team spread over processes that share a bus: one for each agent, and one that plays the team."""

import asyncio
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from mas.bus.mqtt import MqttBus
from mas.config.options import Config
from mas.core.engine import AdapterRef, Generation, Request, Tokenizer
from mas.core.errors import ConfigError, EngineError, NoRoute
from mas.core.naming import did_you_mean
from mas.core.scenario import Scenario
from mas.graph.find import find_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.agents import TEAM_PAYLOADS
from mas.runtime.human import HumanDesk
from mas.runtime.runlog import RunLog
from mas.runtime.team import ENVIRONMENT, Place, TeamRuntime
from mas.serving.model import ModelText
from mas.training.crew import Players, Shared
from mas.training.players import open_players
from mas.training.run import Note
from mas.training.voices import model_text

WAIT_S = 30.0
"""How long whoever plays waits for agents that are not there yet."""
_LOOK_S = 0.1


class Elsewhere:
    """Stands for the engines of other processes: it knows how texts become tokens, and generates nothing."""

    def __init__(self, text: ModelText) -> None:
        self._text = text

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own tokenizer."""
        return self._text.tokenizer

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a text."""
        return self._text.stop_ids

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        """Raises EngineError."""
        raise _nothing_here()

    def stream(self, request: Request) -> AsyncGenerator[Generation]:
        """Raises EngineError."""
        raise _nothing_here()

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        """Raises EngineError."""
        raise _nothing_here()

    def adapters(self) -> Mapping[str, AdapterRef]:
        """None."""
        return {}

    async def close(self) -> None:
        """Nothing is open."""


def _nothing_here() -> EngineError:
    return EngineError("the agents of this team speak in other processes: nothing can be generated or scored here")


@asynccontextmanager
async def open_spread(
    config: Config,
    scenario: Scenario,
    url: str,
    *,
    ca_file: Path | None = None,
    desk: HumanDesk | None = None,
    log: RunLog | None = None,
) -> AsyncIterator[Players]:
    """The configured team, whose agents are processes of `serve_agent` on the bus at `url`. No weights are loaded here.

    Args:
        log: where every play is written down; None: nowhere.

    Raises:
        ConfigError: somebody plays this team on this bus. NoRoute: an agent is not on it. Otherwise as
        `MqttBus.connect` and `model_text`.
    """
    team = find_team(scenario, config.algorithm.team)
    plan = compile_team(team, build_roles(team))
    text = model_text(config.model)
    async with MqttBus.connect(url, payloads=TEAM_PAYLOADS, ca_file=ca_file) as bus:
        _check_alone(bus, f"{team.name}/{ENVIRONMENT}")
        await _everybody(bus, team.name, (*plan.roles, *plan.stand_ins))
        runtime = TeamRuntime(
            plan,
            Elsewhere(text),
            bus,
            adapters={},
            chats=text.chats,
            timeout_s=config.train.answer_timeout_s,
            desk=desk,
            place=Place(hosts=frozenset((ENVIRONMENT,)), principal=bus.me.principal, process=bus.me.process),
            log=log,
        )
        async with runtime:
            yield Players(scenario=scenario, plan=plan, runtime=runtime)


def _check_alone(bus: MqttBus, environment: str) -> None:
    """Refuse to play beside somebody who does: they would share one address for two worlds.

    Raises:
        ConfigError: another process plays this team here.
    """
    others = [peer for peer, card in bus.processes().items() if environment in card.addresses]
    if others:
        raise ConfigError(
            f"process {others[0].process!r} plays this team on this bus; wait until it has ended (a few seconds longer "
            "if it was killed), or use another space"
        )


async def _everybody(bus: MqttBus, team: str, names: Iterable[str]) -> None:
    """Wait until all members listen.

    Raises:
        NoRoute: some do not come.
    """

    def missing() -> list[str]:
        there = {address for card in bus.processes().values() for address in card.addresses}
        return [name for name in names if f"{team}/{name}" not in there]

    try:
        async with asyncio.timeout(WAIT_S):
            while missing():  # noqa: ASYNC110 - cards come from the network and set no event
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise NoRoute(
            f"after {WAIT_S:g} s nobody speaks for {missing()} of team {team!r} on this bus: start each with "
            "`mas agent NAME --bus URL`"
        ) from None


async def serve_agent(
    name: str,
    config: Config,
    scenario: Scenario,
    run: Path | None,
    url: str,
    note: Note,
    *,
    ca_file: Path | None = None,
    desk: HumanDesk | None = None,
) -> None:
    """Speak for one agent (or stand-in) of the configured team on the bus at `url`, until SIGINT or SIGTERM.

    Several processes may speak for one agent: they share its work. Whoever waits for an answer when
    one ends gets Closed.

    Raises:
        ConfigError: the team has no such agent, or the URL's user is not the agent's principal. Otherwise as
        `open_players` and `MqttBus.connect`.
    """
    team = find_team(scenario, config.algorithm.team)
    names = (*team.members(), *team.stand_ins())
    if name not in names:
        raise ConfigError(f"team {team.name!r} has no agent {name!r}. {did_you_mean(name, names)}")
    connection = MqttBus.connect(url, payloads=TEAM_PAYLOADS, ca_file=ca_file)
    principal = f"{team.name}/{name}"
    if connection.me.principal != principal:
        raise ConfigError(
            f"the bus's URL names the user {connection.me.principal!r}; agent {name!r} is {principal!r} there: write "
            f"{principal.replace('/', '%2F')}@ before the host"
        )
    place = Place(hosts=frozenset((name,)), principal=principal, process=connection.me.process)
    # The base is loaded here, before the broker expects to hear of this process.
    players = open_players(config, scenario, run, note, desk, shared=Shared(bus=connection, place=place))
    async with connection, players:
        note(f"{principal} speaks on the bus as {connection.me.process}; Ctrl-C ends it")
        await _until_told()


async def _until_told() -> None:
    """Wait for SIGINT or SIGTERM."""
    told, loop = asyncio.Event(), asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for one in signals:
        loop.add_signal_handler(one, told.set)
    try:
        await told.wait()
    finally:
        for one in signals:
            loop.remove_signal_handler(one)

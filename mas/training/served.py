"""A team that a server elsewhere speaks for: no weights are loaded here."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType

from mas.config.options import Config
from mas.core.scenario import Scenario
from mas.graph.find import find_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.roles.experiences import taught
from mas.runtime.human import HumanDesk
from mas.runtime.runlog import RunLog
from mas.runtime.team import TeamRuntime
from mas.training.crew import Players, Shared, bus_of, spoken
from mas.training.voices import open_peers, served_adapters, start_voice


@asynccontextmanager
async def open_served(
    config: Config,
    scenario: Scenario,
    *,
    desk: HumanDesk | None = None,
    shared: Shared | None = None,
    log: RunLog | None = None,
    experiences: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> AsyncIterator[Players]:
    """The configured team as the server of `engine=openai` serves it; no weights are loaded here.

    Each role speaks through the adapter that it would train or names, if the server has the team's adapters; else all
    speak through the server's base, as without gradients they always do.

    Args:
        experiences: as in `open_crew`.

    Raises:
        ConfigError: the server has some of the adapters only; otherwise as `start_voice`.
    """
    team, options = taught(find_team(scenario, config.algorithm.team), experiences), config.engine.remote
    plan = compile_team(team, build_roles(team))
    async with AsyncExitStack() as stack:
        peers = await stack.enter_async_context(open_peers(config, team))
        voice = await start_voice(options, config.model, "engine.remote")
        stack.push_async_callback(voice.engine.close)
        wanted = {} if config.algorithm.is_training_free else spoken(team, config.algorithm.policy)
        speaking = served_adapters(wanted, voice.engine.adapters(), options.url)
        bus, place = await stack.enter_async_context(bus_of(shared))
        limit = config.train.answer_timeout_s
        runtime = TeamRuntime(
            plan,
            voice.engine,
            bus,
            adapters=speaking,
            chats=voice.chats,
            timeout_s=limit,
            peers=peers,
            desk=desk,
            place=place,
            log=log,
        )
        async with runtime:
            yield Players(scenario=scenario, plan=plan, runtime=runtime)

"""`mas serve`: a trained run as an endpoint, from its directory to the signal that ends it."""

import asyncio
import gc
import json
import shlex
import socket
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.text import Text
from starlette.applications import Starlette

from mas.bus.journal import Journal
from mas.core.naming import local_name
from mas.core.role import Role, View
from mas.core.scenario import Scenario
from mas.endpoint.app import build_app
from mas.endpoint.client_keys import Entrance
from mas.endpoint.durable_requests import KeptRequests
from mas.endpoint.models import RoleModel, Served
from mas.endpoint.server import on_signal, running
from mas.endpoint.teams import TeamModel, check_one_seat
from mas.runtime.human import HumanDesk
from mas.runtime.replay_events import Setting
from mas.runtime.replay_log import ReplayLog
from mas.scenarios.catalogue import summary
from mas.scenarios.program import ProgramScenario
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.training.base import open_base
from mas.training.engines import check_published
from mas.training.saved import adapter_directories, saved_adapters, saved_experiences, saved_versions
from mas.training.session import TeamSession, open_team
from mas.training.setup import Setup


def serve_run(
    run_dir: Path,
    setup: Setup,
    listener: socket.socket,
    console: Console,
    entrance: Entrance,
    max_waiting: int,
    max_seconds: float | None,
    journal: Path | None,
    shows_messages: bool,
    mcp: bool,
    a2a: bool,
) -> None:
    """Serve a run until SIGINT or SIGTERM comes; what is in flight then may end.

    Args:
        max_seconds: that a request may take; None: no limit.
        journal: keeps the requests to the team, which go on with the next process; None: they end with this one.
        shows_messages: whether clients may ask for what the team's members say to each other.
        mcp: also serve the team as a tool, at `/mcp`. a2a: also serve it as an agent, at `/a2a`.

    Raises:
        RunDirectoryError: the run has not learned anything yet. ConfigError: its team cannot be served.
        ModelError, CheckpointError: the base or an adapter cannot be loaded.
        JournalError: the journal cannot be used, or has plays of something else.
    """
    of = {"run": str(run_dir.resolve()), "model.path": setup.model.path}

    async def serve(log: ReplayLog | None) -> None:
        desk = HumanDesk(log=log)
        async with open_team(setup, base, adapters, desk=desk, log=log, versions=versions) as session:
            served = replace(served_team(session, base), shows_messages=shows_messages)
            async with _keeping(log, served, of, console) as kept, AsyncExitStack() as stack:
                app = build_app(
                    served, entrance=entrance, max_waiting=max_waiting, max_seconds=max_seconds, desk=desk, kept=kept
                )
                gate, routes = app.state.gate, app.router.routes
                if mcp:
                    from mas.endpoint.mcp_server import mcp_route

                    routes.append(await stack.enter_async_context(mcp_route(served, gate, max_seconds)))
                if a2a:
                    from mas.endpoint.a2a_server import a2a_routes

                    name, about = setup.scenario.name, summary(setup.scenario)
                    opened = a2a_routes(served, gate, max_seconds, name, about, has_key=entrance.has_key)
                    routes.extend(await stack.enter_async_context(opened))
                greeting = partial(_greeting, f"the run in {run_dir}", served, entrance.has_key)
                await _run_app(app, listener, console, greeting)

    with ExitStack() as files:
        _check_servable(run_dir, setup)
        log = None if journal is None else ReplayLog(files.enter_context(Journal.open(journal)))
        base, setup, adapters = _loaded(run_dir, setup, console)
        versions = saved_versions(run_dir)
        asyncio.run(serve(log))


async def _run_app(app: Starlette, listener: socket.socket, console: Console, greeting: Callable[[str], str]) -> None:
    """Serve until SIGINT or SIGTERM comes. `greeting`: what is printed at the beginning, from the address."""
    stopped = on_signal()
    gc.collect()
    gc.freeze()  # what is loaded stays: to look through it takes a second, in which no request is answered
    async with running(app, listener) as address:
        console.print(Text(greeting(address)), soft_wrap=True)
        await stopped.wait()
        console.print("closing: requests in flight may end, new ones are refused", style="dim")


def serve_tool(run_dir: Path, setup: Setup, output: TextIO, console: Console) -> None:
    """Serve a run's team as a tool over standard input and output, until the client closes the input.

    Args:
        output: of `claim_output`. console: of standard error.

    Raises:
        As `serve_run`.
    """

    from mas.endpoint.mcp_server import serve_stdio

    async def serve() -> None:
        async with open_team(setup, base, adapters, versions=saved_versions(run_dir)) as session:
            team = TeamModel.of(session.runtime, session.scenario, chats=base.chats)
            console.print(Text(f"the team of {run_dir} answers on standard input and output"), soft_wrap=True)
            await serve_stdio(team, output)

    _check_servable(run_dir, setup)
    base, setup, adapters = _loaded(run_dir, setup, console)
    asyncio.run(serve())


def _loaded(run_dir: Path, setup: Setup, console: Console) -> tuple[BaseModel, Setup, Mapping[str, AdapterWeights]]:
    """The base, the setup with what roles have learned as text, and the adapters by name."""
    base = open_base(setup, console.print)
    setup = setup.with_experiences(saved_experiences(run_dir, setup.algorithm))
    return base, setup, {} if setup.algorithm.is_training_free else saved_adapters(run_dir, base)


def _check_servable(run_dir: Path, setup: Setup) -> None:
    """Find out before weights are loaded, which takes long, whether there is something to serve."""
    if not setup.algorithm.is_training_free:
        adapter_directories(run_dir)
    check_published(setup.engine)
    check_one_seat(setup.team)


@asynccontextmanager
async def _keeping(
    log: ReplayLog | None, served: Served, of: Mapping[str, Setting], console: Console
) -> AsyncIterator[KeptRequests | None]:
    """The requests that a log keeps, None without one; says how many go on."""
    if log is None:
        yield None
        return
    async with KeptRequests(log, served.teams, of=of) as kept:
        if kept.under_way:
            text = f"requests from before that go on, from {log.path}: {kept.under_way}"
            console.print(Text(text, style="dim"), soft_wrap=True)
        yield kept


def served_team(session: TeamSession, base: BaseModel) -> Served:
    """What a team offers: its base, its adapters as the roles that use them, and its team, unless that is a program."""
    is_program = isinstance(session.scenario, ProgramScenario)
    return Served(
        engine=session.publishing,
        base=base_name(session.setup.model.path, set(session.publishing.adapters())),
        context=base.limits.context,
        roles=role_models(session, chats=base.chats),
        teams=() if is_program else (TeamModel.of(session.runtime, session.scenario, chats=base.chats),),
        created=int(time.time()),
        longest_token=base.tokenizer.longest_token,
    )


def role_models(session: TeamSession, *, chats: bool) -> dict[str, RoleModel]:
    """Adapter -> how it is asked: as its role; as widely as any of them allows where several roles share it."""
    uses = session.setup.sampling_adapters
    sharing: dict[str, dict[str, RoleModel]] = defaultdict(dict)
    for agent, role in session.plan.roles.items():
        adapter = uses.get(role.name)
        if adapter is not None and adapter in session.publishing.adapters():
            model = role_model(role, session.scenario, chats=chats, view=local_name(agent))
            sharing[adapter].setdefault(role.name, model)
    return {adapter: _common(list(roles.values())) for adapter, roles in sharing.items()}


def role_model(role: Role, scenario: Scenario, *, chats: bool, view: str | None = None) -> RoleModel:
    """How a role is asked. `view`: of the agent that plays it, where the role names none; None: named like the role."""
    environment, spec = scenario.environment(), role.spec
    environment.reset(scenario.task("eval", 0))
    seen = environment.observe(spec.view or view or role.name)
    return RoleModel(
        system=role.chat(View(observation=seen))[0] if chats else "",
        chats=chats,
        max_tokens=spec.max_tokens,
        temperature=spec.temperature,
        stop=spec.stop,
    )


def _common(roles: list[RoleModel]) -> RoleModel:
    """One way to ask an adapter for all its roles: what they agree on, and room for the longest answer."""
    first, *others = roles
    if not others:
        return first
    is_equal = all(other.temperature == first.temperature for other in others)
    return RoleModel(
        chats=first.chats,
        max_tokens=max(role.max_tokens or 0 for role in roles),
        temperature=first.temperature if is_equal else 1.0,
        stop=tuple(stop for stop in first.stop if all(stop in other.stop for other in others)),
    )


def base_name(path: str, taken: set[str]) -> str:
    """`tiny`, a hub id, or the last part of a directory; the whole path where an adapter is called so."""
    name = Path(path).resolve().name if Path(path).is_dir() else path
    return path if name in taken else name


def _greeting(what: str, served: Served, has_key: bool, address: str) -> str:
    """Where it is, what it offers, and a first question."""
    lines = [f"Serving {what} at {address}/v1 (health: {address}/health, metrics: {address}/metrics)"]
    for card in served.cards():
        version = f", version {card['version']}" if "version" in card else ""
        lines.append(f"  {card['id']}  ({card['kind']}{version})")
    for card in served.cards():
        if "example" in card:
            question = {
                "model": card["id"],
                "messages": [{"role": "user", "content": card["example"]}],
                "temperature": 0,
            }
            words = ["curl", f"{address}/v1/chat/completions", "-H", "Content-Type: application/json"]
            secret = ' -H "Authorization: Bearer $MAS_API_KEY"' if has_key else ""
            lines.append(f"Ask the team:\n  {shlex.join(words)}{secret} -d {shlex.quote(json.dumps(question))}")
    api_key = "your key, as in MAS_API_KEY" if has_key else "none needed"
    lines.append(f'In Python:\n  openai.OpenAI(base_url="{address}/v1", api_key="{api_key}")')
    return "\n".join([*lines, "Ctrl-C ends it."])

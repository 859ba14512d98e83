"""What a stored run names outside of itself: servers with keys, models, code, files, links.

A run directory may come from somebody else. Whatever in it reaches the network, the environment, code or files outside
is an `Access`; `mas.config.trust` decides which of them are allowed.
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from mas.algorithms.registry import SHIPPED
from mas.config.options import TINY, Config
from mas.config.plain_values import read_stored
from mas.config.servers import CHAT, STEP, RunSource, ServerOptions, chat_options
from mas.core.errors import RunDirectoryError
from mas.core.remote_agent import RemoteAgent
from mas.core.team import TeamSpec
from mas.core.tool_server import ToolServer
from mas.core.user_code import is_code

Kind = Literal["server", "model", "code", "file", "start", "opponent", "sink"]
PLAYS: tuple[Kind, ...] = ("server", "model", "code", "file")
"""What a team needs to play as it was trained."""
KINDS: tuple[Kind, ...] = (*PLAYS, "start", "opponent", "sink")
"""All: training begins with the adapters of `train.start`, meets `algorithm.opponents`, and sends to `train.sinks`."""
TEAM_FILE = "team.yaml"
CONFIG_FILE = "config.yaml"
_SUFFIXES = (".yaml", ".yml")
REWARD = "reward"
"""The option of a scenario that names a function to import, `package.module:function` or `path/file.py:function`."""
_GYMNASIUM = "gymnasium:"
"""What an id begins with whose rest may name a user's class."""
_OPENENV = "openenv:"
"""What an id begins with whose rest is the address of a server."""
_VERIFIERS = "verifiers:"
"""What an id begins with whose rest names a package, and an interpreter that imports it."""


_OF_MAS = re.compile(r"import mas\.(?:roles|scenarios)(?:\.[a-z_][a-z0-9_]*)+:[A-Z]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Access:
    """One thing outside of a run that its files name.

    Attributes:
        what: a sentence without a subject, as `load the model Qwen/Qwen3-0.6B`; equal sentences are equal accesses.
        where: the place that names it, as `engine.remote` or `team.yaml, roles.planner.type`.
        named_by: dotted keys with their values; a command line that sets them all, to these values, allows the access.
            Empty: none can.
    """

    kind: Kind
    what: str
    where: str
    named_by: Mapping[str, object]


def accesses_of(config: Config, run: Path | None = None) -> list[Access]:
    """All that a configuration names outside of a run directory, without the classes in its team's file.

    Args:
        run: paths inside this directory are no accesses; None: all are.

    Raises:
        ConfigError: an opponent's source that cannot be read.
    """
    found = [*_servers(config), *_model(config.model.path, run), *_vllm(config)]
    found += [*_start(config.train.start, run), *_opponents(config, run), *_sinks(config.train.sinks)]
    options: dict[str, object] = {"scenario.options": config.scenario.options}
    options |= {f"train.tasks.arms.{name}.options": arm.options for name, arm in config.train.tasks.arms.items()}
    for prefix, values in options.items():
        found += option_accesses(values, prefix, run)
    names: dict[str, str | None] = {"scenario.name": config.scenario.name}
    names |= {f"train.tasks.arms.{name}.scenario": arm.scenario for name, arm in config.train.tasks.arms.items()}
    names["algorithm.code"] = config.algorithm.code
    for key, name in names.items():
        if name is not None and is_code(name):
            found.append(Access("code", f"import {_function(name)}", key, {key: name}))
    if config.algorithm.code not in SHIPPED:
        found += _path_accesses(config.algorithm.options, "algorithm.options", run)
    team = config.algorithm.team
    if team.endswith(_SUFFIXES) and not is_inside(team, run):
        found.append(Access("file", f"read {_path(team)}", "algorithm.team", {"algorithm.team": team}))
    return found


def option_accesses(options: object, prefix: str, run: Path | None = None) -> Iterator[Access]:
    """What options of a scenario name: a reward function, whatever the type of its value, classes, and paths.

    Args:
        prefix: of their dotted keys. run: paths inside this directory are no accesses; None: all are.
    """
    own = f"{prefix}.{REWARD}"
    for key, value in scalars(options, prefix):
        if (key == own or key.startswith(f"{own}.")) and value is not None:
            yield Access("code", f"import {_function(str(value))}", key, {key: value})
        elif isinstance(value, str) and value.startswith(_GYMNASIUM):
            name = value.removeprefix(_GYMNASIUM).partition("(")[0]
            if is_code(name):
                yield Access("code", f"import {_function(name)}", key, {key: value})
        elif isinstance(value, str) and value.startswith(_OPENENV):
            yield _environment_server(value.removeprefix(_OPENENV), key)
        elif isinstance(value, str) and value.startswith(_VERIFIERS):
            yield Access(
                "code", f"run the verifiers environment {_plain(value.removeprefix(_VERIFIERS))}", key, {key: value}
            )
        else:
            yield from _path_accesses(value, key, run)


def _environment_server(name: str, key: str) -> Access:
    url, _, options = name.partition("(")
    variable = re.search(r"key_env\s*=\s*([^,)\s]+)", options)
    also = f" with the key in the environment variable {_plain(variable[1])}" if variable else ""
    return Access("server", f"send requests to {_plain(url)}{also}", key, {key: f"{_OPENENV}{name}"})


def _path_accesses(options: object, prefix: str, run: Path | None) -> Iterator[Access]:
    for key, value in scalars(options, prefix):
        for path in paths_in(value) if isinstance(value, str) else ():
            if not is_inside(path, run):
                yield Access("file", f"read {_path(path)}", key, {key: value})


def server_access(options: ServerOptions, where: str) -> Access:
    """Requests to a server, with the key that it is sent."""
    named: dict[str, object] = {f"{where}.url": options.url}
    what = f"send requests to {_plain(options.url)}"
    if options.key_env is not None:
        named[f"{where}.key_env"] = options.key_env
        what += f" with the key in the environment variable {options.key_env}"
    return Access("server", what, where, named)


def player_accesses(source: str, where: str, kept: Path | None) -> list[Access]:
    """What a player uses that is named as `mas league run` takes it.

    Args:
        kept: runs inside this directory are no accesses; None: all are.

    Raises:
        ConfigError: a source that cannot be read.
    """
    run = RunSource.parse(source)
    if run is not None:
        what = f"play with the run {_path(str(run.path))}"
        return [] if is_inside(run.path, kept) else [Access("opponent", what, where, {where: source})]
    if not source.startswith(CHAT):
        return []
    return [replace(server_access(chat_options(source), where), kind="opponent", named_by={where: source})]


def class_access(path: str, where: str) -> Access:
    """Code that is imported: `file.py:Class` or `package.module:Class`."""
    return Access("code", f"import {_plain(path)}", where, {})


def is_of_mas(access: Access) -> bool:
    """Whether what is imported is a class of mas itself, of a module that holds roles, which does nothing else."""
    return access.kind == "code" and _OF_MAS.fullmatch(access.what) is not None and ".py:" not in access.what


def tool_access(server: ToolServer, where: str) -> Access:
    """A server of tools: a command that is run, or an address, with the variables that it is given. The sandbox, which
    gives programs access to nothing, needs none."""
    if server.url is not None:
        kind: Kind = "server"
        what = f"call tools of {_plain(server.url)}"
        given: tuple[str, ...] = () if server.key_env is None else (server.key_env,)
    else:
        kind, what, given = "code", f"run {json.dumps([server.command, *server.args])}", server.env
    also = f" with the environment variables {', '.join(given)}" if given else ""
    return Access(kind, what + also, where, {})


def agent_access(agent: RemoteAgent, where: str) -> Access:
    """An agent elsewhere that plays a role, with the key that it is sent."""
    also = "" if agent.key_env is None else f" with the key in the environment variable {agent.key_env}"
    return Access("server", f"ask the agent of {_plain(agent.card_url)}{also}", where, {})


def team_accesses(team: TeamSpec) -> list[Access]:
    """The servers of tools and the agents elsewhere that a team names."""
    agents = {f"roles.{name}.a2a": role.a2a for name, role in team.roles.items() if role.a2a is not None}
    return [
        *(tool_access(server, f"tools.{name}") for name, server in team.tools.items() if server.sandbox is None),
        *(agent_access(agent, where) for where, agent in agents.items()),
    ]


def stored_classes(team: Path) -> list[Access]:
    """The classes, the servers of tools and the agents elsewhere that a stored team names, wherever it names them.

    Raises:
        RunDirectoryError: the file cannot be read, or is in parts: the team of a run is one file.
    """
    try:
        content = read_stored(team)
    except OSError as error:
        raise RunDirectoryError(f"{team} cannot be read: {error.strerror}") from error
    roles = _mapping(content, "roles")
    parts = [f"roles.{name}" for name, role in roles.items() if isinstance(role, str)]
    parts += [f"agents.{name}" for name, role in _mapping(content, "agents").items() if not isinstance(role, str)]
    if parts:
        raise RunDirectoryError(f"{team}: {parts[0]} stands elsewhere; the team of a run stands in one file, flat")
    types = {name: role.get("type") for name, role in roles.items() if isinstance(role, Mapping)}
    named = {name: role["a2a"] for name, role in roles.items() if isinstance(role, Mapping) and role.get("a2a")}
    what = "its 'tools'"
    try:
        servers = {name: ToolServer.model_validate(value) for name, value in _mapping(content, "tools").items()}
        what = "an 'a2a'"
        agents = {name: RemoteAgent.model_validate(value) for name, value in named.items()}
    except ValidationError as error:
        raise RunDirectoryError(f"{team}: {what} cannot be read: {error.errors()[0]['msg']}") from error
    reached = {name: server for name, server in servers.items() if server.sandbox is None}
    found = [tool_access(server, f"{team.name}, tools.{name}") for name, server in reached.items()]
    found += [agent_access(agent, f"{team.name}, roles.{name}.a2a") for name, agent in agents.items()]
    return found + [
        class_access(kind, f"{team.name}, roles.{name}.type")
        for name, kind in types.items()
        if isinstance(kind, str) and ":" in kind
    ]


def links_of(run: Path) -> list[Access]:
    """Symbolic links inside a run directory that lead out of it.

    Raises:
        RunDirectoryError: it holds something that is neither a file nor a directory, such as a pipe.
    """
    found, root = list[Access](), run.resolve()
    for folder, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                target = path.resolve()
                if not target.is_relative_to(root):
                    what = f"use {_plain(str(target))} in place of {_plain(str(path.relative_to(root)))}"
                    found.append(Access("file", what, "a symbolic link", {}))
            elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise RunDirectoryError(f"{path} is neither a file nor a directory: remove it from the run directory")
    return found


def is_inside(path: str | Path, run: Path | None) -> bool:
    """Whether a path, all links followed, lies in a run directory."""
    return run is not None and "\0" not in str(path) and Path(path).resolve().is_relative_to(run.resolve())


def _servers(config: Config) -> Iterator[Access]:
    default = type(config.engine.remote)()
    remote = config.engine.remote
    if config.engine.name in ("openai", "vllm_server", "tinker"):
        if (remote.url, remote.key_env) != (default.url, default.key_env):
            yield server_access(remote, "engine.remote")
        for server in remote.servers[1:]:
            replicas: dict[str, object] = {"engine.remote.replicas": [*remote.replicas]}
            if remote.key_env is not None:
                replicas["engine.remote.key_env"] = remote.key_env
            yield replace(server_access(server, "engine.remote.replicas"), named_by=replicas)
        if remote.shared_dir is not None:
            named = {"engine.remote.shared_dir": remote.shared_dir}
            yield Access("file", f"write into {_path(remote.shared_dir)}", "engine.remote.shared_dir", named)
    for name, peer in config.peers.items():
        yield server_access(peer, f"peers.{name}")
        if peer.tokenizer is not None:
            yield _loading(peer.tokenizer, f"peers.{name}.tokenizer", "tokenizer")


def _model(path: str, run: Path | None) -> Iterator[Access]:
    if path != TINY and not is_inside(path, run):
        yield _loading(path, "model.path", "model")


def _loading(source: str, key: str, noun: str) -> Access:
    where = _path(source) if _is_path(source) and "\0" not in source and Path(source).exists() else _plain(source)
    return Access("model", f"load the {noun} {where}", key, {key: source})


def _start(start: str | None, run: Path | None) -> Iterator[Access]:
    if start is None:
        return
    found = STEP.fullmatch(start)
    path = found["path"] if found else start
    if not is_inside(path, run):
        yield Access("start", f"begin with the adapters of {_path(path)}", "train.start", {"train.start": start})


def _opponents(config: Config, run: Path | None) -> Iterator[Access]:
    options, key = config.algorithm.opponents, "algorithm.opponents"
    if options is None:
        return
    for name, source in options.players.items():
        yield from player_accesses(source, f"{key}.players.{name}", run)
    if options.league is not None and ("://" in options.league or not is_inside(options.league, run)):
        what = f"play with the members of {_path(options.league)}"
        yield Access("opponent", what, f"{key}.league", {f"{key}.league": options.league})


def _sinks(names: tuple[str, ...]) -> Iterator[Access]:
    for name in names:
        what = f"import {_function(name)}" if is_code(name) else f"send metrics to {_plain(name)}"
        yield Access("sink", what, "train.sinks", {"train.sinks": [*names]})


def _vllm(config: Config) -> Iterator[Access]:
    if config.engine.name == "vllm" and config.engine.vllm:
        said = json.dumps(config.engine.vllm, sort_keys=True, default=str)
        named = {f"engine.vllm.{key}": value for key, value in config.engine.vllm.items()}
        yield Access("code", f"start vLLM with {said}", "engine.vllm", named)


def scalars(value: object, key: str) -> Iterator[tuple[str, object]]:
    """All plain values inside mappings and lists, with their dotted keys; what is empty has none."""
    children: Mapping[Any, object] = {}
    if isinstance(value, Mapping):
        children = value
    elif isinstance(value, list | tuple):
        children = dict(enumerate(value))
    else:
        yield key, value
    for name, child in children.items():
        yield from scalars(child, f"{key}.{name}")


def _mapping(content: Mapping[Any, Any], key: str) -> Mapping[Any, Any]:
    value = content.get(key)
    return value if isinstance(value, Mapping) else {}


def paths_in(text: str) -> list[str]:
    """The text itself, where it can be a path; of an OpenSpiel id those that its games would read."""
    return [text] if _is_path(text) else re.findall(r"filename=([^,()]+)", text)


def _is_path(text: str) -> bool:
    if any(mark in text for mark in ("/", "\\", "://", "~")) or text in (".", ".."):
        return True
    try:
        return "\0" not in text and Path(text).is_file()
    except OSError:  # a text that is too long for a name
        return False


def _function(text: str) -> str:
    """A function's name, of a file with its whole path: another directory's `reward.py:score` is another function."""
    if text.endswith(".py"):
        return _path(text)
    place, _, name = text.rpartition(":")
    return f"{_path(place)}:{_plain(name)}" if place.endswith(".py") else _plain(text)


def _path(text: str) -> str:
    return _plain(text if "://" in text or "\0" in text else str(Path(text).resolve()))


def _plain(text: str) -> str:
    """A value as part of a sentence: quoted where it could be read as more of the sentence."""
    is_plain = bool(text) and text.isprintable() and not any(mark in text for mark in " \"'")
    return text if is_plain else json.dumps(text)

"""What others may read of a run's configuration: no path, address or key's name of the machine that trained it.

Paths become the last part of their names, and addresses the default one; whoever plays the team names their own.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mas.config.access import TEAM_FILE, paths_in
from mas.config.load import overrides_of, parse_override
from mas.config.options import Config, EngineOptions, TraceOptions, WorkerOptions
from mas.config.plain_values import literal
from mas.config.servers import RemoteOptions
from mas.config.tasks import TaskOptions
from mas.core.errors import ConfigError
from mas.core.user_code import is_code
from mas.runs.hub_folder import is_outside

_PRIVATE = ("engine.remote", "peers", "train.start", "train.sinks", "algorithm.opponents", "cluster.address")
"""Keys that the command of a card leaves out: addresses, names of variables, other runs."""
_YAML = (".yaml", ".yml")


def public_config(config: Config) -> Config:
    """What is needed to play, as others may read it."""
    algorithm, default = config.algorithm, Config()
    changed: dict[str, Any] = {"team": TEAM_FILE, "opponents": None}
    if algorithm.code is not None and is_code(algorithm.code):
        changed |= {"code": None, "options": {}}
    model = {"path": public(config.model.path), "device": default.model.device, "threads": default.model.threads}
    return Config(
        scenario=config.scenario.model_copy(update={"options": public(config.scenario.options)}),
        algorithm=algorithm.model_copy(update=changed),
        model=config.model.model_copy(update=model),
        engine=_public_engine(config),
        peers={name: peer.model_copy(update=_public_server(peer.model)) for name, peer in config.peers.items()},
        learner=config.learner,
        train=config.train.model_copy(update={"tasks": TaskOptions(), "start": None, "sinks": ()}),
        cluster=WorkerOptions(),
        trace=TraceOptions(),
        run_dir=default.run_dir,
    )


def _public_engine(config: Config) -> EngineOptions:
    """The embedded engine; where a server elsewhere has the model, such a server at the default address."""
    if config.engine.name != "openai":
        return EngineOptions()
    remote = config.engine.remote
    return EngineOptions(name="openai", remote=RemoteOptions(api=remote.api, model=public(remote.model)))


def _public_server(model: str | None) -> dict[str, Any]:
    return {"url": RemoteOptions().url, "key_env": None, "extra": {}, "model": public(model), "tokenizer": None}


def public_command(config: Config) -> tuple[str, tuple[str, ...]]:
    """The command that trained a run, as others may read it, and the keys that it leaves out.

    It imports the algorithm that the configuration names: see `overrides_of`.
    """
    try:
        words = overrides_of(config.model_copy(update={"run_dir": Config().run_dir}))
    except ConfigError as error:
        return f"# no command trains it again: {public(str(error))}", ()
    said, left_out = [], []
    for word in words:
        override = parse_override(word)
        key, value = override.key_or_group, override.value()
        if key.startswith(_PRIVATE):
            left_out.append(key)
            continue
        is_file = key == "algorithm.team" and str(value).endswith(_YAML)
        shown = TEAM_FILE if is_file else public(value)
        said.append(word if shown == value else f"{key}={literal(shown)}")
    return shlex.join(["mas", "train", *said]), tuple(left_out)


def public(value: Any) -> Any:
    """A plain value whose paths and addresses of this machine are the last part of their names."""
    if isinstance(value, Mapping):
        return {key: public(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [public(item) for item in value]
    return _public_text(value) if isinstance(value, str) else value


def _public_text(text: str) -> str:
    place, colon, name = text.rpartition(":")
    if colon and name.isidentifier() and place.endswith(".py"):
        return f"{last_part(place)}:{name}" if _is_here(place) else text
    of_games = re.findall(r"filename=([^,()]+)", text)  # in an OpenSpiel id, whose text is no path
    for path in (*paths_in(text), *of_games):
        if _is_here(path):
            text = text.replace(path, last_part(path))
    return text


def _is_here(path: str) -> bool:
    """Whether it names a place on this machine or a server, and is no text that has a slash in it."""
    if "\0" in path or "\n" in path:
        return False
    try:
        if Path(path).expanduser().exists():
            return True
    except (OSError, RuntimeError):  # a text that is too long for a name, or a home directory that nobody has
        return False
    return is_outside(path) and " " not in path


def last_part(path: str) -> str:
    """Of a path or an address, without what a server is asked for."""
    return re.split(r"[/\\]", path.split("?")[0].split("#")[0].rstrip("/\\"))[-1] or "left-out"

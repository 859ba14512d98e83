"""What is wrong with a configuration, in sentences: which key, which value, what is possible, what was meant.

Keys that change nothing beside the other values are refused where somebody sets them, since they would mislead
(`unused_reason`). Peers that a team names and peers that are configured must be the same (`check_peers`).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from mas.algorithms.parts.experience.editor import BUILT_IN_EDITORS
from mas.config.options import Config
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean, shown
from mas.core.options import model_at, section_in
from mas.core.team import TeamSpec

BRIDGES = (
    *("gymnasium", "jaxmarl", "open_spiel", "openenv", "pettingzoo", "reasoning_gym", "textarena", "textworld"),
    "verifiers",
)
"""What ids of environments of other libraries begin with."""
_ALGORITHM, _TASKS = "algorithm.", "train.tasks."
_WEIGHTS = ("learner.", "train.canary", "model.lora.", "model.adapters")


def describe(detail: ErrorDetails) -> str:
    """One problem that the option models found, as one sentence or two."""
    place, value = detail["loc"], detail["input"]
    if detail["type"] == "extra_forbidden":
        return unknown_key(place, value)
    if detail["type"] == "value_error":
        return f"{_dotted(place)}: {detail['msg'].removeprefix('Value error, ')}."
    if detail["type"] == "missing":
        return f"{_dotted(place)} must be set."
    key = f"{_dotted(place) or 'the configuration'}={shown(value)}"
    if detail["type"] == "literal_error":
        names = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
        return f"{key} is not possible. {did_you_mean(str(value), names)}"
    if detail["type"] == "model_type":
        fields = ", ".join(model_at(place, Config).model_fields)
        return f"{key} is not possible: {_dotted(place)} is a section; set one of its keys: {fields}."
    message = re.sub(r"^(Input|String|Tuple|List|Dictionary) ", "", detail["msg"])
    hint = " (put it in quotes if a text is meant)" if detail["type"] == "string_type" and value is not None else ""
    return f"{key} is not possible: it {message[:1].lower()}{message[1:]}{hint}."


def describe_option(section: str, detail: ErrorDetails, names: Iterable[str]) -> str:
    """One problem of the options that a scenario or an algorithm has of its own, as one sentence or two.

    Args:
        section: where they stand, such as `scenario.options`. names: all that there are.
    """
    place = (*section.split("."), *detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"no key {_dotted(place)!r} (value {shown(detail['input'])}). {did_you_mean(str(place[-1]), names)}"
    return describe({**detail, "loc": place})


def is_bridged(name: str) -> bool:
    """Whether a name begins as the id of a bridge does, `open_spiel:...`; other names with a colon are code."""
    return name.partition(":")[0] in BRIDGES


def bridged_id(name: str) -> str:
    """The sentence where an environment of another library, as `open_spiel:tic_tac_toe`, is named as a scenario."""
    return (
        f"{name!r} is the id of a bridge, an environment of another library, and not a scenario by itself. Train in "
        f"it: mas train scenario=bridge scenario.options.id={name}. Play it: mas play {name}. See docs/bridges.md"
    )


def keys_named(name: str) -> list[str]:
    """The keys with this dotted name or with this last part, such as `train.steps` for `steps`; the shortest first."""
    found = [key for key in _keys(Config) if name in (key, key.rpartition(".")[2])]
    return sorted(found, key=lambda key: key.count("."))


def unknown_key(place: Sequence[int | str], value: object) -> str:
    """The sentence for a key that does not exist."""
    model, name = model_at(place[:-1], Config), str(place[-1])
    while place and place[0] not in Config.model_fields and len(place) > 1:
        place, model = place[:1], Config
        name = str(place[0])
    meant = keys_named(name)
    near = get_close_matches(name, model.model_fields, n=1, cutoff=0.6)
    possible = did_you_mean(name, model.model_fields)
    if meant and not near:
        possible = f"Did you mean {' or '.join(map(repr, meant))}?"
    return f"no key {_dotted(place)!r} (value {shown(value)}). {possible}"


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if section := section_in(field.annotation):
            yield from _keys(section, f"{prefix}{name}.")
        else:
            yield prefix + name


def _dotted(place: Sequence[int | str]) -> str:
    return ".".join(str(part) for part in place)


def unused_reason(key: str, config: Config) -> str | None:
    """Why a dotted key has no effect in this configuration; None: it has one."""
    algorithm = config.algorithm
    if key.startswith(_ALGORITHM):
        return algorithm.unused_reason(key.removeprefix(_ALGORITHM))
    if algorithm.is_training_free and key.startswith(_WEIGHTS):
        return "algorithm.update=training_free changes no weights"
    if key.startswith(_TASKS):
        return config.train.tasks.unused_reason(key.removeprefix(_TASKS))
    if reason := _why_engine_idle(key, config.engine.name):
        return reason
    if key.startswith("trace.") and key != "trace.every" and config.trace.every == 0:
        return "trace.every=0 traces no step"
    if key == "train.budget_prompts" and config.train.token_budget is None:
        return "train.token_budget=null is no budget"
    if key == "train.start" and algorithm.is_training_free:
        return "algorithm.update=training_free trains no adapter"
    if key.startswith("model.tiny.") and config.model.path != "tiny":
        return f"model.path is {config.model.path!r}, not the tiny base"
    return None


_NOT_TINKER = (
    *("engine.remote.api", "engine.remote.retries", "engine.remote.requests_per_minute", "engine.remote.concurrency"),
    *("engine.remote.extra", "model.dtype", "model.device", "model.threads"),
    *("learner.micro_batch_tokens", "learner.pack", "learner.share_prompts", "learner.join_turns"),
    *("learner.logit_chunk", "learner.recompute_layers", "learner.fused"),
)


def _why_engine_idle(key: str, engine: str) -> str | None:
    if key.startswith(("engine.vllm.", "engine.adapters", "engine.restarts", "engine.cpu_lora")) and engine != "vllm":
        return "only engine=vllm has it"
    if key.startswith("engine.remote.") and engine not in ("openai", "vllm_server", "tinker"):
        return "only engine=openai, engine=vllm_server and engine=tinker have it"
    is_alpha = key.startswith("model.") and key.endswith(".alpha")
    if engine == "tinker" and (is_alpha or key.startswith(_NOT_TINKER)):
        return "with engine=tinker the service and its SDK decide it"
    if key.startswith(("engine.remote.shared_dir", "engine.remote.replicas")) and engine != "vllm_server":
        return "only engine=vllm_server, to which adapters are published, has it"
    if key.startswith("model.max_batch") and engine != "transformers":
        return f"engine={engine} has its own bounds"
    return None


def check_peers(config: Config, team: TeamSpec) -> None:
    """Refuse a team or an editor with a peer that is not configured, and peers that neither these nor a judge names.

    Raises:
        ConfigError: says which, and what to set.
    """
    wanted = {role.peer: name for name, role in team.roles.items() if role.peer is not None}
    editor = config.algorithm.experience.peer if config.algorithm.is_training_free else None
    if editor is not None and editor not in config.peers:
        raise ConfigError(
            f"experiences are edited by {editor!r}, a peer that is not configured: set peers.{editor}.url to its "
            f"server. {did_you_mean(editor, (*BUILT_IN_EDITORS, *config.peers))}"
        )
    for peer, role in wanted.items():
        if peer not in config.peers:
            raise ConfigError(
                f"role {role!r} of team {team.name!r} is played by peer {peer!r}, which is not configured: set "
                f"peers.{peer}.url to its server. {did_you_mean(peer, config.peers)}"
            )
    late = config.algorithm.reward.late
    for peer in config.peers:
        if peer not in (*wanted, editor) and (late is None or late.judge != peer):
            raise ConfigError(
                f"peers.{peer} is configured, but no role of team {team.name!r} has 'peer: {peer}'. "
                f"{did_you_mean(peer, wanted)}"
            )

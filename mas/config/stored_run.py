"""The configuration of a stored run, with overrides put over it."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mas.algorithms.base import Algorithm
from mas.algorithms.registry import SHIPPED, find_algorithm
from mas.config.access import CONFIG_FILE, KINDS, TEAM_FILE, Kind
from mas.config.custom_algorithm import options_of
from mas.config.load import GROUPS, check_open_overrides, checked_config, leaves, listed_overrides, parse_override
from mas.config.options import Config
from mas.config.owned import check_critic, place
from mas.config.plain_values import read_stored
from mas.config.trust import check_stored
from mas.core.errors import ConfigError, RunDirectoryError
from mas.core.naming import did_you_mean


def load_run_config(run: Path | str, overrides: Sequence[str] = (), *, uses: Collection[Kind] = KINDS) -> Config:
    """The configuration stored in a run directory, with overrides put over it.

    A team from a file is the run's copy, and `run_dir` is the directory that is given.

    What is stored is text: nothing in it is interpolated, and what it names outside of the run must be allowed
    (`mas.config.trust`).

    Args:
        uses: what the caller may do with it; other kinds of accesses need not be allowed.

    Raises:
        RunDirectoryError: there is no run, or its configuration cannot be read.
        ConfigError: as `load_config`; presets cannot be chosen here.
        TrustError: the run names a server, a model, code or a path outside that the user has not allowed.
    """
    run = Path(run)
    path = run / CONFIG_FILE
    try:
        stored = read_stored(path)
    except OSError as error:
        within = [str(other.parent) for other in sorted(run.glob(f"*/{CONFIG_FILE}"))]
        near = [other.parent.name for other in run.parent.glob(f"*/{CONFIG_FILE}")]
        hint = f"Train one first: mas train scenario=NAME run_dir={run}"
        if within:
            hint = f"There are runs in it: {', '.join(within)}"
        elif near:
            hint = did_you_mean(run.name, near)
        raise RunDirectoryError(f"Run directory {run} holds no run (no {CONFIG_FILE}). {hint}") from error
    parsed = [parse_override(override) for override in listed_overrides(overrides)]
    _check_kept(parsed, stored.get("algorithm"))
    stored["run_dir"] = str(run)
    given = dict[str, Any]()
    for override in parsed:
        value = _plain_value(override)
        _put(stored, override, value)
        given |= leaves(value, override.key_or_group)
    config = checked_config(stored).as_stored()
    kept = run / TEAM_FILE
    if config.algorithm.team.endswith((".yaml", ".yml")) and kept.is_file() and "algorithm.team" not in given:
        config = config.model_copy(update={"algorithm": config.algorithm.model_copy(update={"team": str(kept)})})
    check_stored(config, run, given, uses)
    code, changed = config.algorithm.code, [key for key in given if key.startswith("algorithm.")]
    if not changed or code is None or (code not in SHIPPED and "code" not in uses):
        return config
    own = find_algorithm(code)
    check_open_overrides(parsed, own)
    check_critic(config.algorithm.advantage.baseline, own)
    return _with_options(config, own, [key for key in changed if key.startswith("algorithm.options")])


def _check_kept(parsed: Iterable[Override], algorithm: object) -> None:
    """Refuse overrides of what a run keeps; `algorithm`: what is stored of it, not checked yet."""
    code = algorithm.get("code") if isinstance(algorithm, dict) else None
    for override in parsed:
        if override.key_or_group == "algorithm.code" and override.value() != code:
            raise ConfigError(f"{override.input_line!r}: a run keeps its algorithm, {code!r}; train a new run")
        if (group := override.key_or_group) in GROUPS:
            example = "model.path=NAME" if group == "model" else f"{group}.name=NAME"
            raise ConfigError(
                f"{override.input_line!r}: a run keeps its {group}; change single values such as {example}, or train "
                "a new run"
            )
    check_open_overrides(parsed, None)


def _with_options(config: Config, own: Algorithm[Any], changed: Collection[str]) -> Config:
    """A stored configuration with the parts that the options of its algorithm with these keys set."""
    if not changed:
        return config
    values = config.model_dump(mode="json")
    options = options_of(own, values["algorithm"]["code"], values["algorithm"]["options"]).model_dump(mode="json")
    values["algorithm"]["options"] = options
    named = options if "algorithm.options" in changed else {key.split(".")[2] for key in changed}
    place(values["algorithm"], own, {name: options[name] for name in named})
    return checked_config(values, own).as_stored()


def _plain_value(override: Override) -> Any:
    """What an override says, with interpolations of its own resolved: they cannot reach stored values."""
    try:
        plain: Any = OmegaConf.to_container(OmegaConf.create([override.value()]), resolve=True)
    except OmegaConfBaseException as error:
        first = str(error).strip().splitlines()[0]
        raise ConfigError(f"{override.input_line!r} refers to a value that cannot be found: {first}") from error
    return plain[0]


def _put(stored: dict[Any, Any], override: Override, value: Any) -> None:
    """Set a dotted key; a mapping is merged into the one that is there, an empty one takes its place."""
    *parents, last = override.key_or_group.split(".")
    node: Any = stored
    for part in parents:
        child = node[int(part)] if isinstance(node, list) and part.isdigit() and int(part) < len(node) else None
        if isinstance(node, dict):
            child = node.get(part)
            if child is None:
                child = node[part] = {}
        if not isinstance(child, dict | list):
            raise ConfigError(f"{override.input_line!r} cannot be set: {part!r} holds {child!r}, which has no keys")
        node = child
    if isinstance(node, list):
        if not last.isdigit() or int(last) >= len(node):
            raise ConfigError(f"{override.input_line!r} cannot be set: a list of {len(node)} has no {last!r}")
        node[int(last)] = value
    else:
        node[last] = _merged(node.get(last), value)


def _merged(old: Any, new: Any) -> Any:
    if not (isinstance(old, dict) and isinstance(new, dict) and new):
        return new
    return old | {key: _merged(old.get(key), value) for key, value in new.items()}

"""A configuration from the command line: presets by Hydra, values checked by the option models.

Merged in this order, later wins: defaults of `mas.config.options`, scenario, model and engine preset, the parts of the
algorithm (`mas.algorithms`), what its recipe sets of its scenario's options, command line.
`scenario=NAME`, `algorithm=NAME`, `engine=NAME` and `model=NAME` choose presets (the first two also a user's class or
algorithm, `file.py:NAME`); everything else is `dotted.key=value` in Hydra's grammar. Without `scenario=`,
`scenario.name=NAME` chooses the preset of that name, or none where there is none; without `algorithm=`,
`algorithm.name=NAME` chooses likewise, and beside it is a label of one's own.
Leaves out on purpose: sweeps, deletions and Hydra's own settings. A scenario's own options are checked by the scenario.
"""

from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from functools import cache
from importlib import resources
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mas.algorithms.base import Algorithm
from mas.algorithms.registry import FORMER, SHIPPED, find_algorithm, label_of
from mas.config.access import CONFIG_FILE, KINDS, TEAM_FILE, Kind
from mas.config.idle import why_idle
from mas.config.literal import literal
from mas.config.methods import BOUNDING, COMPARING, method_of, options_of
from mas.config.options import Config
from mas.config.owned import HAD_NONE, check_critic, check_open, had_no_options, named, place, placed, renamed
from mas.config.problems import bridged_id, describe, is_bridged, unknown_key
from mas.config.stored import read_stored
from mas.config.trust import check_stored
from mas.core.errors import ConfigError, RunDirectoryError
from mas.core.naming import did_you_mean
from mas.core.options import is_code

GROUPS = ("scenario", "algorithm", "engine", "model")
_PRESETS = "mas.conf"
_OFFERED = {"scenario": "mas.scenarios", "algorithm": "mas.algorithms"}
"""Groups that other packages may add to, with their entry points."""


def presets(group: str) -> list[str]:
    """Names of the presets of a group; those of `algorithm` are modules of `mas.algorithms`."""
    if group == "algorithm":
        return sorted(SHIPPED)
    folder = resources.files(_PRESETS).joinpath(group)
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


def instead_of(algorithm: str, offered: Collection[str] = ()) -> str:
    """A hint for an unknown algorithm: its present name if it was renamed, else the nearest names.

    Args:
        offered: those of other packages.
    """
    if algorithm in FORMER:
        return f"{algorithm!r} is now called {FORMER[algorithm]!r}."
    return did_you_mean(algorithm, {*presets("algorithm"), *offered})


def load_config(overrides: Sequence[str] = ()) -> Config:
    """The configuration that presets and overrides such as `train.steps=20` make.

    Raises:
        ConfigError: a syntax error, a preset or key that does not exist, a value that does not fit, or one that has
            no effect beside the others.
    """
    parsed = [_parse(override) for override in listed_overrides(overrides)]
    choices, values = _choices(parsed), [one for one in parsed if one.key_or_group not in GROUPS]
    if code := next((one for one in values if one.key_or_group == "algorithm.code"), None):
        raise ConfigError(f"{code.input_line!r}: a new run's algorithm is chosen as algorithm=NAME or algorithm=FILE")
    own = find_algorithm(choices.get("algorithm", Config().algorithm.name))
    _check_open(values, own)
    config = _validated(_with_values(_composed(choices, _named(parsed, "scenario")), values), own)
    method_of(config.algorithm)  # only for its errors
    for override in values:
        for key, _ in leaves(override.value(), override.key_or_group):
            if reason := why_idle(placed(key, own), config):
                raise ConfigError(f"{override.input_line!r} has no effect here: {reason}")
    check_critic(config.algorithm.advantage.baseline, own)
    return config


def _check_open(values: Iterable[Override], own: Algorithm[Any] | None) -> None:
    for override in values:
        for key, value in leaves(override.value(), override.key_or_group):
            check_open(key, value, own)


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
    parsed = [_parse(override) for override in listed_overrides(overrides)]
    _check_kept(parsed, stored.get("algorithm"))
    stored["run_dir"] = str(run)
    given = dict[str, Any]()
    for override in parsed:
        value = _plain_value(override)
        _put(stored, override, value)
        given |= leaves(value, override.key_or_group)
    config = _checked(stored).as_stored()
    kept = run / TEAM_FILE
    if config.algorithm.team.endswith((".yaml", ".yml")) and kept.is_file() and "algorithm.team" not in given:
        config = config.model_copy(update={"algorithm": config.algorithm.model_copy(update={"team": str(kept)})})
    check_stored(config, run, given, uses)
    code, changed = config.algorithm.code, [key for key in given if key.startswith("algorithm.")]
    if not changed or code is None or (code not in SHIPPED and "code" not in uses):
        return config
    own = find_algorithm(code)
    _check_open(parsed, own)
    check_critic(config.algorithm.advantage.baseline, own)
    return _with_options(config, own, [key for key in changed if key.startswith("algorithm.options")])


def _check_kept(parsed: Iterable[Override], algorithm: object) -> None:
    """Refuse overrides of what a run keeps; `algorithm`: what is stored of it, not checked yet."""
    code, label = (algorithm.get("code"), algorithm.get("name")) if isinstance(algorithm, dict) else (None, None)
    for override in parsed:
        if override.key_or_group == "algorithm.code" and override.value() != code:
            raise ConfigError(f"{override.input_line!r}: a run keeps its algorithm, {code!r}; train a new run")
        if override.key_or_group in GROUPS:
            raise ConfigError(
                f"{override.input_line!r}: a run keeps its {override.key_or_group}; "
                f"change single values such as {_example(override.key_or_group)}, or train a new run"
            )
    try:
        _check_open(parsed, None)
    except ConfigError:
        if code is None and had_no_options(label):
            raise ConfigError(f"algorithm {label!r}: {HAD_NONE}") from None
        raise


def _with_options(config: Config, own: Algorithm[Any], changed: Collection[str]) -> Config:
    """A stored configuration with the parts that the options of its algorithm with these keys set."""
    if not changed:
        return config
    values = config.model_dump(mode="json")
    options = options_of(own, values["algorithm"]["code"], values["algorithm"]["options"]).model_dump(mode="json")
    values["algorithm"]["options"] = options
    named = options if "algorithm.options" in changed else {key.split(".")[2] for key in changed}
    place(values["algorithm"], own, {name: options[name] for name in named})
    return _checked(values, own).as_stored()


def listed_overrides(overrides: Sequence[str]) -> list[str]:
    """The overrides as a list.

    Raises:
        ConfigError: they are one text, whose letters would be taken for overrides.
    """
    if isinstance(overrides, str):
        raise ConfigError(f"the overrides are the text {overrides!r}: write a list of texts, [{overrides!r}]")
    return list(overrides)


def _example(group: str) -> str:
    return "model.path=NAME" if group == "model" else f"{group}.name=NAME"


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


def overrides_of(config: Config) -> list[str]:
    """The shortest overrides that make this configuration, values without effect left out.

    It imports the algorithm that the configuration names: of a stored run only after `load_run_config` with the use
    `code`.

    Raises:
        ConfigError: parts are mixed as no algorithm does, which overrides cannot say.
    """
    name, algorithm = config.scenario.name, config.algorithm.name
    chosen = [f"scenario={name}" if name in presets("scenario") else f"scenario.name={literal(name)}"]
    known = algorithm if algorithm in presets("algorithm") else Config().algorithm.name
    chosen.append(f"algorithm={known if config.algorithm.code is None else literal(config.algorithm.code)}")
    chosen.append(f"engine={config.engine.name}")
    usual = dict(leaves(load_config(chosen).model_dump(mode="json")))
    own = find_algorithm(known if config.algorithm.code is None else config.algorithm.code)
    changed = {
        named(key, own): value
        for key, value in leaves(config.model_dump(mode="json"))
        if usual.get(key, ...) != value
        and placed(key, own) == key
        and (key, value) not in (("algorithm.code", None), ("algorithm.options", {}))
        and why_idle(key, config) is None
    }
    for key, value in changed.items():
        check_open(key, value, own)
    check_critic(config.algorithm.advantage.baseline, own)
    return chosen + [f"{key}={literal(value)}" for key, value in changed.items()]


def _parse(text: str) -> Override:
    try:
        (override,) = OverridesParser.create().parse_overrides([text])
        if not override.key_or_group:
            raise ValueError("no key")
    except (HydraException, ValueError) as error:
        raise ConfigError(f"{text!r} is not of the form key=value, such as train.steps=20 or run_dir='a, b'") from error
    if override.is_delete():
        raise ConfigError(f"{text!r}: nothing can be deleted; set the key to another value, or to null")
    if override.package is not None or "/" in override.key_or_group:
        raise ConfigError(f"{text!r}: write key=value, such as train.steps=20, or scenario=NAME or algorithm=NAME")
    if override.is_sweep_override():
        raise ConfigError(f"{text!r} gives several values; give one, or write a list as [a,b]")
    root = override.key_or_group.partition(".")[0]
    if root not in Config.model_fields:
        raise ConfigError(unknown_key((root, *override.key_or_group.split(".")[1:]), override.value()))
    return override


def _choices(parsed: Sequence[Override]) -> dict[str, str]:
    """Group -> preset, as chosen by name."""
    choices: dict[str, str] = {}
    for override in parsed:
        group = override.key_or_group
        if group not in GROUPS:
            continue
        value, possible = str(override.value()), presets(group)
        is_other = group in _OFFERED and value not in possible
        offered = {point.name for point in entry_points(group=_OFFERED[group])} if is_other else set()
        if group == "scenario" and is_bridged(value) and value not in offered:
            raise ConfigError(bridged_id(value))
        is_own = is_code(value) if group == "algorithm" else group == "scenario" and ":" in value
        if value not in possible and value not in offered and not is_own:
            hint = instead_of(value, offered) if group == "algorithm" else did_you_mean(value, {*possible, *offered})
            raise ConfigError(f"{group}={value}: no such {group}. {hint}")
        choices[group] = value
    named = _named(parsed, "algorithm")
    if named is not None and "algorithm" not in choices:
        if named not in presets("algorithm"):
            raise ConfigError(
                f"algorithm.name={named}: no such algorithm. {instead_of(named)} "
                "Beside algorithm=NAME it may be any label."
            )
        choices["algorithm"] = named
    engine = _named(parsed, "engine")
    if engine is not None and engine in presets("engine"):
        choices.setdefault("engine", engine)
    return choices


def _named(parsed: Iterable[Override], group: str) -> str | None:
    """The last `GROUP.name=`, None without one."""
    names = [str(override.value()) for override in parsed if override.key_or_group == f"{group}.name"]
    return names[-1] if names else None


def _composed(choices: dict[str, str], name: str | None) -> DictConfig:
    """The presets merged; a scenario of another package has none."""
    scenario = choices.get("scenario", name)
    algorithm = choices.get("algorithm", Config().algorithm.name)
    own = find_algorithm(algorithm)
    groups = {group: preset for group, preset in choices.items() if group != "algorithm"}
    if scenario is not None:
        groups["scenario"] = scenario
    known = scenario is None or scenario in presets("scenario")
    lines = [f"{group}={preset}" for group, preset in groups.items() if known or group != "scenario"]
    composed = deepcopy(_merged_presets(_PRESETS, *lines, *(() if known else ("~scenario",))))
    if not known:
        OmegaConf.update(composed, "scenario.name", scenario, force_add=True)
    _give_way(composed, own)
    is_parts_alone = algorithm in SHIPPED and not own.has_own
    parts = {**own.parts, "name": label_of(algorithm), **({} if is_parts_alone else {"code": algorithm})}
    OmegaConf.update(composed, "algorithm", parts, force_add=True, merge=True)
    if "algorithm" in choices and own.recipe.scenario == scenario:
        for key, value in own.recipe.options.items():
            OmegaConf.update(composed, f"scenario.options.{key}", value, force_add=True)
    return composed


def _give_way(composed: DictConfig, own: Algorithm[Any]) -> None:
    """Leave out what a scenario's preset sets of the parts that the algorithm has functions of its own for."""
    for section, names, function in (("advantage", COMPARING, own.advantages), ("loss", BOUNDING, own.loss)):
        chosen = OmegaConf.select(composed, f"algorithm.{section}")
        for name in names if function is not None and chosen is not None else ():
            chosen.pop(name, None)


@cache
def _merged_presets(package: str, *lines: str) -> DictConfig:
    """What a package's files say under Hydra's overrides such as `scenario=relay`: kept, so copy before a change."""
    before = GlobalHydra.get_state()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_module(package, version_base="1.3"):
            composed = compose("config", list(lines))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(f"the presets {', '.join(lines)} cannot be merged: {error}") from error
    finally:
        GlobalHydra.set_state(before)
    OmegaConf.set_struct(composed, False)
    return composed


def _with_values(config: DictConfig, values: Iterable[Override]) -> DictConfig:
    for override in values:
        try:
            OmegaConf.update(config, override.key_or_group, override.value(), force_add=True)
        except (OmegaConfBaseException, ValueError, TypeError) as error:
            raise ConfigError(f"{override.input_line!r} cannot be set: {error}") from error
    return config


def _validated(config: DictConfig, own: Algorithm[Any]) -> Config:
    try:
        values: Any = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        first = str(error).strip().splitlines()[0]
        raise ConfigError(f"a value refers to another one that cannot be found: {first}") from error
    algorithm = values["algorithm"]
    if own.has_own and isinstance(algorithm, dict) and isinstance(algorithm.get("options", {}), dict):
        options = options_of(own, algorithm["code"], algorithm.get("options", {})).model_dump(mode="json")
        algorithm["options"] = options
        place(algorithm, own, options)
    return _checked(values, own)


def _checked(values: Any, own: Algorithm[Any] | None = None) -> Config:
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(" ".join(_told(detail, own) for detail in error.errors())) from None


def _told(detail: ErrorDetails, own: Algorithm[Any] | None) -> str:
    """A problem in a sentence that has options in place of the parts that they set; an unknown part stays."""
    text = describe(detail)
    return text if detail["type"] == "extra_forbidden" else renamed(text, own)


def leaves(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted keys and values of plain mappings, in order, such as `Config.model_dump` makes them.

    Lists, empty mappings and those with dots in their keys count as values.
    """
    if not isinstance(value, dict) or not value or any("." in str(key) for key in value):
        return [(prefix, value)]
    found = []
    for key, item in value.items():
        found += leaves(item, f"{prefix}.{key}" if prefix else str(key))
    return found

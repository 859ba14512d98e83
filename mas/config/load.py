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
from mas.config.checks import bridged_id, describe, is_bridged, unknown_key, unused_reason
from mas.config.custom_algorithm import BOUNDING, COMPARING, method_of, options_of
from mas.config.options import Config
from mas.config.owned import check_critic, check_open, named, place, placed, renamed
from mas.config.plain_values import literal
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.plugins import offered_names
from mas.core.user_code import is_code

GROUPS = ("scenario", "algorithm", "engine", "model", "cluster")
_PRESETS = "mas.conf"
OFFERED = {"scenario": "mas.scenarios", "algorithm": "mas.algorithms"}
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
    parsed = [parse_override(override) for override in listed_overrides(overrides)]
    choices, values = _choices(parsed), [one for one in parsed if one.key_or_group not in GROUPS]
    if code := next((one for one in values if one.key_or_group == "algorithm.code"), None):
        raise ConfigError(f"{code.input_line!r}: a new run's algorithm is chosen as algorithm=NAME or algorithm=FILE")
    own = find_algorithm(choices.get("algorithm", Config().algorithm.name))
    check_open_overrides(values, own)
    config = _validated(_with_values(_composed(choices, _named(parsed, "scenario")), values), own)
    method_of(config.algorithm)  # only for its errors
    for override in values:
        for key, _ in leaves(override.value(), override.key_or_group):
            if reason := unused_reason(placed(key, own), config):
                raise ConfigError(f"{override.input_line!r} has no effect here: {reason}")
    check_critic(config.algorithm.advantage.baseline, own)
    return config


def check_open_overrides(values: Iterable[Override], own: Algorithm[Any] | None) -> None:
    """Refuse overrides of parts that only an algorithm sets (`mas.config.owned`).

    Raises:
        ConfigError: says which algorithms have the part.
    """
    for override in values:
        for key, value in leaves(override.value(), override.key_or_group):
            check_open(key, value, own)


def listed_overrides(overrides: Sequence[str]) -> list[str]:
    """The overrides as a list.

    Raises:
        ConfigError: they are one text, whose letters would be taken for overrides.
    """
    if isinstance(overrides, str):
        raise ConfigError(f"the overrides are the text {overrides!r}: write a list of texts, [{overrides!r}]")
    return list(overrides)


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
        and unused_reason(key, config) is None
    }
    for key, value in changed.items():
        check_open(key, value, own)
    check_critic(config.algorithm.advantage.baseline, own)
    return chosen + [f"{key}={literal(value)}" for key, value in changed.items()]


def parse_override(text: str) -> Override:
    """An override as `train.steps=20`, or the choice of a preset.

    Raises:
        ConfigError: it is none, or its key does not exist.
    """
    key, _, value = text.partition("=")
    is_bare = not text.isascii() and value[:1] not in ("'", '"', "[", "{")  # which Hydra's grammar has no letters for
    try:
        (override,) = _parser().parse_overrides([f"{key}={literal(value)}" if is_bare else text])
        if not override.key_or_group:
            raise ValueError("no key")
    except (HydraException, ValueError) as error:
        meant = [f"{group}={text}" for group in GROUPS if text in presets(group)]
        hint = f". Did you mean {' or '.join(meant)}?" if meant else ""
        raise ConfigError(
            f"{text!r} is not of the form key=value, such as train.steps=20 or run_dir='a, b'{hint}"
        ) from error
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


_parser = cache(OverridesParser.create)
"""It keeps nothing of what it reads."""


def _choices(parsed: Sequence[Override]) -> dict[str, str]:
    """Group -> preset, as chosen by name."""
    choices: dict[str, str] = {}
    for override in parsed:
        group = override.key_or_group
        if group not in GROUPS:
            continue
        value, possible = str(override.value()), presets(group)
        is_other = group in OFFERED and value not in possible
        offered = offered_names(OFFERED[group]) if is_other else []
        if group == "scenario" and is_bridged(value) and value not in offered:
            raise ConfigError(bridged_id(value))
        is_own = is_code(value) if group == "algorithm" else group == "scenario" and ":" in value
        if value not in possible and value not in offered and not is_own:
            hint = instead_of(value, offered) if group == "algorithm" else did_you_mean(value, {*possible, *offered})
            if group == "scenario" and value.endswith(".py"):
                hint = f"Name the class in the file: scenario={value}:CLASS"
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
    return checked_config(values, own)


def checked_config(values: Any, own: Algorithm[Any] | None = None) -> Config:
    """Values as a configuration.

    Raises:
        ConfigError: a value does not fit.
    """
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

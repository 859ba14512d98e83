"""From `algorithm.code` and `algorithm.options` to functions that training calls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from traceback import extract_tb
from typing import Any

from pydantic import ValidationError

from mas.algorithms.base import Algorithm, Row
from mas.algorithms.parts.advantages.pipeline import AdvantageOptions
from mas.algorithms.parts.losses.tokens import LossOptions
from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.registry import find_algorithm
from mas.config.checks import describe_option
from mas.config.owned import check_places, place
from mas.core.errors import ConfigError, MasError, TrainingError
from mas.core.options import Options

COMPARING = ("baseline", "scale", "single", "decay", "components", "strata", "tree")
"""Of `algorithm.advantage`: what an own function takes the place of."""
BOUNDING = ("surrogate", "ratio", "clip_low", "clip_high", "dual_clip", "tau_pos", "tau_neg", "bias_correction")
"""Of `algorithm.loss`, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomAlgorithm:
    """An algorithm with functions of its own, and the values of its options. `name`: as `algorithm.code` has it."""

    name: str
    algorithm: Algorithm[Any]
    options: Options

    @property
    def advantages(self) -> Callable[[Sequence[Row]], list[float]] | None:
        """One advantage per row; None: the parts say.

        The function raises TrainingError: the user's raised, or returned something else than a finite number per row.
        """
        return None if self.algorithm.advantages is None else self._advantages

    @property
    def loss(self) -> Callable[[Any], Any] | None:
        """From a loss's signals to each token's loss; None: the parts say."""
        return None if self.algorithm.loss is None else partial(self._called, "loss", self.algorithm.loss)

    @property
    def sampler(self) -> Callable[..., Any] | None:
        """What makes a sampler; None: `sampler.mode` says.

        Raises:
            TrainingError: the user's function raised.
        """
        own = self.algorithm.sampler
        return None if own is None else partial(self._sampler, self._called("sampler", own))

    def update(self, learner: Any, algorithm: AlgorithmOptions) -> Any | None:
        """The update; None: `algorithm.update` says.

        Raises:
            TrainingError: the user's function raised.
        """
        own = self.algorithm.update
        return None if own is None else self._called("update", own, learner, algorithm)

    def _advantages(self, rows: Sequence[Row]) -> list[float]:
        assert self.algorithm.advantages is not None
        found = self._called("advantages", self.algorithm.advantages, rows)
        source = f"advantages of algorithm {self.name!r}"
        try:
            values = [float(value) for value in found]
        except (TypeError, ValueError) as error:
            raise TrainingError(f"{source} returned no numbers: {error}. Return a list with one per row") from error
        if len(values) != len(rows):
            raise TrainingError(f"{source} returned {len(values)} numbers for {len(rows)} rows: return one per row")
        if wrong := [value for value in values if not isfinite(value)]:
            raise TrainingError(f"{source} returned {wrong[0]}: an advantage must be a finite number")
        return values

    def _sampler(self, made: Callable[..., Any], *arguments: Any) -> Any:
        """The sampler of a task, from what the user's function returned."""
        source = f"sampler of algorithm {self.name!r}"
        try:
            sampler = made(*arguments)
        except TypeError as error:
            raise TrainingError(
                f"{source} must return what is called with the fields of "
                f"mas.training.sampling.sampler.Sampler in their order, as a class derived from it: {error}"
            ) from error
        if not callable(getattr(sampler, "sample", None)):
            raise TrainingError(
                f"{source} makes {type(sampler).__name__!r}, which has no `sample`: derive a class from ParallelSampler"
            )
        return sampler

    def _called(self, part: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments, self.options)
        except MasError:
            raise
        except Exception as error:  # a user's code
            what = f"{type(error).__name__}: {error}{_line_of(error, function)}"
            raise TrainingError(f"{part} of algorithm {self.name!r} raised {what}") from error


def _line_of(error: Exception, function: Callable[..., Any]) -> str:
    """Where in the function's own file the error came from, in brackets; empty where that is not known."""
    path = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == path]
    return f" ({Path(path).name}, line {lines[-1]})" if path and lines else ""


def method_of(algorithm: AlgorithmOptions) -> CustomAlgorithm | None:
    """The functions that an algorithm has of its own, with its options checked; None: it is made of parts alone.

    Raises:
        ConfigError: the code cannot be loaded, its options do not fit or differ from the parts that they set, or one of
            its functions would have no effect.
    """
    if algorithm.code is None:
        if algorithm.options:
            key = next(iter(algorithm.options))
            raise ConfigError(
                f"algorithm.options.{key}: algorithm {algorithm.name!r} has no options of its own; those of all "
                "algorithms are algorithm.sampler, algorithm.reward, algorithm.advantage and algorithm.loss"
            )
        return None
    found = find_algorithm(algorithm.code)
    method = CustomAlgorithm(
        name=algorithm.code, algorithm=found, options=options_of(found, algorithm.code, algorithm.options)
    )
    if reason := _why_apart(found, method.options, algorithm) or _why_unused(found, algorithm):
        raise ConfigError(f"algorithm {algorithm.code!r}: {reason}")
    return method


def options_of(found: Algorithm[Any], name: str, values: Mapping[str, Any]) -> Options:
    """The options of an algorithm.

    Raises:
        ConfigError: the values do not fit, or as `check_places`.
    """
    check_places(name, found)
    try:
        options: Options = found.options(**values)
    except ValidationError as error:
        names = found.options.model_fields
        problems = [describe_option("algorithm.options", problem, names) for problem in error.errors()]
        raise ConfigError(f"algorithm {name!r}: " + " ".join(problems)) from error
    return options


def _why_apart(found: Algorithm[Any], options: Options, algorithm: AlgorithmOptions) -> str | None:
    """Which option says something else than the part that it sets; None: none does."""
    whole, values = algorithm.model_dump(mode="json"), options.model_dump(mode="json")
    for name, path in found.places.items():
        parts = dict(whole)
        place(parts, found, {name: values[name]})
        try:
            is_set = AlgorithmOptions.model_validate(parts).model_dump(mode="json") == whole
        except ValidationError:
            is_set = False
        if not is_set:
            return (
                f"algorithm.options.{name}={values[name]} is not what algorithm.{path} says: set the option on the "
                "command line, which changes both"
            )
    return None


def _why_unused(found: Algorithm[Any], algorithm: AlgorithmOptions) -> str | None:
    """Why a function of its own, or a part beside it, would have no effect; None: all have."""
    if found.advantages is not None:
        if algorithm.update != "policy_gradient" or found.update is not None:
            return "its advantages are read by algorithm.update=policy_gradient alone"
        if algorithm.reward.gain is not None:
            return "its advantages have no effect beside algorithm.reward.gain, which compares by itself"
        if reason := _why_replaced("advantage", algorithm.advantage, AdvantageOptions(), COMPARING):
            return reason
    if found.loss is not None:
        if algorithm.update != "policy_gradient":
            return "its loss is minimised by algorithm.update=policy_gradient alone"
        if reason := _why_replaced("loss", algorithm.loss, LossOptions(), BOUNDING):
            return reason
    if found.update is not None and algorithm.update != "policy_gradient":
        return f"it has an update of its own, so that algorithm.update={algorithm.update} has no effect"
    return None


def _why_replaced(section: str, options: Options, usual: Options, names: Sequence[str]) -> str | None:
    changed = [name for name in names if getattr(options, name) != getattr(usual, name)]
    if not changed:
        return None
    value = getattr(options, changed[0])
    return (
        f"algorithm.{section}.{changed[0]}={value} has no effect, as the algorithm has a function of its own in its "
        "place: leave it out"
    )

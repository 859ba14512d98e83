"""The workloads of `mas bench learner`: YAML files of this package, or a user's own. Needs no torch."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from benchmarks.learner.names import ROWS
from mas.config.options import LoraOptions
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.options import Options, Positive

_PACKAGE = "benchmarks.learner"
_FOLDER = "workloads"
_ENDS = (".yaml", ".yml")
_SPECIAL_IDS = 3
"""Of the tiny tokenizer: prompts and completions hold none of them."""

Share = Annotated[float, Field(gt=0)]


class ShapeOptions(Options):
    """A model with tied embeddings, of Qwen3 architecture where its weights are random; `spread`: their standard
    deviation."""

    hidden: Positive
    intermediate: Positive
    layers: Positive
    heads: Positive
    kv_heads: Positive
    head_size: Annotated[int, Field(ge=2, multiple_of=2)]
    vocabulary: Annotated[int, Field(gt=_SPECIAL_IDS)]
    spread: Share = 0.02

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads={self.heads} must be a multiple of kv_heads={self.kv_heads}")
        return self


class SweepOptions(Options):
    """Points that mas alone is measured at.

    `groups`: each value multiplies the groups of every role. `adapters`: each value is the number of roles; all groups
    together stay the same, token by token.
    """

    over: Literal["groups", "adapters"]
    values: Annotated[tuple[Positive, ...], Field(min_length=2)]


class TargetOptions(Options):
    """A goal for one row's measure / another's: `of` and `against` are short names of rows, or a sweep's values.

    `tokens_per_s` and its inverse `s_per_token` are compared within each round, and the median counts.
    """

    of: str
    against: str
    measure: Literal["tokens_per_s", "s_per_token", "peak_mib"] = "tokens_per_s"
    at_least: Share | None = None
    at_most: Share | None = None

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("a target has either at_least or at_most")
        return self


class WorkloadOptions(Options):
    """One step's work: `roles` x `groups` x `candidates` completions, the candidates of a group over one prompt.

    `prompt_tokens`: shortest and longest, drawn uniformly; `completion_tokens`: the same, drawn uniformly in the
    logarithm, as completions are: many short ones, a few long ones. `rows_per_forward`: of those that pad.
    `peft_packed_tokens`: most tokens in one forward of PEFT's packed loop, whose attention costs their square;
    `micro_batch_tokens`: the learner's option of that name. `max_gap`: how far gradients (relative, in norm) and losses
    of mas and the others may be from the padded loop's. `peak_tflops`: of the device in `dtype`, which MFU is a
    share of; None: that of the device's data sheet; for an unknown device there is no MFU. `sweep` None: everybody
    competes at this size. `model`: a pretrained model of this shape; None: random weights.
    """

    name: Annotated[str, Field(min_length=1)]
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"
    model: Literal["smollm2"] | None = None
    shape: ShapeOptions
    lora: LoraOptions = LoraOptions()
    roles: Positive = 4
    groups: Positive
    candidates: Annotated[int, Field(ge=2)] = 8
    prompt_tokens: tuple[Positive, Positive] = (128, 256)
    completion_tokens: tuple[Positive, Positive] = (16, 256)
    rows_per_forward: Positive = 8
    peft_packed_tokens: Positive = 1024
    micro_batch_tokens: Positive = 16384
    max_gap: Share = 1e-4
    peak_tflops: Share | None = None
    sweep: SweepOptions | None = None
    targets: tuple[TargetOptions, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for key in ("prompt_tokens", "completion_tokens"):
            low, high = getattr(self, key)
            if low > high:
                raise ValueError(f"{key}: the shortest, {low}, is longer than the longest, {high}")
        rows = self.groups * self.candidates
        if rows % self.rows_per_forward:
            raise ValueError(f"rows_per_forward={self.rows_per_forward} must divide the {rows} rows of a role")
        if self.sweep is not None and self.sweep.over == "adapters":
            for value in self.sweep.values:
                if self.roles * self.groups % value:
                    raise ValueError(f"sweep: {self.roles * self.groups} groups cannot be shared by {value} adapters")
        names = list(ROWS) if self.sweep is None else [str(value) for value in self.sweep.values]
        for target in self.targets:
            for name in (target.of, target.against):
                if name not in names:
                    raise ValueError(f"targets: no row {name!r}. {did_you_mean(name, names)}")
        return self

    @property
    def points(self) -> Mapping[str, "WorkloadOptions"]:
        """The workload of every point of the sweep, by its value; none without a sweep."""
        if self.sweep is None:
            return {}
        plain = {"sweep": None, "targets": ()}
        if self.sweep.over == "groups":
            return {str(n): self.model_copy(update=plain | {"groups": n * self.groups}) for n in self.sweep.values}
        total = self.roles * self.groups
        return {str(n): self.model_copy(update=plain | {"roles": n, "groups": total // n}) for n in self.sweep.values}

    def point_title(self, value: str) -> str:
        """What a point of the sweep is called."""
        over = self.sweep.over if self.sweep is not None else ""
        return f"{value} adapters" if over == "adapters" else f"{value}x groups"

    @property
    def layer_weights(self) -> int:
        """Of all linear maps in the layers; norms are left out."""
        shape = self.shape
        attention = 2 * shape.hidden * shape.head_size * (shape.heads + shape.kv_heads)
        return shape.layers * (attention + 3 * shape.hidden * shape.intermediate)

    @property
    def head_weights(self) -> int:
        """Of the head, which are the embeddings' as well."""
        return self.shape.vocabulary * self.shape.hidden

    @property
    def longest(self) -> int:
        """Tokens of the longest row that can be drawn."""
        return self.prompt_tokens[1] + self.completion_tokens[1]

    @property
    def ids(self) -> tuple[int, int]:
        """First and last token id of prompts and completions."""
        return _SPECIAL_IDS, self.shape.vocabulary - 1


def workload_names() -> list[str]:
    """The workloads that come with mas."""
    folder = resources.files(_PACKAGE).joinpath(_FOLDER)
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


def load_workload(name: str) -> WorkloadOptions:
    """A workload by its name, or from a file (a path that ends with .yaml).

    Raises:
        ConfigError: no such name or file, or what it holds does not fit.
    """
    if name in workload_names():
        text = resources.files(_PACKAGE).joinpath(_FOLDER, f"{name}.yaml").read_text(encoding="utf-8")
    elif name.endswith(_ENDS):
        text = _read(Path(name))
    else:
        raise ConfigError(
            f"--workload {name}: no such workload. {did_you_mean(name, workload_names())} "
            "A file of your own ends with .yaml."
        )
    try:
        return WorkloadOptions.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ConfigError(f"--workload {name} is not YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        problem = f"{key}: {first['msg']}" if key else first["msg"]
        raise ConfigError(f"--workload {name} does not fit: {problem.replace('Value error, ', '')}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"--workload {path} cannot be read: {reason}") from error

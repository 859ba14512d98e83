"""What an algorithm is: what it sets of the common parts, its own options, and its own functions. Free of torch."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from mas.core.options import Options
from mas.core.records import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is known of an algorithm beside its options.

    Attributes:
        title: as its authors call it; paper: arXiv id, empty for ours.
        does: what it does, one sentence.
        differs: from what its paper has; empty: in nothing that we know of beside models, sizes, learning rates and the
            entropy bonus, which is on unless a preset says otherwise.
        scenario: where its roles or rewards are found, and what it is tried on; empty: any.
        needs: what else a scenario must have; beside: further words of its command, without which it cannot run.
        options: what it sets of its scenario's own options, where it is chosen together with that scenario.
    """

    title: str
    does: str
    paper: str = ""
    differs: str = ""
    scenario: str = ""
    needs: str = ""
    beside: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is compared: a trajectory of one agent, or a single turn where turns of one trajectory may differ.

    Attributes:
        turns: in order; in tree sampling one.
        reward: of the whole row, as `algorithm.reward` weighs the terms, less penalties.
        group: rows with equal groups are compared with each other, as `algorithm.advantage.key` says.
    """

    turns: tuple[Turn, ...]
    reward: float
    group: Hashable


class NoOptions(Options):
    """An algorithm without options of its own."""


OptionsT = TypeVar("OptionsT", bound=Options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm(Generic[OptionsT]):
    """One algorithm, `algorithm=path/file.py` or `algorithm=package.module:NAME`.

    Each function is given the options, takes the place of one part, and may be left out: None is the part that
    `algorithm.*` says. A function that another part would keep from being called is refused.

    Attributes:
        parts: what it sets of `algorithm.*`, as nested mappings; the command line may set it otherwise, but for what
            only some algorithms have.
        options: its own options, which are set as `algorithm.options.KEY=VALUE`.
        places: name of one of these -> the part below `algorithm` that it sets, as "advantage.step.weight". Parts that
            only some algorithms have (`mas.config.owned.OWNED`) are set so, or fixed by `parts`.
        advantages: in place of `advantage.baseline` and `advantage.scale`: one advantage per row, for all its turns.
        loss: in place of `loss.surrogate` and its bounds: from `mas.algorithms.parts.losses.tokens.Signals` the loss of
            each token, to minimise, a tensor of J numbers.
        sampler: in place of `sampler.mode`: what makes a `mas.training.sampling.sampler.Sampler` of its arguments.
            `sampler.mode` says what its turns are like.
        update: in place of `algorithm.update`: a `mas.training.updates.update.Update`, of the learner, all options of
            the algorithm (`mas.algorithms.parts.options.AlgorithmOptions`), and its own.
    """

    recipe: Recipe
    parts: Mapping[str, Any] = field(default_factory=dict)
    options: type[OptionsT]
    places: Mapping[str, str] = field(default_factory=dict)
    advantages: Callable[[Sequence[Row], OptionsT], Sequence[float]] | None = None
    loss: Callable[[Any, OptionsT], Any] | None = None
    sampler: Callable[[OptionsT], Callable[..., Any]] | None = None
    update: Callable[[Any, Any, OptionsT], Any] | None = None

    @property
    def has_own(self) -> bool:
        """Whether it has options or functions of its own, beside what it sets of the common parts."""
        functions = (self.advantages, self.loss, self.sampler, self.update)
        return self.options is not NoOptions or any(function is not None for function in functions)

"""Two checks in every step that the served policy is the trained policy.

After the update and before publishing: the log-probabilities that the engine sampled with are compared with those that
the learner computed for the same tokens at the start of the step. They are equal if the whole serving path (adapter,
cache, padding, sampling) computes what the learner computes. Before a new version serves: the engine scores some of the
step's completions with it (`mas.serving.store`), and must find what the learner finds, which is computed here.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch

from mas.core.errors import TrainingError
from mas.serving.forward import ScoredRow, score_rows
from mas.serving.publication import Probe
from mas.serving.store import AdapterStore
from mas.training.batch import TrainRow
from mas.training.learner import Learner

_PROMPT_TOKENS = 16
"""Of a probe's prompt, its last ones, in float32. What rounding may do in bfloat16 was measured on whole texts."""

_Text = tuple[tuple[int, ...], tuple[int, ...]]
"""A prompt and a completion."""


def check_sampled(learned: Mapping[str, Mapping[str, float]], allowed: float) -> None:
    """Compare the samples of a step with the policy that the learner held before it; `learned` is its metrics.

    Raises:
        TrainingError: a `behaviour_gap` is above what is `allowed`, in mean nats a token.
    """
    for name, metrics in learned.items():
        gap = metrics["behaviour_gap"]
        if not gap <= allowed:
            raise TrainingError(
                f"the samples of adapter {name!r} were not drawn from the policy in training: their log-probabilities "
                f"differ by {gap:.2g} nats a token, at most {allowed:.2g} is allowed; the engine served another "
                "version, or computes something else"
            )


def check_held(store: AdapterStore, learner: Learner, names: Iterable[str]) -> None:
    """The store must hold the learner's tensors bit by bit, however small the last update was; an engine reads from it.

    Raises:
        TrainingError: it does not.
    """
    for name in names:
        held, trained = store.weights(name).parameters(), learner.adapters[name].parameters()
        if not all(torch.equal(a, b) for a, b in zip(held, trained, strict=True)):
            ref = store.current()[name]
            raise TrainingError(f"adapter {ref} holds other weights than the learner; its update was not delivered")


def probes_of(
    learner: Learner, rows: Sequence[TrainRow], names: Iterable[str], count: int = 2
) -> dict[str, tuple[Probe, ...]]:
    """Up to `count` different completions of each adapter with the log-probabilities that its weights give them now, in
    float32 behind the last tokens of their prompts; all in one pass.

    The first, and others to the same prompt if there are any: what they begin with in common is then computed once. A
    short text tells two sets of weights apart, and a long one costs more. None fills the context, since an engine may
    have to draw one token behind what it scores.
    """
    texts = [(name, text) for name in names for text in _texts(learner, rows, name)[:count]]
    if not texts:
        return {}
    scores = score_rows(learner.base, [ScoredRow(*text, learner.adapters[name]) for name, text in texts])
    probes: dict[str, tuple[Probe, ...]] = {}
    for (name, text), found in zip(texts, scores, strict=True):
        probes[name] = (*probes.get(name, ()), Probe(*text, found))
    return probes


def _texts(learner: Learner, rows: Sequence[TrainRow], name: str) -> list[_Text]:
    """What an adapter may be probed with, the best first."""
    room = learner.base.limits.context
    most = _PROMPT_TOKENS if learner.base.model.dtype == torch.float32 else room
    turns = [row.turn for row in rows if row.adapter == name]
    texts = dict.fromkeys((turn.prompt_ids[-most:], turn.completion_ids) for turn in turns)
    fitting = [text for text in texts if sum(map(len, text)) < room]
    return sorted(fitting, key=lambda text: text[0] != fitting[0][0])

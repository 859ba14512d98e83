"""Two checks in every step that the served policy is the trained policy.

Before an update: the log-probabilities that came with the samples against the learner's for the same tokens. They meet
if the whole serving path (adapter, cache, padding, sampling) computes what the learner computes. After an update: the
engine scores a few of the step's completions with the new version before it serves it, see `mas.serving.store`; here
the learner says what it should find.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import torch

from mas.core.errors import TrainingError
from mas.serving.forward import Row, completion_logprobs
from mas.serving.publication import Probe
from mas.serving.store import AdapterStore
from mas.training.batch import TrainRow
from mas.training.learner import Learner

_PROMPT_TOKENS = 16
"""Of a probe's prompt, its last ones, in float32. What rounding may do in bfloat16 was measured on whole texts."""


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


def probes_of(learner: Learner, rows: Sequence[TrainRow], name: str, count: int = 2) -> tuple[Probe, ...]:
    """The first `count` completions of an adapter with the log-probabilities that its weights give them now, in
    float32 behind the last tokens of their prompts.

    A short text tells two sets of weights apart, and a long one costs more. None fills the context, since an engine may
    have to draw one token behind what it scores.
    """
    room = learner.base.limits.context
    own = (row.turn for row in rows if row.adapter == name)
    most = _PROMPT_TOKENS if learner.base.model.dtype == torch.float32 else room
    texts = ((turn.prompt_ids[-most:], turn.completion_ids) for turn in own)
    taken = list(islice((text for text in texts if sum(map(len, text)) < room), count))
    if not taken:
        return ()
    inputs = [Row(prompt, completion, learner.adapters[name]) for prompt, completion in taken]
    scores = completion_logprobs(learner.base.model, learner.base.bank, inputs)
    return tuple(Probe(*text, found) for text, found in zip(taken, scores, strict=True))

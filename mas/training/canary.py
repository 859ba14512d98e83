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
    """The first `count` completions of an adapter with the log-probabilities that its weights give them now.

    None fills the context, since an engine may have to draw one token behind what it scores.
    """
    room = learner.base.limits.context
    fitting = (row for row in rows if len(row.turn.prompt_ids) + len(row.turn.completion_ids) < room)
    own = list(islice((row for row in fitting if row.adapter == name), count))
    return tuple(Probe(row.turn.prompt_ids, row.turn.completion_ids, _scores(learner, row)) for row in own)


def _scores(learner: Learner, row: TrainRow) -> tuple[float, ...]:
    turn = row.turn
    inputs = Row(turn.prompt_ids, turn.completion_ids, learner.adapters[row.adapter])
    return completion_logprobs(learner.base.model, learner.base.bank, [inputs])[0]

"""Whether samples were drawn from the adapter versions that they name, by the learner's own log-probabilities."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from mas.core.engine import AdapterRef
from mas.core.errors import TrainingError
from mas.core.records import Episode, Turn
from mas.serving.adapter_weights import AdapterWeights
from mas.training.batch import TrainRow
from mas.training.learner import Learner

_CHECKED_TURNS = 8
"""Of each older version that has sampled for a step: its own weights must give them what it drew them with."""


def older_gaps(
    learner: Learner,
    episodes: Sequence[Episode],
    trained: Mapping[str, str],
    older: Mapping[AdapterRef, AdapterWeights],
) -> dict[str, float]:
    """Of each adapter that older versions have sampled for: mean nats a token between what was sampled and what the
    weights of that version give up to eight of its turns in the learner."""
    turns: dict[AdapterRef, list[Turn]] = {ref: [] for ref in older}
    for turn in (turn for episode in episodes for turn in episode.turns if turn.role in trained):
        if turn.adapter in turns and len(turns[turn.adapter]) < _CHECKED_TURNS:
            turns[turn.adapter].append(turn)
    gaps: dict[str, list[float]] = {}
    for ref, checked in turns.items():
        rows = [TrainRow(turn, ref.name, 0.0, 1.0) for turn in checked]
        logprobs = learner.logprobs(rows, adapters={ref.name: older[ref]}) if rows else {}
        for turn in checked:
            pairs = zip(logprobs[id(turn)], turn.logprobs, strict=True)
            gaps.setdefault(trained[turn.role], []).extend(abs(own - drawn) for own, drawn in pairs)
    return {name: fmean(found) for name, found in gaps.items()}


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

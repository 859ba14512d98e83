"""What every metric of a run means, in one line each, and what is healthy.

The full text is docs/training.md, "Metrics". A pattern is a flat name in which `*` stands for one part, such as a role.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Meaning:
    """One line on a metric, and one on its healthy values; `healthy` is empty where no value is better than another."""

    text: str
    healthy: str = ""


_MEANINGS: dict[str, Meaning] = {
    "reward": Meaning("what the environment paid the team, mean over the step's committed episodes", "rises"),
    "success": Meaning(
        "share of the step's training episodes that were solved; where winners are picked it flatters",
        "rises; judge by the held-out tasks",
    ),
    "passes": Meaning("share of team turns without an action", "falls to 0"),
    "episodes/done": Meaning("episodes of the step that were played to the end", "all of them"),
    "episodes/failed": Meaning("episodes that could not be played; samples.jsonl has the causes", "0"),
    "failed_attempts": Meaning("attempts at agents that failed, also where another attempt succeeded", "near 0"),
    "collapse": Meaning(
        "zero-variance groups: share of compared groups in which all are paid the same, so that they teach nothing",
        "below 0.5; near 1 for several steps means that nothing is learned",
    ),
    "tokens": Meaning("prompt and completion tokens that sampling has cost so far, evaluation not counted"),
    "calls": Meaning("calls of the engine so far; a request for K candidates is K calls"),
    "prompt_tokens": Meaning("prompt tokens so far, with the prompt of every call"),
    "shared_prompt_tokens": Meaning("prompt tokens so far, equal prompts of one adapter and step counted once"),
    "completion_tokens": Meaning("tokens that models wrote so far"),
    "optimiser_steps": Meaning("updates of the weights so far"),
    "measures/*": Meaning("what the scenario measures beside rewards, mean over the step's episodes"),
    "eval/*/success": Meaning("share of held-out tasks that were solved", "rises"),
    "eval/*/turns": Meaning("team turns that a held-out episode took, mean"),
    "eval/*/passes": Meaning("share of team turns without an action, on held-out tasks", "falls to 0"),
    "eval/*/failures": Meaning("share of outputs that did not parse, on held-out tasks", "falls to 0"),
    "eval/*/unplayed": Meaning("held-out episodes that an error ended; they count as not solved", "0"),
    "eval/*/measures/*": Meaning("what the scenario measures beside rewards, on held-out tasks"),
    "eval/*/loops/*/triggered": Meaning("share of team turns in which this loop of the team was taken"),
    "eval/*/loops/*/rounds": Meaning("how often this loop was taken in a team turn, mean"),
    "eval/*/loops/*/saved": Meaning("rounds that the loop's bound allows and that were not needed, mean"),
    "seconds/sample": Meaning("seconds that the step's episodes took, environments included"),
    "seconds/environment": Meaning("the part of the sampling that environments took", "a small share"),
    "seconds/learn": Meaning("seconds that the update took"),
    "seconds/publish": Meaning("seconds that the canary and the new versions took", "a small share"),
    "seconds/evaluate/*": Meaning("seconds that an evaluation took"),
    "canary/*/gap": Meaning(
        "mean gap, in nats a token, between what the engine and the trainer compute for the same completion",
        "0, and never above the allowed gap, which stops the run",
    ),
    "canary/*/allowed": Meaning("the largest gap that does not stop the run"),
    "canary/*/from_previous": Meaning(
        "how far the new version of the adapter is from the version before, in nats a token",
        "above 0 while it learns; no sudden jumps",
    ),
    "in_flight/batches": Meaning("batches that are played or learned from in this step"),
    "in_flight/staleness/*": Meaning("by how many updates the step's samples are older than the adapter", "low"),
    "in_flight/groups_dropped": Meaning("groups that were too old and were played again", "near 0"),
    "in_flight/played_s": Meaning("seconds that the batch was played"),
    "in_flight/waited_s": Meaning("seconds that the learner waited for the batch", "near 0: else add workers"),
    "in_flight/idle_s": Meaning("seconds in which nothing was played since the step before", "near 0"),
    "workers/count": Meaning("processes that play episodes"),
    "workers/restarts": Meaning("how often one of the workers was started again so far", "0"),
    "learners/count": Meaning("processes that share an update, the one that trains included"),
    "learners/restarts": Meaning("how often one of the learners was started again so far", "0"),
    "engines/count": Meaning("engines that answer"),
    "engines/restarts": Meaning("how often one of the engines was started again so far", "0"),
    "engines/requests/*": Meaning("requests that this engine got since the step before", "alike for all engines"),
    "replay/tasks": Meaning("tasks with a success in store"),
    "replay/stored": Meaning("successes in store"),
    "replay/injected": Meaning("groups of the step that got a stored success"),
    "opponents/*/games": Meaning("games against this opponent so far"),
    "opponents/*/payoff": Meaning("what the learner got against it, running mean", "rises"),
    "opponents/*/points": Meaning("points of the learner against it, running mean", "rises"),
    "tasks/arms/*/count": Meaning("tasks of the step that came from this arm"),
    "tasks/arms/*/success": Meaning("share of this arm's tasks that were solved", "rises"),
    "tasks/arms/*/reward": Meaning("reward of this arm's tasks, mean", "rises"),
    "tasks/arms/*/flat": Meaning("share of this arm's groups that taught nothing", "below 0.5"),
    "tasks/epoch": Meaning("epochs done, with the fraction of the current one"),
    "tasks/stage": Meaning("stage of the curriculum that the next step plays, from 0"),
    "tasks/chance/*": Meaning("probability that a task of the next step is of this arm"),
    "tasks/failed": Meaning("tasks that wait to be played again"),
    "tasks/replayed": Meaning("tasks of this step that were played again"),
    "reward_model/*/loss": Meaning("loss of the reward model on the step's batch, before its update", "falls"),
    "reward_model/*/loss_after": Meaning("the same after its update", "below the loss before"),
    "reward_model/*/contribution": Meaning("what a turn contributes to the progress, mean"),
    "reward_model/*/pairs": Meaning("pairs of a success and a failure"),
    "reward_model/*/accuracy": Meaning("share of pairs in which the success now scores more", "towards 1"),
    "late/taken": Meaning("late reward terms that came in time", "most of them"),
    "late/defaulted": Meaning("late reward terms that got their default", "near 0"),
    "late/too_late": Meaning("answers that came after their term had its default", "near 0"),
    "late/refused": Meaning("answers that were refused", "0"),
    "filter/kept": Meaning("tasks of the step that were kept"),
    "filter/dropped": Meaning("tasks of the step that the filter dropped"),
    "filter/skipped": Meaning("1 in a step that trains nothing, as no task was kept", "0"),
    "preference/*/value": Meaning("value of the role's candidates, mean", "rises"),
    "preference/*/positives": Meaning("candidates to imitate", "above 0"),
    "preference/*/pairs": Meaning("pairs of a better and a worse candidate", "above 0"),
    "warm_start/episodes": Meaning("episodes that were sampled for the warm start"),
    "warm_start/kept": Meaning("episodes with a turn that was imitated", "above 0"),
    "warm_start/tasks": Meaning("tasks that were sampled for the warm start"),
    "warm_start/tasks_kept": Meaning("tasks with a turn that was imitated", "above 0"),
    "warm_start/turns/*": Meaning("turns that the role imitated", "above 0"),
    "roles/*/reward": Meaning("total reward of the role's candidates, mean", "rises"),
    "roles/*/terms/*": Meaning("one named term of the role's reward, before weights, mean over its turns"),
    "roles/*/advantage_std": Meaning("spread of the role's advantages", "above 0: at 0 there is nothing to learn from"),
    "roles/*/groups": Meaning("groups of candidates that are compared with each other"),
    "roles/*/groups_single": Meaning("groups of one candidate, which has nothing to be compared with", "near 0"),
    "roles/*/groups_zero_variance": Meaning("groups whose rewards are all equal: they teach nothing", "few"),
    "roles/*/reward_spread": Meaning("standard deviation of the reward inside a group, mean over groups", "above 0"),
    "roles/*/failures": Meaning("share of the role's outputs that did not parse", "falls to 0"),
    "roles/*/turns": Meaning("candidates of the role in this step"),
    "roles/*/completion_tokens": Meaning("tokens of the role's candidates in this step", "does not grow without end"),
    "roles/*/is_trained": Meaning("1 where the role is trained, 0 where it is frozen"),
    "experiences/*/version": Meaning("version of what the role has learned as text"),
    "experiences/*/count": Meaning("experiences of the role's library"),
    "experiences/*/characters": Meaning("length of all experiences of the role"),
    "experiences/*/groups": Meaning("tasks that the role took part in"),
    "experiences/*/groups_telling": Meaning("tasks of the role with better and worse episodes", "above 0"),
    "experiences/*/added": Meaning("experiences that were added"),
    "experiences/*/updated": Meaning("experiences that were changed"),
    "experiences/*/deleted": Meaning("experiences that were deleted"),
    "experiences/*/refused": Meaning("operations of the editor that were refused", "near 0"),
    "experiences/*/editor_tokens": Meaning("tokens that the editor cost"),
    "experiences/*/editor_calls": Meaning("calls of the editor"),
    "adapters/*/policy_loss": Meaning(
        "the surrogate without KL and entropy terms", "near 0 on policy; it tells nothing about success"
    ),
    "adapters/*/ratio": Meaning("probability of the samples now over that at sampling, mean", "near 1"),
    "adapters/*/ratio_max": Meaning("the greatest such ratio", "of the order of 1"),
    "adapters/*/clip_fraction": Meaning("share of tokens whose gradient the clip takes away", "below 0.2"),
    "adapters/*/importance": Meaning("trainer's over engine's probability of the samples, mean", "1 on policy"),
    "adapters/*/importance_max": Meaning("the greatest such importance weight", "near 1 on policy"),
    "adapters/*/importance_clipped": Meaning("share of tokens above loss.importance_cap", "near 0"),
    "adapters/*/token_band_masked": Meaning("share of tokens that the token band leaves out", "near 0"),
    "adapters/*/sequence_band_masked": Meaning("share of tokens that the sequence band leaves out", "near 0"),
    "adapters/*/veto_masked": Meaning("share of tokens that the veto leaves out", "near 0"),
    "adapters/*/off_policy_masked": Meaning("share of tokens that any off-policy mask leaves out", "near 0"),
    "adapters/*/behaviour_gap": Meaning(
        "gap between the samples' log-probabilities and the trainer's before the step, nats a token", "near 0"
    ),
    "adapters/*/ess": Meaning("effective sample size of the importance weights, as a share", "near 1"),
    "adapters/*/entropy": Meaning(
        "how undecided the adapter is, in nats over legal tokens", "falls slowly; near 0 it explores no more"
    ),
    "adapters/*/smoothing": Meaning("nats that the entropy is outside its band", "0"),
    "adapters/*/kl": Meaning("distance to the reference model, in nats", "grows slowly"),
    "adapters/*/gradient_norm": Meaning("length of the gradient before clipping", "steady; no jumps"),
    "adapters/*/value_loss": Meaning("mean squared error of the critic", "falls"),
    "adapters/*/explained_variance": Meaning("how well the critic predicts returns: 1 perfect, 0 a constant", "rises"),
    "adapters/*/value": Meaning("value that the critic predicts, mean", "near the return"),
    "adapters/*/return": Meaning("discounted sum of what was paid, mean", "rises"),
    "adapters/*/critic_gradient_norm": Meaning("length of the critic's gradient before clipping", "steady; no jumps"),
    "adapters/*/tokens": Meaning("tokens that the adapter was trained on in this step", "above 0"),
    "adapters/*/rows": Meaning("completions that the adapter was trained on in this step", "above 0"),
    "adapters/*/sft_loss": Meaning("mean of -log probability over tokens to imitate", "falls"),
    "adapters/*/dpo_loss": Meaning("preference loss, mean over pairs", "falls"),
    "adapters/*/margin": Meaning("margin of the better over the worse candidate, mean", "rises above 0"),
    "adapters/*/accuracy": Meaning("share of pairs with a margin above 0", "towards 1"),
}
"""Flat pattern -> meaning; the first that fits counts."""

_PATTERNS = [(tuple(pattern.split("/")), meaning) for pattern, meaning in _MEANINGS.items()]


@cache
def meaning_of(name: str) -> Meaning | None:
    """The meaning of a flat metric name such as `roles/planner/reward`; None where the table has none."""
    place, _ = order_of(name)
    return _PATTERNS[place][1] if place < len(_PATTERNS) else None


def order_of(name: str) -> tuple[int, str]:
    """A key that sorts metric names as the table has them, those that it does not have last."""
    parts = name.split("/")
    if parts[0] == "adapters":  # of one role among several that share the adapter: `adapters/team/planner.ess`
        parts[-1] = parts[-1].rpartition(".")[2]
    places = (place for place, (pattern, _) in enumerate(_PATTERNS) if _fits(pattern, parts))
    return next(places, len(_PATTERNS)), name


def _fits(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    return len(pattern) == len(parts) and all(
        wanted in ("*", part) for wanted, part in zip(pattern, parts, strict=True)
    )

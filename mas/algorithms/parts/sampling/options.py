"""How candidates are drawn. What draws them needs a runtime: `mas.training.sampling`."""

from typing import Annotated, Literal

from pydantic import Field

from mas.algorithms.parts.sampling.attempts import AttemptOptions
from mas.algorithms.parts.sampling.branching import BranchOptions
from mas.algorithms.parts.sampling.selection import FilterOptions, ResampleOptions, SuccessReplayOptions
from mas.algorithms.parts.schedules import HorizonOptions
from mas.core.options import Count, Options, Positive, Share


class SamplerOptions(Options):
    """How candidates are drawn.

    `tree`: at each decision K `candidates` from one prompt and state, each scored on its own clone, one committed.
    `parallel`: K whole episodes per task, each compared with the others.
    `full_tree`: K candidates at each decision, and all of them are carried on, to `max_leaves` ends of a task at most.
    `entropy_tree`: K whole episodes per task, some of which `branch` off from others where entropy is high.
    `lookahead`: how far a candidate is played on before the team's reward is read: not at all (`action`), to the end
    of the team turn (`turn`), or of the episode (`episode`); `continuations` play-outs are averaged.
    `commit_best`: probability that the best candidate is committed; otherwise one is drawn uniformly.
    `attempts`: an episode is several attempts at its task.
    `refill`: a task none of whose groups has anything to teach is replaced by another one, so many times a step.
    """

    mode: Literal["tree", "parallel", "full_tree", "entropy_tree"] = "tree"
    candidates: Annotated[int, Field(ge=2)] = 8
    lookahead: Literal["action", "turn", "episode"] = "turn"
    continuations: Positive = 1
    commit_best: Share = 1.0
    max_leaves: Positive = 256
    branch: BranchOptions = BranchOptions()
    attempts: AttemptOptions | None = None
    horizon: HorizonOptions | None = None
    resample: ResampleOptions | None = None
    refill: Count = 0
    filter: FilterOptions | None = None
    replay: SuccessReplayOptions | None = None

    def unused_reason(self, name: str) -> str | None:
        """Why an option has no effect beside the others; None: it has one."""
        if name in ("lookahead", "continuations", "commit_best") and self.mode != "tree":
            how = "plays whole episodes; only mode=tree has decisions to look ahead from"
            if self.mode == "full_tree":
                how = "carries every candidate on to the end; only mode=tree looks ahead"
            return f"algorithm.sampler.mode={self.mode} {how}"
        if name == "continuations" and self.lookahead == "action":
            return "with lookahead=action nothing is played on, so there is nothing to average"
        return None

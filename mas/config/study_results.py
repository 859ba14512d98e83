"""What the fair comparison measured of the algorithms that it has, for `mas algorithms`: docs/study.md.

All other algorithms have no number there: they run and their mechanism is tested, and a short training with options
that suit another algorithm would not rank them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StudyResult:
    """Mean greedy success on test tasks in `study`, untrained and trained as `arm`, tiny base with habits."""

    study: str
    scenario: str
    arm: str
    before: float
    after: float

    def __str__(self) -> str:
        return f"{self.study}, {self.scenario}: {self.before:.2f} → {self.after:.2f}"


STUDY_RESULTS: dict[str, StudyResult] = {
    "at_grpo": StudyResult("fair", "relay", "agent_turn_branching", before=0.24, after=0.72),
    "cispo": StudyResult("fair_presets", "relay", "cispo", before=0.24, after=0.76),
    "dapo": StudyResult("fair_presets", "relay", "dapo", before=0.24, after=0.72),
    "gigpo": StudyResult("fair_grid", "plan_path", "gigpo", before=0.04, after=0.70),
    "gspo": StudyResult("fair_presets", "relay", "gspo", before=0.24, after=0.44),
    "parallel_grpo": StudyResult("fair", "relay", "episode_parallel", before=0.24, after=0.78),
    "ppo": StudyResult("fair_presets", "relay", "ppo", before=0.24, after=0.73),
    "rae": StudyResult("fair_presets", "relay", "rae", before=0.24, after=0.70),
    "reinforce_pp": StudyResult("fair_presets", "relay", "reinforce_pp", before=0.24, after=0.74),
    "rloo": StudyResult("fair_presets", "relay", "rloo", before=0.24, after=0.71),
}

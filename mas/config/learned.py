"""What presets reached in a short training, for `mas algorithms`: the mean of three seeds.

Numbers are those of `docs/algorithms/NAME.md`: mean success on 60 or 100 held-out tasks, greedy, of the tiny base.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Learned:
    """`before` and `after` training on `scenario`, for so many tokens of sampling."""

    scenario: str
    tokens: int
    before: float
    after: float

    def __str__(self) -> str:
        return f"{self.scenario}: {self.before:.2f} → {self.after:.2f}, {self.tokens / 1000:.0f}k tokens"


LEARNED: dict[str, Learned] = {
    "aepo": Learned("tool_use", tokens=49000, before=0.00, after=0.23),
    "agent_rlvr": Learned("refine", tokens=27000, before=0.69, after=0.76),
    "arpo": Learned("relay", tokens=50000, before=0.21, after=0.59),
    "aspo": Learned("tool_use", tokens=63000, before=0.00, after=0.31),
    "at2po": Learned("tool_use", tokens=109000, before=0.00, after=0.19),
    "at_grpo": Learned("relay", tokens=25_000, before=0.21, after=0.99),
    "bnpo": Learned("relay", tokens=63_000, before=0.25, after=0.81),
    "cispo": Learned("relay", tokens=26_000, before=0.21, after=0.61),
    "clip_delta": Learned("plan_path", tokens=122000, before=0.15, after=0.68),
    "comas": Learned("discussion", tokens=300_000, before=0.40, after=0.45),
    "cory": Learned("refine", tokens=48000, before=0.50, after=0.91),
    "dapo": Learned("relay", tokens=26_000, before=0.21, after=0.44),
    "dpo": Learned("refine", tokens=87_000, before=0.50, after=0.89),
    "dr_grpo": Learned("relay", tokens=26_000, before=0.21, after=0.59),
    "e_grpo": Learned("retrieval", tokens=74000, before=0.02, after=0.77),
    "eapo": Learned("plan_path", tokens=130_000, before=0.15, after=0.53),
    "empg": Learned("plan_path", tokens=130_000, before=0.15, after=0.53),
    "epo": Learned("relay", tokens=26_000, before=0.21, after=0.74),
    "flow_grpo": Learned("workflow", tokens=102_000, before=0.28, after=0.94),
    "gdpo": Learned("relay", tokens=26_000, before=0.21, after=0.72),
    "gigpo": Learned("plan_path", tokens=130_000, before=0.15, after=0.59),
    "gmpo": Learned("relay", tokens=26_000, before=0.21, after=0.65),
    "gpg": Learned("relay", tokens=25_000, before=0.21, after=0.67),
    "grpo_roc": Learned("tool_use", tokens=71000, before=0.00, after=0.20),
    "gspo": Learned("relay", tokens=26_000, before=0.21, after=0.38),
    "hi_agent": Learned("plan_path", tokens=209_000, before=0.18, after=0.77),
    "hiersearch": Learned("subagents", tokens=253_000, before=0.81, after=0.91),
    "action_grpo": Learned("plan_path", tokens=211_000, before=0.18, after=0.71),
    "igpo": Learned("relay", tokens=27000, before=0.23, after=0.70),
    "malt": Learned("refine", tokens=86_000, before=0.50, after=0.72),
    "matpo": Learned("subagents", tokens=145_000, before=0.77, after=0.99),
    "mlpo": Learned("refine", tokens=77_000, before=0.66, after=0.95),
    "mmoa_rag": Learned("retrieval", tokens=122000, before=0.07, after=0.92),
    "opo": Learned("relay", tokens=25_000, before=0.21, after=0.49),
    "oprl": Learned("plan_path", tokens=139000, before=0.15, after=0.20),
    "owl": Learned("subagents", tokens=37_000, before=0.87, after=0.95),
    "parallel_grpo": Learned("relay", tokens=26_000, before=0.21, after=0.71),
    "pass_at_k": Learned("relay", tokens=25_000, before=0.21, after=0.51),
    "pilotrl": Learned("workflow", tokens=171_000, before=0.38, after=1.00),
    "poad": Learned("plan_path", tokens=219_000, before=0.18, after=0.75),
    "ppo": Learned("relay", tokens=26_000, before=0.21, after=0.70),
    "replan": Learned("workflow", tokens=79_000, before=0.40, after=0.99),
    "rae": Learned("relay", tokens=26_000, before=0.21, after=0.55),
    "re_rest": Learned("refine", tokens=6000, before=0.74, after=0.91),
    "reinforce_pp": Learned("relay", tokens=26_000, before=0.21, after=0.70),
    "reinforce_pp_baseline": Learned("relay", tokens=26_000, before=0.21, after=0.57),
    "retroformer": Learned("refine", tokens=44000, before=0.70, after=0.81),
    "rise": Learned("refine", tokens=15_000, before=0.66, after=0.77),
    "rloo": Learned("relay", tokens=26_000, before=0.21, after=0.51),
    "s_ppo": Learned("plan_path", tokens=128000, before=0.15, after=0.66),
    "sapo": Learned("relay", tokens=26_000, before=0.21, after=0.63),
    "search_self_play": Learned("propose", tokens=60_000, before=0.28, after=0.54),
    "scaling_inter": Learned("plan_path", tokens=202_000, before=0.18, after=1.00),
    "single_grpo": Learned("relay", tokens=25_000, before=0.51, after=1.00),
    "spa_rl": Learned("plan_path", tokens=134000, before=0.15, after=0.44),
    "srgpo": Learned("plan_path", tokens=204_000, before=0.18, after=0.74),
    "st_ppo": Learned("plan_path", tokens=128000, before=0.15, after=0.61),
    "stratified_grpo": Learned("retrieval", tokens=41000, before=0.02, after=0.68),
    "tool_learner": Learned("tool_use", tokens=44_000, before=0.00, after=0.99),
    "tool_rl": Learned("tool_use", tokens=47_000, before=0.00, after=0.16),
    "topr": Learned("relay", tokens=27_000, before=0.25, after=0.48),
    "training_free": Learned("relay", tokens=38_000, before=0.21, after=0.13),
    "turn_ppo": Learned("plan_path", tokens=199_000, before=0.18, after=0.69),
    "waltzrl": Learned("safe_reply", tokens=98_000, before=0.64, after=1.00),
}

"""What is known of every algorithm preset beside its options: paper, scenario, what differs; for `mas algorithms`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One `algorithm=NAME`.

    Attributes:
        title: as its authors call it; paper: arXiv id, empty for ours.
        does: what it does, one sentence.
        differs: from what its paper has; empty: in nothing that we know of beside models, sizes, learning rates and the
            entropy bonus, which is on unless a preset says otherwise.
        scenario: where its roles or rewards are found, and what it is tried on; empty: any.
        needs: what else a scenario must have.
    """

    title: str
    paper: str
    does: str
    differs: str = ""
    scenario: str = ""
    needs: str = ""


RECIPES: dict[str, Recipe] = {
    "training_free": Recipe(
        title="Training-Free GRPO",
        paper="2510.08191",
        does="No weight changes: an editor writes down what better episodes did otherwise, a library of text per role.",
        differs="a library per role, which the editor fills from what that role saw; a batch of one group is not "
        "consolidated; roles sample at their own temperature",
    ),
    "at_grpo": Recipe(
        title="AT-GRPO",
        paper="2510.11062",
        does="K candidates per agent and turn from one state, compared with each other; the best goes on.",
        differs="groups also hold the state; what a candidate is worth is played out to the end of the team turn",
    ),
    "parallel_grpo": Recipe(
        title="GRPO over a team's episodes",
        paper="2402.03300",
        does="K whole episodes of a task; every turn of an agent has its episode's advantage.",
        differs="groups are those of one task and agent, statistics count each trajectory once",
    ),
    "single_grpo": Recipe(
        title="GRPO, a single agent",
        paper="2402.03300",
        does="K whole episodes of one agent that sees all that the team sees together: the honest baseline.",
    ),
    "rloo": Recipe(
        title="RLOO",
        paper="2402.14740",
        does="Each episode is compared with the mean of the others.",
        differs="the surrogate keeps PPO's clip; on policy it has the gradient of the plain one",
    ),
    "reinforce_pp": Recipe(
        title="REINFORCE++",
        paper="2501.03262",
        does="No groups: rewards less the KL, whitened over all tokens of an adapter's batch.",
        differs="each trajectory pays the KL of all its turns at once, with discount 1",
    ),
    "reinforce_pp_baseline": Recipe(
        title="REINFORCE++ with baseline",
        paper="2501.03262",
        does="Less the group's mean, then whitened over all tokens of an adapter's batch.",
        differs="no KL in the loss: set loss.kl and loss.kl_estimator=k2 for it",
    ),
    "dr_grpo": Recipe(
        title="Dr.GRPO",
        paper="2503.20783",
        does="Less the group's mean; sums over tokens are divided by a constant.",
        differs="the constant (loss.max_length) is 8 tokens, for the tiny base",
    ),
    "dapo": Recipe(
        title="DAPO",
        paper="2503.14476",
        does="A higher upper bound, all tokens weigh the same, tasks without anything to teach are replaced.",
        differs="tasks are replaced at most twice a step; the over-long penalty is off: reward.length has it",
    ),
    "gspo": Recipe(
        title="GSPO",
        paper="2507.18071",
        does="One ratio for all tokens of a turn, its geometric mean, between narrow bounds.",
        differs="a sequence is one turn; loss.ratio=sequence takes all turns of an agent's episode",
    ),
    "cispo": Recipe(
        title="CISPO",
        paper="2506.13585",
        does="The ratio is a bounded weight of log pi: no token loses its gradient.",
        differs="the bound is ScaleRL's, 5 from above alone",
    ),
    "gmpo": Recipe(
        title="GMPO", paper="2507.20673", does="The geometric mean of the bounded ratios of a turn's tokens."
    ),
    "sapo": Recipe(title="SAPO", paper="2511.20347", does="A smooth gate in place of the clip."),
    "ppo": Recipe(
        title="PPO with a critic",
        paper="1707.06347",
        does="A value function per adapter; every token has an advantage from what followed it.",
        differs="the critic is an adapter of the same base with a linear head",
    ),
    "poad": Recipe(
        title="POAD",
        paper="2405.15821",
        does="PPO whose discount counts an agent's turns and not its tokens.",
        differs="the critic is an adapter of the same base with a linear head",
    ),
    "turn_ppo": Recipe(
        title="Turn-PPO",
        paper="2512.17008",
        does="One advantage and one ratio for all tokens of a turn, with a critic.",
        differs="the form of the turn-level estimate is our reading",
    ),
    "st_ppo": Recipe(
        title="ST-PPO",
        paper="2511.20718",
        does="Turn-PPO, and turns that clipping takes much of their surrogate from weigh less.",
        differs="the form of the correction, 1 / (1 + bias), is our reading",
    ),
    "epo": Recipe(
        title="EPO (entropy-regularised)",
        paper="2509.22576",
        does="An entropy bonus, and each token's entropy is held in a band around what it used to be.",
        differs="the penalty is a hinge, which has a gradient (the published constant has none), at every step",
    ),
    "tool_rl": Recipe(
        title="ToolRL",
        paper="2504.13958",
        does="GRPO on the parts of a tool call: form, tool names, argument names, values.",
        differs="the caller is one of three roles, the others are paid for form alone; its constant of -3 is left out",
        scenario="tool_use",
    ),
    "gdpo": Recipe(
        title="GDPO",
        paper="2601.05242",
        does="Every term of the reward is normalised by itself, then their weighted sum over the batch.",
    ),
    "flow_grpo": Recipe(
        title="Flow-GRPO (AgentFlow)",
        paper="2510.05592",
        does="Only the planner is trained; the episode's outcome is the advantage of each of its turns.",
        differs="trajectories weigh equally in statistics and loss, as the paper has it and its code does not",
        scenario="plan_path",
    ),
    "matpo": Recipe(
        title="MATPO",
        paper="2510.04678",
        does="One policy plays planner and workers; only planners are compared, workers inherit.",
        differs="set weights of the scenario's own terms to 0 for the paper's reward; see the page",
        scenario="delegate",
    ),
    "gigpo": Recipe(
        title="GiGPO",
        paper="2505.10978",
        does="Beside episodes, turns that began in the same state are compared by their discounted returns.",
        differs="statistics count each trajectory once, which the published code does not",
        needs="several turns",
    ),
    "srgpo": Recipe(
        title="SRGPO",
        paper="2512.02631",
        does="Beside episodes, what single steps were paid is compared in random groups of 16.",
        differs="groups are drawn within a role",
        needs="several turns",
    ),
    "rae": Recipe(
        title="RAE (SPIRAL)",
        paper="2506.24119",
        does="The baseline is each role's running mean reward, read before it learns of the reward.",
        differs="for cooperative teams; self-play is not there yet; keyed by role, not by game and role",
    ),
    "stratified_grpo": Recipe(
        title="Stratified GRPO",
        paper="2510.06214",
        does="Trajectories are compared with those of as many turns, blended with all of the group.",
        differs="the share of the blend (0.8) is ours, the paper's was not seen",
        needs="several turns",
    ),
    "empg": Recipe(
        title="EMPG",
        paper="2509.09265",
        does="Advantages of confident turns are larger, and turns that lead to one get a bonus.",
        differs="its constants are ours, the exponential form of the bonus is our reading; entropies within a role",
    ),
    "scaling_inter": Recipe(
        title="ScalingInter-RL (AgentGym-RL)",
        paper="2509.08755",
        does="Episodes may take more turns as training goes on.",
        differs="horizons of 2, 4 and 8 turns, for small worlds; no KL of 0.001",
        needs="several turns",
    ),
    "eapo": Recipe(
        title="EAPO (IterResearch)",
        paper="2511.07327",
        does="Earlier turns of long runs earn less; every turn is compared by itself.",
        differs="compared within an agent's turns of a task; the discount is ours; no trimming of the batch",
        needs="several turns",
    ),
    "grpo_roc": Recipe(
        title="GRPO-RoC (rStar2-Agent)",
        paper="2508.20722",
        does="Twice as many episodes are played; failures stay as they come, of successes the cleanest.",
        differs="clean is the share of outputs that parse; shares by largest remainder; equal groups stay",
    ),
    "mlpo": Recipe(
        title="MLPO (How to Train a Leader)",
        paper="2507.08960",
        does="One trained leader over frozen peers, candidates of one prompt compared by the mean alone.",
        differs="proposals are drawn anew for each decision; no supervised stage before it; max_length 8 tokens",
        scenario="plan_path",
    ),
    "malt": Recipe(
        title="MALT",
        paper="2412.01928",
        does="Full trees over the members of a turn; each imitates and prefers what leads to success.",
        differs="on-policy, SFT and DPO in one loss, on trees of each step; no vote of three at the end",
        scenario="refine",
    ),
    "dpo": Recipe(
        title="DPO, online",
        paper="2305.18290",
        does="Of an agent's candidates in one state, each above their mean is preferred to each below it.",
        differs="pairs are drawn on-policy and labelled by the reward, not by people",
    ),
    "waltzrl": Recipe(
        title="WaltzRL",
        paper="2510.08240",
        does="The feedback agent alone, then both, each paid what its feedback improved.",
        differs="weights of label and format are ours, label stays in the second stage; every answer is trained; no KL",
        scenario="safe_reply",
    ),
    "spa_rl": Recipe(
        title="SPA-RL",
        paper="2505.20732",
        does="An estimator learns each turn's share in the outcome; turns are paid that, and a bonus if grounded; PPO.",
        differs="the estimator learns in every step, not once before; outcome is success; no KL; the last turn counts",
        scenario="plan_path",
        needs="several turns",
    ),
    "oprl": Recipe(
        title="OPRL (iStar)",
        paper="2509.19199",
        does="An adapter prefers successes to failures; its log-ratio to the policy compares single turns.",
        differs="a reward model per policy adapter, which learns before it scores; the loss is the mean over pairs",
        scenario="plan_path",
        needs="several turns",
    ),
    "clip_delta": Recipe(
        title="Clip and Delta",
        paper="2410.15115",
        does="What a learned model pays single turns is bounded, so that repeating useless ones earns nothing; PPO.",
        differs="both formulas are our reading of the abstract; the model is SPA-RL's estimator, learned on the way",
        scenario="plan_path",
        needs="several turns",
    ),
    "comas": Recipe(
        title="CoMAS",
        paper="2510.08529",
        does="Members pay each other by scores, without a label; each one's batch is whitened.",
        differs="fixed places instead of random ones; each turn pays its own KL at once",
        scenario="discussion",
    ),
}

"""What is known of every algorithm preset beside its options: paper, scenario, what differs; for `mas algorithms`."""

from mas.algorithms.base import Recipe

FORMER: dict[str, str] = {"hrpo": "action_grpo"}
"""Presets by the names that they had before."""
RECIPES: dict[str, Recipe] = {
    "training_free": Recipe(
        title="Training-Free GRPO",
        paper="2510.08191",
        does="No weight changes: an editor writes down what better episodes did otherwise, a library of text per role.",
        differs="a library per role, which the editor fills from what that role saw; a batch of one group is not "
        "consolidated; roles sample at their own temperature",
        needs="prompts in sentences, and a model that reads them",
        beside="model=smollm2 scenario=shop",
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
        does="Turn-PPO, and updates are divided by the norm of the gradient that clipping takes from them.",
        differs="divided by 1 + the norm, as nothing is taken on policy; of each adapter and mini-batch",
    ),
    "s_ppo": Recipe(
        title="S-PPO",
        paper="2511.20718",
        does="PPO over tokens, and updates are divided by the norm of the gradient that clipping takes from them.",
        differs="divided by 1 + the norm, as nothing is taken on policy; of each adapter and mini-batch",
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
        does="Planner, executor, verifier and generator over one memory; only the planner learns, by one outcome.",
        differs="the loop begins with the verifier; outcomes by a rule, not by a judge; trajectories weigh equally in "
        "statistics and loss, as the paper has it and its code does not",
        scenario="workflow",
    ),
    "matpo": Recipe(
        title="MATPO",
        paper="2510.04678",
        does="One policy plays a planner that calls workers over several turns, and them; they inherit its advantage.",
        differs="a worker searches once; no final summary; no entropy bonus",
        scenario="subagents",
    ),
    "gigpo": Recipe(
        title="GiGPO",
        paper="2505.10978",
        does="Beside episodes, turns that began in the same state are compared by their discounted returns.",
        differs="a state is what an environment's anchor() says and what was heard; statistics count each trajectory "
        "once; KL by k2, as k3 has no gradient far out",
        needs="several turns",
    ),
    "srgpo": Recipe(
        title="SRGPO",
        paper="2512.02631",
        does="Beside episodes, what single steps were paid is compared in random groups of 16.",
        differs="groups are drawn within a role; KL by k2, as k3 has no gradient far out",
        needs="several turns",
    ),
    "spiral": Recipe(
        title="SPIRAL",
        paper="2506.24119",
        does="One policy plays both seats against itself; each role of each game has its running mean as a baseline.",
        differs="one pass over a batch, not two; magnet and discount are keys, both off",
        scenario="two_player",
    ),
    "self_redteam": Recipe(
        title="Self-RedTeam",
        paper="2506.07468",
        does="One policy attacks and defends: it rewrites harmful and benign prompts, and refuses or answers them.",
        differs="no supervised data mixed in; both seats learn in every step; a rule judge; zero-sum rewards are our "
        "reading; an attack that asks for nothing is paid the least",
        scenario="red_team",
    ),
    "rae": Recipe(
        title="RAE (SPIRAL)",
        paper="2506.24119",
        does="The baseline is each role's running mean reward, read before it learns of the reward.",
        differs="alone, for any team with an adapter per role; `spiral` is the self-play",
    ),
    "stratified_grpo": Recipe(
        title="Stratified GRPO",
        paper="2510.06214",
        does="Trajectories are compared with those of episodes with as many searches, blended with all of the group.",
        differs="the share of the blend (0.8) is ours, the paper's was not seen; a search is any member's",
        scenario="retrieval",
        needs="several turns and tools",
    ),
    "empg": Recipe(
        title="EMPG",
        paper="2509.09265",
        does="Advantages of confident turns are larger, and turns that lead to one get a bonus.",
        differs="its constants are ours, the exponential form of the bonus is our reading; entropies within a role",
        needs="several turns",
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
        does="Earlier turns of long runs earn less; every turn is compared by itself; turns beyond equal shares "
        "are left out.",
        differs="compared within an agent's turns of a task; the discount is ours; PPO's bounds in place of GSPO's, "
        "which stop turns of one token; shares of 8; of IterResearch's rebuilt workspace only what a world shows in "
        "each turn, no report that a model writes",
        needs="several turns",
    ),
    "igpo": Recipe(
        title="IGPO",
        paper="2510.14967",
        does="A turn earns what it added to the probability of the right answer; the last ones earn the outcome.",
        differs="the outcome is success, not F1; in a team agents that speak at once are one turn, and who answers is "
        "asked how likely the answer is; gains are divided by their spread, as in its second version",
        scenario="retrieval",
        needs="a right answer that it says",
    ),
    "e_grpo": Recipe(
        title="E-GRPO",
        paper="2510.24694",
        does="Wrong answers earn by the task's entities that were found, compared with the most of the group.",
        differs="alpha (0.3) and the longest trajectory (3 tokens, for the tiny base) are ours; entities are sought in "
        "all that the team said",
        scenario="retrieval",
        needs="entities that it names",
    ),
    "grpo_roc": Recipe(
        title="GRPO-RoC (rStar2-Agent)",
        paper="2508.20722",
        does="Twice as many episodes are played; failures stay as they come, of successes those with the fewest failed "
        "tool calls.",
        differs="an output that does not parse stands for answer marks that do not pair up, and a solved task has one "
        "answer; shares by largest remainder; equal groups stay",
        scenario="tool_use",
    ),
    "mlpo": Recipe(
        title="MLPO (How to Train a Leader)",
        paper="2507.08960",
        does="A leader that hears frozen peers is trained on tasks that these do not solve anyway, by the mean alone.",
        differs="one round of proposals, drawn anew for each task; no supervised stage before it; max_length 8 tokens",
        scenario="refine",
    ),
    "aepo": Recipe(
        title="AEPO",
        paper="2510.14545",
        does="Whole episodes and branches at uncertain turns share a budget; uncertain tokens count more.",
        differs="shared turns are trained once, by the mean of their ends; entropies of drawn tokens, in nats; 8 ends",
        needs="several turns",
    ),
    "at2po": Recipe(
        title="AT2PO",
        paper="2601.04767",
        does="The most uncertain turns of a tree are drawn again, and values are backed up from its ends.",
        differs="shared turns are trained once, not once per end; rows of turns weigh equally; 11 ends, not 22",
        needs="several turns",
    ),
    "aspo": Recipe(
        title="ASPO",
        paper="2508.19201",
        does="DAPO, and won episodes that use a tool earlier than others of their group count more.",
        differs="delta and bound are ours; positions and lengths in tokens of the whole team; no over-long penalty",
        scenario="tool_use",
    ),
    "malt": Recipe(
        title="MALT",
        paper="2412.01928",
        does="Full trees over the members of a turn; each imitates and prefers what leads to success.",
        differs="on-policy, SFT and DPO in one loss, on trees of each step; no vote of three at the end",
        scenario="refine",
    ),
    "agent_rlvr": Recipe(
        title="Agent-RLVR",
        paper="2506.11425",
        does="A failed task is attempted again with the environment's guidance in the prompt; attempts are compared.",
        differs="first attempts are trained as well as guided ones; GRPO among attempts of one number; the guidance is "
        "a rule of the environment, not a teacher's text",
        scenario="refine",
        needs="an environment that guides",
    ),
    "rise": Recipe(
        title="RISE (Recursive Introspection)",
        paper="2407.18219",
        does="Attempts see what was tried; at each, answers that are better than their siblings are imitated.",
        differs="weights of 0 and 1 instead of exp(reward / temperature); on-policy in every step",
        scenario="refine",
    ),
    "retroformer": Recipe(
        title="Retroformer",
        paper="2308.02151",
        does="A trained reflector between two attempts of a frozen actor, paid what the second is better.",
        differs="compared with the other reflections on the task instead of PPO; the actor is the same base",
        scenario="refine",
    ),
    "re_rest": Recipe(
        title="Re-ReST",
        paper="2406.01495",
        does="A reflector repairs what failed; what the environment accepts is imitated, repairs by both.",
        differs="on-policy in every step instead of one offline round; the reflector imitates its own repairs as well",
        scenario="refine",
        needs="one team turn",
    ),
    "dpo": Recipe(
        title="DPO, online",
        paper="2305.18290",
        does="Of an agent's candidates in one state, each above their mean is preferred to each below it.",
        differs="pairs are drawn on-policy and labelled by the reward, not by people",
    ),
    "arpo": Recipe(
        title="ARPO (GUI agents)",
        paper="2505.16282",
        does="Where all episodes of a task fail, one gives its place to an earlier success of the same task.",
        differs="text worlds instead of screens; the tasks to leave out are found in the first epochs of the run, not "
        "before it; how many successes are kept, and which gives way, is our reading",
        needs="tasks that come again",
        beside="train.tasks.source=epochs train.tasks.count=64",
    ),
    "waltzrl": Recipe(
        title="WaltzRL",
        paper="2510.08240",
        does="The feedback agent alone, then both, each paid what its feedback improved.",
        differs="weights of label and format are ours; every answer is trained; no KL",
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
        differs="the step term is divided by its spread, else it is hundredths of the outcome; a reward model per "
        "policy adapter, which learns before it scores; the loss is the mean over pairs",
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
    "reward_stack": Recipe(
        title="Reward stack (GRPO)",
        paper="2402.03300",
        does="All kinds of reward terms at once: team, role, form, learned, cost, and a judge that may answer late.",
        differs="GRPO with terms of ours beside the outcome; the judge is a pattern unless another one is named",
        scenario="plan_path",
        needs="several turns",
    ),
    "comas": Recipe(
        title="CoMAS",
        paper="2510.08529",
        does="Members pay each other by scores, without a label; each one's batch is whitened.",
        differs="fixed places instead of random ones; each turn pays its own KL at once",
        scenario="discussion",
        options={"pay": "scores"},
    ),
    "cory": Recipe(
        title="CORY (Coevolving with the Other You)",
        paper="2410.06101",
        does="Pioneer and observer are paid the sum of both rewards, learn by a PPO of their own, and swap roles.",
        differs="a fixed KL coefficient of the sampled tokens; advantages are whitened instead of scores",
        scenario="refine",
    ),
    "mmoa_rag": Recipe(
        title="MMOA-RAG",
        paper="2501.15228",
        does="One policy rewrites, selects and answers; each role is paid the answer's F1 and its own penalty.",
        differs="the team may search several times; the critic sees what the role sees; the KL coefficient is ours",
        scenario="retrieval",
    ),
    "hi_agent": Recipe(
        title="Hi-Agent",
        paper="2510.14388",
        does="A subgoal is worth the mean of what its sampled executions earn, compared with others of one state.",
        differs="the form of the foresight advantage is our reading; an execution is rewarded as the scenario pays it; "
        "everybody else's candidates are played out as often",
        scenario="plan_path",
    ),
    "pilotrl": Recipe(
        title="PilotRL (AdaPlan)",
        paper="2508.00344",
        does="The executor is paid for following plans, then the planner for the outcome of its plans, then both.",
        differs="lengths of the stages are ours; rules in place of judges; an adapter for each role",
        scenario="workflow",
    ),
    "replan": Recipe(
        title="Replan (plans as state)",
        paper="",
        does="A typed plan is kept in the episode's state, carried out step by step, and revised where a step fails.",
        scenario="workflow",
    ),
    "hiersearch": Recipe(
        title="HierSearch",
        paper="2508.08088",
        does="A local and a web search agent learn first, by what they find; then the planner, behind a refiner.",
        differs="lengths of the stages are ours; search agents are asked by the untrained planner; a frozen refiner by "
        "prompt; one call at a time",
        scenario="subagents",
    ),
    "owl": Recipe(
        title="OWL (Optimized Workforce Learning)",
        paper="2505.23885",
        does="Only the planner is trained, by the better and worse of its own; a coordinator assigns calls to workers.",
        differs="on-policy pairs in every step, labelled by the reward; no supervised stage before it; coordinator and "
        "workers are frozen",
        scenario="subagents",
    ),
    "tool_learner": Recipe(
        title="Small LLMs Are Weak Tool Learners",
        paper="2401.07324",
        does="One backbone learns from all roles; planner, caller and summariser then go on with copies of it.",
        differs="imitates the team's own better answers instead of recorded ones; 8 steps before the fork are ours; "
        "the optimiser's state is copied, too",
        scenario="tool_use",
    ),
    "action_grpo": Recipe(
        title="Action GRPO",
        paper="",
        does="Beside the comparison of episodes, each action has what it was paid by itself.",
        differs="HRPO of MasHost (arXiv 2506.08507) also builds the team's graph, which this does not",
        scenario="plan_path",
        needs="several turns",
    ),
    "search_self_play": Recipe(
        title="Search Self-Play",
        paper="2510.18821",
        does="One policy writes questions and attempts them: paid 1 - p for a question that a share p of five attempts "
        "solves, while these are compared with each other.",
        differs="solvers read their documents and do not search; gates are rules; a refused proposal leaves its place "
        "empty, with no pool of earlier questions; one turn each",
        scenario="propose",
        needs="a role that poses tasks, and several agents of one role that attempt them",
    ),
    "opo": Recipe(
        title="OPO",
        paper="2505.23585",
        does="The baseline is the group's mean reward weighted by tokens; no bounds, entropy or KL.",
        differs="on policy is learner.minibatches=1, which scenarios set otherwise",
    ),
    "gpg": Recipe(
        title="GPG (Group Policy Gradient)",
        paper="2504.02546",
        does="The plain policy gradient of what a reward is above its group's mean, by the share that is not 0.",
        differs="tasks without a difference are not drawn again: sampler.refill has it",
    ),
    "pass_at_k": Recipe(
        title="Pass@k (inference-time objectives)",
        paper="2503.19595",
        does="Only the best of a group learns, by what it is above the second best.",
        differs="as verl computes it, by the group's standard deviation",
    ),
}

"""What a training is going to compute, for the estimates of time and memory that are printed before it begins.

Leaves out on purpose: prompts that grow from turn to turn, loops within a team turn, peers and judges; of the time also
play-outs of `sampler.lookahead` and messages in prompts. The estimates are rough, and measured steps replace them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import networkx as nx

from mas.core.naming import local_name
from mas.core.role import View
from mas.core.tasks import Finite
from mas.graph.plan import TeamPlan
from mas.roles import build_roles
from mas.serving.base_checks import Speed
from mas.serving.model_text import ModelText
from mas.training.evaluate import Evaluation
from mas.training.setup import Setup

_LEARNING = 3.0
"""Forward and backward pass of a token over its forward pass alone."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one task takes when it is played once: `calls` generations with so many tokens, in all of them.

    Attributes:
        width: tokens of the longest prompt with its answer, without messages.
        widest: the same with messages that are as long as they may be; 0: no prompt has any.
        heard_tokens: of the messages in all prompts, if they are as long as they may be.
        common: share of the prompts' tokens that prompts of the same role for another task begin with, too; the
            embedded engine reads these once for all tasks at a time.
    """

    calls: float
    prompt_tokens: float
    new_tokens: float
    width: int
    common: float = 0.0
    widest: int = 0
    heard_tokens: float = 0.0

    @classmethod
    def bound(cls, setup: Setup, text: ModelText) -> "Work":
        """What the first held-out task takes if it lasts as many turns as it may and all answers are as long as they
        may be."""
        scenario = setup.scenario
        turns, roles = scenario.environment().spec.max_turns, build_roles(setup.team)
        other = 0 if isinstance(scenario, Finite) and scenario.size("eval") < 2 else 1
        first, second = (_prompts_of(setup, text, number) for number in (0, other))
        prompts = sum(map(len, first.values()))
        answers = {agent: roles[setup.team.members()[agent]].spec.max_tokens for agent in first}
        width = max((len(ids) + answers[agent] for agent, ids in first.items()), default=0)
        common = sum(_in_common(ids, second[agent]) for agent, ids in first.items())
        calls, new = len(setup.team.members()) * turns, sum(answers.values()) * turns
        heard = {agent: _heard_by(setup.plan, agent) for agent in first}
        widest = max((len(ids) + heard[agent] + answers[agent] for agent, ids in first.items()), default=0)
        messages = sum(heard.values()) * turns
        return cls(calls, prompts * turns, new, width, common / max(prompts, 1), widest, messages)

    @classmethod
    def measured(cls, evaluation: Evaluation, bound: "Work") -> "Work":
        """What a task of an evaluation took, mean."""
        count = max(len(evaluation.episodes), 1)
        prompts = sum(episode.prompt_tokens for episode in evaluation.episodes)
        new = sum(episode.completion_tokens for episode in evaluation.episodes)
        return cls(evaluation.calls / count, prompts / count, new / count, bound.width, bound.common)

    def play_s(self, speed: Speed, plays: int, rows: int, *, prompts: int | None = None) -> float:
        """Seconds to play so many times, with each prompt read `prompts` times; None: every time.

        Args:
            rows: completions that are decoded together.
        """
        read = plays if prompts is None else prompts
        tokens = self.prompt_tokens * (read * (1 - self.common) + self.common)
        return tokens / speed.prompt_tps + plays * self.new_tokens / speed.new_tps_with(rows)

    def evaluation_s(self, speed: Speed, setup: Setup) -> float:
        """Seconds of an evaluation, greedy and sampled, whose tasks are played at once."""
        tasks = setup.train.eval_tasks
        return self.play_s(speed, 2 * tasks, min(tasks, setup.model.max_batch))

    def step_s(self, speed: Speed, setup: Setup) -> float:
        """Seconds of a training step: sampling, with the prompt of a group read once, and learning."""
        tasks, plays = setup.train.tasks_per_step, rows_of(setup)
        trained = tasks * self.prompt_tokens + plays * self.new_tokens
        learning = _LEARNING * setup.learner.epochs * trained / speed.prompt_tps
        return self.play_s(speed, plays, min(plays, setup.model.max_batch), prompts=tasks) + learning


def rows_of(setup: Setup) -> int:
    """Completions that are decoded together in a training step, if every task has one group at a time."""
    return setup.train.tasks_per_step * setup.algorithm.sampler.candidates


def rows_at_once(setup: Setup) -> int:
    """Completions that a training step decodes at once at most: of agents that act at once, and of all play-outs."""
    sampler = setup.algorithm.sampler
    has_play_outs = sampler.mode == "tree" and sampler.lookahead != "action"
    return rows_of(setup) * agents_at_once(setup.plan) * (sampler.continuations if has_play_outs else 1)


def agents_at_once(plan: TeamPlan) -> int:
    """How many agents of a team act at once at most, if nobody waits for a loop."""
    wiring = plan.wiring
    forward: nx.MultiDiGraph[int] = nx.MultiDiGraph([(e.tail, e.head) for e in wiring.edges if e.loop is None])
    return max(sum(0 <= node < wiring.agents for node in layer) for layer in nx.topological_generations(forward))


def _heard_by(plan: TeamPlan, agent: str) -> int:
    """Tokens of the messages in an agent's prompt, if they are as long as they may be."""
    context = plan.roles[agent].spec.context
    senders = {edge.source for edge in plan.edges_in[agent] if edge.source in plan.roles and context != "none"}
    return sum(
        plan.roles[sender].spec.max_tokens * (plan.max_visits(sender) if context == "turn" else 1) for sender in senders
    )


def _in_common(ids: Sequence[int], others: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids, others, strict=False)))


def _prompts_of(setup: Setup, text: ModelText, number: int) -> dict[str, list[int]]:
    """Agent -> the prompt that it has at the beginning of a held-out task, of those that the model here speaks for."""
    environment, roles, found = setup.scenario.environment(), build_roles(setup.team), {}
    environment.reset(setup.scenario.task("eval", number))
    for agent, name in setup.team.members().items():
        role = roles[name]
        if role.spec.peer is not None or role.spec.voice == "human":
            continue
        view = View(observation=environment.observe(role.spec.view or local_name(agent)))
        chat = text.tokenizer.chat(*role.chat(view), role.prefill(view)) if text.chats else ()
        found[agent] = list(chat or text.tokenizer.encode(role.prompt(view)))
    return found

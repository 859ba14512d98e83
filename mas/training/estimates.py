"""What a training is going to compute, and what it needs of memory: printed first, refused where it cannot fit.

Leaves out on purpose: observations that grow from turn to turn, loops within a team turn, peers and judges; of the time
also play-outs of `sampler.lookahead`, messages in prompts and a role's `history`. The estimates are rough, and measured
steps replace them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import networkx as nx
import torch

from mas.core.errors import ModelError
from mas.core.host import gib
from mas.core.naming import local_name
from mas.core.role import View
from mas.core.scenario import Finite
from mas.graph.plan import TeamPlan
from mas.roles import build_roles
from mas.serving.base_measures import Footprint, Speed, free_on
from mas.serving.model_text import ModelText
from mas.training.evaluate import Evaluation
from mas.training.setup import Setup

_LEARNING = 3.0
"""Forward and backward pass of a token over its forward pass alone."""
WEIGHTS_AND_GRADIENTS = 2
"""Copies of an adapter that the learner computes with."""
MOMENTS = 2
"""Copies of an adapter that AdamW keeps."""
PLAYED = 2
"""The published copy of an adapter, and the one that is joined with others for decoding."""
_COPIES = WEIGHTS_AND_GRADIENTS + MOMENTS + PLAYED
"""Of an adapter where one process plays and learns."""
_SPARE = 2
"""The cache's buffers are twice as long as what is in use, at most."""
_LOGITS = 3
"""The logits of a token, their log-softmax and its gradient."""
LESS_MEMORY = (
    "A smaller model.max_batch, train.tasks_per_step, train.eval_tasks or learner.micro_batch_tokens needs less, and "
    "so does learner.recompute_layers=true"
)


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
        call = {agent: len(ids) + heard[agent] + answers[agent] for agent, ids in first.items()}
        earlier = {agent: earlier_calls(setup.plan, agent, turns) if text.chats else 0 for agent in first}
        widest = max((tokens * (1 + earlier[agent]) for agent, tokens in call.items()), default=0)
        widest = max(min(widest, text.limits.context), width)
        messages = sum(heard[agent] + earlier[agent] * tokens for agent, tokens in call.items()) * turns
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Bytes by what needs them: the base, all adapters with their optimisers, the key-value cache with the logits of
    its rows, and what the learner keeps for the backward pass."""

    base: int
    adapters: int
    cache: int
    learner: int

    @property
    def sure(self) -> int:
        """What must be there whatever is played."""
        return self.base + self.adapters

    @property
    def all(self) -> int:
        return self.sure + self.cache + self.learner

    def text(self) -> str:
        parts = {
            "base": self.base, "adapters and optimisers": self.adapters, "key-value cache": self.cache,
            "learner": self.learner,
        }  # fmt: skip
        named = ", ".join(f"{name} {gib(size)}" for name, size in parts.items() if size)
        return f"about {gib(self.all)} ({named})"


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


def earlier_calls(plan: TeamPlan, agent: str, turns: int) -> int:
    """How many of its own calls an agent's prompt shows at most."""
    spec, visits = plan.roles[agent].spec, plan.max_visits(agent)
    if spec.history is not None:
        return min(spec.history, turns * visits - 1)
    if spec.ask is not None or spec.context == "none":
        return 0
    return visits - 1 if spec.context == "turn" else min(visits - 1, 1)


def _in_common(ids: Sequence[int], others: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids, others, strict=False)))


def _prompts_of(setup: Setup, text: ModelText, number: int) -> dict[str, list[int]]:
    """Agent -> the prompt that it has at the beginning of a held-out task, of those that the model here answers for."""
    environment, roles, found = setup.scenario.environment(), build_roles(setup.team), {}
    environment.reset(setup.scenario.task("eval", number))
    for agent, name in setup.team.members().items():
        role = roles[name]
        if role.spec.peer is not None or role.spec.voice != "engine":
            continue
        view = View(observation=environment.observe(role.spec.view or local_name(agent)))
        chat = text.tokenizer.chat(*role.chat(view), role.prefill(view)) if text.chats else ()
        found[agent] = list(chat or text.tokenizer.encode(role.prompt(view)))
    return found


def needs_of(setup: Setup, footprint: Footprint, work: Work, *, is_trained: bool) -> Needs:
    """What playing needs, with as many rows as a step or an evaluation decodes together, and training with it.

    Args:
        work: what a task takes at most.
    """
    adapters = len(set(setup.trained_adapters.values()))
    is_trained = is_trained and adapters > 0
    rows = max(rows_at_once(setup) if is_trained else 0, setup.train.eval_tasks * agents_at_once(setup.plan))
    return Needs(
        base=footprint.weights,
        adapters=adapters * footprint.adapter * (_COPIES if is_trained else PLAYED),
        cache=embedded_cache(setup, footprint, work, rows) if setup.engine.name == "transformers" else 0,
        learner=learner_bytes(setup, footprint, work) if is_trained else 0,
    )


def embedded_cache(setup: Setup, footprint: Footprint, work: Work, rows: int) -> int:
    """Bytes of the embedded engine's key-value cache, and of its logits, where so many rows want to be decoded at once;
    no more are than `model.max_batch` and `model.max_batch_tokens` allow."""
    model, width = setup.model, max(work.width, work.widest)
    rows = max(min(rows, model.max_batch, model.max_batch_tokens // max(width, 1)), 1)
    return rows * (_SPARE * width * footprint.cached + 2 * footprint.logits)


def learner_bytes(setup: Setup, footprint: Footprint, work: Work) -> int:
    """Bytes that the learner keeps for the backward pass of a micro-batch, with the logits of a chunk."""
    learner = setup.learner
    tasks, plays = setup.train.tasks_per_step, rows_of(setup)
    # candidates of one state heard the same messages; in episodes of their own each hears others
    heard = work.heard_tokens * (tasks if setup.algorithm.sampler.mode == "tree" else plays)
    step = tasks * work.prompt_tokens + heard + plays * work.new_tokens
    tokens = min(learner.micro_batch_tokens, round(step / learner.minibatches))
    logits = _LOGITS * footprint.logits * min(learner.logit_chunk or tokens, tokens)
    kept = footprint.layer_input if learner.recompute_layers else footprint.activation
    return tokens * kept + logits


def check_memory(setup: Setup, needs: Needs, note: Callable[[str], None]) -> None:
    """Print what is needed and what is free.

    Args:
        note: called with a line of text.

    Raises:
        ModelError: the base and the adapters alone need more than is free, and `model.check_memory` is true.
    """
    free = free_on(setup.model)
    beside = "" if setup.engine.name == "transformers" else f"; what engine={setup.engine.name} takes is not counted"
    if free is None:
        note(f"memory: {needs.text()}; how much is free is not known here{beside}")
        return
    note(f"memory: {needs.text()}; {gib(free)} free{beside}")
    if needs.sure > free and setup.model.check_memory:
        smaller = "" if setup.model.dtype == "bfloat16" else "model.dtype=bfloat16 halves the base; "
        raise ModelError(
            f"{setup.model.path!r} does not fit: base and adapters need {gib(needs.sure)}, {gib(free)} of memory are "
            f"free. {smaller}a smaller model.path or model.lora.rank, or a larger machine; model.check_memory=false "
            "tries it all the same"
        )
    if needs.all > free:
        note(f"memory may not suffice. {LESS_MEMORY}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch or Python got no memory; torch's allocator on the CPU raises a plain RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )

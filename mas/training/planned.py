"""What a training is going to compute, for the estimates of time and memory that are printed before it begins.

Leaves out on purpose: play-outs of `sampler.lookahead`, prompts that grow from turn to turn, peers and judges. The
estimates are rough, and measured steps replace them.
"""

from dataclasses import dataclass

from mas.config.options import Config
from mas.core.naming import local_name
from mas.core.role import View
from mas.core.scenario import Scenario
from mas.graph.find import find_team
from mas.roles import build_roles
from mas.serving.model import ModelText
from mas.serving.speed import Speed
from mas.training.evaluate import Evaluation

_LEARNING = 3.0
"""Forward and backward pass of a token over its forward pass alone."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one task takes when it is played once: `calls` generations with so many tokens, in all of them.

    Attributes:
        width: tokens of the longest prompt with its answer.
    """

    calls: float
    prompt_tokens: float
    new_tokens: float
    width: int

    @classmethod
    def bound(cls, config: Config, scenario: Scenario, text: ModelText) -> "Work":
        """What the first held-out task takes if it lasts as many turns as it may and all answers are as long as they
        may be. Messages in prompts are not counted."""
        environment, team = scenario.environment(), find_team(scenario, config.algorithm.team)
        environment.reset(scenario.task("eval", 0))
        roles, turns = build_roles(team), environment.spec.max_turns
        prompts, answers, width = 0, 0, 0
        for agent, name in team.members().items():
            role = roles[name]
            if role.spec.peer is not None or role.spec.voice == "human":
                continue
            view = View(observation=environment.observe(role.spec.view or local_name(agent)))
            tokenizer = text.tokenizer
            chat = tokenizer.chat(*role.chat(view), role.prefill(view)) if text.chats else ()
            length = len(chat or tokenizer.encode(role.prompt(view)))
            prompts, answers = prompts + length, answers + role.spec.max_tokens
            width = max(width, length + role.spec.max_tokens)
        return cls(len(team.members()) * turns, prompts * turns, answers * turns, width)

    @classmethod
    def measured(cls, evaluation: Evaluation, width: int) -> "Work":
        """What a task of an evaluation took, mean."""
        count = max(len(evaluation.episodes), 1)
        prompts = sum(episode.prompt_tokens for episode in evaluation.episodes)
        new = sum(episode.completion_tokens for episode in evaluation.episodes)
        return cls(evaluation.calls / count, prompts / count, new / count, width)

    def play_s(self, speed: Speed, plays: int, *, prompts: int | None = None) -> float:
        """Seconds to play so many times, with each prompt read `prompts` times; None: every time."""
        read = plays if prompts is None else prompts
        return read * self.prompt_tokens / speed.prompt_tps + plays * self.new_tokens / speed.new_tps

    def evaluation_s(self, speed: Speed, tasks: int) -> float:
        """Seconds of an evaluation, greedy and sampled."""
        return self.play_s(speed, 2 * tasks)

    def step_s(self, speed: Speed, config: Config) -> float:
        """Seconds of a training step: sampling, with the prompt of a group read once, and learning."""
        tasks, plays = config.train.tasks_per_step, rows_of(config)
        trained = tasks * self.prompt_tokens + plays * self.new_tokens
        learning = _LEARNING * config.learner.epochs * trained / speed.prompt_tps
        return self.play_s(speed, plays, prompts=tasks) + learning


def rows_of(config: Config) -> int:
    """Completions that are decoded together in a training step, if every task has one group at a time."""
    return config.train.tasks_per_step * config.algorithm.sampler.candidates

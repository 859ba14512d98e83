"""The records of sampling: one frozen `Turn` per generation, one `Episode` per task played."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from mas.core.engine import AdapterRef


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One generation of one agent, with all that training needs. What was sampled is what is trained.

    Attributes:
        id: unique within a run.
        agent: node of the team graph; `role`: the role that it plays.
        turn: team turn within the episode, from 0; `visit`: how often this agent has acted in it before, from 0.
        candidate: index within its group.
        parent: id of the committed turn before this one, None for an episode's first.
        group: members were sampled from one identical prompt and state (tree sampling), or belong to the same task
            and agent (parallel sampling), or to the same tree and agent (entropy trees: the tree, `/`, the agent);
            advantages compare within it.
        trajectory: rows of one trajectory share it; equals `id` in tree sampling, where each candidate is its own.
        state: fingerprint of environment and messages before the turn; in parallel sampling of where the task stands
            (`mas.core.environment.anchor_of`), whatever the time and the way there.
        prompt_ids: P token ids; completion_ids: L token ids; logprobs: L behaviour log-probabilities.
        temperature: of the sampling; the learner divides logits by it.
        supports: L supports of restricted sampling (`mas.core.support`), empty where every token could be any; the
            learner's log-probabilities are over the same tokens.
        rewards: named, unweighted terms, of what a trajectory is one of (in parallel sampling the whole episode).
        paid: those of this turn alone, where a trajectory has several; the team's are all that the world paid from this
            turn to before the agent's next one. They add up to `rewards`.
        grounded: whether the output parsed and the team's action of its turn was legal; None where no whole turn was
            played (tree sampling).
        is_replayed: whether it was sampled in an earlier step, whose `logprobs` and `adapter` it has.
        chosen: whether this candidate was committed.
        failure: why the output did not parse, None when it did.
        world: the name of the environment, of its specification.
        choices: ids of the legal tokens, empty where any token may be legal; the entropy term looks only at these.
        wave: where it stands in `Episode.answer_logprobs`; 0 where those are not known.
        ends: of an entropy tree: agent -> its terms, of each whole episode whose last turn this one is. `rewards` are
            there means over all episodes that go through the turn.
        tool_calls: that the turn made, where the environment can tell (`mas.core.environment.Tooled`); tool_errors:
            that failed, which are not among them.
    """

    id: str
    episode: str
    task: str
    agent: str
    role: str
    turn: int
    visit: int
    candidate: int
    parent: str | None
    group: str
    trajectory: str
    state: str
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    temperature: float
    adapter: AdapterRef | None
    seed: int
    finish: str
    text: str
    rewards: Mapping[str, float]
    chosen: bool
    failure: str | None = None
    choices: tuple[int, ...] = ()
    world: str = ""
    paid: Mapping[str, float] = {}
    ends: tuple[Mapping[str, Mapping[str, float]], ...] = ()
    tool_calls: int = 0
    tool_errors: int = 0
    grounded: bool | None = None
    is_replayed: bool = False
    wave: int = 0
    supports: tuple[bytes, ...] = ()


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a conversation as people read it."""

    turn: int
    agent: str
    prompt: str
    text: str
    failure: str | None = None


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What a world looks like, and what the team did for it to look so, both as people read them.

    Attributes:
        turn: after which team turn; -1: at the beginning, where `event` is empty.
    """

    turn: int
    event: str
    world: str


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try to get an agent's output, where the first did not succeed; or to compensate it.

    Attributes:
        turn: team turn within the episode.
        agent: whose output was wanted, or is compensated; `asked`: who was asked for it.
        number: of this try at whom it asked, from 1.
        cause: why there is no answer; None: there is one.
        prompt_tokens, completion_tokens: of a compensation; those of outputs are counted with the outputs.
    """

    turn: int
    agent: str
    asked: str
    number: int
    purpose: Literal["answer", "fallback", "compensation"]
    cause: str | None
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """One task played by one team.

    Attributes:
        turns: every generation that may be trained, losing candidates included.
        lines: the committed conversation.
        scenes: the world at the beginning and after each team turn; empty: nobody wanted to see it.
        rewards: summed environment components of the committed play.
        measures: what else the environment tells about it (`mas.core.environment.Measured`), never trained.
        loops: of the committed play, each loop of the team, `SOURCE-TARGET`: how often it was taken in each team turn.
        length: team turns played; passes: those of them in which no action was committed.
        attempts: tries at agents that did not answer at the first one, and compensations.
        status: `done`, or `failed` with `cause` when it could not be played to its end.
        prompt_tokens, completion_tokens, calls: all that playing it cost, scoring play-outs included; a request for K
            candidates is K calls, each with its prompt.
        prompts: key of a prompt and its adapter -> its tokens, of all that were asked; what episodes have in common is
            in `mas.core.cost.cost_of` counted once.
        answer_logprobs: of the right answer's tokens, their mean (nats) if the team's last member gave it then: before
            the agents that spoke first, before those that spoke when they had, and so on. Empty: not asked.
        entity_rate: share of the task's entities that stand in what was said; None: not asked.
        opponent: who played the seats other than `seat`, `self` for the policy in training; empty: nobody was drawn.
        seat: the learner's, where an opponent other than itself played; else empty.
    """

    id: str
    task: str
    success: bool
    turns: tuple[Turn, ...]
    lines: tuple[Line, ...]
    rewards: Mapping[str, float]
    prompt_tokens: int
    completion_tokens: int
    calls: int
    prompts: Mapping[str, int] = {}
    length: int = 0
    passes: int = 0
    status: Literal["done", "failed"] = "done"
    cause: str | None = None
    attempts: tuple[Attempt, ...] = ()
    measures: Mapping[str, float] = {}
    loops: Mapping[str, tuple[int, ...]] = {}
    scenes: tuple[Scene, ...] = ()
    answer_logprobs: tuple[float, ...] = ()
    entity_rate: float | None = None
    opponent: str = ""
    seat: str = ""

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

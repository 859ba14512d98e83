"""The records of sampling: one frozen `Turn` per generation, one `Episode` per task played, and what they cost.

Costs have columns that mean the same however episodes are sampled. A `Judge` answers later: it judges turns by their
ids after they were sampled, at any time and in any order.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self

import msgspec

from mas.core.engine import AdapterRef


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """What one algorithm's sampler notes of a turn or an episode for its advantages, beside what all of them need.

    An algorithm has a subclass of its own, with a default for every field: what counts where nothing was noted. Records
    hold facts as plain data, so that a checkpoint is read without knowing these classes.
    """

    @classmethod
    def of(cls, record: "Turn | Episode") -> Self:
        """What was noted of a record."""
        return msgspec.convert(record.facts.get(cls.__name__, {}), cls)


def facts_of(*facts: Fact) -> dict[str, Any]:
    """Facts as a record holds them: class -> fields. Those that are all defaults are left out."""
    return {type(fact).__name__: msgspec.to_builtins(fact) for fact in facts if fact != type(fact)()}


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """What turns have in common that are compared with each other.

    Attributes:
        kind: a `decision`: candidates of one prompt and state (tree sampling); a `task`: episodes of one task as one
            agent played them (parallel sampling); or a `tree`: all that one agent said in one entropy tree.
        task, agent: of all members.
        episode: of a decision the episode, of a tree its name among the trees of the task; empty: all of the task's.
        turn, visit: of a decision; see `Turn`. `state`: fingerprint of environment and messages there.
            Of a task `visit` is set where turns are compared that are the agent's n-th in their episodes, n = visit.
        path: of a decision in a full tree, the candidates that lie before it, `.0.2`; empty elsewhere.
        attempt: where every attempt of an episode is compared by itself, the number of the attempt; else None.
        step: of training in which the group was sampled, where it waits for late rewards; else None.
    """

    kind: Literal["decision", "task", "tree"]
    task: str
    agent: str
    episode: str = ""
    turn: int = 0
    visit: int = 0
    state: str = ""
    path: str = ""
    attempt: int | None = None
    step: int | None = None

    def __str__(self) -> str:
        """For people, and as a label that orders groups; nothing reads it back."""
        if self.kind == "decision":
            text = f"{self.task}/{self.episode}{self.path}/{self.turn}/{self.agent}/{self.visit}/{self.state}"
        else:
            number = str(self.visit) if self.visit else ""
            text = "/".join(part for part in (self.task, self.episode, self.agent, number) if part)
        text += f"/{self.attempt}" if self.attempt is not None else ""
        return f"{text}@{self.step}" if self.step is not None else text


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One generation of one agent, with all that training needs. What was sampled is what is trained.

    Attributes:
        id: unique within a run.
        agent: node of the team graph; `role`: the role that it plays.
        turn: team turn within the episode, from 0; `visit`: how often this agent has acted in it before, from 0.
        candidate: index within its group.
        parent: id of the committed turn before this one, None for an episode's first.
        group: advantages compare within it.
        trajectory: rows of one trajectory share it; equals `id` in tree sampling, where each candidate is its own.
        prompt_ids: P token ids; completion_ids: L token ids; logprobs: L behaviour log-probabilities.
        temperature: of the sampling; the learner divides logits by it.
        supports: L supports of restricted sampling (`mas.core.support`), empty where every token could be any; the
            learner's log-probabilities are over the same tokens.
        rewards: named, unweighted terms, of what a trajectory is one of (in parallel sampling the whole episode).
        paid: those of this turn alone, where a trajectory has several; the team's are all that the world paid from this
            turn to before the agent's next one. They add up to `rewards`.
        is_replayed: whether it was sampled in an earlier step, whose `logprobs` and `adapter` it has.
        chosen: whether this candidate was committed.
        failure: why the output did not parse, None when it did.
        world: the name of the environment, of its specification.
        choices: ids of the legal tokens, empty where any token may be legal; the entropy term looks only at these.
        facts: what single algorithms need beside all this; see `Fact`.
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
    group: Group
    trajectory: str
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
    is_replayed: bool = False
    supports: tuple[bytes, ...] = ()
    facts: Mapping[str, Any] = {}

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands among those of its agent in one episode."""
        return self.turn, self.visit


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
            in `mas.core.records.cost_of` counted once.
        facts: what single algorithms need beside all this; see `Fact`.
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
    facts: Mapping[str, Any] = {}
    opponent: str = ""
    seat: str = ""

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


Prompts = Literal["per_call", "shared", "none"]
"""How a number of tokens counts prompts: with every call, equal ones once, or not at all."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Calls and tokens.

    Attributes:
        calls: generations; a request for K candidates is K calls.
        prompt_tokens: the prompt of every call, as an engine without a prefix cache reads it.
        shared_prompt_tokens: equal prompts of one adapter in one training step once, whoever asked and in whichever
            episode, as an engine with a perfect cache of whole prompts reads them.
        completion_tokens: all that was generated.
    """

    calls: int = 0
    prompt_tokens: int = 0
    shared_prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Self) -> Self:
        sums = {name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        return msgspec.structs.replace(self, **sums)

    def tokens(self, prompts: Prompts = "per_call") -> int:
        """Completion tokens and, as `prompts` says, those of prompts."""
        read = {"per_call": self.prompt_tokens, "shared": self.shared_prompt_tokens, "none": 0}[prompts]
        return self.completion_tokens + read


NO_COST = Cost()


def cost_of_call(prompt_tokens: int, completion_tokens: int) -> Cost:
    """One call whose prompt is like no other."""
    return Cost(
        calls=1,
        prompt_tokens=prompt_tokens,
        shared_prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
    )


def cost_of(episodes: Iterable[Episode]) -> Cost:
    """What episodes of one training step, or of one task, cost together: prompts that they share count once."""
    prompts: dict[str, int] = {}
    calls = prompt_tokens = completion_tokens = 0
    for episode in episodes:
        calls += episode.calls
        prompt_tokens += episode.prompt_tokens
        completion_tokens += episode.completion_tokens
        prompts |= episode.prompts
    return Cost(
        calls=calls,
        prompt_tokens=prompt_tokens,
        shared_prompt_tokens=sum(prompts.values()),
        completion_tokens=completion_tokens,
    )


def total_cost(costs: Iterable[Cost]) -> Cost:
    """The sum."""
    return sum(costs, NO_COST)


def cost_metrics(cost: Cost) -> Mapping[str, int]:
    """By name; `tokens` has the prompt of every call."""
    return {"tokens": cost.tokens(), **msgspec.structs.asdict(cost)}


class Answer(msgspec.Struct, frozen=True):
    """What one term of one turn is worth. `turn`: its id; `term`: its name, without `own.`."""

    turn: str
    term: str
    value: float


Judge = Callable[[Sequence[Turn]], AsyncGenerator[Answer]]
"""Asked once for all turns that were sampled together. It may ask others, over a bus or by other means, and yields an
answer as it comes; when it ends, nothing more comes. It is closed if it is still going on a step later."""

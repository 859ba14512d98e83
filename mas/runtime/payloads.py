"""What the members of a team and its environment say to each other: requests and answers, as payloads of a bus."""

from typing import ClassVar

import msgspec
from pydantic import ConfigDict, Field

from mas.core.engine import Generation, PinnedAdapter
from mas.core.environment import Caller, Observation, Step
from mas.core.messages import PAYLOADS, Beat, Payload
from mas.core.role import View

_HOLDS_RECORDS = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Candidate(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One generation with what it was asked and what it means.

    `role`: who spoke, a stand-in's where one spoke; `choices`: ids of the legal tokens, if listed; `seconds`: that the
    request took, as measured where it was generated; two candidates may be equal with other seconds.
    """

    role: str
    prompt: str
    prompt_ids: tuple[int, ...]
    text: str
    payload: Payload
    generation: Generation
    temperature: float
    seed: int
    choices: tuple[int, ...]
    seconds: float = 0.0

    @classmethod
    def unsampled(cls, role: str, *, prompt: str, text: str, payload: Payload, seed: int) -> "Candidate":
        """What a person or a tool says: there are no tokens, and nothing was drawn."""
        none = Generation(token_ids=(), logprobs=(), finish="stop")
        return cls(
            role=role,
            prompt=prompt,
            prompt_ids=(),
            text=text,
            payload=payload,
            generation=none,
            temperature=0.0,
            seed=seed,
            choices=(),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Candidate):
            return NotImplemented
        fields = (name for name in self.__struct_fields__ if name != "seconds")
        return all(getattr(self, name) == getattr(other, name) for name in fields)


class Ask(Payload):
    """A decision point, private to one agent: one candidate per seed.

    `temperature` None: the role's own. `beat_s`: seconds between heartbeats while it works; None: none are wanted.
    `is_heard`: its text is wanted in parts while it is drawn, each a `Piece`; an agent without streaming answers whole.
    `adapter`: the version to use, where the trainer is another process; None: the agent's own.
    """

    kind: ClassVar[str] = "ask"
    model_config = _HOLDS_RECORDS
    view: View
    seeds: tuple[int, ...]
    temperature: float | None = None
    beat_s: float | None = None
    is_heard: bool = False
    adapter: PinnedAdapter | None = None


class AgentAnswer(Payload):
    """An agent's candidates."""

    kind: ClassVar[str] = "answer"
    model_config = _HOLDS_RECORDS
    candidates: tuple[Candidate, ...]


class Score(Payload):
    """Requests the log-probabilities of a completion from an agent's engine. `adapter` None: by the bare base."""

    kind: ClassVar[str] = "score"
    model_config = _HOLDS_RECORDS
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    adapter: PinnedAdapter | None


class CompletionScores(Payload):
    """One log-probability (temperature 1) per token of a completion, in nats."""

    kind: ClassVar[str] = "scored"
    logprobs: tuple[float, ...]


class Fetch(Payload):
    """Requests an adapter version from the trainer of a team."""

    kind: ClassVar[str] = "fetch"
    model_config = _HOLDS_RECORDS
    adapter: PinnedAdapter


class Fetched(Payload):
    """An adapter version as the files of a PEFT directory, by name."""

    kind: ClassVar[str] = "fetched"
    files: dict[str, bytes]


class Piece(Payload):
    """The next piece of text of one candidate of an answer. `candidate`: which, from 0, in the order of seeds."""

    kind: ClassVar[str] = "piece"
    candidate: int
    text: str


class ObserveRequest(Payload):
    """Asks the environment of an episode what the agents see."""

    kind: ClassVar[str] = "look"
    episode: str
    views: tuple[str, ...]


class ObserveReply(Payload):
    """What each view sees; private to the run that asked."""

    kind: ClassVar[str] = "seen"
    model_config = _HOLDS_RECORDS
    observations: dict[str, Observation]


class StepRequest(Payload):
    """Seats act in the environment of an episode. `callers`: see `mas.core.environment.ToolWorld.step_as`."""

    kind: ClassVar[str] = "act"
    model_config = _HOLDS_RECORDS
    episode: str
    actions: dict[str, str]
    callers: dict[str, Caller] = Field(default_factory=dict, exclude_if=lambda callers: not callers)


class StepReply(Payload):
    """What a step paid."""

    kind: ClassVar[str] = "stepped"
    model_config = _HOLDS_RECORDS
    step: Step


TEAM_PAYLOADS: dict[str, type[Payload]] = {
    **PAYLOADS,
    **{
        kind.kind: kind
        for kind in (
            Ask,
            AgentAnswer,
            Piece,
            Score,
            CompletionScores,
            Fetch,
            Fetched,
            ObserveRequest,
            ObserveReply,
            StepRequest,
            StepReply,
            Beat,
        )
    },
}
"""All that a team's members say to each other: what a bus between processes must carry."""

"""The agents of a team as listeners on the bus: a view comes in, candidates go out.

Leaves out on purpose: which candidate is taken, which is the caller's choice.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import msgspec
from pydantic import ConfigDict

from mas.core.concurrency import together
from mas.core.engine import Engine, Generation, PinnedAdapter, Request, Sampling
from mas.core.environment import Environment, Observation, Step
from mas.core.errors import ConfigError, RunError
from mas.core.messages import PAYLOADS, Beat, Envelope, Payload
from mas.core.role import ConstrainedRole, Role, View
from mas.core.tracing import in_environment
from mas.runtime.streaming import Piece, Tell, generate_streaming


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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Candidate):
            return NotImplemented
        fields = (name for name in self.__struct_fields__ if name != "seconds")
        return all(getattr(self, name) == getattr(other, name) for name in fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """What a role speaks through: an engine, an adapter of it (None: the bare base), and whether by chat template."""

    engine: Engine
    adapter: str | None = None
    chats: bool = False


_HOLDS_RECORDS = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


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


class TeamMember(Protocol):
    """An agent of a team: a role on an engine, or a person."""

    role: Role

    async def handle(self, envelope: Envelope) -> Payload:
        """Answer one `Ask` with an `AgentAnswer`, or one `Score` with a `CompletionScores`."""

    async def answer(
        self, view: View, seeds: tuple[int, ...], temperature: float | None = None
    ) -> tuple[Candidate, ...]:
        """One candidate per seed; `temperature` None: the role's own."""

    def most(self, view: View, candidates: int) -> tuple[int, int]:
        """Prompt and completion tokens that candidates can cost at most."""


class RoleAgent:
    """One agent: a role with its voice.

    Args:
        part: sends a part of the answer to a request, as `Bus.part`; None: answers come whole.

    Raises:
        ConfigError: a stop text of the role is not one token of the model, or the role restricts what is drawn and the
            engine cannot.
    """

    def __init__(
        self, role: Role, voice: ModelEndpoint, part: Callable[[Envelope, Payload], object] | None = None
    ) -> None:
        self.role = role
        self._part = part
        self.voice = voice
        self.engine = engine = voice.engine
        tokenizer, spec = engine.tokenizer, role.spec
        _check_restrictions(role, engine)
        stops = [_stop_id(role, text, tokenizer.encode(text)) for text in spec.stop]
        self._sampling = Sampling(
            temperature=spec.temperature,
            max_tokens=spec.max_tokens,
            stop=(*engine.stop_ids, *stops),
            top_k=spec.top_k,
            top_p=spec.top_p,
            min_p=spec.min_p,
        )
        encoded = [tokenizer.encode(choice) for choice in spec.choices]
        single = bool(encoded) and all(len(ids) == 1 for ids in encoded)
        self._choices = tuple(ids[0] for ids in encoded) if single else ()

    async def handle(self, envelope: Envelope) -> Payload:
        """Answer one `Ask` or `Score`."""
        ask = envelope.payload
        if isinstance(ask, Score):
            adapter = None if ask.adapter is None else str(ask.adapter)
            return CompletionScores(logprobs=await self.engine.score(ask.prompt_ids, ask.completion_ids, adapter))
        if not isinstance(ask, Ask):
            raise RunError(f"agent {self.role.name!r} was sent {envelope.kind!r}, it answers 'ask' and 'score'")
        part = self._part

        def tell(candidate: int, text: str) -> None:
            if part is not None:
                part(envelope, Piece.model_construct(candidate=candidate, text=text))

        is_streamed = ask.is_heard and part is not None
        candidates = await self.answer(
            ask.view, ask.seeds, ask.temperature, ask.adapter, tell=tell if is_streamed else None
        )
        return AgentAnswer.model_construct(candidates=candidates)

    async def answer(
        self,
        view: View,
        seeds: tuple[int, ...],
        temperature: float | None = None,
        adapter: PinnedAdapter | None = None,
        *,
        tell: Tell | None = None,
    ) -> tuple[Candidate, ...]:
        """One candidate per seed; `temperature` None: the role's own, `adapter` None: the agent's own. `tell` is given
        the text while it is drawn."""
        prompt, prompt_ids = self.prompted(view)
        grammar = self.role.grammar(view) if isinstance(self.role, ConstrainedRole) else None
        sampling = msgspec.structs.replace(self._sampling, grammar=grammar)
        if temperature is not None:
            sampling = msgspec.structs.replace(sampling, temperature=temperature)
        speaking = self.voice.adapter if adapter is None else str(adapter)
        request = Request(prompt_ids=prompt_ids, sampling=sampling, seeds=seeds, adapter=speaking)
        began = time.perf_counter()
        if tell is None:
            generations = await self.engine.generate(request)
        else:
            generations = await generate_streaming(self.engine, request, tell)
        seconds = time.perf_counter() - began
        read: dict[tuple[int, ...], tuple[str, Payload]] = {}  # candidates are often equal
        candidates = []
        for generation, seed in zip(generations, seeds, strict=True):
            ids = generation.token_ids[:-1] if generation.finish == "stop" else generation.token_ids
            if ids not in read:
                text = self.engine.tokenizer.decode(ids)
                read[ids] = text, self.role.parse(text)
            text, payload = read[ids]
            candidates.append(
                Candidate(
                    role=self.role.name,
                    prompt=prompt,
                    prompt_ids=prompt_ids,
                    text=text,
                    payload=payload,
                    generation=generation,
                    temperature=sampling.temperature,
                    seed=seed,
                    choices=self._choices,
                    seconds=seconds,
                )
            )
        return tuple(candidates)

    async def log_chances(self, view: View, texts: Sequence[str]) -> tuple[float, ...]:
        """Of each text the log-probability, in nats, that it is said and nothing else; at temperature 1.

        Raises:
            EngineError: the engine cannot score.
        """
        prompt_ids, encode = self.prompted(view)[1], self.engine.tokenizer.encode
        said = [encode(text) for text in texts]
        ends = self.engine.stop_ids[:1]
        said = [ids + ends if len(ids) < self._sampling.max_tokens else ids for ids in said]
        # asked for at once, so that the engine scores them in one pass
        scores = await together((self.engine.score(prompt_ids, ids, self.voice.adapter) for ids in said), "score")
        return tuple(map(sum, scores))

    def most(self, view: View, candidates: int) -> tuple[int, int]:
        """Prompt and completion tokens that candidates can cost at most."""
        return len(self.prompted(view)[1]), candidates * self._sampling.max_tokens

    def prompted(self, view: View) -> tuple[str, tuple[int, ...]]:
        """What it is asked there, as text and as tokens."""
        if not self.voice.chats:
            prompt = self.role.prompt(view)
            return prompt, self.engine.tokenizer.begin + self.engine.tokenizer.encode(prompt)
        (system, user), begun = self.role.chat(view), self.role.prefill(view)
        shown = "\n\n".join(text for text in (system, user, begun) if text)
        return shown, self.engine.tokenizer.chat(system, user, begun)


def _check_restrictions(role: Role, engine: Engine) -> None:
    spec = role.spec
    limits = {"top_k": spec.top_k > 0, "top_p": spec.top_p < 1, "min_p": spec.min_p > 0}
    named = [name for name, is_set in (limits | {"constraint": spec.constraint is not None}).items() if is_set]
    if named and not getattr(engine, "restricts", False):
        raise ConfigError(
            f"role {role.name!r} has {', '.join(named)}, and its engine cannot restrict what is drawn: use "
            "engine=transformers or engine=vllm, or a team without this"
        )


def _stop_id(role: Role, text: str, ids: tuple[int, ...]) -> int:
    if len(ids) != 1:
        raise ConfigError(f"role {role.name!r}: stop {text!r} is {len(ids)} tokens of this model; only one can stop it")
    return ids[0]


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
    """Seats act in the environment of an episode."""

    kind: ClassVar[str] = "act"
    episode: str
    actions: dict[str, str]


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


class EnvironmentAgent:
    """Takes part like an agent: holds the environment of every open episode, shows views and takes actions."""

    def __init__(self) -> None:
        self.episodes: dict[str, Environment] = {}

    async def handle(self, envelope: Envelope) -> Payload:
        """Answer `ObserveRequest` and `StepRequest`."""
        payload = envelope.payload
        if isinstance(payload, ObserveRequest):
            environment = self._find(payload.episode)
            with in_environment():
                seen = {view: environment.observe(view) for view in payload.views}
            return ObserveReply.model_construct(observations=seen)
        if isinstance(payload, StepRequest):
            environment = self._find(payload.episode)
            with in_environment():
                step = environment.step(payload.actions)
            return StepReply.model_construct(step=step)
        raise RunError(f"the environment was sent {envelope.kind!r}, it answers 'look' and 'act'")

    def _find(self, episode: str) -> Environment:
        try:
            return self.episodes[episode]
        except KeyError:
            raise RunError(f"no episode {episode!r} is open") from None

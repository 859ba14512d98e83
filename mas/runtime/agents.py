"""The agents of a team, and its environment, as listeners on the bus: a view comes in, candidates go out.

The rules of a role for its tools are checked here, before every call: of a server's tool, of the sandbox, of the
environment. An environment acts on the call that a team's action is: `step_with` is the only way for it into a world.

A text can be scored as an agent's without asking it (`likelihoods`). Leaves out on purpose: which candidate is taken,
which is the caller's choice.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

import msgspec

from mas.core.concurrency import together
from mas.core.engine import Engine, PinnedAdapter, Request, Sampling
from mas.core.environment import Caller, CountedCall, Environment, Step, ToolWorld
from mas.core.errors import ConfigError, RunError
from mas.core.messages import Envelope, Failure, Payload
from mas.core.naming import agent_of
from mas.core.privilege import Privilege
from mas.core.role import ENVIRONMENT, ConstrainedRole, Role, RoleSpec, View
from mas.core.tool_call import ToolCall
from mas.core.tracing import in_environment
from mas.runtime.flow import Flow
from mas.runtime.payloads import (
    AgentAnswer,
    Ask,
    Candidate,
    CompletionScores,
    ObserveReply,
    ObserveRequest,
    Piece,
    Score,
    StepReply,
    StepRequest,
)
from mas.runtime.streaming import Tell, generate_streaming


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """What a role uses: an engine, an adapter of it (None: the bare base), and whether by chat template."""

    engine: Engine
    adapter: str | None = None
    chats: bool = False


class TeamMember(Protocol):
    """An agent of a team: a role on an engine, or a person."""

    role: Role

    async def handle(self, envelope: Envelope) -> Payload:
        """Answer one `Ask` with an `AgentAnswer`, or one `Score` with a `CompletionScores`."""

    async def answer(
        self, view: View, seeds: tuple[int, ...], temperature: float | None = None, *, session: str | None = None
    ) -> tuple[Candidate, ...]:
        """One candidate per seed; `temperature` None: the role's own; `session`: see `Request`."""

    def most(self, view: View, candidates: int) -> tuple[int, int]:
        """Prompt and completion tokens that candidates can cost at most."""


class RoleAgent:
    """One agent: a role and the model endpoint that it uses.

    Args:
        part: sends a part of the answer to a request, as `Bus.part`; None: answers come whole.

    Raises:
        ConfigError: a stop text of the role is not one token of the model, or the role restricts what is drawn and the
            engine cannot.
    """

    def __init__(
        self, role: Role, endpoint: ModelEndpoint, part: Callable[[Envelope, Payload], object] | None = None
    ) -> None:
        self.role = role
        self._part = part
        self.endpoint = endpoint
        self.engine = engine = endpoint.engine
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
            ask.view,
            ask.seeds,
            ask.temperature,
            ask.adapter,
            tell=tell if is_streamed else None,
            session=envelope.episode,
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
        session: str | None = None,
    ) -> tuple[Candidate, ...]:
        """One candidate per seed; `temperature` None: the role's own, `adapter` None: the agent's own. `tell` is given
        the text while it is drawn; `session`: see `Request`."""
        prompt, prompt_ids = self.prompted(view)
        grammar = self.role.grammar(view) if isinstance(self.role, ConstrainedRole) else None
        sampling = msgspec.structs.replace(self._sampling, grammar=grammar)
        if temperature is not None:
            sampling = msgspec.structs.replace(sampling, temperature=temperature)
        adapter_name = self.endpoint.adapter if adapter is None else str(adapter)
        request = Request(prompt_ids=prompt_ids, sampling=sampling, seeds=seeds, adapter=adapter_name, session=session)
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
                read[ids] = text, self._parsed(text)
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

    def _parsed(self, text: str) -> Payload:
        """What the text means; with the text itself, where the role may be shown it again and it says more."""
        payload = self.role.parse(text)
        is_shown = self.endpoint.chats and self.role.spec.shows_past and not isinstance(payload, Failure)
        if not is_shown or text == payload.content:
            return payload
        return payload.model_copy(update={"raw": text})

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
        scores = await together((self.engine.score(prompt_ids, ids, self.endpoint.adapter) for ids in said), "score")
        return tuple(map(sum, scores))

    def most(self, view: View, candidates: int) -> tuple[int, int]:
        """Prompt and completion tokens that candidates can cost at most."""
        return len(self.prompted(view)[1]), candidates * self._sampling.max_tokens

    def prompted(self, view: View) -> tuple[str, tuple[int, ...]]:
        """What it is asked there, as text and as tokens."""
        if not self.endpoint.chats:
            prompt = self.role.prompt(view)
            return prompt, self.engine.tokenizer.begin + self.engine.tokenizer.encode(prompt)
        (system, user), begun, earlier = self.role.chat(view), self.role.prefill(view), self.role.earlier(view)
        said = [text for call in earlier for text in call]
        shown = "\n\n".join(text for text in (system, *said, user, begun) if text)
        return shown, self.engine.tokenizer.chat(system, user, begun, earlier)


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
                step = step_with(environment, payload.actions, payload.callers)
            return StepReply.model_construct(step=step)
        raise RunError(f"the environment was sent {envelope.kind!r}, it answers 'look' and 'act'")

    def _find(self, episode: str) -> Environment:
        try:
            return self.episodes[episode]
        except KeyError:
            raise RunError(f"no episode {episode!r} is open") from None


@dataclass(frozen=True, slots=True)
class Likelihoods:
    """Of a text after several views: the mean log-probability (temperature 1) of its tokens, in nats.

    `tokens`: what each of them cost, 0 where an equal prompt came before it: that is scored once.
    """

    logprobs: tuple[float, ...]
    tokens: tuple[int, ...]


async def likelihoods(member: TeamMember, views: Sequence[View], text: str) -> Likelihoods:
    """Score a text after every view as its agent would say it, all of them at once, by the adapter that it has now.

    Raises:
        RunError: a person plays the agent, or the text has no token. EngineError: its engine cannot score.
    """
    if not isinstance(member, RoleAgent):
        raise RunError(f"agent {member.role.name!r} is played by a person or tools: a text has no known probability")
    engine = member.engine
    ids = engine.tokenizer.encode(text)
    if not ids:
        raise RunError(f"the text {text!r} has no token that could be scored")
    prompts = [member.prompted(view)[1] for view in views]
    different = tuple(dict.fromkeys(prompts))
    scored = await asyncio.gather(*(engine.score(prompt, ids, member.endpoint.adapter) for prompt in different))
    found = {prompt: fmean(logprobs) for prompt, logprobs in zip(different, scored, strict=True)}
    first = {prompt: number for number, prompt in reversed([*enumerate(prompts)])}
    return Likelihoods(
        logprobs=tuple(found[prompt] for prompt in prompts),
        tokens=tuple((first[one] == number) * (len(one) + len(ids)) for number, one in enumerate(prompts)),
    )


DENIED = "denied"
"""The route of what an agent that calls tools says where it denies a call. No edge can ask for it."""


def denial(tools: Collection[str], rule: Privilege | None, sender: str, call: ToolCall, made: int) -> str | None:
    """What is answered in place of a result; None: the call may be made.

    Args:
        tools: that the sender may call. rule: for this one.
        made: how many calls of the tool that were not denied the sender has made in this branch of the episode.
    """
    if call.name not in tools:
        named = ", ".join(tools) or "none"
        return f"denied: {sender!r} may not call {call.name[:100]!r}; it may call: {named}"
    if rule is None:
        return None
    why = rule.problem(call.arguments)
    if why is None and rule.most is not None and made >= rule.most:
        why = f"{rule.most} calls in an episode are allowed"
    if why is None:
        return None
    return rule.instead or f"denied: {sender!r} may not call {call.name!r} so: {why}"


def environment_step(environment: Environment, flow: Flow, actions: Mapping[str, str]) -> Step:
    """Let a finished team turn act.

    Args:
        actions: of all seats that must act.

    Raises:
        EnvironmentFault: as `Environment.step`. RunError: as `callers`.
    """
    found = callers(environment, flow, actions)
    return step_with(environment, actions, found) if found else environment.step(actions)


def step_with(environment: Environment, actions: Mapping[str, str], found: Mapping[str, Caller]) -> Step:
    """Act, with what `callers` has found."""
    if found and isinstance(environment, ToolWorld):
        return environment.step_as(actions, found)
    return environment.step(actions)


def callers(environment: Environment, flow: Flow, actions: Mapping[str, str]) -> dict[str, Caller]:
    """Seat -> who calls a tool of the environment there, of agents that have rules for them.

    Raises:
        RunError: the environment has no tools that can be denied.
    """
    found: dict[str, Caller] = {}
    if not any(role.spec.environment_tools for role in flow.plan.roles.values()):
        return found
    if not isinstance(environment, ToolWorld):
        raise RunError(
            f"roles of team {flow.plan.spec.name!r} have tools of the environment, and that of "
            f"{environment.spec.name!r}, as it is played here, has none that can be denied: leave them out of the team"
        )
    for seat, action in actions.items():
        agent = flow.speaker(seat) if seat in flow.plan.spec.plays else None
        role = None if agent is None else flow.plan.roles[agent_of(agent)].spec
        call = None if role is None or not role.environment_tools else environment.call_of(action)
        if agent is not None and role is not None and call is not None:
            found[seat] = Caller(agent, _denial(role, agent, call, environment.counted_calls()))
    return found


def _denial(role: RoleSpec, agent: str, call: ToolCall, done: Iterable[CountedCall]) -> str | None:
    made = sum((one.agent, one.tool, one.is_denied) == (agent, call.name, False) for one in done)
    name = f"{ENVIRONMENT}.{call.name}"
    tools = [f"{ENVIRONMENT}.{tool}" for tool in role.environment_tools]
    return denial(tools, role.privileges.get(name), agent, ToolCall(name, call.arguments), made)

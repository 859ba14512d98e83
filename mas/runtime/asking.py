"""Asking the members of a team: under their policies, within their budgets, over the bus or in imagination."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import count

import msgspec

from mas.core.bus import Bus
from mas.core.errors import Expired, MasError, RemoteError, RunError
from mas.core.messages import Envelope, Payload
from mas.core.naming import agent_of
from mas.core.policy import NO_POLICY, Policy, policy_of
from mas.core.records import Attempt
from mas.core.role import Message, View
from mas.core.seeds import Part, derive_seed
from mas.runtime.agents import Answer, Ask, Candidate, Member
from mas.runtime.attempts import OnAttempt, persist
from mas.runtime.budget import Accounts, Spent, spend
from mas.runtime.play import Point
from mas.runtime.pulse import BEATS_PER_SILENCE, Pulse
from mas.runtime.spans import TeamSpans

Candidates = tuple[Candidate, ...]


class Asking:
    """The requests of one runtime.

    Args:
        team: name that goes before the members' addresses; address: where the runtime listens itself.
        principal: as whom it asks; another one than the address where agents are principals of their own.
        first_id: what the ids of its messages begin with.
        members: agents by name, and stand-ins by the name of their role.
        timeout_s: of an answer whose agent's policy says nothing; None: no limit.
        spans: told what is asked; None: nothing is traced.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        team: str,
        address: str,
        principal: str,
        first_id: str,
        members: Mapping[str, Member],
        policies: Mapping[str, Policy],
        accounts: Accounts,
        timeout_s: float | None,
        spans: TeamSpans | None = None,
    ) -> None:
        self.pulse = Pulse(is_vouched=principal != address)
        self.notes: dict[str, OnAttempt] = {}
        self._team, self._address = team, address
        self._principal, self._first_id = principal, first_id
        self._members, self._policies, self._accounts = members, policies, accounts
        self._timeout_s = timeout_s
        self._spans = spans
        self._bus = bus if spans is None else spans.sender(bus)
        self._numbers = count()

    def ask(
        self, point: Point, seeds: tuple[int, ...], *, episode: str, temperature: float | None
    ) -> Awaitable[Candidates]:
        """One candidate per seed from the agent at a decision point, or from its fallback."""
        answer = self._ask(point, seeds, episode, temperature)
        return answer if self._spans is None else self._spans.agent(point, seeds, episode, answer)

    async def _ask(self, point: Point, seeds: tuple[int, ...], episode: str, temperature: float | None) -> Candidates:
        view, agent, turn = point.view, point.agent, point.turn
        policy = policy_of(self._policies, agent)
        if policy is NO_POLICY and not self._accounts.is_limited:
            return await self._asked(agent_of(agent), policy, view, seeds, episode, turn, temperature)

        async def call(name: str) -> Candidates:
            async def request() -> Candidates:
                return await self._asked(name, policy, view, seeds, episode, turn, temperature)

            return await self._spending(name, agent, view, len(seeds), episode, request)

        if policy is NO_POLICY:
            return await call(agent_of(agent))
        key: tuple[Part, ...] = (episode, turn, agent, point.flow.visits(agent), *seeds)
        return await persist(policy, turn, agent_of(agent), key, call, self._note_of(episode))

    async def imagine(self, point: Point, seed: int, *, episode: str | None) -> Candidate:
        """What the agent, or its fallback, would say; nothing travels on the bus, so there are no signs of life."""
        thought = self._imagine(point, seed, episode)
        if self._spans is not None:
            thought = self._spans.agent(point, (seed,), episode, thought, is_imagined=True)
        (candidate,) = await thought
        return candidate

    async def _imagine(self, point: Point, seed: int, episode: str | None) -> Candidates:
        view, agent = point.view, point.agent
        policy = policy_of(self._policies, agent)

        async def call(name: str) -> Candidates:
            async def think() -> Candidates:
                return await self._thought(name, policy, view, seed)

            return await self._spending(name, None, view, 1, episode, think)

        if policy is NO_POLICY:
            return await call(agent_of(agent))
        key = (episode or "", point.turn, agent, point.flow.visits(agent), seed)
        return await persist(policy, point.turn, agent_of(agent), key, call, self._note_of(episode))

    async def undo(self, point: Point, output: Payload, *, episode: str) -> None:
        """Tell an agent's compensation what the agent said. It is counted in the budgets, and not limited by them:
        what was done must be undone also when all is spent."""
        agent, turn = point.agent, point.turn
        name = policy_of(self._policies, agent).compensation
        assert name is not None
        view = View(observation=point.observations[agent_of(agent)], messages=(Message(agent, output),))
        seed = derive_seed("undo", episode, turn, agent, point.flow.visits(agent))
        policy, note = policy_of(self._policies, name), self._note_of(episode)
        attempt = Attempt(turn=turn, agent=agent, asked=name, number=1, purpose="compensation", cause=None)
        try:
            candidates = await self._asked(name, policy, view, (seed,), episode, turn, None)
        except MasError as error:
            note(msgspec.structs.replace(attempt, cause=f"{type(error).__name__}: {error}"))
            raise
        prompt, completion = tokens_of(candidates)
        for purse in self._accounts.purses(episode, agent):
            purse.take(self._cost(name, candidates))
        note(msgspec.structs.replace(attempt, prompt_tokens=prompt, completion_tokens=completion))

    async def request(
        self, name: str, payload: Payload, episode: str, turn: int, policy: Policy = NO_POLICY
    ) -> Payload:
        """The answer of a member, or of the team's environment; only the two can read what travels."""
        target = f"{self._team}/{name}"
        envelope = Envelope(
            id=f"{self._first_id}/{next(self._numbers)}",
            kind=payload.kind,
            source=self._address,
            target=target,
            payload=payload,
            visibility=frozenset((target, self._principal)),
            episode=episode,
            turn=turn,
        )
        answer = self._bus.request(envelope, timeout_s=policy.timeout_s or self._timeout_s)
        if policy.idle_s is None:
            return (await answer).payload
        return (await self.pulse.watch(envelope, policy.idle_s, answer)).payload

    async def _asked(
        self,
        name: str,
        policy: Policy,
        view: View,
        seeds: tuple[int, ...],
        episode: str,
        turn: int,
        temperature: float | None,
    ) -> Candidates:
        beat_s = None if policy.idle_s is None else policy.idle_s / BEATS_PER_SILENCE
        payload = Ask.model_construct(view=view, seeds=seeds, temperature=temperature, beat_s=beat_s)
        answer = await self.request(name, payload, episode, turn, policy)
        if not isinstance(answer, Answer):
            raise RunError(f"agent {name!r} answered {answer.kind!r} to 'ask'")
        return answer.candidates

    async def _thought(self, name: str, policy: Policy, view: View, seed: int) -> Candidates:
        timeout_s = policy.timeout_s or self._timeout_s
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await self._members[name].answer(view, (seed,))
        except MasError:
            raise
        except Exception as error:
            if limit.expired():
                raise Expired(f"agent {name!r} did not answer within {timeout_s} s") from None
            raise RemoteError(f"agent {name!r} failed: {type(error).__name__}: {error}") from error

    async def _spending(
        self,
        name: str,
        agent: str | None,
        view: View,
        candidates: int,
        episode: str | None,
        call: Callable[[], Awaitable[Candidates]],
    ) -> Candidates:
        if not self._accounts.is_limited:
            return await call()  # prompts need not be made twice
        member = self._members[name]
        prompt, completion = member.most(view, candidates)
        most = Spent.of(prompt, completion, candidates, member.role.spec.price)
        purses = self._accounts.purses(episode, agent)
        return await spend(purses, most, call, lambda answer: self._cost(name, answer))

    def _cost(self, name: str, candidates: Candidates) -> Spent:
        return Spent.of(*tokens_of(candidates), len(candidates), self._members[name].role.spec.price)

    def _note_of(self, episode: str | None) -> OnAttempt:
        note = self.notes.get(episode or "", _forget)
        return note if self._spans is None else self._spans.noting(note)


def tokens_of(candidates: Candidates) -> tuple[int, int]:
    """Prompt tokens, counted once, and completion tokens."""
    return len(candidates[0].prompt_ids), sum(len(candidate.generation.token_ids) for candidate in candidates)


def _forget(attempt: Attempt) -> None:
    """Nobody keeps a record of an episode that was not opened."""

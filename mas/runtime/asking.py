"""Asking the members of a team: under their policies, within their budgets, over the bus or in imagination."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Protocol

import msgspec

from mas.core.bus import Bus
from mas.core.errors import Expired, JournalError, MasError, RemoteError, ReplayError, RunError
from mas.core.messages import Delivery, Envelope, Payload
from mas.core.naming import agent_of
from mas.core.policy import NO_POLICY, Policy, policy_of
from mas.core.records import Attempt
from mas.core.role import Message, View
from mas.core.seeds import Part, derive_seed
from mas.runtime.agents import Answer, Ask, Candidate, Member
from mas.runtime.attempts import OnAttempt, persist
from mas.runtime.budget import Accounts, Bill, Purse, Spent, spend
from mas.runtime.calls import Call
from mas.runtime.events import fingerprint
from mas.runtime.play import Point
from mas.runtime.playlog import PlayLog
from mas.runtime.pulse import BEATS_PER_SILENCE, Pulse

Candidates = tuple[Candidate, ...]


class Asking:
    """The requests of one runtime.

    Args:
        team: name that goes before the members' addresses; address: where the runtime listens itself.
        principal: as whom it asks; first_id: what the ids of its messages begin with.
        members: agents by name, and stand-ins by the name of their role.
        timeout_s: of an answer whose agent's policy says nothing; None: no limit.
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
    ) -> None:
        self.pulse = Pulse()
        self.notes: dict[str, OnAttempt] = {}
        self.logs: dict[str, PlayLog] = {}
        self._bus, self._team, self._address = bus, team, address
        self._principal, self._first_id = principal, first_id
        self._members, self._policies, self._accounts = members, policies, accounts
        self._timeout_s = timeout_s
        self._numbers = count()

    async def ask(self, point: Point, seeds: tuple[int, ...], *, episode: str, temperature: float | None) -> Candidates:
        """One candidate per seed from the agent at a decision point, or from its fallback."""
        view, agent, turn = point.view, point.agent, point.turn
        policy = policy_of(self._policies, agent)
        log = self.logs.get(episode)
        if policy is NO_POLICY and not self._accounts.is_limited and log is None:
            return await self._asked(agent_of(agent), policy, view, seeds, episode, turn, temperature)
        visit = point.flow.visits(agent)

        async def call(name: str) -> Candidates:
            async def make(message_id: str | None = None, bill: Bill | None = None) -> Candidates:
                async def request() -> Candidates:
                    return await self._asked(name, policy, view, seeds, episode, turn, temperature, message_id)

                return await self._spending(name, agent, view, len(seeds), episode, request, bill)

            if log is None:
                return await make()
            asked = fingerprint(view, seeds, temperature)
            recorded = log.of_turn(turn).call(agent, visit, name, asked)
            if not self._accounts.is_limited:
                return await _kept(recorded, make)
            purses, most = self._accounts.purses(episode, agent), self._most(name, view, len(seeds))
            return await _kept(recorded, make, purses, most)

        async def pause(seconds: float) -> None:
            if log is None or not log.of_turn(turn).knows_next(agent, visit):
                await asyncio.sleep(seconds)

        if policy is NO_POLICY:
            return await call(agent_of(agent))
        key: tuple[Part, ...] = (episode, turn, agent, visit, *seeds)
        return await persist(policy, turn, agent_of(agent), key, call, self._note_of(episode), pause)

    async def imagine(self, point: Point, seed: int, *, episode: str | None) -> Candidate:
        """What the agent, or its fallback, would say; nothing travels on the bus, so there are no signs of life."""
        view, agent = point.view, point.agent
        policy = policy_of(self._policies, agent)

        async def call(name: str) -> Candidates:
            async def think() -> Candidates:
                return await self._thought(name, policy, view, seed)

            return await self._spending(name, None, view, 1, episode, think)

        if policy is NO_POLICY:
            (candidate,) = await call(agent_of(agent))
        else:
            key = (episode or "", point.turn, agent, point.flow.visits(agent), seed)
            (candidate,) = await persist(policy, point.turn, agent_of(agent), key, call, self._note_of(episode))
        return candidate

    async def undo(self, point: Point, output: Payload, *, episode: str) -> None:
        """Tell an agent's compensation what the agent said. It is counted in the budgets, and not limited by them:
        what was done must be undone also when all is spent."""
        agent, turn = point.agent, point.turn
        name = policy_of(self._policies, agent).compensation
        assert name is not None
        view = View(observation=point.observations[agent_of(agent)], messages=(Message(agent, output),))
        visit, log = point.flow.visits(agent), self.logs.get(episode)
        seed = derive_seed("undo", episode, turn, agent, visit)
        policy, note = policy_of(self._policies, name), self._note_of(episode)
        attempt = Attempt(turn=turn, agent=agent, asked=name, number=1, purpose="compensation", cause=None)

        async def make(message_id: str | None = None, bill: Bill | None = None) -> Candidates:
            return await self._asked(name, policy, view, (seed,), episode, turn, None, message_id)

        try:
            if log is None:
                candidates = await make()
            else:
                call = log.of_turn(turn).call(f"{agent}/undo", visit, name, fingerprint(view, seed))
                candidates = await _kept(call, make)
        except MasError as error:
            note(msgspec.structs.replace(attempt, cause=f"{type(error).__name__}: {error}"))
            raise
        prompt, completion = tokens_of(candidates)
        for purse in self._accounts.purses(episode, agent):
            purse.take(self._cost(name, candidates))
        note(msgspec.structs.replace(attempt, prompt_tokens=prompt, completion_tokens=completion))

    async def request(
        self,
        name: str,
        payload: Payload,
        episode: str,
        turn: int,
        policy: Policy = NO_POLICY,
        message_id: str | None = None,
    ) -> Payload:
        """The answer of a member, or of the team's environment; only the two can read what travels.

        Args:
            message_id: the same whenever this is asked, so that it may be sent and handled again; None: a new one.
        """
        target = f"{self._team}/{name}"
        envelope = Envelope(
            id=message_id or self._new_id(episode),
            kind=payload.kind,
            source=self._address,
            target=target,
            payload=payload,
            delivery=Delivery.EFFECTIVELY_ONCE if message_id is None else Delivery.AT_LEAST_ONCE,
            visibility=frozenset((target, self._principal)),
            episode=episode,
            turn=turn,
        )
        answer = self._bus.request(envelope, timeout_s=policy.timeout_s or self._timeout_s)
        if policy.idle_s is None:
            return (await answer).payload
        return (await self.pulse.watch(envelope, policy.idle_s, answer)).payload

    def _new_id(self, episode: str) -> str:
        log = self.logs.get(episode)
        return f"{self._first_id}/{next(self._numbers)}" if log is None else log.look_id()

    async def _asked(
        self,
        name: str,
        policy: Policy,
        view: View,
        seeds: tuple[int, ...],
        episode: str,
        turn: int,
        temperature: float | None,
        message_id: str | None = None,
    ) -> Candidates:
        beat_s = None if policy.idle_s is None else policy.idle_s / BEATS_PER_SILENCE
        payload = Ask.model_construct(view=view, seeds=seeds, temperature=temperature, beat_s=beat_s)
        answer = await self.request(name, payload, episode, turn, policy, message_id)
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
        bill: Bill | None = None,
    ) -> Candidates:
        if not self._accounts.is_limited:
            return await call()  # prompts need not be made twice
        purses, most = self._accounts.purses(episode, agent), self._most(name, view, candidates)
        return await spend(purses, most, call, lambda answer: self._cost(name, answer), bill)

    def _most(self, name: str, view: View, candidates: int) -> Spent:
        """What a call can cost at most."""
        member = self._members[name]
        prompt, completion = member.most(view, candidates)
        return Spent.of(prompt, completion, candidates, member.role.spec.price)

    def _cost(self, name: str, candidates: Candidates) -> Spent:
        return Spent.of(*tokens_of(candidates), len(candidates), self._members[name].role.spec.price)

    def _note_of(self, episode: str | None) -> OnAttempt:
        return self.notes.get(episode or "", _forget)


class _Make(Protocol):
    """Makes a call. `message_id` and `bill` as in `Asking.request` and `spend`."""

    def __call__(self, message_id: str, bill: Bill) -> Awaitable[Candidates]: ...


_NOTHING = Spent()


async def _kept(call: Call, make: _Make, purses: Sequence[Purse] = (), most: Spent = _NOTHING) -> Candidates:
    """What is recorded of a call, or what comes of it now, which is then recorded."""
    known = await call.known(purses, most)
    if known is not None:
        return known.outcome()
    bill = Bill()
    try:
        candidates = await make(call.id, bill)
    except (JournalError, ReplayError):  # no outcome of the call
        raise
    except MasError as error:
        await call.failed(error, bill.spent)
        raise
    await call.answered(candidates, bill.spent)
    return candidates


def tokens_of(candidates: Candidates) -> tuple[int, int]:
    """Prompt tokens, counted once, and completion tokens."""
    return len(candidates[0].prompt_ids), sum(len(candidate.generation.token_ids) for candidate in candidates)


def _forget(attempt: Attempt) -> None:
    """Nobody keeps a record of an episode that was not opened."""

"""Requests to the members of a team, under their policies and within their budgets, over the bus or in this process."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import count

import msgspec

from mas.core.bus import Bus
from mas.core.errors import Expired, MasError, RemoteError, RunError
from mas.core.messages import Delivery, Envelope, Payload
from mas.core.naming import agent_of
from mas.core.policy import NO_POLICY, Policy
from mas.core.records import Attempt
from mas.core.role import Message, View
from mas.core.seeds import Part, derive_seed
from mas.runtime.agents import TeamMember
from mas.runtime.payloads import AgentAnswer, Ask, Candidate
from mas.runtime.play import DecisionPoint
from mas.runtime.policies import Accounts, Charge, OnAttempt, Spent, ask_with_retries, policy_of, spend
from mas.runtime.remote import RemoteAgents, check_answer, insist
from mas.runtime.replay_events import fingerprint
from mas.runtime.replay_log import PlayReplayLog
from mas.runtime.spans import TeamSpans
from mas.runtime.streaming import BEATS_PER_SILENCE, Heartbeat, ask_streaming, is_streamed

Candidates = tuple[Candidate, ...]


class AgentClient:
    """The requests of one runtime.

    Args:
        team: name that goes before the members' addresses; address: where the runtime listens itself.
        principal: as whom it asks; another one than the address where agents are principals of their own.
        first_id: what the ids of its messages begin with.
        members: agents by name, and stand-ins by the name of their role.
        timeout_s: of an answer whose agent's policy says nothing; None: no limit.
        comes_back: after a kill the bus has the answers to what was asked before, under the same ids.
        remote: how agents are asked that are elsewhere and trained here; None: they are here, or not trained.
        spans: of what is asked; None: nothing is traced.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        team: str,
        address: str,
        principal: str,
        first_id: str,
        members: Mapping[str, TeamMember],
        policies: Mapping[str, Policy],
        accounts: Accounts,
        timeout_s: float | None,
        remote: RemoteAgents | None = None,
        comes_back: bool = False,
        spans: TeamSpans | None = None,
    ) -> None:
        self.heartbeat = Heartbeat(is_vouched=principal != address)
        self.notes: dict[str, OnAttempt] = {}
        self.logs: dict[str, PlayReplayLog] = {}
        self._team, self._address = team, address
        self._principal, self._first_id = principal, first_id
        self._members, self._policies, self._accounts = members, policies, accounts
        self._timeout_s = timeout_s
        self._remote = remote
        # A bus that remembers what it asked joins a second asking to the first; any other one drops it as a duplicate.
        self._again = Delivery.EFFECTIVELY_ONCE if comes_back else Delivery.AT_LEAST_ONCE
        self._comes_back = comes_back
        self._spans = spans
        self._bus = bus if spans is None else spans.sender(bus)
        self._numbers = count()

    def sample(
        self, point: DecisionPoint, seeds: tuple[int, ...], *, episode: str, temperature: float | None
    ) -> Awaitable[Candidates]:
        """One candidate per seed from the agent at a decision point, or from its fallback."""
        policy, agent = policy_of(self._policies, point.agent), agent_of(point.agent)
        if policy is NO_POLICY and not self._accounts.is_limited and episode not in self.logs:  # the usual case
            answer = self._request_candidates(agent, policy, point.view, seeds, episode, point.turn, temperature)
        else:
            answer = self._with_policy(point, policy, seeds, episode, temperature)
        return answer if self._spans is None else self._spans.agent(point, seeds, episode, answer)

    async def _with_policy(
        self, point: DecisionPoint, policy: Policy, seeds: tuple[int, ...], episode: str, temperature: float | None
    ) -> Candidates:
        view, agent, turn = point.view, point.agent, point.turn
        visit, log = point.flow.visits(agent), self.logs.get(episode)

        async def call(name: str) -> Candidates:
            async def make(message_id: str | None = None, charge: Charge | None = None) -> Candidates:
                request = partial(
                    self._request_candidates, name, policy, view, seeds, episode, turn, temperature, message_id
                )
                return await self._within_budget(name, agent, view, len(seeds), episode, request, charge)

            if log is None:
                return await make()
            asked = fingerprint(view, seeds, temperature)
            in_turn = log.of_turn(turn)
            recorded = in_turn.call(agent, visit, name, asked)
            if not self._accounts.is_limited:
                return await in_turn.outcome(recorded, make)
            accounts, most = self._accounts.of(episode, agent), self._most(name, view, len(seeds))
            return await in_turn.outcome(recorded, make, accounts, most)

        async def pause(seconds: float) -> None:
            if log is None or not log.of_turn(turn).knows_next(agent, visit):
                await asyncio.sleep(seconds)

        if policy is NO_POLICY:
            return await call(agent_of(agent))
        key: tuple[Part, ...] = (episode, turn, agent, visit, *seeds)
        return await ask_with_retries(policy, turn, agent_of(agent), key, call, self._note_of(episode), pause)

    async def sample_locally(self, point: DecisionPoint, seed: int, *, episode: str | None) -> Candidate:
        """What the agent, or its fallback, would say; nothing travels on the bus, so there is no heartbeat.

        An agent that is elsewhere is asked over the bus.
        """
        thought = self._sample_locally(point, seed, episode)
        if self._spans is not None:
            thought = self._spans.agent(point, (seed,), episode, thought, is_imagined=True)
        (candidate,) = await thought
        return candidate

    async def _sample_locally(self, point: DecisionPoint, seed: int, episode: str | None) -> Candidates:
        view, agent = point.view, point.agent
        policy = policy_of(self._policies, agent)

        async def call(name: str) -> Candidates:
            if self._remote is None:
                answer = partial(self._answer_locally, name, policy, view, seed, episode)
            else:
                answer = partial(self._request_candidates, name, policy, view, (seed,), episode or "", point.turn, None)
            return await self._within_budget(name, None, view, 1, episode, answer)

        if policy is NO_POLICY:
            return await call(agent_of(agent))
        key = (episode or "", point.turn, agent, point.flow.visits(agent), seed)
        return await ask_with_retries(policy, point.turn, agent_of(agent), key, call, self._note_of(episode))

    async def undo(self, point: DecisionPoint, output: Payload, *, episode: str) -> None:
        """Ask an agent's compensation to undo an output. It is counted in the budgets, and not limited by them: what
        was done must be undone also when all is spent."""
        agent, turn = point.agent, point.turn
        name = policy_of(self._policies, agent).compensation
        assert name is not None
        view = View(observation=point.observations[agent_of(agent)], messages=(Message(agent, output.without_raw()),))
        visit, log = point.flow.visits(agent), self.logs.get(episode)
        seed = derive_seed("undo", episode, turn, agent, visit)
        policy, note = policy_of(self._policies, name), self._note_of(episode)
        attempt = Attempt(turn=turn, agent=agent, asked=name, number=1, purpose="compensation", cause=None)

        async def make(message_id: str | None = None, charge: Charge | None = None) -> Candidates:
            return await self._request_candidates(name, policy, view, (seed,), episode, turn, None, message_id)

        try:
            if log is None:
                candidates = await make()
            else:
                in_turn = log.of_turn(turn)
                call = in_turn.call(f"{agent}/undo", visit, name, fingerprint(view, seed))
                candidates = await in_turn.outcome(call, make)
        except MasError as error:
            note(msgspec.structs.replace(attempt, cause=f"{type(error).__name__}: {error}"))
            raise
        prompt, completion = tokens_of(candidates)
        for account in self._accounts.of(episode, agent):
            account.take(self._cost(name, candidates))
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
            delivery=Delivery.EFFECTIVELY_ONCE if message_id is None else self._again,
            visibility=frozenset((target, self._principal)),
            episode=episode,
            turn=turn,
        )
        answer = ask_streaming(self._bus, envelope, policy.timeout_s or self._timeout_s)
        if policy.idle_s is None:
            return (await answer).payload
        return (await self.heartbeat.watch(envelope, policy.idle_s, answer)).payload

    def _new_id(self, episode: str) -> str:
        log = self.logs.get(episode)
        return f"{self._first_id}/{next(self._numbers)}" if log is None else log.look_id()

    async def _request_candidates(
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
        remote, role = self._remote, self._members[name].role.name
        pinned = None if remote is None else remote.pinned(role)
        # What is joined to its first asking must be the same question, whether or not it has a listener in this life.
        is_heard = is_streamed() or (self._comes_back and message_id is not None)
        ask = Ask.model_construct(
            view=view, seeds=seeds, temperature=temperature, beat_s=beat_s, is_heard=is_heard, adapter=pinned
        )

        request = partial(self.request, name, ask, episode, turn, policy, message_id)
        if remote is None:
            answer = await request()
        else:
            until_there = partial(remote.until_there, f"{self._team}/{name}")
            answer = await insist(request, until_there, partial(self._note_remote, name, episode, turn))
        if not isinstance(answer, AgentAnswer):
            raise RunError(f"agent {name!r} answered {answer.kind!r} to 'ask'")
        if remote is not None:
            check_answer(role, pinned, seeds, answer.candidates)
        return answer.candidates

    def _note_remote(self, name: str, episode: str, turn: int, number: int, error: MasError | None) -> None:
        cause = None if error is None else f"{type(error).__name__}: {error}"
        attempt = Attempt(turn=turn, agent=name, asked=name, number=number, purpose="answer", cause=cause)
        self._note_of(episode)(attempt)

    async def _answer_locally(
        self, name: str, policy: Policy, view: View, seed: int, episode: str | None
    ) -> Candidates:
        timeout_s = policy.timeout_s or self._timeout_s
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await self._members[name].answer(view, (seed,), session=episode)
        except MasError:
            raise
        except Exception as error:
            if limit.expired():
                raise Expired(f"agent {name!r} did not answer within {timeout_s} s") from None
            raise RemoteError(f"agent {name!r} failed: {type(error).__name__}: {error}") from error

    def _within_budget(
        self,
        name: str,
        agent: str | None,
        view: View,
        candidates: int,
        episode: str | None,
        call: Callable[[], Awaitable[Candidates]],
        charge: Charge | None = None,
    ) -> Awaitable[Candidates]:
        if not self._accounts.is_limited:
            return call()  # prompts need not be made twice
        accounts, most = self._accounts.of(episode, agent), self._most(name, view, candidates)
        return spend(accounts, most, call, lambda answer: self._cost(name, answer), charge)

    def _most(self, name: str, view: View, candidates: int) -> Spent:
        """What a call can cost at most."""
        member = self._members[name]
        prompt, completion = member.most(view, candidates)
        return Spent.of(prompt, completion, candidates, member.role.spec.price)

    def _cost(self, name: str, candidates: Candidates) -> Spent:
        return Spent.of(*tokens_of(candidates), len(candidates), self._members[name].role.spec.price)

    def _note_of(self, episode: str | None) -> OnAttempt:
        note = self.notes.get(episode or "", _forget)
        return note if self._spans is None else self._spans.noting(note)


def tokens_of(candidates: Candidates) -> tuple[int, int]:
    """Prompt tokens, counted once, and completion tokens."""
    return len(candidates[0].prompt_ids), sum(len(candidate.generation.token_ids) for candidate in candidates)


def _forget(attempt: Attempt) -> None:
    """An episode that was not opened has no record."""

"""One episode with sessions in its seats: each sees its own view, moves when it must, and waits for the others.

A game has a session in every seat (a match), or one session and a policy in the other seats. What happens between two
moves of a seat is part of its step, and so is what it is paid for it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from mas.core.concurrency import together
from mas.core.environment import Environment, Task
from mas.core.errors import MasError
from mas.core.naming import did_you_mean, listed
from mas.core.scenario import Split
from mas.core.seeds import derive_seed
from mas.league.games import LeagueWorld
from mas.league.match import Player, chance_of
from mas.openenv.wire import BadMessage, SeatObservation, SeatState
from mas.person.seats import view_of
from mas.roles.chat import seen_text


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedWorld:
    """What is served.

    Attributes:
        world: opens its environments. task: the one with a number, of a split. about: a sentence for people.
        others: plays the seats beside that of a session without a match; None: nobody does.
    """

    world: LeagueWorld
    task: Callable[[Split, int], Task]
    about: str
    others: Player | None = None


class SeatGame:
    """One episode.

    Args:
        policy: plays all seats but the first that is taken; None: every seat is for a session.

    Attributes:
        steps: of the environment so far. fault: why it cannot go on, for everybody in it; None: it can.
    """

    def __init__(self, environment: Environment, task: Task, policy: Player | None, episode: str | None) -> None:
        environment.reset(task)
        self.task, self.episode = task, episode
        self._environment, self._policy = environment, policy
        self._taken: set[str] = set()
        self._said: dict[str, str] = {}
        self._illegal: set[str] = set()
        self._terms: dict[str, dict[str, float]] = {seat: {} for seat in environment.spec.seats}
        self._unpaid = dict.fromkeys(environment.spec.seats, 0.0)
        self._changed = asyncio.Condition()
        self._stepping = asyncio.Lock()
        self.steps = 0
        self.fault: str | None = None

    @property
    def is_full(self) -> bool:
        """Whether no session can join any more."""
        return self._policy is not None or len(self._taken) == len(self._environment.spec.seats)

    @property
    def is_over(self) -> bool:
        """Whether nobody moves any more."""
        return not self._environment.to_move()

    def take(self, seat: str) -> None:
        """A session sits down.

        Raises:
            BadMessage: there is no such seat, or it is taken.
        """
        seats = self._environment.spec.seats
        if seat not in seats:
            raise BadMessage("VALIDATION_ERROR", f"there is no seat {seat[:60]!r}. {did_you_mean(seat, seats)}")
        if seat in self._taken:
            free = [other for other in seats if other not in self._taken]
            raise BadMessage("VALIDATION_ERROR", f"seat {seat!r} of this match is taken. Free: {listed(free)}")
        view_of(self._environment, seat)
        self._taken.add(seat)

    async def leave(self, seat: str) -> None:
        """A session has gone; those that are left cannot go on, unless the game is over."""
        if not self.is_full or not self.is_over:
            await self._break(f"the session in seat {seat!r} has left the game")

    async def begin(self) -> None:
        """Let the policy move until a session must."""
        await self._run()

    async def act(self, seat: str, action: str) -> None:
        """A seat moves.

        Raises:
            BadMessage: it must not move now, or the game cannot go on.
        """
        self._check()
        moving = self._environment.to_move()
        if not moving:
            raise BadMessage("EXECUTION_ERROR", "the episode is over: reset begins another")
        if seat not in moving or seat in self._said:
            others = [other for other in moving if other not in self._said]
            raise BadMessage(
                "EXECUTION_ERROR", f"seat {seat!r} has no move now, to move: {listed(others)}. state says when it has"
            )
        self._said[seat] = action
        await self._run()

    async def turn(self, seat: str, limit_s: float) -> None:
        """Wait until a seat must move, or the game is over.

        Args:
            limit_s: seconds for the next move of somebody else.

        Raises:
            BadMessage: the game cannot go on.
        """
        async with self._changed:
            while self.fault is None and (moving := self._environment.to_move()):
                if seat in moving and seat not in self._said:
                    break
                try:
                    async with asyncio.timeout(limit_s):
                        await self._changed.wait()
                except TimeoutError:
                    late = [other for other in moving if other not in self._said]
                    self.fault = f"seat {listed(late)} did not move within {limit_s:g} s"
                    self._changed.notify_all()
        self._check()

    def observation(self, seat: str) -> SeatObservation:
        """What a seat sees now."""
        environment, moving = self._environment, self._environment.to_move()
        legal = environment.legal(seat) if seat in moving else ()
        return SeatObservation(
            seat=seat,
            seen=seen_text(self._fields(seat)),
            legal=None if legal is None else list(legal),
            to_move=[other for other in moving if other not in self._said],
            illegal=seat in self._illegal,
        )

    def state(self, seat: str) -> SeatState:
        """Where the game stands for a seat."""
        seen = self.observation(seat)
        return SeatState(
            episode_id=self.episode,
            step_count=self.steps,
            seat=seat,
            seats=list(self._environment.spec.seats),
            to_move=seen.to_move,
            fields=self._fields(seat),
            legal=seen.legal,
            terms=self._terms[seat],
            done=self.is_over,
            success=self._environment.success() if self.is_over and len(self._terms) == 1 else None,
        )

    def pay(self, seat: str) -> float:
        """What a seat was paid since it was last asked."""
        paid, self._unpaid[seat] = self._unpaid[seat], 0.0
        return paid

    def _fields(self, seat: str) -> dict[str, str]:
        return dict(self._environment.observe(view_of(self._environment, seat)).fields)

    def _check(self) -> None:
        if self.fault is not None:
            raise BadMessage("EXECUTION_ERROR", f"{self.fault}: reset begins another episode")

    async def _break(self, why: str) -> None:
        async with self._changed:
            self.fault = self.fault or why
            self._changed.notify_all()

    async def _run(self) -> None:
        """Steps, as long as all that must move have moved or are policies."""
        try:
            async with self._stepping:
                while moving := self._environment.to_move():
                    played = [seat for seat in moving if self._policy is not None and seat not in self._taken]
                    if any(seat not in self._said and seat not in played for seat in moving):
                        break
                    await self._step(moving, played)
        except MasError as error:
            await self._break(str(error))
            self._check()
        except BaseException:
            await self._break("the game broke")
            raise
        async with self._changed:
            self._changed.notify_all()

    async def _step(self, moving: tuple[str, ...], played: list[str]) -> None:
        if self._policy is not None and played:
            chances = (
                chance_of(self._environment, seat, derive_seed("openenv", self.task.seed, self.steps, seat))
                for seat in played
            )
            moves = await together([self._policy.move(chance) for chance in chances], "policy")
            self._said |= dict(zip(played, moves, strict=True))
        step = self._environment.step({seat: self._said[seat] for seat in moving})
        self.steps += 1
        self._said = {}
        self._illegal = (self._illegal - set(moving)) | set(step.illegal)
        for seat, terms in step.rewards.items():
            self._unpaid[seat] += sum(terms.values())
            for name, value in terms.items():
                self._terms[seat][name] = self._terms[seat].get(name, 0.0) + value

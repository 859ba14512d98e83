"""What the policies of a team do: budgets that limit what is spent, retries, and fallbacks.

What a call can cost at most is reserved before it is made, and settled at what it did cost: so agents at work at the
same time cannot spend more than there is. What a failed or cancelled call has cost is not known: all that was reserved
for it stays spent. An agent that fails is asked again, or another one in its place.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from mas.core.errors import (
    BudgetExceeded,
    Closed,
    ConfigError,
    Denied,
    Expired,
    Halted,
    JournalError,
    MasError,
    NoPayload,
    NoRoute,
    RemoteError,
    ReplayError,
)
from mas.core.policy import NO_POLICY, Budget, Policy, Price, Retries
from mas.core.records import Attempt
from mas.core.seeds import Part, derive_seed
from mas.core.team import TeamSpec

T = TypeVar("T")
_UNLIMITED = Budget()


def policy_of(policies: Mapping[str, Policy], agent: str) -> Policy:
    """The policy of an agent, `NO_POLICY` where it has none; `worker[0]`, an instance of an agent, has the agent's."""
    return policies.get(agent) or policies.get(agent.partition("[")[0]) or NO_POLICY if policies else NO_POLICY


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What calls cost; see `mas.core.policy.Budget` for the units."""

    tokens: int = 0
    calls: int = 0
    cost: float = 0.0

    @classmethod
    def of(cls, prompt: int, completion: int, calls: int, price: Price | None) -> "Spent":
        """The cost of tokens at a price; None: they cost nothing."""
        cost = 0.0 if price is None else (prompt * price.prompt + completion * price.completion) / 1000
        return cls(tokens=prompt + completion, calls=calls, cost=cost)


class Remaining(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a budget, reservations taken off; None: not limited."""

    tokens: int | None
    calls: int | None
    seconds: float | None
    cost: float | None


class BudgetAccount:
    """One budget and what was spent of it.

    Args:
        name: for errors, such as `episode`.
        now: seconds on any clock.
    """

    def __init__(self, limit: Budget, name: str, now: Callable[[], float]) -> None:
        self.limit, self.name = limit, name
        self._now = now
        self._began: float | None = None
        self._tokens = self._calls = 0
        self._cost = 0.0

    def remaining(self) -> Remaining:
        limit = self.limit
        passed = 0.0 if self._began is None else self._now() - self._began
        return Remaining(
            tokens=None if limit.tokens is None else limit.tokens - self._tokens,
            calls=None if limit.calls is None else limit.calls - self._calls,
            seconds=None if limit.seconds is None else limit.seconds - passed,
            cost=None if limit.cost is None else limit.cost - self._cost,
        )

    def check(self, most: Spent) -> None:
        """Refuse a call that may cost more than is left.

        Raises:
            BudgetExceeded: says of what.
        """
        left = self.remaining()
        for unit, needed in (("tokens", most.tokens), ("calls", most.calls), ("cost", most.cost)):
            there = getattr(left, unit)
            if there is not None and needed > there:
                raise BudgetExceeded(
                    f"the budget of the {self.name} has {there:g} of {getattr(self.limit, unit):g} {unit} left, "
                    f"and a call may need {needed:g}; raise it, or lower max_tokens"
                )
        if left.seconds is not None and left.seconds <= 0:
            raise BudgetExceeded(self.time_is_up())

    def time_is_up(self) -> str:
        """What is said when no seconds are left."""
        return f"the {self.limit.seconds:g} seconds of the budget of the {self.name} have passed"

    def take(self, spent: Spent, *, ago_s: float = 0.0) -> None:
        """Count what is or will be spent; its time begins to pass, or began so long ago."""
        began = self._now() - ago_s
        if self._began is None or began < self._began:
            self._began = began
        self._tokens += spent.tokens
        self._calls += spent.calls
        self._cost += spent.cost

    def give_back(self, most: Spent, actual: Spent) -> None:
        """Settle a reservation."""
        self._tokens += actual.tokens - most.tokens
        self._calls += actual.calls - most.calls
        self._cost += actual.cost - most.cost


class Charge:
    """What a call has taken from its budget accounts so far, for a record."""

    def __init__(self) -> None:
        self.spent = Spent()


async def spend(
    accounts: Sequence[BudgetAccount],
    most: Spent,
    call: Callable[[], Awaitable[T]],
    actual: Callable[[T], Spent],
    charge: Charge | None = None,
) -> T:
    """Make a call that fits into every account.

    Args:
        charge: adds up what is taken; None: it is not wanted.

    Raises:
        BudgetExceeded: it does not fit and was not made, or the time was up and it was stopped.
    """
    for account in accounts:
        account.check(most)
    for account in accounts:
        account.take(most)
    if charge is not None:
        charge.spent = most
    times = [(left, account) for account in accounts if (left := account.remaining().seconds) is not None]
    seconds, shortest = min(times, key=lambda pair: pair[0], default=(None, None))
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            result = await call()
    except TimeoutError:
        if not limit.expired() or shortest is None:
            raise
        raise BudgetExceeded(shortest.time_is_up()) from None
    for account in accounts:
        account.give_back(most, actual(result))
    if charge is not None:
        charge.spent = actual(result)
    return result


class Accounts:
    """All budgets of one runtime: of the run, and of each open episode, its team turn and its agents."""

    def __init__(self, spec: TeamSpec, now: Callable[[], float]) -> None:
        self._spec, self._now = spec, now
        budgets = [spec.budget.turn, spec.budget.episode, spec.budget.run]
        budgets += [policy.budget for policy in spec.policies.values()]
        self.is_limited = any(budget != _UNLIMITED for budget in budgets)
        self.is_timed = any(budget.seconds is not None for budget in budgets)
        self._run = BudgetAccount(spec.budget.run, "run", now)
        self._episodes: dict[str, dict[str, BudgetAccount]] = {}

    def begin_turn(self, episode: str) -> None:
        """A team turn begins, and with the first one its episode."""
        accounts = self._episodes.setdefault(
            episode, {"episode": BudgetAccount(self._spec.budget.episode, "episode", self._now)}
        )
        accounts["turn"] = BudgetAccount(self._spec.budget.turn, "turn", self._now)

    def end(self, episode: str) -> None:
        self._episodes.pop(episode, None)

    def of(self, episode: str | None, agent: str | None) -> list[BudgetAccount]:
        """What a call must fit into.

        Args:
            episode: None, or one that is not open: the run alone.
            agent: None: a call that is part of no team turn, such as one of a play-out: the run and the episode.
        """
        accounts = self._episodes.get(episode or "")
        if accounts is None:
            return [self._run]
        if agent is None:
            return [self._run, accounts["episode"]]
        policy = policy_of(self._spec.policies, agent)
        if policy is NO_POLICY:
            return [self._run, accounts["episode"], accounts["turn"]]
        name = f"agent {agent.partition('[')[0]!r}"  # the instances of an agent have one account
        if name not in accounts:
            accounts[name] = BudgetAccount(policy.budget, f"{name} in this episode", self._now)
        return [self._run, accounts["episode"], accounts["turn"], accounts[name]]

    def remaining(self, episode: str | None, agent: str | None) -> dict[str, Remaining]:
        """What is left: of the `run`, and of an open episode also of `episode`, `turn` and, if named, `agent`."""
        left = {"run": self._run.remaining()}
        for name, account in self._episodes.get(episode or "", {}).items():
            if not name.startswith("agent "):
                left[name] = account.remaining()
        if agent is not None and len(own := self.of(episode, agent)) == 4:
            left["agent"] = own[3].remaining()
        return left


OnAttempt = Callable[[Attempt], None]

MAY_PASS = (Expired, RemoteError, Closed, NoRoute, NoPayload)
"""Errors after which another attempt may help."""
FINAL = (Denied, ConfigError, BudgetExceeded, Halted, JournalError, ReplayError)
"""Errors after which the fallback is not asked either."""


def wait_before(retries: Retries, attempt: int, *key: Part) -> float:
    """Seconds before an attempt, from 2 on; see `Retries`. `key`: names the decision, for the jitter's seed."""
    draw = derive_seed("retry", *key, attempt) / 2**62 - 1
    wait_s = retries.wait_s * retries.factor ** (attempt - 2)
    return wait_s * (1 + retries.jitter * draw)


async def ask_with_retries(
    policy: Policy,
    turn: int,
    agent: str,
    key: tuple[Part, ...],
    call: Callable[[str], Awaitable[T]],
    note: OnAttempt,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T:
    """Ask an agent as often as its policy says, and then its fallback, once.

    Args:
        turn: team turn, for the record.
        key: names the decision, for the jitter's seed.
        call: asks the agent of a name, once.
        note: called with every attempt that failed, and with the first that then did not.
        pause: waits so many seconds before another attempt.

    Raises:
        MasError: the last attempt's error.
    """
    attempts = 1 if policy.retries is None else policy.retries.attempts
    for number in range(1, attempts + 1):
        try:
            answer = await call(agent)
        except MasError as error:
            note(_attempt(turn, agent, agent, number, error))
            if isinstance(error, FINAL):
                raise
            if isinstance(error, MAY_PASS) and policy.retries is not None and number < attempts:
                await pause(wait_before(policy.retries, number + 1, *key))
                continue
            if policy.fallback is None:
                raise
            break
        if number > 1:
            note(_attempt(turn, agent, agent, number, None))
        return answer
    assert policy.fallback is not None
    try:
        answer = await call(policy.fallback)
    except MasError as error:
        note(_attempt(turn, agent, policy.fallback, 1, error))
        raise
    note(_attempt(turn, agent, policy.fallback, 1, None))
    return answer


def _attempt(turn: int, agent: str, asked: str, number: int, error: MasError | None) -> Attempt:
    cause = None if error is None else f"{type(error).__name__}: {error}"
    purpose: Literal["answer", "fallback"] = "answer" if asked == agent else "fallback"
    return Attempt(turn=turn, agent=agent, asked=asked, number=number, purpose=purpose, cause=cause)

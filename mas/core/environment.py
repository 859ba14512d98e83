"""The contracts of environments and of rewards: a typed text world with seats that act and views that see.

A *seat* acts on the world: one role, or a whole team whose graph decides one action. A *view* is what one member may
see. In a two-player game seats and views are the players; in a team task the one seat is `team` and every role has
a view of its own. Rewards are named terms, kept apart until the advantage. A script plays by rules, without a model.
"""

from collections.abc import Callable, Iterable, Mapping
from random import Random
from statistics import fmean
from typing import Literal, Protocol, Self, runtime_checkable

import msgspec

from mas.core.errors import RewardError
from mas.core.messages import Payload
from mas.core.tool_call import ToolCall


class Task(msgspec.Struct, frozen=True):
    """One task to solve: `seed` makes it, `split` says from which of the disjoint pools it came."""

    id: str
    seed: int
    split: Literal["train", "eval"] = "train"


class EnvironmentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller must know before the first reset.

    Attributes:
        seats: who acts.
        views: who may ask for an observation; each sees only its own.
        dynamics: one seat a step, or several at once.
        max_turns: steps after which the episode is over at the latest.
        terms: names of all reward components that `step` can pay.
    """

    name: str
    seats: tuple[str, ...]
    views: tuple[str, ...]
    max_turns: int
    terms: tuple[str, ...]
    dynamics: Literal["sequential", "simultaneous"] = "sequential"


class Observation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Named fields that one view sees; a role's prompt template chooses among them.

    `is_silent`: an agent with this view does not speak in this team turn; for the others it is a branch not taken.
    """

    fields: Mapping[str, str]
    is_silent: bool = False


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one step paid and did.

    Attributes:
        rewards: per seat, per named component; of all that moved, and of others who were paid, as at a game's end.
        illegal: seats whose action was not legal; it made no transition of the world, but the turn is spent.
        denied: seat -> what its agent was answered in place of the result, where its call of a tool was denied.
    """

    rewards: Mapping[str, Mapping[str, float]]
    illegal: tuple[str, ...] = msgspec.field(default_factory=lambda: ())  # a factory: it is written also when empty
    denied: Mapping[str, str] = {}


class Caller(msgspec.Struct, frozen=True, omit_defaults=True):
    """The agent whose action calls a tool of the environment, and whose role has rules for that.

    `denied`: what it is answered in place of the result; None: it may make the call.
    """

    agent: str
    denied: str | None = None


def denied_in(callers: Mapping[str, Caller]) -> dict[str, str]:
    """Seat -> what its agent is answered instead, of the calls that are denied."""
    return {seat: caller.denied for seat, caller in callers.items() if caller.denied is not None}


class CountedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of a tool of the environment that an agent with rules made, or was denied."""

    agent: str
    tool: str
    is_denied: bool = False


@runtime_checkable
class Environment(Protocol):
    """Deterministic under its seed; `clone` and `snapshot`/`restore` are exact; `observe` is pure."""

    @property
    def spec(self) -> EnvironmentSpec:
        """What a caller must know; the same for all episodes."""

    def reset(self, task: Task) -> None:
        """Start the task from its beginning; nothing of an earlier episode remains."""

    def to_move(self) -> tuple[str, ...]:
        """Seats that must act now; empty when the episode is over."""

    def observe(self, view: str) -> Observation:
        """What this view sees; asking changes nothing.

        Raises:
            EnvironmentFault: no such view.
        """

    def legal(self, seat: str) -> tuple[str, ...] | None:
        """Legal actions as text, None where they cannot be listed."""

    def step(self, actions: Mapping[str, str]) -> Step:
        """Act. Keys equal `to_move()`; an empty text passes.

        Raises:
            EnvironmentFault: keys differ from `to_move()`, or the episode is over.
        """

    def success(self) -> bool:
        """Whether the task is solved."""

    def clone(self) -> Self:
        """An equal, independent copy with the same future."""

    def snapshot(self) -> bytes:
        """The whole state."""

    def restore(self, state: bytes) -> None:
        """Take a state that `snapshot` of the same class returned."""

    def state_key(self) -> str:
        """Equal for equal states, different for different ones."""

    def render(self) -> str:
        """The whole state as text, for people; may hold what no view sees."""


@runtime_checkable
class Anchored(Protocol):
    """What an environment has beside `Environment` whose state also tells how and when it was reached."""

    def anchor(self) -> str:
        """Equal where the task stands equally: `state_key` without what only counts turns or tells the way. Pure."""


@runtime_checkable
class Measured(Protocol):
    """What an environment has beside `Environment` where rewards do not tell everything about an episode."""

    def measures(self) -> Mapping[str, float]:
        """Named numbers about the episode so far, asked when it is over; never rewards. Pure."""


@runtime_checkable
class Varied(Protocol):
    """What an environment has beside `Environment` whose tasks are of several games."""

    def game_name(self) -> str:
        """The game of this episode. Pure."""


@runtime_checkable
class Answered(Protocol):
    """What an environment has beside `Environment` where a task has one right answer."""

    def right_answer(self) -> str:
        """The action of the team that solves the task at once; the same during a whole episode. No view shows it."""


@runtime_checkable
class Named(Protocol):
    """What an environment has beside `Environment` where what leads to success has names."""

    def entities(self) -> tuple[str, ...]:
        """What stands in the outputs of a team on its right way to the answer, letter by letter: one at least, none of
        them empty; the same during a whole episode. Rewards read it, agents never."""


@runtime_checkable
class Tooled(Protocol):
    """What an environment has beside `Environment` where some actions are calls of tools."""

    def is_call(self, action: str) -> bool:
        """Whether an action calls a tool that there is, with parameters that fit it. Pure."""

    def is_failed_call(self, action: str) -> bool:
        """Whether an action, which is neither an answer nor a pass, is no call that a tool takes. Pure."""


@runtime_checkable
class ToolWorld(Environment, Tooled, Protocol):
    """An environment where calls of its tools can be denied.

    A call may change the state, all of which is in `snapshot`, so that each clone has what its own calls made of it.
    `mas.testing.tool_world` has the contract's tests.
    """

    @property
    def tool_names(self) -> tuple[str, ...]:
        """All tools; the same for all episodes."""

    def call_of(self, action: str) -> ToolCall | None:
        """The call that an action is, right or wrong; None: it is an answer, a pass or neither. Pure."""

    def counted_calls(self) -> tuple[CountedCall, ...]:
        """The calls of this episode that `step_as` was told of, oldest first; a part of the state. Pure."""

    def step_as(self, actions: Mapping[str, str], callers: Mapping[str, Caller]) -> Step:
        """As `step`, and count the calls of these callers, by seat. A call that is denied is not made: it spends the
        turn as one that the tool refuses, and what the caller is told instead is seen where results are.

        Raises:
            EnvironmentFault: as `step`.
        """


@runtime_checkable
class Guiding(Protocol):
    """What an environment has beside `Environment` where it can say more about a failed attempt than that it failed."""

    def guidance(self) -> str:
        """A hint for the next attempt, asked when this one is over and the task is not solved. Pure."""


@runtime_checkable
class Attempting(Protocol):
    """What an environment has beside `Environment` whose episodes are several attempts at one task."""

    def attempt(self) -> int:
        """Number of the attempt that the next team turn belongs to, from 0. Pure."""


def anchor_of(environment: Environment) -> str:
    """Where the task stands: the anchor of an environment, its `state_key` where it is not `Anchored`.

    Source: GiGPO, arXiv 2505.10978, section 4.2: anchor states, which episodes of one task meet again and again.
    """
    return environment.anchor() if isinstance(environment, Anchored) else environment.state_key()


def world_of(environment: Environment) -> str:
    """The name of the game that is played: of this episode where an environment is `Varied`, else of all."""
    return environment.game_name() if isinstance(environment, Varied) else environment.spec.name


def measures_of(environment: Environment) -> dict[str, float]:
    """What an environment measures about its episode; nothing where it is not `Measured`."""
    return dict(environment.measures()) if isinstance(environment, Measured) else {}


def mean_measures(measured: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of every measure over the episodes that have it, by name."""
    values: dict[str, list[float]] = {}
    for one in measured:
        for name, value in one.items():
            values.setdefault(name, []).append(value)
    return {name: fmean(found) for name, found in sorted(values.items())}


LARGEST = 1e30
"""The largest absolute value of a term that is paid: sums, weights and squares of such terms stay finite."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One output to be judged.

    Attributes:
        agent: who spoke: its name, `worker[1]` for the second instance of a mapped one, as in `DecisionPoint`.
            `mas.core.naming.agent_of` gives the agent. Its role tells less: several agents may have one role.
        environment: the world as it stood when the agent spoke. Not to be changed.
        output: what the agent said, possibly a `Failure`.
        before: the last output of every agent in this team turn before the move, by its name without a number; a
            mapped agent has none before its last instance has spoken, then a list.
        after: the same when the team turn ended; empty where it was not played out.
    """

    agent: str
    role: str
    environment: Environment
    output: Payload
    before: Mapping[str, Payload]
    after: Mapping[str, Payload]


@runtime_checkable
class Reward(Protocol):
    """A role's own terms; the team's terms are what the environment pays to the team's seat."""

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of all own terms."""

    def own(self, move: Move) -> Mapping[str, float]:
        """Named terms of this move, a subset of `terms`; empty where the role has none. Pure."""


def is_bounded(value: float, largest: float = LARGEST) -> bool:
    """Whether |value| <= largest, which no NaN and no infinity is."""
    return abs(value) <= largest


def check_finite(terms: Mapping[str, float], source: str, largest: float = LARGEST) -> None:
    """Refuse rewards that compare with nothing or whose squares overflow, where they enter a record.

    Args:
        source: who paid them, as the error names it.

    Raises:
        RewardError: one of them is NaN, infinite, or larger than `largest` in absolute value.
    """
    for name, value in terms.items():
        if not is_bounded(value, largest):
            raise RewardError(
                f"{source} paid {name}={value}: a reward must be a finite number between {-largest:g} and "
                f"{largest:g}. Correct what computes {name}, or bound it"
            )


Script = Callable[[Environment, Random], Mapping[str, str] | None]
"""What each seat that must move does, drawing from a generator; None: it cannot tell."""


def random_script(environment: Environment, random: Random) -> Mapping[str, str] | None:
    """Draws uniformly among the legal actions of each seat, an empty text where it has none. None: they cannot be
    listed."""
    actions = {}
    for seat in environment.to_move():
        legal = environment.legal(seat)
        if legal is None:
            return None
        actions[seat] = random.choice(legal) if legal else ""
    return actions

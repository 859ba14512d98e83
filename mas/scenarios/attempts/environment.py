"""An environment whose episode is several attempts at one task of another environment, all from the same start.

Between two attempts a reflector may have a turn of its own, in which nobody else speaks; what it says is shown in the
prompts of the next attempt. Sources: Retroformer, arXiv 2308.02151; RISE, 2407.18219; Re-ReST, 2406.01495; Agent-RLVR,
2506.11425.
"""

from collections.abc import Collection, Mapping
from copy import copy
from typing import Literal, Self

import msgspec

from mas.core.environment import Environment, EnvironmentSpec, Guiding, Observation, Step, Task, measures_of
from mas.core.errors import EnvironmentFault
from mas.core.seeds import digest
from mas.scenarios.world import kept_text

Guide = Literal["none", "environment", "reflector", "repair"]
REFLECTOR, SOLO = "reflector", "solo"
MOST = 2000
"""Characters of an attempt, and of guidance, that are kept."""


class AttemptsState(msgspec.Struct, frozen=True):
    """Where the attempts stand beside the world.

    Attributes:
        number: of this attempt, from 0, or of the next one while the reflector speaks.
        actions: of this attempt; tried: those of the attempts before, as one text each.
        guidance: what this attempt is told. is_reflecting: the next turn is the reflector's.
        feedback: what the environment says of the attempt before, to who repairs it.
        right: of the attempts that are over, in order, whether each solved the task.
    """

    number: int = 0
    actions: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    guidance: str = ""
    is_reflecting: bool = False
    feedback: str = ""
    right: tuple[bool, ...] = ()


class _Saved(msgspec.Struct, frozen=True):
    state: AttemptsState
    start: bytes
    world: bytes


class Attempts:
    """The world of a task, attempted until it is solved, `most` times at most.

    Args:
        world: with the one seat of the team; not shared with anybody else.
        guide: as `algorithm.sampler.attempts.guide`. stops: whether an attempt that solves the task is the last.
        readers: views of those who speak for the team; they alone see what was tried, or the guidance.
    """

    def __init__(
        self, world: Environment, most: int, guide: Guide, readers: Collection[str], *, stops: bool = True
    ) -> None:
        self.world, self.most, self.guide, self.readers = world, most, guide, frozenset(readers)
        self.stops = stops
        self.state = AttemptsState()
        self._start = b""
        inner, extra = world.spec, (REFLECTOR,) if guide in ("reflector", "repair") else ()
        turns = most * inner.max_turns + (most - 1) * (guide == "reflector")
        self.spec = EnvironmentSpec(
            name=inner.name, seats=inner.seats, views=(*inner.views, *extra), max_turns=turns, terms=inner.terms
        )

    def reset(self, task: Task) -> None:
        self.world.reset(task)
        self.state, self._start = AttemptsState(), self.world.snapshot()

    def to_move(self) -> tuple[str, ...]:
        return self.spec.seats if self.state.is_reflecting else self.world.to_move()

    def attempt(self) -> int:
        """See `mas.core.environment.Attempting`; the reflector's turn belongs to the attempt that it guides."""
        return self.state.number

    def observe(self, view: str) -> Observation:
        is_reflector = view == REFLECTOR and REFLECTOR in self.spec.views
        seen = self.world.observe(SOLO if is_reflector else view)
        fields = dict(seen.fields)
        if is_reflector or view in self.readers:
            shows_tried = is_reflector or self.guide in ("none", "environment")
            shows_guidance = not is_reflector and not self.state.is_reflecting
            fields["tried"] = "".join(f"{text}\n" for text in self.state.tried) if shows_tried else ""
            told = self.state.guidance if shows_guidance else self.state.feedback if is_reflector else ""
            fields["guidance"] = f"{told}\n" if told else ""
        is_reflectors_turn = self.state.is_reflecting or (self.guide == "repair" and self.state.number > 0)
        return Observation(fields, is_silent=is_reflectors_turn != is_reflector)

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return None if self.state.is_reflecting else self.world.legal(seat)

    def step(self, actions: Mapping[str, str]) -> Step:
        if not self.state.is_reflecting:
            step = self.world.step(actions)
            said = tuple(kept_text(action, MOST) for action in actions.values())
            self.state = msgspec.structs.replace(self.state, actions=(*self.state.actions, *said))
            if not self.world.to_move():
                self._end_attempt()
            return step
        if set(actions) != set(self.spec.seats):
            raise EnvironmentFault(f"{self.spec.name}: seats {sorted(actions)} acted, to move are {self.spec.seats}")
        ((seat, text),) = actions.items()
        self.state = msgspec.structs.replace(self.state, guidance=kept_text(text, MOST), is_reflecting=False)
        return Step(rewards={seat: {}})

    def _end_attempt(self) -> None:
        """Note how it went, and begin the next one where there is any."""
        state = self.state
        is_short = all(len(action) == 1 for action in state.actions)
        tried = (*state.tried, kept_text(("" if is_short else " / ").join(state.actions), MOST))
        right = (*state.right, self.world.success())
        if state.number + 1 == self.most or (self.stops and right[-1]):
            self.state = msgspec.structs.replace(state, tried=tried, right=right)
            return
        says = self.world.guidance() if isinstance(self.world, Guiding) else ""
        self.state = AttemptsState(
            number=state.number + 1,
            tried=tried,
            guidance=says if self.guide == "environment" else "",
            feedback=says if self.guide == "repair" else "",
            is_reflecting=self.guide == "reflector",
            right=right,
        )
        self.world.restore(self._start)

    def success(self) -> bool:
        """Whether the last attempt solved the task; where the environment ends attempts, whether the first one did."""
        right = self.state.right
        return bool(right) and (right[0] if self.stops else len(right) == self.most and right[-1])

    def measures(self) -> dict[str, float]:
        """How many attempts were made, and the world's own measures. Where solved tasks are not attempted again,
        `solved_by_K`; otherwise whether attempt K was right, `right_at_K`, and what most attempts say, `vote`."""
        told = {**measures_of(self.world), "attempts": float(self.state.number + 1)}
        right, tried = self.state.right, self.state.tried
        if self.stops:
            return told | {f"solved_by_{k + 1}": float(any(right[: k + 1])) for k in range(self.most)}
        if len(right) == self.most:
            # of what was said most often, the first
            told["vote"] = float(right[max(range(len(tried)), key=lambda place: (tried.count(tried[place]), -place))])
        return told | {f"right_at_{k + 1}": float(one) for k, one in enumerate(right)}

    def clone(self) -> Self:
        twin = copy(self)
        twin.world = self.world.clone()
        return twin

    def snapshot(self) -> bytes:
        return msgspec.json.encode(_Saved(self.state, self._start, self.world.snapshot()))

    def restore(self, state: bytes) -> None:
        try:
            saved = msgspec.json.decode(state, type=_Saved)
        except msgspec.MsgspecError as error:
            raise EnvironmentFault(f"this is no snapshot of attempts at {self.spec.name}: {error}") from error
        self.world.restore(saved.world)
        self.state, self._start = saved.state, saved.start

    def state_key(self) -> str:
        return digest(self.world.state_key(), msgspec.json.encode(self.state).decode())

    def render(self) -> str:
        told = f", told {self.state.guidance!r}" if self.state.guidance else ""
        return f"attempt {self.state.number + 1} of {self.most}{told}\n{self.world.render()}"

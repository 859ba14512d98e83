"""How JaxMARL's environments read: named numbers, boards and actions as text instead of arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np


class JaxMarlText(Protocol):
    """How an environment reads. Agents are numbers, in the environment's order."""

    def seen(self, seat: int, observation: Any) -> str:
        """What this agent sees, and nothing else."""

    def word(self, seat: int, action: int) -> str:
        """What an action is called."""


@dataclass(frozen=True, slots=True)
class ObservationPart:
    """Some entries of an observation that belong together.

    Attributes:
        name: "" for entries that are not shown, as they never change.
        size: how many entries.
        kind: `numbers` are rounded to two decimals; of a `choice` the number of the largest entry is shown, `nothing`
            where all are equal.
    """

    name: str
    size: int
    kind: Literal["numbers", "choice"] = "numbers"


PUSHES = ("stay", "left", "right", "down", "up")


@dataclass(frozen=True, slots=True)
class Particles:
    """The multi-agent particle environments (MPE): an observation is named parts, one line each.

    Attributes:
        parts: of each agent's observation. moves: of each agent's actions; the names are `PUSHES` without any.
    """

    parts: tuple[tuple[ObservationPart, ...], ...]
    moves: tuple[tuple[str, ...], ...] = ()

    def seen(self, seat: int, observation: Any) -> str:
        lines, start = [], 0
        for part in self.parts[seat]:
            values = observation[start : start + part.size]
            start += part.size
            if part.name:
                lines.append(f"{part.name}: {_shown(part, values)}")
        return "\n".join(lines)

    def word(self, seat: int, action: int) -> str:
        return self.moves[seat][action] if self.moves else PUSHES[action]


def _shown(part: ObservationPart, values: Any) -> str:
    if part.kind == "numbers":
        return numbers(values)
    return "nothing" if np.ptp(values) == 0 else str(int(np.argmax(values)))


def numbers(values: Sequence[float]) -> str:
    """`0.12, -0.40`: two decimals, without a negative zero."""
    return ", ".join(f"{round(float(value), 2) + 0.0:.2f}" for value in values)


class SwitchRiddle:
    """Whether this agent is in the room, and then the light."""

    def seen(self, seat: int, observation: Any) -> str:
        in_room, is_on = observation
        return f"You are in the room. The light is {'on' if is_on else 'off'}." if in_room else "You are outside."

    def word(self, seat: int, action: int) -> str:
        return ("nothing", "switch the light", "tell")[action]


class CoinGame:
    """Where both agents and both coins are, on a board of 3 x 3 whose edges meet."""

    def seen(self, seat: int, observation: Any) -> str:
        board = observation.reshape(3, 3, 4)
        places = (np.argwhere(board[:, :, layer])[0] for layer in range(4))
        names = ("you", "other", "your coin", "other's coin")
        return "\n".join(
            f"{name}: row {row}, column {column}" for name, (row, column) in zip(names, places, strict=True)
        )

    def word(self, seat: int, action: int) -> str:
        return ("right", "left", "up", "down", "stay")[action]


class Storm:
    """The cells ahead, this agent (Y) at the bottom looking up, and both inventories as far as they are shown.

    The other agent is the letter of where it looks: A away, T towards, L left, R right. `r` and `b` are coins, `#` is
    wall, `*` the ray of an interaction.
    """

    def seen(self, seat: int, observation: Any) -> str:
        cells = np.array(observation["observation"])
        # An agent may begin on a coin, which hides it.
        cells[2, 0, 0] = 1
        # Cells are [left, ahead]: ahead is up here, left is left.
        rows = ["".join(self._mark(cells[left, ahead]) for left in (4, 3, 2, 1, 0)) for ahead in (4, 3, 2, 1, 0)]
        inventory = [int(count) for count in observation["inventory"]]
        # The second agent's has one entry twice, so the other's inventory is counted from the end.
        ready = [("not ready", "ready")[flag] for flag in inventory[2:4]]
        return "\n".join(
            [
                *rows,
                f"you: {inventory[0]} red, {inventory[1]} blue, {ready[0]}",
                f"other: {inventory[-2]} red, {inventory[-1]} blue, {ready[1]}",
            ]
        )

    def word(self, seat: int, action: int) -> str:
        return ("turn left", "turn right", "forward", "interact", "stay")[action]

    def _mark(self, cell: Any) -> str:
        if cell[1]:
            return "ALTR"[int(np.argmax(cell[6:]))]
        marks = "Y?rb#*"
        return marks[int(np.argmax(cell[:6]))] if cell[:6].any() else "."


class Overcooked:
    """The kitchen from above, then what both cooks and every pot are doing.

    1 is this agent, 2 the other, `#` counter, `.` floor, P pot, O onions, D dishes, X where soup is served; o, d and s
    are an onion, a dish and a soup on a counter.
    """

    _FACING = ("up", "down", "right", "left")

    def seen(self, seat: int, observation: Any) -> str:
        rows = ["".join(self._mark(cell) for cell in row) for row in observation]
        pots = [
            f"pot at row {row}, column {column}: {self._pot(observation[row, column])}"
            for row, column in np.argwhere(observation[:, :, 10])
        ]
        cooks = [self._cook(name, observation, layer) for layer, name in enumerate(("you", "other"))]
        hurry = ["fewer than 40 steps left"] if observation[0, 0, 25] else []
        return "\n".join([*rows, *cooks, *pots, *hurry])

    def word(self, seat: int, action: int) -> str:
        return ("up", "down", "right", "left", "stay", "interact")[action]

    def _mark(self, cell: Any) -> str:
        """Cooks before things, things before what they lie on."""
        marks = ((0, "1"), (1, "2"), (10, "P"), (12, "O"), (14, "D"), (15, "X"), (21, "s"), (22, "d"), (23, "o"))
        return next((mark for layer, mark in marks if cell[layer]), "#" if cell[11] else ".")

    def _cook(self, name: str, observation: Any, layer: int) -> str:
        row, column = np.argwhere(observation[:, :, layer])[0]
        cell = observation[row, column]
        facing = self._FACING[int(np.argmax(cell[2 + 4 * layer : 6 + 4 * layer]))]
        held = next((thing for number, thing in ((23, "an onion"), (22, "a dish"), (21, "a soup")) if cell[number]), "")
        return f"{name}: facing {facing}, holding {held or 'nothing'}"

    def _pot(self, cell: Any) -> str:
        if cell[21]:
            return "soup done"
        return f"done in {cell[20]}" if cell[20] else f"{cell[16]} onions"


@dataclass(frozen=True, slots=True)
class Battle:
    """SMAX: this unit and the units it sees; places of others are relative, in its range of sight.

    Attributes:
        allies, enemies: how many units the two sides have.
    """

    allies: int
    enemies: int

    _TYPES = ("marine", "marauder", "stalker", "zealot", "zergling", "hydralisk")

    def seen(self, seat: int, observation: Any) -> str:
        others, size = self._others(seat), 7 + len(self._TYPES)
        own = observation[size * len(others) :]
        if not own.any():
            return "You are out of the battle."
        lines = [self._line("you", own, own[3], own[4:])]
        for number, name in enumerate(others):
            unit = observation[size * number : size * (number + 1)]
            if unit.any():
                lines.append(self._line(name, unit, unit[6], unit[7:]))
        return "\n".join(lines)

    def word(self, seat: int, action: int) -> str:
        if action < 5:
            return ("up", "right", "down", "left", "stop")[action]
        target = action - 5
        # The second side counts its targets from the last.
        return f"shoot enemy_{target}" if seat < self.allies else f"shoot ally_{self.allies - 1 - target}"

    def _others(self, seat: int) -> list[str]:
        """Names of the other units in the order of the observation: own side first, the second side from the last."""
        units = [f"ally_{number}" for number in range(self.allies)] + [f"enemy_{n}" for n in range(self.enemies)]
        own = units[seat]
        return [name for name in (units if seat < self.allies else reversed(units)) if name != own]

    def _line(self, name: str, unit: Any, reload: float, bits: Any) -> str:
        kind = self._TYPES[int(np.argmax(bits))]
        return f"{name}: {kind}, health {unit[0]:.2f}, at {numbers(unit[1:3])}, reload {reload:.2f}"

"""A person in the seat of a game: sees that seat's view and its legal actions, and types one.

Leaves out on purpose: teams in the other seats, which a policy plays.
"""

from collections.abc import Callable, Sequence
from random import Random

from rich.console import Console
from rich.text import Text

from mas.core.environment import Environment, Script, measures_of
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.printable import printable, quoted
from mas.person.score import measured, scored
from mas.roles.chat import seen_text
from mas.scenarios.game import game_below

_SHOWN = 100
"""Legal actions that are listed."""
ReadLine = Callable[[], str]
"""The next line with its end; empty where the input is over, as `readline` of a file."""


def seats_of(environment: Environment, wanted: Sequence[str]) -> tuple[str, ...]:
    """The seats that people take. The only one of a game need not be named.

    Raises:
        ConfigError: no such seat, none is wanted of several, or nobody in it could see anything.
    """
    spec = environment.spec
    for seat in wanted:
        if seat not in spec.seats:
            raise ConfigError(f"--as {seat}: {spec.name} has no such seat. {did_you_mean(seat, spec.seats)}")
    people = tuple(dict.fromkeys(wanted)) or (spec.seats if len(spec.seats) == 1 else ())
    if not people:
        choices = " or ".join(f"--as {seat}" for seat in spec.seats)
        raise ConfigError(f"say which seat of {spec.name} you take: {choices}; --as may be repeated")
    for seat in people:
        view_of(environment, seat)
    return people


def view_of(environment: Environment, seat: str) -> str:
    """What somebody in a seat sees: the view named like it, that of a single agent, or the only one.

    Raises:
        ConfigError: there is none of these.
    """
    spec = environment.spec
    if seat in spec.views:
        return seat
    if "solo" in spec.views or len(spec.views) == 1:
        return "solo" if "solo" in spec.views else spec.views[0]
    raise ConfigError(f"seat {seat!r} of {spec.name} has no view of its own; views: {', '.join(spec.views)}")


class SeatPlay:
    """A game, reset, with people in some of its seats.

    Args:
        others: plays all other seats.
        random: what they draw from.

    Attributes:
        scores: seat -> summed rewards so far, by term.
    """

    def __init__(
        self,
        environment: Environment,
        people: Sequence[str],
        others: Script,
        random: Random,
        console: Console,
        read_line: ReadLine,
    ) -> None:
        self._environment, self._people = environment, people
        self._others, self._random = others, random
        self._console, self._read_line = console, read_line
        self.scores: dict[str, dict[str, float]] = {seat: {} for seat in environment.spec.seats}

    def play(self) -> bool:
        """To the end; False: the input ended before.

        Raises:
            ConfigError: the others cannot tell what to do.
        """
        while seats := self._environment.to_move():
            actions: dict[str, str] = {}
            for seat in seats:
                if seat in self._people:
                    typed = self._ask(seat)
                    if typed is None:
                        return False
                    actions[seat] = typed
            if len(actions) < len(seats):
                actions = {**self._chosen(), **actions}
            self._step(actions)
        return True

    def tell_end(self, *, is_over: bool, reveal: bool) -> None:
        """How it ended, what it was worth for everybody, what the game measured; with `reveal` also the whole world."""
        say = self._console.print
        if reveal:
            say(Text(printable(self._environment.render()), style="dim"))
        if not is_over:
            say(Text("the input ended, and with it the play", style="yellow"))
        elif len(self.scores) == 1:
            is_solved = self._environment.success()
            say(Text("solved", style="bold green") if is_solved else Text("not solved", style="bold red"))
        so_far = "" if is_over else " so far"
        for seat, terms in self.scores.items():
            you = " (you)" if seat in self._people else ""
            say(Text(f"score of {seat}{you}{so_far}: {scored(terms)}"))
        if is_over and (found := measures_of(self._environment)):
            say(Text(f"measured: {measured(found)}"))

    def _ask(self, seat: str) -> str | None:
        """What a person does; asked again until it is possible. None: the input ended."""
        environment, say = self._environment, self._console.print
        legal = environment.legal(seat)
        say(Text(f"you are {seat}", style="bold"))
        say(Text(printable(seen_text(environment.observe(view_of(environment, seat)).fields))))
        if legal is not None:
            say(Text(printable(_possible(legal)), style="dim"))
        while line := self._read_line():
            typed = line.strip()
            try:
                return action_of(environment, seat, typed, legal)
            except ConfigError as error:
                say(Text(printable(str(error)), style="red"))
        return None

    def _chosen(self) -> dict[str, str]:
        chosen = self._others(self._environment, self._random)
        if chosen is None:
            name = self._environment.spec.name
            raise ConfigError(f"the actions of {name} cannot be listed, so nobody plays at random: take all its seats")
        return dict(chosen)

    def _step(self, actions: dict[str, str]) -> None:
        step = self._environment.step(actions)
        for seat, terms in step.rewards.items():
            score = self.scores[seat]
            for name, value in terms.items():
                score[name] = score.get(name, 0.0) + value
        for seat in step.illegal:
            if seat in self._people:
                self._console.print(
                    Text(f"{seat}: {quoted(actions[seat])} was not legal; the turn is spent", style="red")
                )


def action_of(environment: Environment, seat: str, typed: str, legal: Sequence[str] | None) -> str:
    """The action that a person means.

    Args:
        legal: of that seat; None: they cannot be listed, so that the game decides.

    Raises:
        ConfigError: it is not possible now; says what is.
    """
    if legal is None or typed in legal or not (legal or typed):
        return typed
    action = _meant(environment, seat, typed, legal)
    if action is None:
        raise ConfigError(f"{quoted(typed)} is not possible now. {_possible(legal)}")
    return action


def _meant(environment: Environment, seat: str, typed: str, legal: Sequence[str]) -> str | None:
    """The action of a bridged game that was typed in another way that the game reads, as `#4`; None: there is none."""
    game = game_below(environment)
    shows_game = game is not None and game.legal(seat) == tuple(legal)
    return game.meant(seat, typed) if game is not None and shows_game else None


def _possible(legal: Sequence[str]) -> str:
    if not legal:
        return "Nothing is possible: an empty line passes."
    shown = ", ".join(legal[:_SHOWN])
    return f"Possible: {shown}" + (f", ... ({len(legal)} in all)" if len(legal) > _SHOWN else "")

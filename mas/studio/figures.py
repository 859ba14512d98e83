"""The figures of a run's page, as plain records that the page's own JavaScript draws."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

import msgspec

from mas.observe.charts import SERIES_COLOURS
from mas.observe.report_records import STEP_PARTS
from mas.studio.metric_columns import MetricColumns, Points
from mas.studio.metric_meanings import Meaning, meaning_of

MOST_POINTS = 400
"""Of one line. Of more, the least and the greatest of each stretch are drawn."""
_DASHES = 3
X_LABELS = {False: "training steps", True: "sampled tokens"}
"""By whether the axis counts tokens."""


class FigureLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a figure: N points; `colour` is the number of a class `series-N`, `dash` 0 to 2.

    `lows`, `highs`: where the band around the line ends at each point; empty: it has none.
    """

    name: str
    colour: int
    dash: int
    xs: Sequence[float]
    ys: Sequence[float]
    lows: Sequence[float] = ()
    highs: Sequence[float] = ()


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """Lines over one x axis.

    Attributes:
        text, healthy: of `Meaning`.
        unit: of the y axis; range: of it, None fits it to the lines.
    """

    title: str
    text: str
    healthy: str
    x_label: str
    unit: str
    lines: Sequence[FigureLine]
    range: tuple[float, float] | None = None


class FigureSection(msgspec.Struct, frozen=True, kw_only=True):
    """Figures under one heading."""

    title: str
    figures: Sequence[Figure]


def line_of(
    name: str, number: int, points: Sequence[tuple[float, float]], band: Sequence[tuple[float, float]] = ()
) -> FigureLine:
    """A line with the n-th look, thinned to `MOST_POINTS`.

    Args:
        band: the least and the greatest value at each point.
    """
    kept = _kept(points)
    return FigureLine(
        name=name,
        colour=number % SERIES_COLOURS,
        dash=number // SERIES_COLOURS % _DASHES,
        xs=[points[at][0] for at in kept],
        ys=[points[at][1] for at in kept],
        lows=[band[at][0] for at in kept] if band else (),
        highs=[band[at][1] for at in kept] if band else (),
    )


def _kept(points: Sequence[tuple[float, float]]) -> Sequence[int]:
    """The first and last point of all, and the least and greatest of equally long stretches, in order."""
    if len(points) <= MOST_POINTS:
        return range(len(points))
    stretch = -(-len(points) // (MOST_POINTS // 2 - 1))
    kept = {0, len(points) - 1}
    for begin in range(0, len(points), stretch):
        places = range(begin, min(begin + stretch, len(points)))
        kept |= {min(places, key=lambda at: points[at][1]), max(places, key=lambda at: points[at][1])}
    return sorted(kept)


def over_tokens(columns: MetricColumns, points: Points) -> list[tuple[float, float]]:
    """The same values over the tokens spent by then: 0 before the first step."""
    spent = columns.points("tokens")
    moved, at, known = [], 0, 0.0
    for step, value in points:
        while at < len(spent) and spent[at][0] <= step:
            known = spent[at][1]
            at += 1
        moved.append((known, value))
    return moved


def sections_of(columns: MetricColumns, looks: Mapping[str, int], *, is_over_tokens: bool) -> list[FigureSection]:
    """All figures of a run that have at least one line.

    Args:
        looks: role -> number of its look; an adapter or team without one gets a number after them.
        is_over_tokens: the x axis counts sampled tokens, else steps.
    """
    make = _Maker(columns, looks, is_over_tokens)
    share = (0.0, 1.0)
    sections = {
        "Outcome": [
            make("Success on held-out tasks", "share of tasks", ["eval/*/success"], share),
            make("Reward of the team", "reward", ["reward"]),
            make("Reward of each role", "reward", ["roles/*/reward"]),
            *(make(f"Held-out tasks: {name}", name, [f"eval/*/measures/{name}"]) for name in make.measures),
        ],
        "Is there anything to learn from?": [
            make("Zero-variance groups", "share of groups", ["collapse"], share),
            make("Spread of advantages", "standard deviation", ["roles/*/advantage_std"]),
            make("Entropy", "nats", ["adapters/*/entropy"]),
            make("Clipped tokens", "share of tokens", ["adapters/*/clip_fraction"], share),
            make("Gradient", "norm before clipping", ["adapters/*/gradient_norm"]),
            make("Distance to the reference", "nats", ["adapters/*/kl"]),
            make("Experiences", "number", ["experiences/*/count"]),
        ],
        "Failures": [
            make("Output that does not parse", "share of turns", ["roles/*/failures"], share),
            make("Team turns without an action", "share of turns", ["passes"], share),
            make("Episodes and attempts that failed", "number", ["episodes/failed", "failed_attempts"]),
        ],
        "Adapters": [
            make("Canary: engine against trainer", "nats a token", ["canary/*/gap"], allowed="canary/*/allowed"),
            make("Distance of each version to the one before", "nats a token", ["canary/*/from_previous"]),
            make("Samples against the trainer, before the step", "nats a token", ["adapters/*/behaviour_gap"]),
        ],
        "Throughput and time": [
            make.rate("New tokens per second", "tokens a second"),
            make("Seconds of a step", "seconds", ["seconds/sample", "seconds/learn", "seconds/publish"]),
            make("Seconds of an evaluation", "seconds", ["seconds/evaluate/*"]),
        ],
    }  # fmt: skip
    kept = {title: [one for one in figures if one.lines] for title, figures in sections.items()}
    return [FigureSection(title=title, figures=figures) for title, figures in kept.items() if figures]


class _Maker:
    """Makes figures from patterns in which `*` stands for one part of a name."""

    def __init__(self, columns: MetricColumns, looks: Mapping[str, int], is_over_tokens: bool) -> None:
        self._columns, self._looks, self._is_over_tokens = columns, looks, is_over_tokens
        self._names = [(name, name.split("/")) for name in columns.names]

    @property
    def measures(self) -> list[str]:
        """What the environment measures beside rewards."""
        return sorted({parts[3] for _, parts in self._names if len(parts) == 4 and parts[2] == "measures"})

    def __call__(
        self,
        title: str,
        unit: str,
        patterns: Sequence[str],
        span: tuple[float, float] | None = None,
        allowed: str = "",
    ) -> Figure:
        """One figure with a line for each metric that fits; `allowed`: a pattern of bounds, drawn as one line."""
        found = [(label, name) for pattern in patterns for label, name in self._matching(pattern)]
        labels = [label or name.rpartition("/")[2].replace("_", " ") for label, name in found]
        meaning = meaning_of(found[0][1]) if found else None
        numbers = self._numbers(labels)
        lines = [
            line_of(label, number, self._placed(self._columns.points(name)))
            for label, number, (_, name) in zip(labels, numbers, found, strict=True)
        ]
        bounds = [self._columns.points(name) for _, name in self._matching(allowed)] if allowed else []
        if lines and bounds:
            highest = max(bounds, key=lambda one: one[-1][1])
            lines.append(line_of("allowed", SERIES_COLOURS * 2 - 1, self._placed(highest)))
        return self._figure(title, meaning or Meaning(""), unit, lines, span)

    def _placed(self, points: Points) -> Sequence[tuple[float, float]]:
        return over_tokens(self._columns, points) if self._is_over_tokens else points

    def _figure(
        self,
        title: str,
        meaning: Meaning,
        unit: str,
        lines: Sequence[FigureLine],
        span: tuple[float, float] | None = None,
    ) -> Figure:
        return Figure(
            title=title,
            text=meaning.text,
            healthy=meaning.healthy,
            x_label=X_LABELS[self._is_over_tokens],
            unit=unit,
            lines=lines,
            range=span,
        )

    def rate(self, title: str, unit: str) -> Figure:
        """Tokens that models wrote in a step, per second of sampling and of the whole step."""
        spent, before = {}, 0.0
        for step, tokens in self._columns.points("completion_tokens"):
            spent[step], before = tokens - before, tokens
        seconds = {part: dict(self._columns.points(f"seconds/{part}")) for part in STEP_PARTS}
        sampling = _divided(spent, seconds["sample"].get)
        whole = _divided(spent, lambda step: sum(one.get(step, 0.0) for one in seconds.values()))
        meaning = Meaning(
            "tokens that models wrote, per second of a step's sampling and of the whole step; prompts do not count",
            "steady",
        )
        rates = {"while sampling": sampling, "whole step": whole} if sampling else {}
        looks = zip(self._numbers(list(rates)), rates.items(), strict=True)
        lines = [line_of(name, number, self._placed(rate)) for number, (name, rate) in looks]
        return self._figure(title, meaning, unit, lines)

    def _matching(self, pattern: str) -> Iterable[tuple[str, str]]:
        """What stands for the `*`, empty without one, and the whole name."""
        wanted = pattern.split("/")
        for name, parts in self._names:
            if len(parts) == len(wanted) and all(w in ("*", p) for w, p in zip(wanted, parts, strict=True)):
                yield next((p for w, p in zip(wanted, parts, strict=True) if w == "*"), ""), name

    def _numbers(self, labels: Sequence[str]) -> list[int]:
        """A role has its own look on the whole page, all others those that no role has."""
        others = count(len(set(self._looks.values())))
        return [self._looks[label] if label in self._looks else next(others) for label in labels]


def _divided(spent: Mapping[int, float], seconds_of: Callable[[int], float | None]) -> Points:
    pairs = [(step, tokens, seconds_of(step)) for step, tokens in spent.items()]
    return [(step, tokens / seconds) for step, tokens, seconds in pairs if seconds]

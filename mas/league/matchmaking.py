"""Whom to play next: distributions over a pool's members. Pure functions of names and of points per game."""

from bisect import bisect
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import fsum, inf, isfinite
from random import Random
from typing import Literal

from mas.algorithms.parts.opponents import SELF
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean

Distribution = Mapping[str, float]
"""Member -> probability; they add up to 1."""
Weighting = Literal["hard", "even"]
KINDS = (SELF, "latest", "uniform", "pfsp", "even")


def latest(members: Sequence[str]) -> Distribution:
    """The newest member and nobody else: plain self-play against the last snapshot.

    Args:
        members: oldest first.

    Raises:
        ConfigError: there are none.
    """
    _check_any(members)
    return {name: float(name == members[-1]) for name in members}


def uniform(members: Sequence[str]) -> Distribution:
    """All alike: fictitious self-play (Heinrich et al. 2015).

    Raises:
        ConfigError: there are none.
    """
    _check_any(members)
    return dict.fromkeys(members, 1 / len(members))


def prioritised(points: Mapping[str, float], weighting: Weighting = "hard", power: float = 2.0) -> Distribution:
    """Prioritised fictitious self-play, P(b) = f(p_b) / sum_c f(p_c) (Vinyals et al. 2019, Grandmaster level in
    StarCraft II using multi-agent reinforcement learning, methods).

    `hard`: f(p) = (1 - p)^power, those who win. `even`: f(p) = p * (1 - p), those of one's own level. Where f is 0 for
    all, all are alike: our reading.

    Args:
        points: member -> points per game that whoever trains gets against it, 0 to 1; 0.5 for one never played.
        power: more of it, and only the hardest are left; 0: all alike, whoever is beaten in every game included.

    Raises:
        ConfigError: there are no members, points outside of 0 to 1, or a power that is negative or not finite.
    """
    _check_any(points)
    if not 0 <= power < inf:
        why = "would prefer those who lose" if power < 0 else "is no finite number"
        raise ConfigError(f"power={power} of prioritised play {why}: it must be 0 or more")
    for name, value in points.items():
        if not 0 <= value <= 1:
            raise ConfigError(f"{value} points per game against {name!r} are not possible: 0 to 1 are")
    # Divided by the largest: however great the power, the hardest keep a weight.
    most = max(1 - p for p in points.values()) or 1.0
    weights = {name: ((1 - p) / most) ** power if weighting == "hard" else p * (1 - p) for name, p in points.items()}
    total = fsum(weights.values())
    return {name: weight / total for name, weight in weights.items()} if total else uniform(tuple(points))


def mixed(parts: Sequence[tuple[float, Distribution]]) -> Distribution:
    """A fixed mix: the first distribution with its share, the second with its own, and so on.

    Raises:
        ConfigError: no part, or shares that are negative or do not add up to 1.
    """
    shares = [share for share, _ in parts]
    if not all(share >= 0 for share in shares) or not abs(fsum(shares) - 1) <= 1e-9:  # so that NaN is refused
        raise ConfigError(f"shares {shares} of a mix must be 0 or more and add up to 1")
    names = dict.fromkeys(name for _, part in parts for name in part)
    return {name: fsum(share * part.get(name, 0.0) for share, part in parts) for name in names}


def draw(distribution: Distribution, random: Random) -> str:
    """A member, by one number of the generator: equal generators draw equal members, whatever the order of the pool
    was before later members came."""
    names, sums = list(distribution), list(accumulate(distribution.values()))
    return names[min(bisect(sums, random.random() * sums[-1]), len(names) - 1)]


def matched(mix: str, members: Sequence[str], points: Mapping[str, float]) -> Distribution:
    """The distribution that a text says: `latest`, `uniform`, `pfsp`, `pfsp:POWER`, `even`, or a fixed mix of these as
    `0.5*latest+0.5*pfsp:2`. `self`: whoever trains, who is no member.

    Args:
        members: oldest first.
        points: as in `prioritised`; members that are left out have 0.5.

    Raises:
        ConfigError: it reads otherwise; else as those functions.
    """
    parts = []
    for part in mix.split("+"):
        share, _, kind = part.strip().rpartition("*")
        parts.append((_number(share, mix) if share else 1.0, _matched(kind, mix, members, points)))
    return mixed(parts)


def _matched(kind: str, mix: str, members: Sequence[str], points: Mapping[str, float]) -> Distribution:
    name, _, power = kind.strip().partition(":")
    if name not in KINDS or (power and name != "pfsp"):
        raise ConfigError(f"{kind!r} in matchmaking {mix!r}: pfsp alone takes a number. {did_you_mean(name, KINDS)}")
    if name == SELF:
        return {SELF: 1.0}
    if name == "latest":
        return latest(members)
    if name == "uniform":
        return uniform(members)
    known = {member: points.get(member, 0.5) for member in members}
    if name == "even":
        return prioritised(known, "even")
    return prioritised(known, "hard", _number(power, mix) if power else 2.0)


def _number(text: str, mix: str) -> float:
    try:
        found = float(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} in matchmaking {mix!r} is no number: write 0.5*latest+0.5*pfsp:2") from error
    if not isfinite(found):
        raise ConfigError(f"{text!r} in matchmaking {mix!r} is no finite number: write 0.5*latest+0.5*pfsp:2")
    return found


def _check_any(members: Sequence[str] | Mapping[str, float]) -> None:
    if not members:
        raise ConfigError("there is nobody to play against: the pool has no members")

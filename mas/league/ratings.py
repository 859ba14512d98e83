"""Ratings by the order in which players finished, by OpenSkill's Plackett-Luce model (Weng and Lin 2011)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from openskill.models import PlackettLuce


@dataclass(frozen=True, slots=True)
class Rating:
    """Skill is thought to be normal with mean `mu` and deviation `sigma`; everybody begins with 25 and 25/3."""

    mu: float
    sigma: float

    @property
    def ordinal(self) -> float:
        """mu - 3 sigma: what a player is at least, all but surely; the ladder's order."""
        return self.mu - 3 * self.sigma


def rate(players: Sequence[str], played: Iterable[tuple[Sequence[str], Sequence[float]]]) -> dict[str, Rating]:
    """Ratings after all games, taken in the order given.

    A rating is one number for each player: where A beats B, B beats C and C beats A it misleads; see `cyclic_share`
    and `mas.league.meta`.

    Args:
        players: all to be rated, those without a game too; games in which others sat, or one player twice, are
            left out.
        played: of each game the players by seat and what each got; more is better, equal is a draw.
    """
    model = PlackettLuce()
    found = {name: model.rating(name=name) for name in players}
    for seated, returns in played:
        if len(set(seated)) == len(seated) and all(name in found for name in seated):
            # A rank is a place: 0 for the best.
            ranks = [float(sum(other > own for other in returns)) for own in returns]
            for (rating,), name in zip(
                model.rate([[found[name]] for name in seated], ranks=ranks), seated, strict=True
            ):
                found[name] = rating
    return {name: Rating(float(rating.mu), float(rating.sigma)) for name, rating in found.items()}

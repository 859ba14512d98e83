"""What follows from what was said: who can be the imposter, and how the scripted players vote.

A *world* is an imposter and where everybody was. Only the imposter lies, so a world is consistent if all others' words
are true in it. Rooms are drawn uniformly, so consistent worlds differ in the probability of what the imposter claims
alone, which its script says: beliefs are exact without a list of worlds. Where the team's player said what is not true
no world may be consistent; then those count in which the fewest words are false.
"""

from collections.abc import Mapping, Sequence

from mas.scenarios.imposter.rules import FEWEST, GONE, NOBODY, TEAM, ImposterGame, ImposterOptions, Talk

ENOUGH = 0.5
"""How likely a member of the crew must find it that a player is the imposter to vote for its leaving."""
_SEEN = 1000
"""False words for a world in which an observer's own eyes were wrong."""


def posterior(rules: ImposterOptions, talks: Sequence[Talk], living: str, observer: str) -> dict[str, float]:
    """How likely each other player that is left is the imposter, for a member of the crew that heard these talks."""
    suspects = living.replace(observer, "")
    false = {name: sum(_false_words(rules, talk, name, observer) for talk in talks) for name in suspects}
    fewest = min(false.values())
    weights = {name: _chance(rules, talks, name) if false[name] == fewest else 0.0 for name in suspects}
    total = sum(weights.values())
    if not total:
        weights = {name: float(false[name] == fewest) for name in suspects}
        total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def _false_words(rules: ImposterOptions, talk: Talk, liar: str, observer: str) -> int:
    """How many statements of others would be false if this player were the imposter."""
    speaks = [
        name for name in rules.names if talk.room(name) != GONE and (name != TEAM or observer == TEAM or talk.is_heard)
    ]
    false = 0
    for name in speaks:
        if name == liar:
            continue
        here = [other for other in speaks if other != name and talk.room(other) == talk.room(name)]
        named = {other for other in talk.friends(name) if other in speaks or other == liar}
        if named != {other for other in here if other != liar}:
            false += _SEEN if name == observer else 1
        unheard = liar == TEAM and rules.is_last
        right = liar if liar in here and not unheard else NOBODY
        false += name != observer and talk.objection(name) != right
    return false


def _chance(rules: ImposterOptions, talks: Sequence[Talk], liar: str) -> float:
    """P(what the imposter claimed | it is this player), relative to a uniform draw of each room."""
    chance = 1.0
    for talk in talks:
        before = rules.order[: rules.order.index(liar)]
        free = set(rules.rooms) - {talk.room(name) for name in before}
        if free and talk.room(liar) != GONE and (liar != TEAM or talk.is_heard):
            listened = len(rules.rooms) / len(free) if talk.room(liar) in free else 0.0
            chance *= rules.cunning * listened + 1 - rules.cunning
    return chance


def top(beliefs: Mapping[str, float]) -> str:
    """The most likely player, the first among equals."""
    return max(sorted(beliefs), key=lambda name: beliefs[name])


def brier(beliefs: Mapping[str, float], imposter: str) -> float:
    """Sum over players of (p - 1[is the imposter])², between 0 and 2; who calls nobody likely (no beliefs) gets 1."""
    missing = 0.0 if imposter in beliefs else 1.0
    return missing + sum((p - (name == imposter)) ** 2 for name, p in beliefs.items())


def listeners(game: ImposterGame, rules: ImposterOptions) -> float:
    """How likely the scripted members of the crew call the true imposter by what was said alone, on average; 1 once it
    has left, and 0 once the crew has lost by its votes.

    An innocent player that leaves is still a suspect and still counted, so that nobody is paid for a vote against it.

    Source: the reward of speaking in Training Language Models for Social Deduction with Multi-Agent Reinforcement
    Learning, arXiv 2502.06060, which sums where this averages.
    """
    if game.imposter in game.gone:
        return 1.0
    if len(game.living) <= FEWEST:
        return 0.0
    members = rules.others.replace(game.imposter, "")
    found = [posterior(rules, game.talks, rules.names, name)[game.imposter] for name in members]
    return sum(found) / len(found)


def scripted_motion(game: ImposterGame, rules: ImposterOptions, talks: Sequence[Talk]) -> str:
    """Whom the crew moves against where the team is the imposter: the only suspect of the first of them that has no
    more than one, if anybody ever objected to it."""
    objected = "".join(talk.objections for talk in talks)
    for name in game.crew:
        beliefs = posterior(rules, talks, game.living, name)
        suspect = top(beliefs)
        if beliefs[suspect] == 1 and suspect in objected:
            return suspect
    return NOBODY


def is_carried(game: ImposterGame, rules: ImposterOptions, talks: Sequence[Talk], motion: str) -> bool:
    """Whether more than half of those who have not left want this player to leave: a scripted member of the crew if it
    finds that at least as likely as not, the team's if it moved it, and the imposter unless it is the imposter."""
    votes = int(motion != game.imposter) + int(rules.side == "crew")
    for name in game.crew.replace(TEAM, "").replace(motion, ""):
        votes += posterior(rules, talks, game.living, name)[motion] >= ENOUGH
    return 2 * votes > len(game.living)

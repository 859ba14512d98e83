"""The harvesters' own term of `commons`: a fine for taking more than one's part of the best catch. Never above 0."""

from collections.abc import Mapping

from mas.core.messages import Action
from mas.core.reward import Move
from mas.scenarios.commons.environment import CommonsEnvironment


class CommonsReward:
    """`excess`: -max(0, demand - part) / limit, the part being the largest best total of the season over the boats,
    rounded up. 0 for what is no number, which lands nothing."""

    terms: tuple[str, ...] = ("excess",)

    def own(self, move: Move) -> Mapping[str, float]:
        assert isinstance(move.environment, CommonsEnvironment)
        rules, state = move.environment.rules, move.environment.state
        if move.role not in rules.harvesters:
            return {}
        said = move.output.text if isinstance(move.output, Action) else ""
        demand = int(said) if said.isascii() and said.isdigit() and len(said) <= 3 else 0
        part = -(-move.environment.plan.best[state.season][state.stock][-1] // len(rules.harvesters))
        return {"excess": -max(0, min(demand, rules.limit) - part) / rules.limit}

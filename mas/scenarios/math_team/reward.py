"""The own terms of `math_team`: the solver is paid for sound proposals, the verifier for telling them from others."""

from collections.abc import Mapping

from mas.core.messages import Verdict
from mas.core.reward import Move
from mas.scenarios.math_team.environment import MathEnvironment


class MathReward:
    """`sound`: 0.2 where the solver's (or solo's) output is the right answer or a call that leads on. `verdict`: 1 if
    the verifier accepts exactly the sound proposals, else -1."""

    terms: tuple[str, ...] = ("sound", "verdict")

    def own(self, move: Move) -> Mapping[str, float]:
        world = move.environment
        assert isinstance(world, MathEnvironment)
        if move.role in ("solver", "solo"):
            return {"sound": 0.2 if world.is_sound(world.state, move.output.content) else 0.0}
        if move.role == "verifier" and isinstance(move.output, Verdict):
            proposal = move.before.get("solver")
            sound = proposal is not None and world.is_sound(world.state, proposal.content)
            return {"verdict": 1.0 if move.output.accept == sound else -1.0}
        return {}

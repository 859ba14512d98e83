"""A world of `code_team` with a known function, for its tests."""

from mas.core.messages import joint_action
from mas.scenarios.code_team import CodeEnvironment, CodeState
from mas.scenarios.code_team.language import DIGITS, Compact, Function

SUM = Function(kind="digit", steps=(("+", 3), ("-", 1)), spec="+3-1", golden=tuple(DIGITS))


def world(function: Function, turns: int = 2) -> CodeEnvironment:
    """The function is to be written."""
    environment = CodeEnvironment(Compact(2), turns)
    environment._state = CodeState(function=function)
    return environment


def act(environment: CodeEnvironment, **said: str) -> float:
    """What the members' part of a turn is paid; all of it must be legal."""
    step = environment.step({"team": joint_action(said)})
    assert step.illegal == ()
    return step.rewards["team"]["passed"]

"""Episodes of several attempts at one task: where each starts, who speaks in it, and who is told what."""

from typing import Any

import pytest

from mas.algorithms.parts.sampling.attempts import AttemptOptions
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Observation, Task
from mas.core.errors import ConfigError
from mas.core.role import View
from mas.core.scenario import SplitByContent
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runs.resolve import configured_scenario
from mas.scenarios import build_scenario
from mas.scenarios.attempts import Attempts, attempted
from mas.testing.environment import EnvironmentContract

PATH = ScenarioOptions(name="plan_path", options={"size": 3, "walls": 1, "max_turns": 3})
REFINE = ScenarioOptions(name="refine")


def attempts(options: ScenarioOptions = REFINE, **more: Any) -> Attempts:
    """Reset to the first training task."""
    scenario = attempted(build_scenario(options), AttemptOptions(**more))
    environment = scenario.environment()
    assert isinstance(environment, Attempts)
    environment.reset(scenario.task("train", 0))
    return environment


def wrong_answer(environment: Attempts) -> str:
    return str((int(environment.world.state.question.answer) + 1) % 10)


def right_answer(environment: Attempts) -> str:
    return str(environment.world.state.question.answer)


class OfAttempts(EnvironmentContract):
    scenario = REFINE
    options = AttemptOptions(most=3)

    def make_environment(self) -> Environment:
        return attempted(build_scenario(self.scenario), self.options).environment()

    def task(self, number: int) -> Task:
        return build_scenario(self.scenario).task("train", number)


class TestAloneAtRefine(OfAttempts):
    pass


class TestToldByTheEnvironment(OfAttempts):
    options = AttemptOptions(most=3, guide="environment")


class TestReflectedPaths(OfAttempts):
    scenario = PATH
    options = AttemptOptions(most=2, guide="reflector")


class TestRepairedPaths(OfAttempts):
    scenario = PATH
    options = AttemptOptions(most=2, guide="repair")


def test_every_attempt_starts_from_an_equal_state() -> None:
    environment = attempts(PATH, most=3, guide="reflector")
    start = environment.world.state_key()
    keys = []
    for _ in range(2):
        for _ in range(3):
            assert environment.to_move() == ("team",)
            environment.step({"team": ""})  # a pass wastes a turn; three are an attempt
        keys.append((environment.attempt(), environment.state.is_reflecting, environment.world.state_key()))
        environment.step({"team": "go on"})
    assert keys == [(1, True, start), (2, True, start)]


def test_what_no_encoding_has_can_be_said_and_kept() -> None:
    environment = TestReflectedPaths().make_environment()
    environment.reset(TestReflectedPaths().task(0))
    environment.step({"team": "\ud800" * 3000})
    twin = TestReflectedPaths().make_environment()
    twin.restore(environment.snapshot())
    assert twin.state_key() == environment.state_key()


def test_a_solved_task_is_not_attempted_again() -> None:
    environment = attempts(most=3)
    environment.step({"team": right_answer(environment)})
    assert (environment.to_move(), environment.success(), environment.attempt()) == ((), True, 0)
    told = {name: environment.measures()[name] for name in ("attempts", "solved_by_1", "solved_by_2", "solved_by_3")}
    assert told == {"attempts": 1.0, "solved_by_1": 1.0, "solved_by_2": 1.0, "solved_by_3": 1.0}


def test_success_is_known_attempt_by_attempt_and_the_last_one_ends_the_episode() -> None:
    environment = attempts(most=3)
    environment.step({"team": wrong_answer(environment)})
    environment.step({"team": right_answer(environment)})
    assert environment.to_move() == ()
    assert not environment.success()  # what the environment asked for again is no success of the team
    assert environment.measures() == {"attempts": 2.0, "solved_by_1": 0.0, "solved_by_2": 1.0, "solved_by_3": 1.0}
    environment = attempts(most=2)
    paid = [environment.step({"team": wrong_answer(environment)}).rewards for _ in range(2)]
    assert (environment.to_move(), environment.success()) == ((), False)
    assert paid == [{"team": {"right": 0.0}}] * 2
    assert environment.measures() == {"attempts": 2.0, "solved_by_1": 0.0, "solved_by_2": 0.0}


@pytest.mark.parametrize(
    ("said", "right", "vote"), [("rrw", "110", 1), ("wrr", "011", 1), ("rww", "100", 0), ("rw-", "100", 1)]
)
def test_without_an_oracle_attempts_go_on_after_a_right_one_and_the_last_one_counts(
    said: str, right: str, vote: int
) -> None:
    environment = attempts(most=3, stop="never")
    texts = {"r": right_answer(environment), "w": wrong_answer(environment), "-": ""}
    shown = []
    for one in said:
        assert (environment.to_move(), environment.success()) == (("team",), False)
        shown.append(environment.observe("solo").fields["tried"])
        environment.step({"team": texts[one]})
    assert environment.to_move() == ()
    assert environment.success() is (right[-1] == "1")
    told = {f"right_at_{k}": float(one) for k, one in enumerate(right, 1)}
    assert environment.measures() == {"attempts": 3.0, "vote": float(vote), **told}
    # What is shown does not tell a right answer from a wrong one.
    assert shown == ["", *("".join(f"{texts[one]}\n" for one in said[:k]) for k in (1, 2))]


def test_guides_that_are_told_of_failures_are_refused_without_an_oracle() -> None:
    with pytest.raises(ValueError, match="guide=environment tells of failures"):
        AttemptOptions(guide="environment", stop="never")


def test_who_repairs_sees_the_environments_feedback_and_nobody_else_does() -> None:
    environment = attempts(most=2, guide="repair")
    wrong, right = wrong_answer(environment), right_answer(environment)
    environment.step({"team": wrong})
    word = "+" if int(wrong) < int(right) else "-"
    fields = environment.observe("reflector").fields
    assert (fields["tried"], fields["guidance"]) == (f"{wrong}\n", f"{word}\n")
    assert environment.observe("solo").fields["guidance"] == ""
    scenario = attempted(build_scenario(REFINE), AttemptOptions(guide="repair"))
    roles = build_roles(scenario.teams["solo"])
    assert roles["reflector"].prompt(view_of(environment.observe("reflector"))).startswith(f"?{wrong}\n{word}\n")
    stream = scenario.demonstrations(0, expert=True)
    shown = [(prompt, said) for prompt, said in (next(stream) for _ in range(400)) if prompt.startswith("?")]
    assert shown
    for prompt, said in shown:
        tried, told, _ = prompt.split("\n", 2)
        assert told == ("+" if int(tried[1:]) < int(said) else "-")


def test_only_the_reflector_speaks_between_attempts_and_only_the_team_in_them() -> None:
    environment = attempts(most=2, guide="reflector")

    def silent() -> set[str]:
        return {view for view in environment.spec.views if environment.observe(view).is_silent}

    others = set(environment.spec.views) - {"reflector"}
    assert silent() == {"reflector"}
    environment.step({"team": wrong_answer(environment)})
    assert silent() == others
    step = environment.step({"team": "9"})
    assert (silent(), step.rewards) == ({"reflector"}, {"team": {}})
    repair = attempts(most=2, guide="repair")
    repair.step({"team": wrong_answer(repair)})
    assert {view for view in repair.spec.views if repair.observe(view).is_silent} == others


def test_guidance_is_shown_to_who_speaks_for_the_team_and_to_nobody_else() -> None:
    environment = attempts(most=3, guide="reflector")
    said = wrong_answer(environment)
    environment.step({"team": said})
    assert environment.observe("reflector").fields["tried"] == f"{said}\n"
    assert environment.observe("reflector").fields["guidance"] == ""
    environment.step({"team": "secret"})
    shown = {view: "secret" in str(environment.observe(view).fields) for view in environment.spec.views}
    # these speak for the teams `team`, `solo`, `thrice` and `led`
    assert {view for view, is_shown in shown.items() if is_shown} == {"refiner", "solo", "third", "leader"}
    assert "tried" not in environment.observe("generator").fields


def test_without_a_guide_all_earlier_tries_are_shown_and_the_environments_word_where_it_guides() -> None:
    environment = attempts(most=3)
    said = wrong_answer(environment)
    environment.step({"team": said})
    environment.step({"team": said})
    assert environment.observe("solo").fields["tried"] == f"{said}\n{said}\n"
    guided = attempts(most=2, guide="environment")
    guided.step({"team": wrong_answer(guided)})
    word = "-" if int(wrong_answer(guided)) > int(right_answer(guided)) else "+"
    assert guided.observe("solo").fields["guidance"] == f"{word}\n"


def test_first_attempts_have_the_prompts_of_the_scenario_itself() -> None:
    inner = build_scenario(REFINE)
    outer = attempted(inner, AttemptOptions(guide="reflector"))
    environment, plain = outer.environment(), inner.environment()
    environment.reset(inner.task("train", 3))
    plain.reset(inner.task("train", 3))
    for team in ("team", "solo", "thrice"):
        roles, bare = build_roles(outer.teams[team]), build_roles(inner.teams[team])
        compile_team(outer.teams[team], roles)
        for name, role in bare.items():
            seen, known = environment.observe(name), plain.observe(name)
            assert roles[name].prompt(view_of(seen)) == role.prompt(view_of(known))


def view_of(observation: Observation) -> View:
    return View(observation=observation)


def test_demonstrations_show_the_prompts_that_attempts_have() -> None:
    for guide in ("none", "environment", "reflector", "repair"):
        scenario = attempted(build_scenario(REFINE), AttemptOptions(guide=guide))
        stream = scenario.demonstrations(0, expert=True)
        pairs = [next(stream) for _ in range(400)]
        assert any(prompt.startswith("?") for prompt, _ in pairs) is (guide in ("reflector", "repair"))
        told = [(prompt.split("\n"), said) for prompt, said in pairs if "\n" in prompt and prompt[0] != "?"]
        assert bool(told) is (guide != "repair")
        if guide == "reflector":
            assert all(lines[0] == said for lines, said in told)
        if guide == "environment":
            assert all((lines[1] == "+") == (int(said) > int(lines[0])) for lines, said in told)


def test_tasks_and_splits_are_those_of_the_inner_scenario() -> None:
    inner = build_scenario(REFINE)
    outer = attempted(inner, AttemptOptions())
    assert outer.task("eval", 4) == inner.task("eval", 4)
    assert isinstance(outer, SplitByContent)
    assert outer.fingerprint() != inner.fingerprint()
    assert attempted(inner, None) is inner
    assert not hasattr(outer, "size")


def test_a_configuration_builds_its_attempts() -> None:
    config = load_config(["scenario=refine", "algorithm=retroformer"])
    assert set(configured_scenario(config).teams["solo"].roles) == {"solo", "reflector"}


@pytest.mark.parametrize(
    ("scenario", "guide", "message"),
    [("plan_path", "environment", "guide=environment needs"), ("code_team", "reflector", "acts jointly")],
)
def test_what_cannot_be_attempted_again_is_refused_with_the_reason(scenario: str, guide: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        attempted(build_scenario(ScenarioOptions(name=scenario)), AttemptOptions(guide=guide))


def test_a_team_that_acts_jointly_is_left_out_where_somebody_reflects() -> None:
    refine = build_scenario(REFINE)
    assert any(team.joint for team in refine.teams.values())
    assert set(attempted(refine, AttemptOptions(guide="reflector")).teams) == {"team", "solo", "thrice", "led"}
    assert set(attempted(refine, AttemptOptions(guide="environment")).teams) == set(refine.teams)

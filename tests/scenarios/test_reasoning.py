"""Questions of reasoning-gym as an environment and as a scenario."""

import sys
from collections.abc import Mapping
from random import Random
from types import SimpleNamespace

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError
from mas.core.scenario import Scenario
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.scenarios import build_scenario
from mas.scenarios import reasoning as module
from mas.scenarios.reasoning import LONGEST, GymEnvironment, GymQuestion, open_environment, right_answer
from mas.testing.environment import EnvironmentContract

SAMPLE = ("basic_arithmetic", "chain_sum", "leg_counting", "caesar_cipher", "knights_knaves", "maze")


def reasoning(**options: object) -> Scenario:
    return build_scenario(ScenarioOptions(name="reasoning", options=dict(options)))


def started(name: str, seed: int = 0) -> GymEnvironment:
    environment = GymEnvironment(name, {})
    environment.reset(Task(id=f"train-{seed}", seed=seed))
    return environment


class TestWithoutThePackage:
    """What needs no reasoning-gym."""

    def test_the_scenario_is_built_and_its_teams_compile(self) -> None:
        scenario = reasoning()
        assert {"team", "solo"} == set(scenario.teams)
        for team in scenario.teams.values():
            plan = compile_team(team, build_roles(team))
            assert set(plan.roles) <= set(scenario.environment().spec.views)

    def test_the_tiny_base_has_no_demonstrations(self) -> None:
        with pytest.raises(ConfigError, match=r"no demonstrations: .* model\.path="):
            reasoning().demonstrations(0, expert=True)

    def test_datasets_that_are_unknown_or_left_out_are_refused_with_the_reason(self) -> None:
        with pytest.raises(ConfigError, match=r"scenario\.options\.dataset: .*'chain_some'.*Did you mean 'chain_sum'"):
            reasoning(dataset="chain_some")
        with pytest.raises(ConfigError, match="'countdown' is left out: its scorer evaluates text as code"):
            reasoning(dataset="countdown")

    def test_a_missing_package_is_named_with_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "reasoning_gym", None)
        with pytest.raises(ConfigError, match=r"pip install 'mas\[reasoning-gym\]'"):
            reasoning().task("train", 0)

    def test_a_scorer_that_breaks_has_not_understood(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(answer: str, entry: object) -> float:
            raise IndexError

        question = GymQuestion(SimpleNamespace(score_answer=broken), {"question": "?", "answer": "!"})
        monkeypatch.setattr(module, "ask", lambda name, config, random: question)
        monkeypatch.setattr(
            module, "load_package", lambda module, extra: SimpleNamespace(extract_answer=lambda _: None)
        )
        environment = started("chain_sum")
        step = environment.step({"team": "!"})
        assert step.illegal == ("team",)
        assert step.rewards == {"team": {"right": 0.0}}
        assert environment.to_move() == ()


class OfDataset(EnvironmentContract):
    """Everybody sees the question and nothing else."""

    name = "chain_sum"
    privacy: Mapping[str, frozenset[str]] = dict.fromkeys(module.VIEWS, frozenset({"question"}))

    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: pip install 'mas[reasoning-gym]'")

    def make_environment(self) -> Environment:
        return open_environment(self.name)

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number)


class TestChainSum(OfDataset):
    pass


class TestKnightsAndKnaves(OfDataset):
    name = "knights_knaves"


class TestWithThePackage:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: pip install 'mas[reasoning-gym]'")

    @pytest.mark.parametrize("name", SAMPLE)
    def test_the_own_answer_of_a_dataset_solves_it_and_nonsense_does_not(self, name: str) -> None:
        for seed in range(5):
            environment = started(name, seed)
            answer = right_answer(environment, Random(0))
            for said in (answer["team"], f"Let me think.\n<answer> {answer['team']} </answer>"):
                twin = environment.clone()
                assert twin.step({"team": said}).rewards == {"team": {"right": 1.0}}
                assert twin.success()
            assert environment.step({"team": "no such thing"}).rewards["team"]["right"] < 0.5
            assert not environment.success()

    @pytest.mark.parametrize("hostile", ["x" * (LONGEST + 1), "\x00", "\x1b[2J", "\ud800"])
    def test_answers_that_no_scorer_should_see_are_illegal(self, hostile: str) -> None:
        environment = started("chain_sum")
        assert environment.step({"team": hostile}).illegal == ("team",)
        assert not environment.success()

    @pytest.mark.parametrize(
        "odd", ["[[[[", '{"a": ', "1e999999", "<answer>", "</answer><answer>", "9" * 5000, "a\nb\tc"]
    )
    def test_odd_answers_score_nothing_and_break_nothing(self, odd: str) -> None:
        for name in SAMPLE:
            environment = started(name)
            assert environment.step({"team": odd}).rewards["team"]["right"] < 0.5
            assert environment.to_move() == ()

    def test_no_question_of_the_evaluation_is_trained_on(self) -> None:
        scenario = reasoning(config={"max_terms": 2, "max_digits": 1})
        asked: dict[str, set[str]] = {"train": set(), "eval": set()}
        for split, count in (("train", 200), ("eval", 40)):
            for index in range(count):
                environment = scenario.environment()
                environment.reset(scenario.task(split, index))
                asked[split].add(environment.observe("solo").fields["question"])
        assert len(asked["train"]) > 50
        assert not asked["train"] & asked["eval"]

    def test_the_options_of_the_dataset_are_its_own(self) -> None:
        with pytest.raises(ConfigError, match=r"'chain_sum' has no option 'max_trems'. Did you mean 'max_terms'"):
            reasoning(config={"max_trems": 3}).task("train", 0)
        with pytest.raises(ConfigError, match=r"'chain_sum' cannot be made with .*max_terms must be >= min_terms"):
            reasoning(config={"max_terms": 1}).task("train", 0)
        with pytest.raises(ConfigError, match="has no option 'seed'"):
            reasoning(config={"seed": 1}).task("train", 0)

    def test_another_version_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "version", lambda _: "9.9.9")
        with pytest.raises(ConfigError, match=r"reasoning-gym 9\.9\.9 is installed, tested was 0\.1\.25"):
            open_environment("chain_sum")

    @pytest.mark.nightly
    def test_ten_thousand_random_answers_break_nothing(self) -> None:
        random = Random(0)
        environments = [started(name, seed) for name in SAMPLE for seed in range(20)]
        letters = "0123456789abcdefghij .,-+*/()[]{}<>\"'\n"
        for _ in range(10_000):
            twin = random.choice(environments).clone()
            step = twin.step({"team": "".join(random.choices(letters, k=random.randrange(12)))})
            assert 0 <= step.rewards["team"]["right"] <= 1
            assert twin.to_move() == ()


@pytest.mark.nightly(shard=False)
@pytest.mark.timeout(3600)
def test_the_list_is_what_its_script_makes_of_the_installed_package() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: pip install 'mas[reasoning-gym]'")
    from reasoning_list import listing

    known, made = module.known_datasets(), listing()
    assert known.version == made["version"]
    assert known.tested == made["tested"]
    assert known.left_out == made["left_out"]

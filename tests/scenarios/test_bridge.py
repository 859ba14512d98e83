"""Any bridged environment by its id: teams from its seats, letters for its actions, and why an id cannot be trained."""

from itertools import islice
from random import Random

import pytest
from test_every_bridged_id import KINDS

from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.environment import Task
from mas.core.errors import ConfigError
from mas.core.role import View
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runs.resolve import check_fits, resolve
from mas.scenarios import build_scenario
from mas.scenarios.bridge import READABLE, SYMBOLS, BridgedGame, BridgeScenario, squeezed
from mas.scenarios.bridges import open_bridge
from mas.scenarios.game import GameEnvironment, game_below
from mas.serving.model import ALPHABET
from mas.testing.environment import EnvironmentContract

pytest.importorskip("pyspiel")
WHY_NOT = {
    "open_spiel:breakthrough": "it has 768 actions, and there are 62 characters",
    "open_spiel:backgammon": "it has 1352 actions",
    "open_spiel:battleship": "it has 300 actions",
    "textarena:KuhnPoker-v0-raw": "its actions are texts and have no numbers",
    "reasoning_gym:maze": "its actions are texts and have no numbers",
    "textworld:small": "its actions are texts and have no numbers",
}
GAMES = ("gymnasium", "jaxmarl", "open_spiel", "pettingzoo")
LETTERED = [name for name in KINDS if name not in WHY_NOT and name.partition(":")[0] in GAMES]
pytestmark = pytest.mark.filterwarnings("ignore:Game .* is not fully supported")


def scenario_of(name: str, **options: object) -> BridgeScenario:
    package = {"open_spiel": "pyspiel"}.get(name.partition(":")[0], name.partition(":")[0])
    pytest.importorskip(package)
    built = build_scenario(ScenarioOptions(name="bridge", options={"id": name, **options}))
    assert isinstance(built, BridgeScenario)
    return built


class TestLetters(EnvironmentContract):
    def make_environment(self) -> BridgedGame:
        return BridgedGame(GameEnvironment(open_bridge("open_spiel:leduc_poker").game), is_lettered=True)

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number)


class TestAtOnce(EnvironmentContract):
    tasks_differ = True

    def make_environment(self) -> BridgedGame:
        return BridgedGame(GameEnvironment(open_bridge("open_spiel:goofspiel").game), is_lettered=True)

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number)


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("name", LETTERED)
def test_letters_are_the_games_own_actions_and_all_that_the_tiny_base_reads_it_knows(name: str) -> None:
    scenario = scenario_of(name)
    environment, words = scenario.environment(), scenario_of(name, style="words").environment()
    for each in (environment, words):
        each.reset(scenario.task("train", 0))
    team = scenario.teams["team"]
    roles, random = build_roles(team), Random(name)
    speakers = {seat: team.members()[agent] for seat, agent in team.plays.items()}
    assert set(speakers) == set(environment.spec.seats)
    for _ in range(12):
        seats = environment.to_move()
        if not seats:
            break
        said = {}
        for seat in seats:
            prompt = roles[speakers[seat]].prompt(View(observation=environment.observe(seat)))
            assert set(prompt) <= set(ALPHABET)
            assert len(prompt) <= scenario.longest_prompt or "hanabi" in name
            letters, texts = environment.legal(seat), words.legal(seat)
            assert letters is not None
            assert texts is not None
            assert len(set(letters)) == len(letters) == len(texts)
            assert set(letters) <= set(team.roles[speakers[seat]].choices)
            said[seat] = random.randrange(len(letters)) if letters else -1
        steps = [
            each.step({seat: (each.legal(seat) or ("",))[max(number, 0)] for seat, number in said.items()})
            for each in (environment, words)
        ]
        assert steps[0] == steps[1]
    assert environment.render() == words.render()


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_environment_has_a_team_and_a_single_agent_in_words(name: str) -> None:
    scenario = scenario_of(name, style="words")
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    for team in (scenario.teams["team"], scenario.teams["solo"]):
        roles = build_roles(team)
        compile_team(team, roles)
        assert set(team.plays) == set(environment.spec.seats)
        for role in roles.values():
            view = role.spec.view
            for seen in environment.spec.seats if view is None else (view,):
                assert role.prompt(View(observation=environment.observe(seen)))
    assert len(scenario.teams["solo"].roles) == 1
    assert len(scenario.teams["team"].roles) == max(2, len(environment.spec.seats))


@pytest.mark.parametrize("name", WHY_NOT)
def test_an_id_that_cannot_be_trained_in_letters_says_why_and_what_is_possible(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        scenario_of(name)
    assert f"{name} cannot be trained with style=letters: {WHY_NOT[name]}" in str(refused.value)
    assert "scenario.options.style=words and a model that reads them, model.path=MODEL" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("open_spiel:tic_tac_to", "Did you mean 'tic_tac_toe'?"),
        ("openspiel:chess", "write PACKAGE:NAME, PACKAGE one of gymnasium, jaxmarl, open_spiel"),
        ("chess", "is no id of a bridge"),
        ("textarena:Nothing-v0-raw", "no tested game"),
    ],
)
def test_an_id_that_there_is_not_is_refused_with_those_near(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        build_scenario(ScenarioOptions(name="bridge", options={"id": name}))


def test_a_game_that_grows_too_long_for_the_tiny_base_is_refused_before_it_is_made() -> None:
    """Hanabi's first view is short enough, later ones are not."""
    words = ["scenario=bridge", "scenario.options.id=open_spiel:hanabi"]
    scenario = scenario_of("open_spiel:hanabi")
    with pytest.raises(ConfigError, match=r"reads and writes 3\d\d characters in 'bridge'.*the tiny base 256"):
        check_fits(resolve(load_config(words), scenario))
    check_fits(resolve(load_config([*words, "model.tiny.context=512"]), scenario))


def test_words_are_not_taught_to_the_tiny_base() -> None:
    with pytest.raises(ConfigError, match=r"no demonstrations of open_spiel:catch in words.*model\.path=MODEL"):
        next(scenario_of("open_spiel:catch", style="words").demonstrations(0, expert=True))


def test_demonstrations_are_legal_moves_and_a_noisy_teacher_makes_the_first_more_often() -> None:
    scenario = scenario_of("open_spiel:tic_tac_toe")
    firsts = {}
    for expert in (True, False):
        shown = list(islice(scenario.demonstrations(0, expert=expert), 3000))
        boards = [(prompt[1:-1].replace("/", ""), move) for prompt, move in shown]
        assert all(board[int(move)] == "." for board, move in boards)
        empty = [move for board, move in boards if board == "." * 9]
        firsts[expert] = empty.count("0") / len(empty)
    # 1 in 9 of an expert; of a noisy teacher of skill 0.9 also the tenth that makes the first move: 0.1 + 0.9 / 9 = 0.2
    assert firsts[True] == pytest.approx(1 / 9, abs=0.06)
    assert firsts[False] == pytest.approx(0.2, abs=0.07)


def test_questions_of_the_two_splits_differ() -> None:
    scenario = scenario_of("reasoning_gym:chain_sum", style="words")
    asked = {}
    for split in ("train", "eval"):
        environment = scenario.environment()
        found = set()
        for index in range(30):
            environment.reset(scenario.task(split, index))
            found.add(environment.observe("solo").fields["question"])
        asked[split] = found
    assert not asked["train"] & asked["eval"]
    assert len(asked["train"]) > 20


def test_letters_are_enough_for_what_they_stand_for() -> None:
    assert set(READABLE) == set(ALPHABET)
    assert len(set(SYMBOLS)) == len(SYMBOLS) == 62
    assert set(SYMBOLS) <= set(ALPHABET)
    assert squeezed(" a  b\n\n 'c'\td ") == "a_b/c_d"


def test_tries_are_the_games() -> None:
    game = game_below(scenario_of("open_spiel:kuhn_poker", tries=2).environment())
    assert game is not None
    assert game.tries == 2

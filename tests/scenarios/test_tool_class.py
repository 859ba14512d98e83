"""Classes of TRL's `environment_factory` as scenarios: tools, rewards, rows, and what is wrong with them."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers.utils import get_json_schema

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError, EnvironmentFault, RewardError
from mas.core.role import View
from mas.core.user_code import load_module
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.scenarios import build_scenario
from mas.scenarios.tool_class import ToolClassScenario
from mas.scenarios.tool_methods import GameTools
from mas.testing.environment import EnvironmentContract

CLASS = '''
import random
from typing import Literal, Optional


class Guess:
    """You guess a word.

    Not shown to the model.
    """

    made = 0

    def __init__(self):
        Guess.made += 1
        self.secret, self.guesses, self.solved = "", 0, False

    def reset(self, prompt: str, secret: str, **row) -> str | None:
        self.secret, self.guesses, self.solved = secret, 0, False
        self.order = random.random()
        return f" It has {len(secret)} letters."

    def guess(self, word: str) -> str:
        """
        Guess the word.

        Args:
            word: A word in small letters.

        Returns:
            Which letters are right.
        """
        if not word:
            raise RuntimeError("no word was given")
        self.guesses += 1
        self.solved = word == self.secret
        return "".join(a if a == b else "-" for a, b in zip(self.secret, word))

    def letter(self, number: int, case: Literal["upper", "lower"] = "lower", note: Optional[str] = None) -> list:
        """A letter of the word, for a price."""
        self.guesses += 5
        letter = self.secret[number]
        return [{"type": "text", "text": letter.upper() if case == "upper" else letter}, {"type": "image", "image": 1}]

    def get_reward(self) -> float:
        return 1.0 - 0.1 * (self.guesses - 1) if self.solved else 0.0

    def _hidden(self):
        return self.secret


class Quiet(Guess):
    def reset(self, **row):
        return None if super().reset(**row) else None


class Untyped(Guess):
    def look(self, where):
        """Look."""


class Silent(Guess):
    def look(self, where: str) -> str:
        return where


class Later(Guess):
    async def look(self, where: str) -> str:
        """Look."""


class Odd(Guess):
    def get_reward(self):
        return "much"


class Endless(Guess):
    def get_reward(self):
        return float("nan")


class Broken(Guess):
    def reset(self, **row):
        raise KeyError("secret")


class Drifts(Guess):
    def reset(self, **row):
        return str(Guess.made)


class NoReward:
    def reset(self, **row):
        return None
'''
ROWS = [
    {"prompt": f"Word {number}.", "secret": word} for number, word in enumerate(["ice", "lake", "hole", "goal"] * 6)
]
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Guess."}]}]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    (folder / "words.py").write_text(CLASS)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return folder


@pytest.fixture(autouse=True)
def here(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(written)


def built(name: str = "Guess", **options: Any) -> ToolClassScenario:
    options = {"rows": "rows.jsonl", **options}
    scenario = build_scenario(ScenarioOptions(name=f"words.py:{name}", options=options))
    assert isinstance(scenario, ToolClassScenario)
    return scenario


def begun(scenario: ToolClassScenario, index: int = 0) -> Environment:
    environment = scenario.environment()
    environment.reset(scenario.task("train", index))
    return environment


def call(name: str, **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def history(environment: Environment) -> str:
    return environment.observe("solo").fields["history"]


class TestToolClass(EnvironmentContract):
    def make_environment(self) -> Environment:
        return built().environment()

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number % len(ROWS))

    # There are 24 rows, and each is a task.
    def test_tasks_differ(self) -> None:
        starts = {self.started(number).state_key() for number in range(40)}
        assert len(starts) == len(ROWS)


def test_methods_are_tools_until_an_answer_ends_the_rollout_and_the_class_says_what_it_is_worth() -> None:
    scenario = built()
    environment = begun(scenario)
    row = ROWS[scenario.task("train", 0).seed]
    fields = environment.observe("planner").fields
    assert fields["prompt"] == f"{row['prompt']} It has {len(row['secret'])} letters."
    tools = [json.loads(line) for line in fields["tools"].splitlines()]
    assert [tool["name"] for tool in tools] == ["guess", "letter"]
    assert tools[0]["description"].startswith("Guess the word.\n\nArgs:\n    word: A word in small letters.")
    assert tools[0]["parameters"]["properties"]["word"]["type"] == "string"
    assert tools[1]["parameters"]["required"] == ["number"]
    step = environment.step({"team": call("guess", word="x" * len(row["secret"]))})
    assert (step.rewards, step.illegal) == ({"team": {}}, ())
    step = environment.step(
        {"team": f"<think>now</think><tool_call>\n{call('guess', word=row['secret'])}\n</tool_call>"}
    )
    assert step.rewards == {"team": {}}
    assert not environment.success()
    step = environment.step({"team": "I am done."})
    assert step.rewards == {"team": {"reward": pytest.approx(0.9)}}
    assert environment.to_move() == ()
    assert f"result: {row['secret']}" in history(environment)
    assert "answer: I am done." in history(environment)


def test_a_reward_of_one_is_a_success() -> None:
    scenario = built()
    environment = begun(scenario)
    environment.step({"team": call("guess", word=ROWS[scenario.task("train", 0).seed]["secret"])})
    environment.step({"team": "That was it."})
    assert environment.success()


@pytest.mark.parametrize(
    ("said", "result"),
    [
        (call("gues", word="x"), "error: no tool 'gues'. Did you mean 'guess'?"),
        (call("guess", words="x"), "error: tool 'guess': parameter 'word' is missing; there is no parameter 'words'"),
        (call("guess", word=3), "error: tool 'guess': parameter 'word' is 3"),
        (call("letter", number=0, case="middle"), "error: tool 'letter': parameter 'case' is 'middle'"),
        (call("_hidden"), "error: no tool '_hidden'"),
        (call("get_reward"), "error: no tool 'get_reward'"),
        ('{"name": "guess", "arguments": ', "error: this is no tool call"),
    ],
)
def test_a_call_that_no_tool_takes_is_illegal_and_its_error_is_read(said: str, result: str) -> None:
    environment = begun(built())
    step = environment.step({"team": said})
    assert step.illegal == ("team",)
    assert f"result: {result}" in history(environment)
    assert environment.to_move() == ("team",)


def test_what_a_tool_raises_is_its_result_and_parts_of_a_result_are_texts() -> None:
    environment = begun(built())
    assert environment.step({"team": call("guess", word="")}).illegal == ()
    assert "result: error: no word was given" in history(environment)
    environment.step({"team": call("letter", number=0, case="upper")})
    assert history(environment).endswith("\n[image]")
    environment.step({"team": call("letter", number=99)})
    assert history(environment).endswith("result: error: string index out of range")


def test_the_last_turn_is_paid_whether_it_answers_or_not() -> None:
    environment = begun(built(max_turns=2))
    environment.step({"team": call("guess", word="x")})
    step = environment.step({"team": call("guess", word="y")})
    assert step.rewards == {"team": {"reward": 0.0}}
    assert environment.to_move() == ()


def test_every_rollout_has_an_instance_of_its_own_and_copies_play_the_same() -> None:
    scenario = built()
    environment = begun(scenario)
    environment.step({"team": call("guess", word="ixx")})
    clone = environment.clone()
    clone.step({"team": call("guess", word="hole")})
    assert history(clone).startswith(history(environment))
    assert history(clone) != history(environment)


def test_chance_of_the_whole_process_begins_at_the_row_and_is_put_back() -> None:
    import random

    random.seed(5)
    before = random.getstate()
    begun(built())
    assert random.getstate() == before


def test_a_class_that_begins_otherwise_each_time_cannot_be_played_again() -> None:
    environment = begun(built("Drifts"))
    with pytest.raises(EnvironmentFault, match="the game depends on more than its seed"):
        environment.clone().observe("solo")


def test_prompts_are_texts_or_messages_and_reset_may_add_nothing(tmp_path: Path) -> None:
    rows = [{"prompt": CHAT, "secret": f"w{number}", "part": part} for number, part in enumerate(["train", "test"])]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scenario = built("Quiet", rows=str(tmp_path / "chat.jsonl"), split="part")
    assert begun(scenario).observe("solo").fields["prompt"] == "Be brief.\nGuess."
    assert (scenario.size("train"), scenario.size("eval")) == (1, 1)
    assert scenario.task("eval", 0).seed == 1


def test_splits_share_no_row_and_a_task_beyond_the_last_is_refused() -> None:
    scenario = built()
    assert scenario.size("train") + scenario.size("eval") == len(ROWS)
    held = [scenario.content_of(scenario.task("eval", number)) for number in range(scenario.size("eval"))]
    assert all(scenario.holds_out(content) for content in held)
    assert not scenario.holds_out(scenario.content_of(scenario.task("train", 0)))
    with pytest.raises(ConfigError, match="there is no 99"):
        scenario.task("train", 99)


def test_a_row_that_is_in_both_splits_is_refused(tmp_path: Path) -> None:
    rows = [
        {"prompt": CHAT, "secret": f"w{number % 3}", "part": part} for number, part in enumerate(["train", "test"] * 2)
    ]
    (tmp_path / "both.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ConfigError, match="equal rows in both splits"):
        built("Quiet", rows=str(tmp_path / "both.jsonl"), split="part")


@pytest.mark.parametrize("team", ["team", "solo"])
def test_teams_compile_and_their_prompts_show_tools_and_results(team: str) -> None:
    scenario = built()
    environment = begun(scenario)
    environment.step({"team": call("guess", word="abc")})
    spec = scenario.teams[team]
    roles = build_roles(spec)
    compile_team(spec, roles)
    for agent, name in spec.members().items():
        seen = View(observation=environment.observe(roles[name].spec.view or agent))
        assert "call: " in roles[name].prompt(seen)
        assert '"name": "guess"' in roles[name].prompt(seen)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Untyped", r"Untyped.look\(where\): each parameter of a tool needs a name of its own and a type hint"),
        ("Silent", "Silent.look has no docstring"),
        ("Later", "Later.look is asynchronous"),
        ("Broken", r"Broken: reset raised KeyError: 'secret' \(rows.jsonl, line \d+\)"),
        ("NoReward", "NoReward has no observe, step; an environment needs"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused_before_anything_is_trained(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        built(name)


@pytest.mark.parametrize(
    ("name", "error", "why"),
    [
        ("Odd", EnvironmentFault, "Odd: get_reward returned 'much': return a number"),
        ("Endless", RewardError, "Endless.get_reward paid reward=nan"),
    ],
)
def test_a_reward_that_is_none_fails_the_episode(name: str, error: type[Exception], why: str) -> None:
    environment = begun(built(name))
    with pytest.raises(error, match=why):
        environment.step({"team": "done"})


def test_options_that_are_missing_or_wrong_say_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"scenario\.options\.rows must be set"):
        build_scenario(ScenarioOptions(name="words.py:Guess"))
    with pytest.raises(ConfigError, match="there is no such file"):
        built(rows="none.jsonl")
    (tmp_path / "one.jsonl").write_text(json.dumps(ROWS[0]))
    with pytest.raises(ConfigError, match="no row is in split"):
        built(rows=str(tmp_path / "one.jsonl"))
    with pytest.raises(ConfigError, match=r"its split is 'Word 0\.'; possible: train"):
        built(split="prompt")
    with pytest.raises(ConfigError, match=r"no demonstrations.*model\.path=MODEL"):
        next(built().demonstrations(0, expert=True))


def test_parameters_are_those_that_transformers_reads_for_trl_from_the_same_methods() -> None:
    kind = vars(load_module("the test", "words.py", ""))["Guess"]
    made = kind()
    ours = {"function": json.loads(GameTools(made, ("guess",)).fields()["tools"])}
    theirs = get_json_schema(made.guess)
    for schema in (ours, theirs):
        assert schema["function"]["name"] == "guess"
        parameters = schema["function"]["parameters"]
        assert {name: value["type"] for name, value in parameters["properties"].items()} == {"word": "string"}
        assert parameters["required"] == ["word"]

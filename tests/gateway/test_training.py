"""Programs that are trained: what they call is what is learned from, and they learn."""

import json
from collections.abc import Callable
from itertools import count, takewhile
from pathlib import Path

import openai
import pytest
from conftest import BaseFor, Ran
from relay_program import ROLES, play_all, post, say, text_of, write_tasks
from served import serving
from trained_program import train_program

from mas.config.options import ModelOptions
from mas.gateway.client import Gateway, GatewayEpisode, GatewayError

pytestmark = pytest.mark.nightly(of=16)
KEY = "s3cret-of-the-gateway"


@pytest.fixture
def options(base_for: BaseFor, tmp_path: Path) -> list[str]:
    """A base that knows relay's letters, and tasks."""
    base = base_for("relay", ModelOptions())
    tasks = write_tasks(tmp_path / "tasks.jsonl", 60, 40)
    return [
        f"model.path={base.name}",
        f"scenario.options.path={tasks}",
        "scenario.options.split=part",
        f"scenario.options.roles=[{','.join(ROLES)}]",
        "scenario.options.max_tokens=1",
        "algorithm.sampler.candidates=8",
        "train.tasks_per_step=4",
        "train.checkpoint_every=1",
        "train.eval_tasks=20",
        "train.eval_every=0",
        "learner.lr=0.005",
        "learner.minibatches=4",
        "algorithm.loss.entropy=0.05",
    ]


def adapters_of(run: Path) -> dict[str, bytes]:
    """The trained weights."""
    return {role: (run / "adapters" / role / "adapter_model.safetensors").read_bytes() for role in ROLES}


def test_a_program_learns_and_its_roles_are_served(
    options: list[str], tmp_path: Path, mas: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setenv("MAS_API_KEY", KEY)
    outcome, count = train_program([*options, "train.steps=10"], run, play_all, key=KEY)
    assert outcome.progress.step == 10
    assert count == 10 * 4 * 8 + 2 * 2 * 20
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    greedy = [line["eval"]["greedy"]["success"] for line in lines if "greedy" in line.get("eval", {})]
    assert greedy[0] < 0.5
    assert greedy[-1] > 0.9
    planner = [line["roles"]["planner"]["terms"]["own.role"] for line in lines if "roles" in line]
    assert max(planner[:2]) < 0.6 < min(planner[-3:])
    assert max(line["adapters"]["planner"]["behaviour_gap"] for line in lines if "adapters" in line) < 1e-4
    assert all(KEY.encode() not in path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert mas("report", str(run)).code == 0
    monkeypatch.delenv("MAS_API_KEY")
    with serving(str(run), "--port", "0") as served:
        assert "team:" not in served.greeting
        said = post(f"{served.address}/v1/completions", {"model": "executor", "prompt": "E1234;a>", "temperature": 0})
    assert said["choices"][0]["text"] == "7"
    ended = mas("run", str(run))
    assert "use mas gateway" in ended.out + ended.err


def test_a_run_that_goes_on_ends_as_one_that_never_stopped(options: list[str], tmp_path: Path) -> None:
    def play(url: str) -> object:
        return play_all(url, at_once=1)

    short = [*options, "algorithm.sampler.candidates=4", "train.tasks_per_step=2", "train.eval_tasks=2"]
    train_program([*short, "train.steps=4"], tmp_path / "whole", play)
    train_program([*short, "train.steps=2"], tmp_path / "parts", play)
    assert adapters_of(tmp_path / "parts") != adapters_of(tmp_path / "whole")
    train_program([*short, "train.steps=4"], tmp_path / "parts", play)
    assert adapters_of(tmp_path / "parts") == adapters_of(tmp_path / "whole")


def test_what_a_program_says_in_an_episode_with_the_openai_client_streams_and_forms(
    options: list[str], tmp_path: Path
) -> None:
    """Answers that follow a form are learned from with the probabilities that the form leaves."""

    def play(episode: GatewayEpisode) -> None:
        with openai.OpenAI(base_url=episode.base_url, api_key="none") as client:
            said = client.chat.completions.create(
                model="planner",
                messages=[{"role": "user", "content": f"P{episode.task['goal']}>"}],
                extra_body={"structured_outputs": {"choice": ["a", "b"]}},
                stream=True,
            )
            text = "".join(piece.choices[0].delta.content or "" for piece in said if piece.choices)
        assert text in ("a", "b")
        episode.end(float(text == "b"))

    few = [*options, "train.eval_tasks=2", "train.steps=3", "algorithm.sampler.candidates=4"]
    train_program(few, tmp_path / "run", lambda url: play_all(url, play, at_once=2))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "adapters" in line]
    assert len(steps) == 3
    assert max(line["adapters"]["planner"]["behaviour_gap"] for line in steps) < 1e-4
    assert all(line["adapters"].keys() == {"planner"} for line in steps)
    assert steps[-1]["reward"] > steps[0]["reward"]


def test_a_program_with_tasks_of_its_own_is_trained_without_evaluation(
    options: list[str], tmp_path: Path, mas: Callable[..., Ran]
) -> None:
    """It begins episodes by name, four of each task, until it is told that training is over."""
    keys = "ABCD"

    def play(number: int, gateway: Gateway) -> bool:
        try:
            episode = gateway.begin(f"key-{keys[number // 4 % 4]}", f"episode-{number}")
        except GatewayError as error:
            return error.status != 410
        with episode:
            said = text_of(say(episode, "planner", f"P{episode.task[-1]}>"))
            episode.end(float(said == "c"))
        return True

    def program(url: str) -> int:
        return sum(1 for _ in takewhile(lambda number: play(number, Gateway(url)), count()))

    own = [word for word in options if not word.startswith(("scenario.options.path", "scenario.options.split"))]
    short = [*own, "train.steps=3", "train.tasks_per_step=2", "algorithm.sampler.candidates=4"]
    _, played = train_program(short, tmp_path / "run", program)
    assert played == 3 * 2 * 4
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert all(line["roles"]["planner"]["groups"] == 2 for line in lines)
    assert mas("report", str(tmp_path / "run")).code == 0


def test_programs_that_crash_stop_nothing(options: list[str], tmp_path: Path) -> None:
    crashes = count()

    def play(episode: GatewayEpisode) -> None:
        say(episode, "planner", "PA>")
        if next(crashes) % 3 == 0:
            raise ZeroDivisionError("the program broke")
        episode.end(1.0)

    def play_on(url: str) -> None:
        while True:
            try:
                play_all(url, play, at_once=2)
            except ZeroDivisionError:
                continue
            return

    few = [*options, "train.eval_first=false", "train.eval_tasks=2", "train.steps=2", "algorithm.sampler.candidates=4"]
    outcome, _ = train_program(few, tmp_path / "run", play_on)
    assert outcome.progress.step == 2
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert sum(line["failed_attempts"] for line in lines if "failed_attempts" in line) > 0
    assert all(line["episodes"] == {"done": 16, "failed": 0} for line in lines if "episodes" in line)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("algorithm=at_grpo", "algorithm.sampler.mode=tree asks several candidates of one state, and a program cannot"),
        ("algorithm=training_free", "roles that learn as text need prompts of mas"),
        (
            "algorithm=gigpo",
            "follows an episode from turn to turn: write scenario.options.compare=episode",
        ),
        ("algorithm.reward.cost=[tokens]", "algorithm.reward.cost is paid turn by turn"),
        ("train.target=0.9", "train.target needs tasks that are evaluated: name a file with scenario.options.path"),
        ("train.staleness=1", "train.staleness plays batches ahead"),
        ("cluster.workers=2", "cluster.workers play a team's graph"),
        ("scenario=relay", "mas gateway plays scenario=program, not 'relay'"),
        ("scenario.options.roles=[a,a]", "has a name twice"),
        ("scenario.options.path=nowhere.jsonl", "nowhere.jsonl: there is no such file"),
    ],
)
def test_what_a_program_cannot_be_trained_with_is_refused(mas: Callable[..., Ran], override: str, said: str) -> None:
    ended = mas("gateway", "model=smollm2", override, "--port", "0")
    assert ended.code == 2
    assert said in ended.err


def test_the_model_must_be_named(mas: Callable[..., Ran]) -> None:
    ended = mas("gateway")
    assert ended.code == 2
    assert "say which model is trained: mas gateway model=smollm2" in ended.err

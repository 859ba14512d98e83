"""A user's own algorithm: found, checked as those of mas, trained, resumed, and not run without trust."""

import io
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from loud import loud_adapter
from other_packages import put_package
from parts import make_turn, turns_of
from rich.console import Console
from rows import learner_of, rows_of

from mas.algorithms.parts.advantages.pipeline import AdvantageOptions, turn_advantages
from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.algorithms.registry import find_algorithm
from mas.config.custom_algorithm import method_of
from mas.config.load import load_config, overrides_of
from mas.config.options import Config, LearnerOptions
from mas.config.stored_run import load_run_config
from mas.config.trust import trusting
from mas.core.errors import ConfigError, TrainingError, TrustError
from mas.core.records import Episode
from mas.runs.resolve import resolve_training
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel
from mas.training.evaluate import Evaluation
from mas.training.learner import Learner
from mas.training.trainer import Trainer, TrainingOutcome
from mas.training.updates.build_update import build_update
from mas.training.updates.policy_gradient import PolicyGradient

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "median_grpo.py"
HEAD = """
from functools import partial
from mas.algorithms import Algorithm, NoOptions, Options, Recipe
recipe = Recipe(title="Mine", does="What I want.")
"""
PLAIN = f"{HEAD}one = Algorithm(recipe=recipe, options=NoOptions)\n"
SHORT = (
    "scenario=relay", "train.tasks_per_step=2", "train.eval_tasks=2", "train.eval_every=9", "train.checkpoint_every=1",
    "algorithm.sampler.candidates=4", "learner.final_lr=1.0", "train.eval_first=false",
)  # fmt: skip


def written(folder: Path, made: str, head: str = "") -> str:
    """A file with an algorithm that is made so; `head`: lines before."""
    path = folder / "mine.py"
    path.write_text(f"{HEAD}{head}\nalgorithm = Algorithm(recipe=recipe, {made})\n")
    return str(path)


def options_of(code: str, **more: Any) -> AlgorithmOptions:
    return AlgorithmOptions.model_validate({"name": "mine", "code": code, "sampler": {"mode": "parallel"}, **more})


def test_the_page_shows_the_example() -> None:
    page = (ROOT / "docs" / "own_algorithm.md").read_text()
    assert f"```python\n{EXAMPLE.read_text()}```" in page


def test_it_sets_parts_and_options_and_both_may_be_set_otherwise() -> None:
    config = load_config([f"algorithm='{EXAMPLE}'", "scenario=relay", "algorithm.sampler.candidates=5"])
    found = config.algorithm
    assert (found.name, found.code, found.options) == ("median_grpo", str(EXAMPLE), {"bound": 2.0})
    assert (found.sampler.mode, found.sampler.candidates, found.loss.entropy) == ("parallel", 5, 0.01)
    other = load_config([f"algorithm='{EXAMPLE}'", "algorithm.options.bound=1", "algorithm.name=other"])
    assert (other.algorithm.name, other.algorithm.options) == ("other", {"bound": 1.0})
    assert load_config(overrides_of(other)) == other


def test_rows_are_compared_by_its_function_and_each_turn_has_its_rows_advantage() -> None:
    turns = [
        make_turn(group=group, trajectory=f"{group}{k}", id=f"{group}{k}{n}", turn=n, rewards={"team.x": reward})
        for group, rewards in (("a", (0.0, 1.0, 5.0)), ("b", (2.0, 3.0)))
        for k, reward in enumerate(rewards)
        for n in range(2)
    ]
    method = method_of(options_of(str(EXAMPLE), options={"bound": 2.0}))
    assert method is not None
    found = turn_advantages(turns, RewardOptions(), AdvantageOptions(), own=method.advantages)
    # Medians 1 and 2.5; 5 - 1 is bounded by 2.
    assert found == [-1, -1, 0, 0, 2, 2, -0.5, -0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("[1.0]", "returned 1 numbers for 2 rows: return one per row"),
        ("[float('nan')] * 2", "returned nan: an advantage must be a finite number"),
        ("None", "returned no numbers"),
        ("[1 / 0]", r"raised ZeroDivisionError: division by zero \(mine\.py, line \d+\)$"),
    ],
)
def test_a_function_that_returns_no_advantages_is_one_error_that_names_it(
    tmp_path: Path, returned: str, said: str
) -> None:
    code = written(tmp_path, f"options=NoOptions, advantages=lambda rows, options: {returned}")
    method = method_of(options_of(code))
    assert method is not None
    turns = [make_turn(trajectory=name, id=name) for name in "ab"]
    with pytest.raises(TrainingError, match=rf"advantages of algorithm '.*mine\.py' {said}"):
        turn_advantages(turns, RewardOptions(), AdvantageOptions(), own=method.advantages)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"advantage": {"baseline": "leave_one_out"}}, r"advantage\.baseline=leave_one_out has no effect"),
        ({"advantage": {"scale": "none"}}, r"advantage\.scale=none has no effect"),
        ({"loss": {"surrogate": "cispo", "dual_clip": None}}, r"loss\.surrogate=cispo has no effect"),
        ({"update": "training_free"}, r"read by algorithm\.update=policy_gradient alone"),
        ({"options": {"bond": 1}}, r"algorithm\.options\.bond' .*Did you mean 'bound'"),
        ({"options": {"bound": "wide"}}, r"algorithm\.options\.bound='wide' is not possible: it should be"),
    ],
)
def test_what_could_have_no_effect_is_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    own = "class Own(Options):\n    bound: float = 1.0\n"
    functions = "advantages=lambda rows, options: [], loss=lambda signals, options: None"
    with pytest.raises(ConfigError, match=said):
        method_of(options_of(written(tmp_path, f"options=Own, {functions}", own), **more))


def test_options_of_an_algorithm_without_any_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"algorithm\.options\.bound: algorithm 'parallel_grpo' has no options of its own"
    ):
        load_config(["algorithm=parallel_grpo", "algorithm.options.bound=1"])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("mine.py", None, "there is no file"),
        ("mine.py", "1 / 0", "cannot be imported: ZeroDivisionError"),
        ("mine.py", "x = 1", r"has no algorithm\. One is made by .*own_algorithm"),
        ("mine.py:one", PLAIN, None),
        ("mine.py:on", PLAIN, "no algorithm 'on'. Did you mean 'one'"),
        ("mine.py", f"{PLAIN}two = one\n", r"has 2 algorithms; write one of .*:one, .*:two"),
        ("mine.py:", "x = 1", "write path/file.py"),
    ],
)
def test_a_name_is_found_or_says_what_is_there(tmp_path: Path, name: str, text: str | None, said: str | None) -> None:
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    if said is None:
        assert find_algorithm(f"{tmp_path}/{name}").recipe.title == "Mine"
        return
    with pytest.raises(ConfigError, match=said):
        load_config([f"algorithm='{tmp_path}/{name}'"])


def test_a_module_that_is_not_installed_is_one_error() -> None:
    with pytest.raises(ConfigError, match=r"the module 'no_such_package' cannot be imported: ModuleNotFoundError"):
        load_config(["algorithm=no_such_package:algorithm"])


def test_an_installed_package_may_bring_algorithms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mas: Callable[..., Any]
) -> None:
    made = written(tmp_path, "options=NoOptions, parts={'sampler': {'mode': 'parallel'}}")
    Path(made).rename(tmp_path / "brought.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    points = {"brought_grpo": "brought:algorithm", "wrong": "brought:__name__", "dapo": "brought:algorithm"}
    put_package(tmp_path, "bringer", {"mas.algorithms": points})
    config = load_config(["algorithm=brought_grpo"])
    assert (config.algorithm.name, config.algorithm.code) == ("brought_grpo", "brought_grpo")
    assert config.algorithm.sampler.mode == "parallel"
    assert "Mine" in mas("algorithms", "brought_grpo").out
    listed = mas("algorithms").out
    assert "comes with the package bringer: brought:algorithm" in " ".join(listed.split())
    assert "algorithm 'dapo' of the package bringer cannot be chosen: mas has one of this name" in listed
    assert "docs/algorithms/dapo.md" in mas("algorithms", "dapo").out
    with pytest.raises(ConfigError, match="Did you mean 'brought_grpo'"):
        load_config(["algorithm=brought_grp"])
    with pytest.raises(ConfigError, match=r"'wrong': brought:__name__ of another package is a str, no mas\.algorithms"):
        load_config(["algorithm=wrong"])


def test_mas_algorithms_tells_its_functions_and_options(mas: Callable[..., Any]) -> None:
    shown = mas("algorithms", str(EXAMPLE)).out
    assert "Median GRPO" in shown
    assert "algorithm.sampler.mode=parallel" in shown
    assert "Functions of its own: advantages" in shown
    assert "algorithm.options.bound=2.0" in shown


def test_checking_it_loads_no_torch() -> None:
    program = (
        "import sys; from mas.config.load import load_config; load_config([f\"algorithm='{sys.argv[1]}'\"]); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(EXAMPLE)], check=True, timeout=60)


def test_a_loss_of_its_own_takes_the_place_of_the_surrogate(tmp_path: Path, base_for: Callable[..., BaseModel]) -> None:
    base, rows = base_for("relay"), rows_of()
    loss = "loss=lambda signals, options: -signals.advantage_J * signals.logprobs_J"
    method = method_of(options_of(written(tmp_path, f"options=NoOptions, {loss}")))
    assert method is not None
    reinforce = learner_of(base, surrogate="reinforce", clip_low=None, clip_high=None, dual_clip=None)
    adapters = {name: weights.snapshot() for name, weights in reinforce.adapters.items()}
    own = Learner(base, adapters, LearnerOptions(), learner_of(base).loss, method.loss)
    other = Learner(base, adapters, LearnerOptions(), own.loss, lambda signals: -signals.logprobs_J)
    for learner in (reinforce, own, other):
        learner.step(rows)
    weights = [
        [parameter.detach().clone() for parameter in learner.adapters["planner"].parameters()]
        for learner in (reinforce, own, other)
    ]
    assert all(bool((one == other).all()) for one, other in zip(weights[0], weights[1], strict=True))
    assert not all(bool((one == other).all()) for one, other in zip(weights[0], weights[2], strict=True))
    wrong = Learner(base, {"planner": loud_adapter(base, 0)}, LearnerOptions(), own.loss, lambda signals: 0.0)
    with pytest.raises(TrainingError, match="own loss returned float; it must be a tensor with one number for each of"):
        wrong.step(rows_of("planner"))


def test_an_update_of_its_own_takes_the_place_of_all(tmp_path: Path, base_for: Callable[..., BaseModel]) -> None:
    head = "from mas.training.updates.policy_gradient import PolicyGradient\nclass Own(PolicyGradient): pass\n"
    made = "options=NoOptions, update=lambda learner, algorithm, options: Own(learner, algorithm)"
    code = written(tmp_path, made, head)
    options = options_of(code)
    learner = learner_of(base_for("relay"))
    update = build_update(learner, options, 0, method_of(options))
    assert type(update).__name__ == "Own"
    assert isinstance(update, PolicyGradient)


class Steps:
    """Keeps every step's episodes."""

    def __init__(self) -> None:
        self.episodes: list[Sequence[Episode]] = []

    def on_resume(self, step: int) -> None:
        pass

    def on_note(self, step: int, note: Mapping[str, Any]) -> None:
        pass

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Episode]) -> None:
        self.episodes.append(episodes)

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        pass


def run_of(code: str, run: Path, small: tuple[str, ...], *words: str) -> Config:
    return load_config([*SHORT, f"algorithm='{code}'", *small, f"run_dir='{run}'", *words])


def train(config: Config) -> TrainingOutcome:
    return train_in_directory(config, build_scenario(config.scenario), console=Console(file=io.StringIO(), width=200))


def weights_of(run: Path) -> dict[str, bytes]:
    folder = run / "adapters"
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


def test_a_run_trains_goes_on_as_if_never_ended_and_is_refused_without_trust(
    tmp_path: Path,
    small_overrides: tuple[str, ...],
    base_for: Callable[..., BaseModel],
    monkeypatch: pytest.MonkeyPatch,
    mas: Callable[..., Any],
) -> None:
    base_for("relay")
    code = tmp_path / "median.py"
    code.write_text(EXAMPLE.read_text())
    whole, parts, usual = tmp_path / "whole", tmp_path / "parts", tmp_path / "usual"
    train(run_of(str(code), whole, small_overrides, "train.steps=2"))
    train(run_of(str(code), parts, small_overrides, "train.steps=1"))
    train(load_run_config(parts, ["train.steps=2"]))
    assert weights_of(whole) == weights_of(parts) != {}
    train(run_of("parallel_grpo", usual, small_overrides, "train.steps=2", "algorithm.loss.entropy=0.01"))
    assert weights_of(whole) != weights_of(usual), "its advantages are those that are learned from"

    assert mas("eval", str(whole), "train.eval_tasks=2").code == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "somebody"))
    failed = mas("eval", str(whole), "train.eval_tasks=2")
    assert failed.code != 0
    assert f"import {code}   (algorithm.code)" in failed.err
    assert load_run_config(whole, [f"algorithm.code='{code}'"]).algorithm.code == str(code)
    with trusting():
        assert load_run_config(whole).algorithm.options == {"bound": 2.0}


def test_a_stored_run_is_refused_before_its_code_is_imported(tmp_path: Path) -> None:
    evil, run = tmp_path / "evil.py", tmp_path / "run"
    evil.write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    run.mkdir()
    for stored in (f"code: {evil}", f"code: '{evil}:algorithm'", "code: 'evil:algorithm'"):
        (run / "config.yaml").write_text(f"algorithm: {{{stored}}}")
        with pytest.raises(TrustError, match=r"import .*evil"):
            load_run_config(run)
    (run / "config.yaml").write_text("algorithm: {options: {place: /etc/passwd}}")
    with pytest.raises(TrustError, match=r"read /etc/passwd   \(algorithm\.options\.place\)"):
        load_run_config(run)
    assert not (tmp_path / "owned").exists()


async def test_a_sampler_of_its_own_takes_the_place_of_the_mode(
    tmp_path: Path, small_overrides: tuple[str, ...], base_for: Callable[..., BaseModel]
) -> None:
    head = "from mas.training.sampling.parallel import ParallelSampler\n"
    made = "options=NoOptions, sampler=lambda options: partial(ParallelSampler, temperature=0.25)"
    code = written(tmp_path, f"parts={{'sampler': {{'mode': 'parallel'}}}}, {made}", head)
    config = run_of(code, tmp_path / "run", small_overrides, "train.steps=1")
    steps = Steps()
    await Trainer(resolve_training(config), base_for("relay")).run(steps)
    assert {turn.temperature for turn in turns_of(steps.episodes[0])} == {0.25}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("lambda: None", r"must return what is called with the fields of .*Sampler in their order.*: .*arguments"),
        ("lambda *given: 3", "makes 'int', which has no `sample`"),
    ],
)
def test_a_sampler_that_is_none_is_one_error_that_names_it(tmp_path: Path, made: str, said: str) -> None:
    parts = "parts={'sampler': {'mode': 'parallel'}}"
    code = written(tmp_path, f"{parts}, options=NoOptions, sampler=lambda options: {made}")
    method = method_of(options_of(code))
    assert method is not None
    assert method.sampler is not None
    with pytest.raises(TrainingError, match=rf"sampler of algorithm '.*mine\.py' {said}"):
        method.sampler(None, None, None, None, None)


def test_what_a_scenario_sets_of_a_part_gives_way_to_a_function_of_its_own() -> None:
    assert load_config(["scenario=market"]).algorithm.advantage.scale == "none"
    assert load_config(["scenario=market", f"algorithm='{EXAMPLE}'"]).algorithm.advantage.scale == "std"
    with pytest.raises(ConfigError, match=r"algorithm\.advantage\.scale=none has no effect"):
        load_config(["scenario=market", f"algorithm='{EXAMPLE}'", "algorithm.advantage.scale=none"])

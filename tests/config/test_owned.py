"""Parts that only some algorithms have are set by these and their options, and by nothing else."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from mixed import mixed

from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.registry import SHIPPED, find_algorithm
from mas.config.load import leaves, load_config, overrides_of, presets
from mas.config.owned import OWNED, is_owned
from mas.config.stored_run import load_run_config
from mas.config.trust import trusting
from mas.core.errors import ConfigError
from mas.runs.report import build_report
from mas.runs.resolve import resolve
from mas.training.check_setup import check_trainable

FILE = """from mas.algorithms import Algorithm, Options, Recipe


class Mine(Options):
    coefficient: float = 0.1
    weight: float = 0.5


algorithm = Algorithm(
    recipe=Recipe(title="Mine", does="Mixes."),
    parts={"sampler": {"mode": "parallel"}, "advantage": {"step": {"key": "index"}}},
    options=Mine,
    places={"coefficient": "loss.kl", "weight": "advantage.step.weight"},
)
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return f"algorithm={path}"


def stored(directory: Path, **changed: Any) -> Path:
    config = load_config(["algorithm=gigpo", "algorithm.options.step_weight=0.5"]).model_dump(mode="json")
    config["algorithm"] |= changed
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    return directory


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["algorithm=dapo", "algorithm.advantage.step.discount=0.5"],
            "it is an option of algorithm=gigpo, as algorithm.options.discount=VALUE",
        ),
        (["algorithm=gigpo", "algorithm.advantage.step.weight=0.5"], "as algorithm.options.step_weight=VALUE"),
        (["algorithm=gigpo", "algorithm.advantage.step=null"], "it is a part of algorithm="),
        (["algorithm.advantage.components=true"], "it is a part of algorithm=gdpo"),
        (["algorithm=dapo", "algorithm.advantage={step: {weight: 1}}"], "algorithm.advantage.step.weight cannot be"),
        (["algorithm=dapo", "algorithm.advantage.step=${algorithm.reward}"], "cannot be set by itself"),
        (["algorithm=dapo", "algorithm.advantage=${algorithm.reward}"], "algorithm.advantage is a section"),
        (["algorithm=dapo", "algorithm.code=gigpo"], "a new run's algorithm is chosen as algorithm=NAME"),
        (["algorithm=dapo", "algorithm.sampler=null"], "algorithm.sampler is a section; set its keys one by one"),
        (["algorithm=parallel_grpo", "algorithm.options.refill=1"], "has no options of its own"),
        (["algorithm=dapo", "algorithm.options.refil=1"], "Did you mean 'refill'"),
        (["algorithm=dapo", "algorithm.options.refill=-1"], "algorithm.options.refill=-1 is not possible"),
        (["algorithm=dapo", "algorithm.options.length.most=8"], "algorithm.options.length.margin must be set"),
        (
            [
                "algorithm=dapo",
                *(f"algorithm.advantage.{word}" for word in ("baseline=running", "key=role", "scale=none")),
            ],
            "algorithm.options.refill=2 does not go together with",
        ),
        (["algorithm=empg", "algorithm.options={clarity: 0, clarity_scale: 2}"], "clarity is 0"),
        (["algorithm=ppo", "algorithm.advantage.baseline=mean"], "baseline=mean has no critic, which this algorithm"),
        (["algorithm=parallel_grpo", "algorithm.advantage.baseline=critic"], "and its options, such as ppo"),
    ],
)
def test_what_is_not_the_algorithms_own_is_refused(words: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        load_config(words)


def test_an_option_sets_its_part_and_is_written_as_an_override() -> None:
    config = load_config(["algorithm=gigpo", "algorithm.options.step_weight=0.5"])
    assert config.algorithm.advantage.step is not None
    assert config.algorithm.advantage.step.weight == 0.5
    assert overrides_of(config)[-1] == "algorithm.options.step_weight=0.5"
    for words in (["algorithm.options.length={most: 8, margin: 2}"], ["algorithm.options.refill=0"]):
        config = load_config(["algorithm=dapo", *words])
        assert load_config(overrides_of(config)) == config


def test_a_stored_run_takes_options_and_no_parts(tmp_path: Path) -> None:
    run = stored(tmp_path)
    changed = load_run_config(run, ["algorithm.options.step_weight=0.25"]).algorithm
    assert changed.advantage.step is not None
    assert (changed.advantage.step.weight, changed.options["step_weight"]) == (0.25, 0.25)
    with pytest.raises(ConfigError, match=r"as algorithm\.options\.step_weight=VALUE"):
        load_run_config(run, ["algorithm.advantage.step.weight=0.25"])


def test_a_run_of_before_options_is_read_and_written_with_them(tmp_path: Path) -> None:
    config = load_run_config(stored(tmp_path, code=None, options={}))
    assert config.algorithm.advantage.step is not None
    assert config.algorithm.advantage.step.weight == 0.5
    words = overrides_of(config)
    assert "algorithm.options.step_weight=0.5" in words
    assert "algorithm.options={}" not in words
    assert load_config(words).algorithm.advantage == config.algorithm.advantage


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, "algorithm.advantage.step.weight cannot be set by itself"),
        ({"sampler": {"mode": "parallel"}, "advantage": {"baseline": "critic"}}, "its options, such as ppo"),
    ],
)
def test_a_mix_of_before_options_is_no_command_but_a_sentence(
    changed: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    config = load_run_config(stored(tmp_path, name="parallel_grpo", code=None, options={}, **changed))
    with pytest.raises(ConfigError, match=reason):
        overrides_of(config)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    command = build_report(tmp_path, config, resolve(config).plan).command
    assert command.startswith("# no command trains it again: algorithm.advantage.")


@pytest.mark.parametrize("word", ["algorithm.options={}", "algorithm.options={step_weight: 1.0}"])
def test_options_of_a_stored_run_that_are_set_together_set_their_parts(word: str, tmp_path: Path) -> None:
    changed = load_run_config(stored(tmp_path), [word])
    assert changed.algorithm.advantage.step is not None
    assert changed.algorithm.advantage.step.weight == 1.0
    resolve(changed)


@pytest.mark.parametrize("changed", [{"options": {"step_weight": 0.25}}, {"advantage": {}}])
def test_options_and_parts_that_differ_are_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    config = load_run_config(stored(tmp_path, **changed))
    with pytest.raises(ConfigError, match=r"algorithm\.options\.step_weight=.* is not what algorithm\.advantage\.step"):
        resolve(config)


@pytest.mark.parametrize("code", ["at_grpo", "ppo", "null", "other.py"])
def test_a_stored_run_keeps_its_algorithm(code: str, tmp_path: Path) -> None:
    run = stored(tmp_path)
    with pytest.raises(ConfigError, match=f"algorithm.code={code}': a run keeps its algorithm, 'gigpo'"):
        load_run_config(run, [f"algorithm.code={code}", "algorithm.options={}"])
    assert load_run_config(run, ["algorithm.code=gigpo"]).algorithm.code == "gigpo"


def test_an_open_part_that_an_option_places_is_refused_over_a_stored_run_too(mine: str, tmp_path: Path) -> None:
    config = load_config([mine]).model_dump(mode="json")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    with trusting():
        assert load_run_config(tmp_path, ["algorithm.options.coefficient=0.3"]).algorithm.loss.kl == 0.3
        for words in (["algorithm.loss.kl=0.5"], ["algorithm.options.coefficient=0.1", "algorithm.loss.kl=0.5"]):
            with pytest.raises(ConfigError, match=r"own option: write algorithm\.options\.coefficient=VALUE"):
                load_run_config(tmp_path, words)


def test_a_file_sets_any_part_and_what_its_options_place_is_set_by_them_alone(mine: str, tmp_path: Path) -> None:
    config = load_config([mine, "algorithm.options.weight=2", "algorithm.options.coefficient=0.3"])
    assert config.algorithm.advantage.step is not None
    assert (config.algorithm.advantage.step.weight, config.algorithm.loss.kl) == (2.0, 0.3)
    assert load_config(overrides_of(config)) == config
    with pytest.raises(ConfigError, match=r"own option: write algorithm\.options\.coefficient=VALUE"):
        load_config([mine, "algorithm.loss.kl=0.2"])
    assert load_config(mixed("algorithm=dapo", "algorithm.fork.after=3")).algorithm.sampler.refill == 2


def test_parts_and_places_of_the_algorithms_of_mas_are_apart_and_owned() -> None:
    fields = dict(leaves(AlgorithmOptions().model_dump(mode="json")))
    for path in OWNED:
        assert any(key == path or key.startswith(f"{path}.") or path.startswith(f"{key}.") for key in fields), path
    for name in SHIPPED:
        own = find_algorithm(name)
        assert all(is_owned(path) for path in own.places.values()), name
        assert set(own.places) == (set(own.options.model_fields) if own.places else set()), name
        assert not {key for key, _ in leaves(dict(own.parts))} & set(own.places.values()), name


def test_no_preset_of_a_scenario_sets_what_only_some_algorithms_have() -> None:
    root = Path(__file__).parents[2] / "mas" / "conf" / "scenario"
    for name in presets("scenario"):
        said = yaml.safe_load((root / f"{name}.yaml").read_text()) or {}
        assert not [key for key, _ in leaves(said.get("algorithm", {})) if is_owned(key)], name


def test_what_a_scenario_lacks_is_told_with_the_algorithms_own_option() -> None:
    with pytest.raises(ConfigError, match=r"write algorithm\.options\.clarity=0, or"):
        check_trainable(resolve(load_config(["algorithm=empg", "scenario=relay"])))


@pytest.mark.parametrize("baseline", ["mean", "critic"])
def test_a_stored_run_has_a_critic_where_its_algorithm_has_one(baseline: str, tmp_path: Path) -> None:
    config = load_config([f"algorithm={'ppo' if baseline == 'mean' else 'sapo'}"]).model_dump(mode="json")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(ConfigError, match=f"algorithm.advantage.baseline={baseline}"):
        load_run_config(tmp_path, [f"algorithm.advantage.baseline={baseline}"])


def test_a_file_may_have_a_critic_with_its_defaults_and_choose_it_by_an_option(tmp_path: Path) -> None:
    path = tmp_path / "critic.py"
    plain = FILE.replace(', "weight": "advantage.step.weight"', "")
    path.write_text(plain.replace('"advantage": {"step": {"key": "index"}}', '"advantage": {"baseline": "critic"}'))
    assert load_config([f"algorithm={path}"]).algorithm.advantage.baseline == "critic"
    chosen = plain.replace("weight: float = 0.5", 'weight: str = "mean"').replace('"loss.kl"', '"critic.lr"')
    placed = chosen.replace('"critic.lr"}', '"critic.lr", "weight": "advantage.baseline"}')
    path.write_text(placed.replace(', "advantage": {"step": {"key": "index"}}', ""))
    for baseline in ("mean", "critic"):
        found = load_config([f"algorithm={path}", f"algorithm.options.weight={baseline}"]).algorithm
        assert found.advantage.baseline == baseline


@pytest.mark.parametrize(
    ("path", "update"), [("experience.temperature", "training_free"), ("preference.beta", "preference")]
)
def test_an_option_whose_part_another_update_reads_is_refused(path: str, update: str, tmp_path: Path) -> None:
    file = tmp_path / "idle.py"
    file.write_text(FILE.replace("loss.kl", path))
    with pytest.raises(ConfigError, match=f"has no effect here: only algorithm.update={update} has it"):
        load_config([f"algorithm={file}", "algorithm.options.coefficient=0.3"])


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"weight": "advantage', '"wait": "advantage', "places has 'wait', which is none of its options"),
        ("advantage.step.weight", "advantage.step.key", "parts and the option 'weight' both set advantage.step.key"),
        ("advantage.step.weight", "advantage.stop", "no key 'algorithm.advantage.stop'"),
        ("advantage.step.weight", "loss.kl", "the options 'weight' and 'coefficient' both set loss.kl"),
        ('"loss.kl"', '"advantage.step"', "parts and the option 'coefficient' both set advantage.step"),
        ('"loss.kl", "weight": "advantage.step.weight"', '"critic.lr", "weight": "critic"', "both set critic.lr"),
    ],
)
def test_places_that_mean_nothing_are_refused(tmp_path: Path, old: str, new: str, reason: str) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(ConfigError, match=re.escape(reason)):
        load_config([f"algorithm={path}"])


def test_the_mix_of_the_page_is_an_algorithm(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "own_algorithm.md").read_text()
    (code,) = re.findall(r"^## A mix of parts\n.*?^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    path = tmp_path / "mix.py"
    path.write_text(code)
    step = load_config([f"algorithm={path}", "algorithm.options.step_weight=0.7"]).algorithm.advantage.step
    assert step is not None
    assert (step.key, step.weight) == ("state", 0.7)

"""Which loss options go together: what would do nothing is refused, what was stored loads again."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from mixed import mixed
from pydantic import ValidationError

from mas.algorithms.parts.losses.tokens import LossOptions
from mas.config.load import load_config, overrides_of
from mas.config.stored_run import load_run_config
from mas.core.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "idle"),
    [
        ({"surrogate": "cispo", "dual_clip": 2.0}, "dual_clip"),
        ({"surrogate": "gmpo", "dual_clip": 2.0}, "dual_clip"),
        ({"surrogate": "sapo", "dual_clip": 2.0}, "dual_clip"),
        ({"surrogate": "sapo", "clip_low": 0.1}, "clip_low"),
        ({"surrogate": "sapo", "clip_high": 0.1}, "clip_high"),
        ({"surrogate": "clip", "tau_pos": 2.0}, "tau_pos"),
        ({"tau_neg": 2.0}, "tau_neg"),
        ({"surrogate": "gmpo", "ratio": "turn"}, "ratio"),
        ({"surrogate": "reinforce", "ratio": "turn"}, "ratio"),
        ({"surrogate": "reinforce", "clip_high": 0.1}, "clip_high"),
        ({"surrogate": "gmpo", "ratio": "sequence"}, "ratio"),
        ({"kl_estimator": "k3"}, "kl_estimator"),
        ({"kl_in": "reward"}, "kl_in"),
        ({"kl": 0.1, "kl_in": "reward", "kl_estimator": "k3"}, "kl_estimator"),
        ({"max_length": 5}, "max_length"),
        ({"clip_low": 1.0}, "clip_low"),
    ],
)
def test_an_option_without_effect_is_refused(options: dict[str, Any], idle: str) -> None:
    with pytest.raises(ValidationError, match=f"{idle}=.* has no effect here"):
        LossOptions(**options)
    words = [f"algorithm.loss.{key}={value}" for key, value in options.items()]
    with pytest.raises(ConfigError, match=f"algorithm.loss: {idle}=.* has no effect here"):
        load_config(mixed(*words))


@pytest.mark.parametrize(
    ("surrogate", "word"),
    [
        ("cispo", "dual_clip=3.0"),
        ("sapo", "clip_high=0.2"),
        ("gmpo", "ratio=token"),
    ],
)
def test_a_default_without_effect_is_refused_where_somebody_writes_it(surrogate: str, word: str) -> None:
    words = [f"algorithm.loss.surrogate={surrogate}", f"algorithm.loss.{word}"]
    with pytest.raises(ConfigError, match="has no effect here"):
        load_config(words)


def test_a_ratio_of_trajectories_is_refused_where_every_turn_is_one() -> None:
    with pytest.raises(ConfigError, match=r"ratio=sequence. has no effect here: .* write ratio=turn"):
        load_config(["algorithm.loss.ratio=sequence"])


@pytest.mark.parametrize("name", ["clip_low", "clip_high"])
def test_a_bound_that_is_said_to_be_off_is_no_contradiction(name: str) -> None:
    load_config(["algorithm.loss.surrogate=sapo", f"algorithm.loss.{name}=null", "algorithm.loss.dual_clip=null"])


@pytest.mark.parametrize(
    "options",
    [
        {"ratio": "turn", "clip_low": 3e-4, "clip_high": 4e-4, "dual_clip": None},
        {"ratio": "sequence"},
        {"clip_high": 0.28, "aggregation": "token_mean"},
        {"clip_low": None, "clip_high": None, "dual_clip": None},
        {"surrogate": "cispo", "clip_low": None, "clip_high": 4.0},
        {"surrogate": "cispo", "ratio": "turn"},
        {"surrogate": "keep_gradient", "ratio": "sequence", "dual_clip": 2.0},
        {"surrogate": "gmpo", "clip_low": 1.5, "clip_high": 0.4},
        {"surrogate": "sapo", "tau_pos": 1.0, "tau_neg": 2.0},
        {"kl": 0.1, "kl_in": "reward"},
        {"kl": 0.1, "kl_estimator": "k3_plus"},
        {"importance_cap": None},
        {"aggregation": "seq_mean_token_sum_norm", "max_length": 8},
    ],
    ids=str,
)
def test_what_goes_together_loads_again_from_a_run_and_from_its_overrides(
    options: dict[str, Any], tmp_path: Path
) -> None:
    values = {key: "null" if value is None else value for key, value in options.items()}
    own = [f"algorithm.options.{key}={values.pop(key)}" for key in ("tau_pos", "tau_neg") if key in values]
    words = [*(["algorithm=sapo", *own] if own else []), *(f"algorithm.loss.{key}={values[key]}" for key in values)]
    config = load_config([*words, "algorithm.sampler.mode=parallel"])
    of_preset = {"entropy": config.algorithm.loss.entropy}
    assert config.algorithm.loss == LossOptions(**options, **of_preset)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert load_run_config(tmp_path) == config.model_copy(update={"run_dir": str(tmp_path)}).as_stored()
    assert load_config(overrides_of(config)) == config


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"surrogate": "keep_gradient", "clip_high": None}, "write surrogate=clip"),
        ({"importance_cap": 0.5}, "greater than or equal to 1"),
        ({"tau_pos": 0.0}, "greater than 0"),
        ({"ratio": "row"}, "'token', 'turn' or 'sequence'"),
        ({"surrogate": "ppo"}, "'clip', 'keep_gradient', 'cispo', 'gmpo', 'sapo' or 'reinforce'"),
    ],
)
def test_values_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        LossOptions(**options)


PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Loss\n")[2].partition("\n## ")[0]
RECIPES = {
    cells[1].strip(): re.findall(r"`([^`]+)`", cells[2])
    for cells in (line.split("|") for line in SECTION.partition("As published")[2].splitlines())
    if len(cells) == 4 and "=" in cells[2]
}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_of_the_page_is_a_configuration(name: str) -> None:
    load_config([f"algorithm.loss.{word}" for word in [*RECIPES[name], "entropy=0"]])


def test_the_page_has_every_option_and_every_choice_of_the_loss() -> None:
    assert len(RECIPES) == 7
    named = set(re.findall(r"`(\w+)(?:=[^`]*)?`", SECTION))
    assert set(LossOptions.model_fields) <= named
    choices = re.findall(r"`((?:ratio|surrogate|kl_in)=\w+)`", SECTION)
    wanted = {"ratio": 3, "surrogate": 6, "kl_in": 2}
    assert {key: len({word for word in choices if word.startswith(f"{key}=")}) for key in wanted} == wanted

"""Workload files, and the rows that follow from them."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from mini import MINI, mini

from benchmarks.learner.rows import Drawn, draw
from benchmarks.learner.workload import load_workload, workload_names
from mas.config.load import load_config
from mas.core.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "weights", "lora"),
    [
        # Layers x (2 hidden x head size x (heads + kv heads) + 3 hidden x intermediate) + vocabulary x hidden.
        ("cpu_10m", 8 * (2 * 256 * 64 * 6 + 3 * 256 * 768) + 16384 * 256, 8),
        ("cpu_1m", 4 * (2 * 128 * 32 * 6 + 3 * 128 * 384) + 2048 * 128, 8),
        # Qwen3-1.7B: 1.72 billion.
        ("h100_qwen3_1.7b", 28 * (2 * 2048 * 128 * 24 + 3 * 2048 * 6144) + 151936 * 2048, 16),
        # Qwen3-4B: 4.02 billion.
        ("h100_qwen3_4b", 36 * (2 * 2560 * 128 * 40 + 3 * 2560 * 9728) + 151936 * 2560, 16),
    ],
)
def test_a_workload_has_the_size_of_its_name(name: str, weights: int, lora: int) -> None:
    workload = load_workload(name)
    assert workload.name == name
    assert workload.layer_weights + workload.head_weights == weights
    assert (workload.roles, workload.candidates, workload.lora.rank) == (4, 8, lora)
    assert len(workload.lora.targets) == 7
    assert workload.layer_weights + workload.head_weights == pytest.approx(
        {"cpu_10m": 10e6, "cpu_1m": 1e6, "h100_qwen3_1.7b": 1.7e9, "h100_qwen3_4b": 4e9}[name], rel=0.06
    )


@pytest.mark.parametrize("name", workload_names())
def test_every_workload_that_comes_with_mas_fits(name: str) -> None:
    workload = load_workload(name)
    if workload.model is None:
        assert (workload.prompt_tokens, workload.completion_tokens) == ((128, 256), (16, 256))
    assert (workload.sweep is None) == (name not in ("tokens", "adapters"))


def test_the_workload_of_the_pretrained_model_has_its_shape_and_trains_what_its_preset_trains() -> None:
    workload, model = load_workload("smollm2"), load_config(["scenario=relay", "model=smollm2"]).model
    assert (workload.model, workload.lora) == (model.path, model.lora)
    # The model has 134,515,008 weights: two norms a layer and one at the end, of 576 each, beside those counted here.
    assert workload.layer_weights + workload.head_weights + 61 * 576 == 134_515_008


def test_a_file_of_ones_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(MINI | {"name": "own"}))
    assert load_workload(str(path)) == mini(name="own")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is not YAML"),
        ("[]", "does not fit: Input should be a valid dictionary"),
        ("name: x", "does not fit: shape: Field required"),
        ({"colour": 1}, "colour: Extra inputs are not permitted"),
        ({"candidates": 1}, "candidates: Input should be greater than or equal to 2"),
        ({"prompt_tokens": [7, 6]}, "prompt_tokens: the shortest, 7, is longer than the longest, 6"),
        ({"completion_tokens": [10, 9]}, "completion_tokens: the shortest, 10, is longer"),
        ({"rows_per_forward": 3}, "rows_per_forward=3 must divide the 8 rows of a role"),
        ({"shape": MINI["shape"] | {"kv_heads": 3}}, "shape: heads=2 must be a multiple of kv_heads=3"),
        ({"sweep": {"over": "adapters", "values": [1, 3]}}, "4 groups cannot be shared by 3 adapters"),
        ({"targets": [{"of": "mass", "against": "trl", "at_least": 1}]}, "no row 'mass'. Did you mean 'mas'"),
        ({"targets": [{"of": "mas", "against": "trl"}]}, "a target has either at_least or at_most"),
        (
            {"targets": [{"of": "mas", "against": "trl", "at_least": 1, "at_most": 2}]},
            "a target has either at_least or at_most",
        ),
        (
            {"sweep": {"over": "groups", "values": [1, 2]}, "targets": [{"of": "4", "against": "1", "at_most": 1}]},
            "no row '4'. Possible: '1', '2'",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_one_clear_error(text: str | dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text if isinstance(text, str) else yaml.safe_dump(MINI | text))
    with pytest.raises(ConfigError) as caught:
        load_workload(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_or_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such workload\. Did you mean 'cpu_10m'.*ends with \.yaml"):
        load_workload("cpu_10")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_workload(str(tmp_path / "none.yaml"))


def test_a_sweep_over_groups_multiplies_them_and_one_over_adapters_keeps_their_sum() -> None:
    more = mini(sweep={"over": "groups", "values": [1, 3]}).points
    assert {value: (one.roles, one.groups) for value, one in more.items()} == {"1": (2, 2), "3": (2, 6)}
    shared = mini(sweep={"over": "adapters", "values": [1, 2, 4]}).points
    assert {value: (one.roles, one.groups) for value, one in shared.items()} == {"1": (1, 4), "2": (2, 2), "4": (4, 1)}
    assert all(one.sweep is None and not one.points for one in (*more.values(), *shared.values()))


def _texts(drawn: list[Drawn]) -> list[tuple[tuple[int, ...], tuple[int, ...], float]]:
    return [(one.prompt_ids, one.completion_ids, one.reward) for one in drawn]


def test_however_many_adapters_share_them_the_rows_are_the_same_and_more_groups_go_on_where_fewer_end() -> None:
    one, four = (list(draw(point, 0)) for point in mini(sweep={"over": "adapters", "values": [1, 4]}).points.values())
    assert _texts(one) == _texts(four)
    assert {row.role for row in one} == {"role_00"}
    assert [row.role for row in four[::4]] == ["role_00", "role_01", "role_02", "role_03"]
    few, many = (list(draw(point, 0)) for point in mini(sweep={"over": "groups", "values": [1, 2]}).points.values())
    assert _texts(many)[: len(few)] == _texts(few)
    assert len(many) == 2 * len(few) == 32


def test_rows_follow_from_the_seed() -> None:
    assert list(draw(mini(), 1)) == list(draw(mini(), 1))
    assert _texts(list(draw(mini(), 1))) != _texts(list(draw(mini(), 2)))


def test_lengths_and_ids_stay_in_their_bounds_and_a_group_shares_one_prompt() -> None:
    drawn = list(draw(mini(roles=50, groups=8, completion_tokens=[8, 64]), 0))
    prompts = [len(one.prompt_ids) for one in drawn]
    completions = [len(one.completion_ids) for one in drawn]
    assert (min(prompts), max(prompts), min(completions), max(completions)) == (3, 6, 8, 64)
    # Log-uniform over 8 to 64: half of them are below the geometric mean, 22.6, a quarter below 13.5.
    assert 0.45 < sum(length <= 22 for length in completions) / len(drawn) < 0.55
    assert 0.2 < sum(length <= 13 for length in completions) / len(drawn) < 0.3
    ids = {token for one in drawn for token in (*one.prompt_ids, *one.completion_ids)}
    assert ids == set(range(3, 32))
    assert all(len(one.noise) == len(one.completion_ids) for one in drawn)
    for group in range(400):
        members = [one for one in drawn if one.group == group]
        assert len(members) == 4
        assert len({one.prompt_ids for one in members}) == 1
        assert len({one.completion_ids for one in members}) == 4
    roles = [one.role for one in drawn]
    assert {roles.count(role) for role in roles} == {32}

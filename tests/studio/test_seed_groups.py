"""Runs that differ in nothing but their seed: grouped, with their mean and their spread."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from studio_site import WIDTHS, obstacles_of, overflow_of, studio_over
from team_pages import opened

from mas.config.load import load_config
from mas.studio.runs import Runs
from mas.studio.seed_groups import mean_line, seed_groups

pytestmark = pytest.mark.nightly(of=16)


def make_runs(folder: Path) -> list[str]:
    """Runs `a-0`, `a-1`, `a-2` of one configuration, `a-again` with the seed of the first, and `b`; their keys."""
    for name, seed, rate, rewards in (
        ("a-0", 0, 0.1, {1: 0.2, 2: 0.4, 3: 0.9}),
        ("a-1", 1, 0.1, {1: 0.4, 2: 0.6}),
        ("a-2", 2, 0.1, {1: 0.0, 2: 0.2, 4: 0.9}),
        ("a-again", 0, 0.1, {1: 0.2, 2: 0.4}),
        ("b", 0, 0.3, {1: 0.1, 2: 0.1}),
    ):
        run = folder / name
        run.mkdir()
        config = load_config(
            ["scenario=relay", f"run_dir={run}", f"train.seed={seed}", f"learner.lr={rate}", "train.steps=9"]
        ).model_dump(mode="json")  # as training writes it
        (run / "config.yaml").write_text(yaml.safe_dump(config))
        lines = [{"step": step, "reward": value, "tokens": 10 * step + seed} for step, value in rewards.items()]
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [run.key for run in Runs([folder]).all()]


def test_runs_with_other_seeds_are_a_group_and_the_same_seed_twice_is_not(tmp_path: Path) -> None:
    make_runs(tmp_path)
    groups = seed_groups(Runs([tmp_path]).all())
    assert [[run.name for run in group.runs] for group in groups] == [["a-0", "a-1", "a-2"], ["a-again"], ["b"]]
    assert [group.name for group in groups] == ["a, 3 seeds", "a-again", "b"]
    assert groups[0].seeds == "0, 1, 2"


def test_runs_whose_configuration_cannot_be_read_are_no_group(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("- no mapping\n")
    assert [len(group.runs) for group in seed_groups(Runs([tmp_path]).all())] == [1, 1]


def test_the_mean_is_of_the_steps_that_all_runs_have(tmp_path: Path) -> None:
    make_runs(tmp_path)
    columns = [run.columns() for run in seed_groups(Runs([tmp_path]).all())[0].runs]
    # step 1: 0.2, 0.4, 0.0; step 2: 0.4, 0.6, 0.2; steps 3 and 4 are of one run alone
    points, band = mean_line(columns, "reward", None)
    assert [place for place, _ in points] == [1, 2]
    assert [value for _, value in points] == pytest.approx([0.2, 0.4])
    assert band == [(0.0, 0.4), (0.2, 0.6)]
    # tokens at step 1: 10, 11, 12; at step 2: 20, 21, 22
    spent = [dict(one.points("tokens")) for one in columns]
    assert [place for place, _ in mean_line(columns, "reward", spent)[0]] == [11, 21]


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_group_is_a_line_with_a_band_and_a_switch_shows_its_runs(
    browser: Any, tmp_path: Path, scheme: str
) -> None:
    query = "&".join(f"run={key}" for key in make_runs(tmp_path))
    async with (
        studio_over(tmp_path) as address,
        opened(browser, address, f"/compare?{query}&metric=reward", color_scheme=scheme) as page,
    ):
        figure = page.locator("figure").first
        await figure.locator("svg").wait_for()
        assert await figure.locator("path.band").count() == 1
        assert await figure.locator("g.line").count() == 3
        legend = await figure.locator(".legend li").all_inner_texts()
        assert legend[0].startswith("a, 3 seeds")
        assert "0.4 (0.2 to 0.6)" in legend[0]
        await figure.locator("summary").click()
        cells = await figure.locator("tbody tr").first.locator("td").all_inner_texts()
        assert cells == ["1", "0.2 (0 to 0.4)", "0.2", "0.1"]
        looks = [await key.get_attribute("class") for key in await page.locator("#chosen .key").all()]
        assert looks == [f"key series-{look} dash-0" for look in (0, 0, 0, 1, 2)]
        assert await obstacles_of(page) == []
        for width in WIDTHS:
            await page.set_viewport_size({"width": width, "height": 900})
            assert await overflow_of(page) <= 0, width
        await page.get_by_role("link", name="single runs").focus()
        await page.keyboard.press("Enter")
        await page.locator("figure svg").first.wait_for()
        assert await figure.locator("g.line").count() == 5
        assert await figure.locator("path.band").count() == 0

"""The charts of a report as files: names, points, what is missing, what is hostile."""

import csv
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mas.core.errors import RunDirectoryError
from mas.observe import figures
from mas.observe.figures import write_figures
from mas.observe.palette import LIGHT, agent_colours
from mas.observe.report_records import Chart, Report, Series, figure_names


def chart(title: str, *series: Series) -> Chart:
    return Chart(title=title, x_label="training step", y_label="reward", series=series)


LINE = Series(name="planner", xs=(0, 1, 2), ys=(0.0, math.nan, 1.0))
BAND = Series(name="=HYPERLINK(1)", xs=(0, 1), ys=(0.5, 0.5), lo=(0.0, 0.25), hi=(1.0, 0.75))
REPORT = Report(title="t", roles={"a": "first", "planner": "planner"}, curves=(chart("Reward", LINE, BAND),))


def test_names_of_files_are_plain_and_no_two_are_equal() -> None:
    titles = ["../../Reward of <b>", "x-2", "x", "X", "curves", "", "東京", "w" * 90]
    assert figure_names([chart(title) for title in titles]) == [
        "reward-of-b", "x-2", "x", "x-3", "curves-2", "figure", "figure-2", "w" * 60,
    ]  # fmt: skip


def test_points_are_rows_with_their_band_and_no_cell_is_a_formula(tmp_path: Path) -> None:
    written = write_figures(tmp_path, REPORT)
    assert "figures/curves.csv" in written.files
    rows = list(csv.reader((tmp_path / "figures" / "curves.csv").read_text().splitlines()))
    assert rows == [
        ["figure", "series", "x_label", "y_label", "x", "y", "low", "high"],
        ["Reward", "planner", "training step", "reward", "0.0", "0.0", "", ""],
        ["Reward", "planner", "training step", "reward", "1.0", "nan", "", ""],
        ["Reward", "planner", "training step", "reward", "2.0", "1.0", "", ""],
        ["Reward", "'=HYPERLINK(1)", "training step", "reward", "0.0", "0.5", "0.0", "1.0"],
        ["Reward", "'=HYPERLINK(1)", "training step", "reward", "1.0", "0.5", "0.25", "0.75"],
    ]


def test_a_figure_has_its_names_as_text_and_its_roles_in_their_colours(tmp_path: Path) -> None:
    write_figures(tmp_path, REPORT)
    text = (tmp_path / "figures" / "reward.svg").read_text()
    said = [element.text for element in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    assert {"Reward", "planner", "=HYPERLINK(1)", "training step"} <= set(said)
    # planner is the second role; what is no role comes after the two of them
    assert LIGHT[1] in text
    assert LIGHT[2] in text
    assert LIGHT[0] not in text
    assert agent_colours(REPORT.roles) == {"a": LIGHT[0], "planner": LIGHT[1]}


def test_figures_replace_older_ones_whole_and_the_same_report_gives_the_same_files(tmp_path: Path) -> None:
    contents = []
    for _ in range(2):
        (tmp_path / "figures").mkdir(exist_ok=True)
        (tmp_path / "figures" / "old.svg").write_text("old")
        written = write_figures(tmp_path, REPORT)
        paths = sorted((tmp_path / "figures").iterdir())
        assert sorted(f"figures/{path.name}" for path in paths) == sorted(written.files)
        contents.append([path.read_bytes() for path in paths if path.suffix != ".parquet"])
    assert contents[0] == contents[1]


def test_without_pyarrow_all_but_parquet_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "has_parquet", lambda: False)
    written = write_figures(tmp_path, REPORT)
    assert sorted(written.files) == ["figures/curves.csv", "figures/reward.png", "figures/reward.svg"]


def test_a_report_without_charts_has_an_empty_list_of_points(tmp_path: Path) -> None:
    write_figures(tmp_path, Report(title="t"))
    assert len((tmp_path / "figures" / "curves.csv").read_text().splitlines()) == 1


def test_figures_that_cannot_be_written_say_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunDirectoryError, match="figures cannot be written"):
        write_figures(tmp_path / "file", REPORT)

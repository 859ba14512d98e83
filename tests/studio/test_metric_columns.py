"""Metrics that are read while they are written, cut, replaced and damaged; and what each of them means."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from pages import read

from mas.observe.metrics import MetricsLog, flatten, read_metrics
from mas.studio.compare import differing_options
from mas.studio.downloads import csv_lines, parquet
from mas.studio.figures import MOST_POINTS, line_of, over_tokens, sections_of
from mas.studio.line_index import LineIndex
from mas.studio.metric_columns import MetricColumns
from mas.studio.metric_meanings import meaning_of
from mas.studio.overview import metric_rows
from mas.studio.runs import Runs


def columns_of(path: Path) -> MetricColumns:
    columns = MetricColumns()
    columns.refresh(path)
    return columns


def test_half_a_line_is_read_once_it_is_whole(tmp_path: Path) -> None:
    path, columns = tmp_path / "metrics.jsonl", MetricColumns()
    columns.refresh(path)
    assert columns.last_step is None
    line = b'{"step":1,"reward":0.5,"eval":{"greedy":{"success":1}}}\n'
    for end in (1, len(line) // 2, len(line) - 1):
        path.write_bytes(line[:end])
        columns.refresh(path)
        assert columns.names == []
    path.write_bytes(line)
    columns.refresh(path)
    assert columns.points("reward") == [(1, 0.5)]
    assert columns.last("eval/greedy/success") == 1.0
    assert columns.damaged == 0


def test_what_a_resume_drops_is_forgotten(tmp_path: Path) -> None:
    path, columns = tmp_path / "metrics.jsonl", MetricColumns()
    with MetricsLog(path) as log:
        for step in range(1, 6):
            log.append(step, {"reward": float(step)})
        columns.refresh(path)
        version = columns.version
        log.truncate_after(2)
        log.append(3, {"reward": -3.0})
    columns.refresh(path)
    assert columns.version != version
    assert columns.points("reward") == [(1, 1.0), (2, 2.0), (3, -3.0)]


def test_a_file_that_took_the_number_of_the_one_before_is_read_anew(tmp_path: Path) -> None:
    """As a resume makes it: it cuts a torn line off and then steps, in a new file each time, and goes on."""
    path, columns = tmp_path / "metrics.jsonl", MetricColumns()
    index = LineIndex(path, b"", bytes)
    path.write_text("".join(f'{{"step":{step},"reward":{step}}}\n' for step in range(1, 9)) + '{"step":9,"re')
    columns.refresh(path)
    index.update()
    path.write_text("".join(f'{{"step":{step},"reward":{step / 8}}}\n' for step in range(1, 13)))  # keeps its number
    columns.refresh(path)
    index.update()
    assert columns.points("reward") == [(step, step / 8) for step in range(1, 13)]
    assert (columns.damaged, index.count, index.unreadable) == (0, 12, 0)


def test_damaged_lines_are_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    deep = '{"step":9,"a":' + '{"b":' * 4000 + "1" + "}" * 4001
    lines = [
        '{"step":1,"reward":1}', "nonsense", '{"reward":2}', '{"step":"2"}', '{"step":true}', "[1]", deep,
        '{"step":1e400}', '{"step":0,"reward":3}',
        '{"step":2,"reward":"nan","other":"text","flag":true,"list":[1],"none":null,"huge":1' + "0" * 400 + "}",
        '{"step":3,"reward":"-inf"}',
    ]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    path.write_bytes(path.read_bytes() + b'\xff\xfe{"step":4}\n{"step":5,"rew')
    columns = columns_of(path)
    assert columns.last_step == 3
    assert [step for step, _ in columns.points("reward")] == [1, 2, 3]
    assert columns.last("reward") == float("-inf")
    assert "huge" not in columns.names
    assert set(columns.names) == {"reward"}
    assert (columns.damaged, columns.first_damaged) == (9, 2)


def test_the_columns_hold_what_the_run_wrote(finished_run: Path) -> None:
    path = finished_run / "relay" / "metrics.jsonl"
    columns = columns_of(path)
    wanted: dict[str, list[tuple[int, float]]] = {}
    for line in read_metrics(path):
        for name, value in flatten({key: item for key, item in line.items() if key != "step"}).items():
            if value is not None:
                wanted.setdefault(name, []).append((line["step"], float(value)))
    assert {name: columns.points(name) for name in columns.names} == wanted


def test_every_metric_of_a_run_has_a_meaning(finished_run: Path) -> None:
    columns = columns_of(finished_run / "relay" / "metrics.jsonl")
    assert [name for name in columns.names if meaning_of(name) is None] == []
    assert len(columns.names) > 60
    assert [row.name for row in metric_rows(columns)][:2] == ["reward", "success"]


def test_every_metric_of_the_page_on_training_has_a_meaning() -> None:
    """The page names them by their last parts, within the group that a sentence before the table names."""
    text = read("docs/training.md").partition("## Metrics")[2].partition("\n## ")[0]
    first = text.partition("\n\nWith `algorithm.warm_start`")[0]
    names = [
        name for row in re.findall(r"^\| (`.*?) \|", first, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)
    ]
    whole = [name.replace(".", "/") for name in names if not name.startswith((".", "eval"))]
    assert [name for name in whole if meaning_of(name) is None] == []
    assert len(whole) > 25
    for group in ("roles", "experiences", "adapters", "preference"):
        table = re.search(rf"[Pp]er (?:role|adapter), under `{group}\..*?:\n\n\|.*?\n\n", text, re.DOTALL)
        table = table or re.search(rf"per role under `{group}\..*?:\n\n\|.*?\n\n", text, re.DOTALL)
        assert table is not None, group
        cells = re.findall(r"^\| (`.*?) \|", table[0], re.MULTILINE)
        inside = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
        assert inside, group
        assert [name for name in inside if meaning_of(f"{group}/NAME/{name}") is None] == []


def test_what_nobody_knows_has_no_meaning() -> None:
    assert meaning_of("reward/more") is None
    assert meaning_of("roles/planner") is None
    assert meaning_of("mine") is None
    assert meaning_of("adapters/team/planner.ess") is meaning_of("adapters/team/ess") is not None
    assert meaning_of("adapters/team/mine") is None


def test_a_long_line_keeps_its_ends_and_its_extremes() -> None:
    points = [(step, 0.0) for step in range(10_000)]
    points[4321], points[7777] = (4321, 5.0), (7777, -5.0)
    line = line_of("reward", 9, points)
    assert len(line.xs) <= MOST_POINTS
    assert (line.xs[0], line.xs[-1]) == (0, 9_999)
    assert (max(line.ys), min(line.ys)) == (5.0, -5.0)
    assert list(line.xs) == sorted(line.xs)
    assert (line.colour, line.dash) == (1, 1)


def test_an_evaluation_stands_at_the_tokens_spent_before_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [
        {"step": 0, "eval": {"greedy": {"success": 0.1}}},
        {"step": 1, "tokens": 100},
        {"step": 2, "tokens": 250},
        {"step": 2, "eval": {"greedy": {"success": 0.9}}},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    columns = columns_of(path)
    assert over_tokens(columns, columns.points("eval/greedy/success")) == [(0, 0.1), (250, 0.9)]


def test_a_role_has_one_look_in_all_figures(finished_run: Path) -> None:
    (run,) = Runs([finished_run]).all()
    assert run.looks == {"planner": 0, "executor": 1}
    sections = sections_of(run.columns(), run.looks, is_over_tokens=False)
    lines = [line for section in sections for figure in section.figures for line in figure.lines]
    assert {line.colour for line in lines if line.name == "planner"} == {0}
    assert {line.colour for line in lines if line.name == "executor"} == {1}
    assert not {line.colour for line in lines if line.name not in run.looks} & {0, 1}


def test_the_table_is_whole_in_csv_and_parquet(finished_run: Path) -> None:
    columns = columns_of(finished_run / "relay" / "metrics.jsonl")
    rows = list(csv.DictReader(io.StringIO("".join(csv_lines(columns)))))
    assert [int(row["step"]) for row in rows] == list(range(7))
    for name in columns.names:
        assert [(int(row["step"]), float(row[name])) for row in rows if row[name]] == columns.points(name)
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(arrow.BufferReader(parquet(columns)))
    assert table.column_names == ["step", *columns.names]
    assert table["step"].to_pylist() == list(range(7))
    assert table["reward"].to_pylist() == [None, *(value for _, value in columns.points("reward"))]


def test_a_metric_name_is_no_formula_of_a_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":1,"=HYPERLINK(1)":1}\n')
    assert next(csv.reader(csv_lines(columns_of(path)))) == ["step", "'=HYPERLINK(1)"]


def test_only_options_that_differ_are_compared() -> None:
    one = {"run_dir": "a", "learner": {"lr": 0.1, "epochs": 1}, "roles": ["x"], "only": None}
    two = {"run_dir": "b", "learner": {"lr": 0.2, "epochs": 1}, "roles": ["x"]}
    assert differing_options([one, two]) == {"learner.lr": ["0.1", "0.2"], "only": ["null", "–"]}
    assert differing_options([one]) == {}
    assert differing_options([]) == {}

import io

from rich.console import Console

from mas.observe.report_records import ArmResult, baseline_tables, success_table

RESULTS = {
    "two_hop": {
        "team": {"mean": 0.95, "std": 0.0214, "seeds": [0, 1, 2], "tokens": 1_200_000, "episodes": 64},
        "[single]": {"mean": 0.4, "std": 0.1, "seeds": 3, "tokens": 0.0},
    },
    "grid": {"team": {"mean": 0.5}},
}


def shown(results: object) -> str:
    stream = io.StringIO()
    Console(file=stream, width=100).print(success_table(results))
    return stream.getvalue()


def test_every_arm_is_a_row_with_mean_std_seeds_and_tokens() -> None:
    rows = [line.split("│")[1:-1] for line in shown(RESULTS).splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["two_hop", "team", "0.950 ± 0.021", "3 (0, 1, 2)", "1.2M"],
        ["", "[single]", "0.400 ± 0.100", "3", "0"],
        ["grid", "team", "0.500", "1", "–"],
    ]


def test_a_single_seed_has_no_spread() -> None:
    assert ArmResult(mean=0.5, std=0.0, seeds=(7,)).success_text == "0.500"
    assert ArmResult(mean=0.5, std=0.0, seeds=2).success_text == "0.500 ± 0.000"


def test_the_report_gets_one_table_with_bars_per_scenario_and_the_best_arm_marked() -> None:
    two_hop, grid = baseline_tables(RESULTS, notes=("same budget",))
    assert two_hop.columns == ("arm", "success", "seeds", "tokens")
    assert two_hop.rows[0] == ("team", "0.950 ± 0.021", "3 (0, 1, 2)", "1.2M")
    assert [(bar.name, bar.mean, bar.std, bar.is_best) for bar in two_hop.bars] == [
        ("team", 0.95, 0.0214, True),
        ("[single]", 0.4, 0.1, False),
    ]
    assert two_hop.best_rows == (0,)
    assert grid.notes == ("same budget",)


def test_arms_that_tie_are_both_best() -> None:
    (table,) = baseline_tables({"s": {"a": {"mean": 0.5}, "b": {"mean": 0.5}, "c": {"mean": 0.4}}})
    assert table.best_rows == (0, 1)

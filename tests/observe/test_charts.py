import math
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from mas.observe.charts import SERIES_COLOURS, draw_bars, draw_chart, series_colour, series_dash
from mas.observe.report_records import Bar, Chart, Series


def chart(*series: Series, title: str = "Reward") -> Chart:
    return Chart(title=title, x_label="training step", y_label="reward", series=series)


LINE = Series(name="team", xs=(0, 1, 2), ys=(0.0, 0.5, 1.0))
BAND = Series(name="team", xs=(0, 1), ys=(0.5, 0.5), lo=(0.0, 0.25), hi=(1.0, 0.75), seeds=((0.0, 0.25), (1.0, 0.75)))


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("text")]


def test_the_same_chart_gives_the_same_bytes_in_another_process() -> None:
    code = (
        "from mas.observe.charts import draw_chart; from mas.observe.report_records import Chart, Series;"
        "print(draw_chart(Chart(title='Reward', x_label='training step', y_label='reward',"
        " series=(Series(name='team', xs=(0, 1, 2), ys=(0.0, 0.5, 1.0)),)), prefix='a'), end='')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == draw_chart(chart(LINE), prefix="a")


def test_a_chart_has_only_the_pages_colours_and_no_address_or_date() -> None:
    for svg in (
        draw_chart(chart(LINE, BAND), prefix="a"),
        draw_bars([Bar(name="a", mean=0.5, std=0.1)], label="x", title="t", prefix="b"),
    ):
        assert re.findall(r"#[0-9a-f]{6}\b", svg) == []
        assert "http" not in svg
        assert "<style" not in svg
        assert "font-family" not in svg
        assert "var(--line)" in svg


def test_two_charts_share_no_id_and_every_reference_is_met() -> None:
    one, two = draw_chart(chart(BAND), prefix="a"), draw_chart(chart(BAND), prefix="b")
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (one, two)]
    assert ids[0].isdisjoint(ids[1])
    for svg, known in zip((one, two), ids, strict=True):
        assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', svg)) <= known


def test_labels_are_text_even_when_they_look_like_formulas_or_markup() -> None:
    svg = draw_bars([Bar(name="$x_1$ <b>&", mean=0.5)], label="cost in $", title='"<t>', prefix="a")
    assert "$x_1$ <b>&" in texts(svg)
    assert "cost in $" in texts(svg)
    assert ElementTree.fromstring(svg).attrib["aria-label"] == '"<t>'


def test_names_in_any_script_are_written_as_they_are() -> None:
    svg = draw_bars([Bar(name="规划者 🧭", mean=0.5)], label="success", title="t", prefix="a")
    assert "规划者 🧭" in texts(svg)


def test_a_long_name_is_cut_and_leaves_room_for_its_bar() -> None:
    svg = draw_bars([Bar(name="a very long\nname " * 20, mean=0.5)], label="success", title="t", prefix="a")
    # 30 characters, the last an ellipsis.
    assert "a very long name a very long …" in texts(svg)


def test_bars_show_their_means_in_the_given_order_and_only_the_best_in_the_accent() -> None:
    bars = [Bar(name="first", mean=0.25), Bar(name="second", mean=0.75, std=0.1, is_best=True)]
    svg = draw_bars(bars, label="success", title="t", prefix="a")
    shown = [text for text in texts(svg) if text in {"first", "second", "0.25", "0.75"}]
    assert shown == ["first", "second", "0.25", "0.75"]
    assert svg.count("var(--accent)") == 1


def test_a_band_is_filled_and_every_seed_is_a_thin_line() -> None:
    svg = draw_chart(chart(BAND), prefix="a")
    assert svg.count("fill-opacity: 0.14") == 1
    assert svg.count("stroke-opacity: 0.35") == 2


def test_gaps_and_charts_without_points_can_be_drawn() -> None:
    draw_chart(chart(Series(name="gap", xs=(0, 1, 2), ys=(0.0, math.nan, 1.0))), prefix="a")
    draw_chart(chart(Series(name="none", xs=(), ys=())), prefix="a")
    draw_chart(chart(), prefix="a")


def test_large_counts_are_labelled_short() -> None:
    svg = draw_chart(chart(Series(name="t", xs=(0, 1_000_000, 2_000_000), ys=(0.0, 0.5, 1.0))), prefix="a")
    assert "2M" in texts(svg)


def test_more_series_than_colours_differ_in_their_dashes() -> None:
    looks = {(series_colour(number), series_dash(number)) for number in range(3 * SERIES_COLOURS)}
    assert len(looks) == 3 * SERIES_COLOURS


def test_points_and_bounds_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="2 xs"):
        Series(name="a", xs=(0, 1), ys=(1.0,))
    with pytest.raises(ValueError, match="lo and hi"):
        Series(name="a", xs=(0,), ys=(1.0,), lo=(0.0,))


def test_drawing_needs_no_global_figure_state() -> None:
    code = "import sys, mas.observe.report; print(sorted({'torch', 'matplotlib.pyplot'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

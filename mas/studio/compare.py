"""Several runs side by side: a metric of each over steps and over tokens, and the options in which they differ."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mas.config.load import leaves
from mas.studio.figures import X_LABELS, Figure, FigureSection, line_of, over_tokens
from mas.studio.metric_columns import MetricColumns
from mas.studio.metric_meanings import Meaning, meaning_of
from mas.studio.overview import JSON, Drawn
from mas.studio.run_summary import row_of
from mas.studio.runs import StudioRun
from mas.studio.seed_groups import SeedGroup, mean_line, seed_groups
from mas.studio.site import Link, Studio

MOST_RUNS = 24
"""That are compared at once."""
USUAL = ("eval/greedy/success", "eval/sampled/success", "reward", "collapse")
"""Metrics that are shown where none is chosen."""
_BANDS = "Means over seeds, where all of them have a value; bands: least to greatest"
_LONGEST_VALUE = 400
_IGNORED = ("run_dir",)


def routes(studio: Studio) -> list[Route]:
    """`/compare?run=KEY&run=KEY&metric=NAME`, and its figures as JSON."""
    studio.links.append(Link("Compare", "/compare"))

    def page(request: Request) -> Response:
        chosen = _chosen(studio, request)
        groups = _groups(chosen, request)
        found = {name for run in chosen for name in run.columns().names}
        metric = request.query_params.get("metric", "")
        return studio.page(
            request,
            "compare.html",
            rows=[row_of(run) for run in studio.runs.all()],
            chosen=[(row_of(run), look) for look, group in enumerate(groups) for run in group.runs],
            several=[group for group in seed_groups(chosen) if len(group.runs) > 1],
            is_single=_is_single(request),
            switch=[(name, value) for name, value in request.query_params.multi_items() if name != "single"],
            keys={run.key for run in chosen},
            metric=metric,
            metrics=sorted(found),
            meaning=meaning_of(metric),
            differences=differing_options([run.config for group in groups for run in group.runs]),
            address=f"/compare.json?{request.url.query}",
            most=MOST_RUNS,
        )

    def figures(request: Request) -> Response:
        groups = _groups(_chosen(studio, request), request)
        runs = {run: run.columns() for group in groups for run in group.runs}
        version = "_".join(columns.version for columns in runs.values())
        if request.query_params.get("version") == version:
            return Response(status_code=204)
        metric = request.query_params.get("metric", "")
        wanted = [metric] if metric else USUAL
        sections = [compared(groups, runs, name) for name in wanted]
        drawn = Drawn(version=version, sections=[section for section in sections if section.figures])
        return Response(msgspec.json.encode(drawn), media_type=JSON)

    return [Route("/compare", page, methods=["GET"]), Route("/compare.json", figures, methods=["GET"])]


def _chosen(studio: Studio, request: Request) -> list[StudioRun]:
    """The runs that the address names, each once; names of no run are left out."""
    keys = dict.fromkeys(request.query_params.getlist("run"))
    found = (studio.runs.find(key) for key in keys)
    return [run for run in found if run is not None][:MOST_RUNS]


def _is_single(request: Request) -> bool:
    return request.query_params.get("single") == "1"


def _groups(runs: Sequence[StudioRun], request: Request) -> list[SeedGroup]:
    """What has a line each: runs that differ in their seed together, or with `single=1` every run."""
    return [SeedGroup((run,)) for run in runs] if _is_single(request) else seed_groups(runs)


def compared(groups: Sequence[SeedGroup], columns: Mapping[StudioRun, MetricColumns], metric: str) -> FigureSection:
    """A metric of every group that has it, over steps and over tokens: the mean of its runs, with a band from the least
    to the greatest."""
    meaning = meaning_of(metric) or Meaning("")
    figures = []
    for is_over_tokens, label in X_LABELS.items():
        lines = []
        for number, group in enumerate(groups):
            measured = SeedGroup(tuple(run for run in group.runs if columns[run].points(metric)))
            of = [columns[run] for run in measured.runs]
            spent = [_tokens(one, metric) for one in of] if is_over_tokens else None
            points, band = mean_line(of, metric, spent) if of else ([], [])
            if points:
                lines.append(line_of(measured.name, number, points, band if len(of) > 1 else ()))
        text = meaning.text
        if any(line.lows for line in lines):
            text = f"{text}. {_BANDS}" if text else _BANDS
        figures.append(
            Figure(
                title="Over tokens" if is_over_tokens else "Over steps",
                text=text,
                healthy=meaning.healthy,
                x_label=label,
                unit=metric,
                lines=lines,
            )
        )
    return FigureSection(title=metric, figures=[figure for figure in figures if figure.lines])


def _tokens(columns: MetricColumns, metric: str) -> dict[int, float]:
    points = columns.points(metric)
    return {step: spent for (step, _), (spent, _) in zip(points, over_tokens(columns, points), strict=True)}


def differing_options(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Dotted key -> its value in each configuration as text, where they are not all the same; `–`: not there."""
    flat = [dict(leaves(dict(config))) if config else {} for config in configs]
    keys = sorted({key for one in flat for key in one})
    table = {key: [_text(one[key]) if key in one else "–" for one in flat] for key in keys if key not in _IGNORED}
    return {key: values for key, values in table.items() if len(set(values)) > 1}


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else yaml.safe_dump(value, default_flow_style=True, width=10_000)
    plain = text.removesuffix("\n...\n").rstrip("\n")
    return plain if len(plain) <= _LONGEST_VALUE else f"{plain[:_LONGEST_VALUE]}…"

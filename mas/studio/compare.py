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
from mas.studio.runs import Run
from mas.studio.site import Link, Studio

MOST_RUNS = 12
"""That are compared at once."""
USUAL = ("eval/greedy/success", "eval/sampled/success", "reward", "collapse")
"""Metrics that are shown where none is chosen."""
_LONGEST_VALUE = 400
_IGNORED = ("run_dir",)


def routes(studio: Studio) -> list[Route]:
    """`/compare?run=KEY&run=KEY&metric=NAME`, and its figures as JSON."""
    studio.links.append(Link("Compare", "/compare"))

    def page(request: Request) -> Response:
        chosen = _chosen(studio, request)
        found = {name for run in chosen for name in run.columns().names}
        metric = request.query_params.get("metric", "")
        return studio.page(
            request,
            "compare.html",
            rows=[row_of(run) for run in studio.runs.all()],
            chosen=[row_of(run) for run in chosen],
            keys={run.key for run in chosen},
            metric=metric,
            metrics=sorted(found),
            meaning=meaning_of(metric),
            differences=differing_options([run.config for run in chosen]),
            address=f"/compare.json?{request.url.query}",
            most=MOST_RUNS,
        )

    def figures(request: Request) -> Response:
        runs = {run: run.columns() for run in _chosen(studio, request)}
        version = "_".join(columns.version for columns in runs.values())
        if request.query_params.get("version") == version:
            return Response(status_code=204)
        metric = request.query_params.get("metric", "")
        wanted = [metric] if metric else USUAL
        sections = [compared(runs, name) for name in wanted]
        drawn = Drawn(version=version, sections=[section for section in sections if section.figures])
        return Response(msgspec.json.encode(drawn), media_type=JSON)

    return [Route("/compare", page, methods=["GET"]), Route("/compare.json", figures, methods=["GET"])]


def _chosen(studio: Studio, request: Request) -> list[Run]:
    """The runs that the address names, each once; names of no run are left out."""
    keys = dict.fromkeys(request.query_params.getlist("run"))
    found = (studio.runs.find(key) for key in keys)
    return [run for run in found if run is not None][:MOST_RUNS]


def compared(runs: Mapping[Run, MetricColumns], metric: str) -> FigureSection:
    """A metric of every run that has it, over steps and over tokens."""
    meaning = meaning_of(metric) or Meaning("")
    points = [(number, run, columns) for number, (run, columns) in enumerate(runs.items()) if columns.points(metric)]
    figures = []
    for is_over_tokens, label in X_LABELS.items() if points else ():
        lines = [
            line_of(
                run.name,
                number,
                over_tokens(columns, columns.points(metric)) if is_over_tokens else columns.points(metric),
            )
            for number, run, columns in points
        ]
        figures.append(
            Figure(
                title="Over tokens" if is_over_tokens else "Over steps",
                text=meaning.text,
                healthy=meaning.healthy,
                x_label=label,
                unit=metric,
                lines=lines,
            )
        )
    return FigureSection(title=metric, figures=figures)


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

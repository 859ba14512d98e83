"""The pages on which the episodes of a run are listed and played, step by step."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mas.core.naming import agent_of
from mas.observe.turn_records import CandidateTurn, RecordedDecision
from mas.studio.episodes import SOURCES, EpisodeStep, Filter, Listed, RunEpisodes
from mas.studio.paging import page_of, query_of
from mas.studio.runs import StudioRun
from mas.studio.site import Link, Studio

_RUNS = 8
"""Runs whose indexes of episodes are kept."""
_NEAR = 30
"""Steps before and after the current one that have a link."""
_COMPARED = 16
"""Candidates that are shown side by side."""
_TOKENS = 4000
"""Tokens that are shown of all candidates together."""
_TEXT = 20_000
"""Characters of a text that are shown."""
BOUNDS = (0.1, 0.3, 0.6, 0.9)
"""Where the five classes of probabilities end."""
LEVELS = [f"{low:.0%} – {high:.0%}" for low, high in pairwise([0.0, *BOUNDS, 1.0])]
"""Their legend, from unlikely to likely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownToken:
    """`text` with what cannot be seen written out; `level`: 0 (unlikely) to 4; None: its probability is unknown."""

    text: str
    level: int | None
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    """The beginning of a text; `left_out`: characters that follow."""

    text: str
    left_out: int = 0

    @classmethod
    def of(cls, text: str) -> "ShownText":
        """The first characters of a text."""
        return cls(text=text[:_TEXT], left_out=max(0, len(text) - _TEXT))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCandidate:
    """One candidate on the page.

    Attributes:
        name: such as `candidate 2`. href: of the episode that it is from, empty for this one.
        tokens: none where they are not recorded; `tokens_left_out`: how many more there are.
        bar: place and width of the bar of its advantage, of 100, the middle at 50.
        likelihood: mean probability of its tokens, the geometric one.
    """

    name: str
    href: str
    is_marked: bool
    turn: CandidateTurn
    text: ShownText
    failure: str | None
    tokens: Sequence[ShownToken]
    tokens_left_out: int
    bar: tuple[float, float] | None
    likelihood: float | None


def routes(studio: Studio) -> list[Route]:
    """`/runs/{run}/episodes`, `…/episodes/{key}`, and how many there are, for pages that wait for more."""
    studio.run_links.append(Link("Episodes", "/episodes"))
    kept = lru_cache(_RUNS)(RunEpisodes)

    def episodes_of(run: StudioRun) -> RunEpisodes:
        found = kept(run)
        found.update()
        return found

    def every(request: Request) -> Response:
        run = studio.run_of(request)
        found = episodes_of(run)
        wanted = filter_of(request.query_params)
        listed = [one for one in found.listed if wanted.has(one)]
        page = page_of(request.query_params.get("page", ""), len(listed))
        return studio.page(
            request,
            "episodes.html",
            run=run,
            found=found,
            wanted=wanted,
            listed=listed[page.first - 1 : page.last],
            page=page,
            is_recorded=any(one.is_whole for one in found.listed),
            choices=_choices(found),
            query=query_of(request.query_params),
            looks=run.looks,
            names=SOURCES,
        )

    def count(request: Request) -> Response:
        return JSONResponse({"count": len(episodes_of(studio.run_of(request)).listed)})

    def one(request: Request) -> Response:
        run = studio.run_of(request)
        found = episodes_of(run)
        listed = found.find(request.path_params["key"])
        if listed is None:
            raise HTTPException(404, "this episode is not there any more: a run that goes on records its steps anew")
        template = "stage.html" if request.query_params.get("part") else "episode.html"
        values = _stage(run, found, listed, request.query_params.get("at", ""))
        return studio.page(request, template, run=run, path=f"/runs/{run.key}/episodes", **values)

    return [
        Route("/runs/{run}/episodes", every, methods=["GET"]),
        Route("/runs/{run}/episodes.json", count, methods=["GET"]),
        Route("/runs/{run}/episodes/{key}", one, methods=["GET"]),
    ]


def filter_of(query: Mapping[str, str]) -> Filter:
    """What the parameters of an address say; those that say nothing sensible are left out."""
    step = query.get("step", "").strip()
    return Filter(
        step=int(step) if step.isdecimal() and len(step) < 12 else None,
        source=query.get("source", "") if query.get("source", "") in SOURCES else "",
        role=query.get("role", ""),
        outcome=query.get("outcome", ""),
        task=query.get("task", "").strip(),
        is_flat=query.get("flat", "") == "1",
    )


def _choices(found: RunEpisodes) -> Mapping[str, Sequence[str]]:
    """What the filter can be set to: what there is, in order of appearance."""
    roles = dict.fromkeys(role for one in found.listed for role in one.head.roles)
    return {
        "roles": sorted(roles)[:100],
        "outcomes": ["solved", "not solved", "failed"],
        "sources": list(dict.fromkeys(one.source for one in found.listed)),
    }


def _stage(run: StudioRun, found: RunEpisodes, listed: Listed, wanted: str) -> dict[str, Any]:
    """What the template shows of an episode at one of its steps, which addresses count from 1."""
    outline, looks = found.outline(listed), run.looks
    steps = outline.steps
    place = min(max(1, int(wanted)), len(steps)) - 1 if wanted.isdecimal() and len(wanted) < 12 and steps else 0
    step = steps[place] if steps else None
    decision = None if step is None or not step.is_read else found.decision(listed, outline, step)
    before, after = outline.worlds(step.turn) if step is not None else (None, None)
    near = [(number, steps[number]) for number in range(max(0, place - _NEAR), min(len(steps), place + _NEAR + 1))]
    return {
        "listed": listed,
        "outline": outline,
        "step": step,
        "place": place,
        "near": near,
        "is_last_of_turn": place + 1 == len(steps) or (step is not None and steps[place + 1].turn != step.turn),
        "before": before,
        "after": after,
        "decision": decision,
        "prompt": None if decision is None else ShownText.of(decision.prompt),
        "candidates": [] if step is None or decision is None else _candidates(run, found, listed, step, decision),
        "siblings": _siblings(found, listed),
        "look": lambda name: looks.get(agent_of(name), 7) % 8,
        "sources": SOURCES,
        "levels": LEVELS,
    }


def _siblings(found: RunEpisodes, listed: Listed) -> Sequence[Listed]:
    """The recorded episodes of the same step and task."""
    if listed.of == 1:
        return ()
    task = (listed.head.step, listed.head.task)
    return [one for one in found.listed if one.is_whole and (one.head.step, one.head.task) == task]


def _candidates(
    run: StudioRun, found: RunEpisodes, listed: Listed, step: EpisodeStep, decision: RecordedDecision
) -> list[ShownCandidate]:
    """What is compared with each other: the candidates of a decision, or this turn in every episode of the task."""
    several = len(decision.candidates) > 1
    whose: list[tuple[str, str, bool, CandidateTurn]] = [
        (f"candidate {one.index}" if several else "output", "", one.chosen and several, one)
        for one in decision.candidates
    ]
    if decision.group.kind == "task" and decision.group.size > 1:
        whose = []
        for other, there in found.compared(listed, step):
            href = "" if other.key == listed.key else f"/runs/{run.key}/episodes/{other.key}"
            whose += [(f"episode {other.number}", href, not href, one) for one in (there.candidates if there else ())]
    whose = whose[:_COMPARED]
    largest = max((abs(one.advantage or 0.0) for *_, one in whose), default=0.0)
    most = max(100, _TOKENS // max(1, len(whose)))
    return [_candidate(name, href, is_marked, one, largest, most) for name, href, is_marked, one in whose]


def _candidate(name: str, href: str, is_marked: bool, one: CandidateTurn, largest: float, most: int) -> ShownCandidate:
    width = 50 * abs(one.advantage) / largest if one.advantage is not None and largest else 0.0
    known = [value for value in one.logprobs if value is not None]
    return ShownCandidate(
        name=name,
        href=href,
        is_marked=is_marked,
        turn=one,
        text=ShownText.of(one.text),
        failure=None if one.failure is None else one.failure[:_TEXT],
        tokens=[_token(one, place) for place in range(min(most, len(one.tokens)))],
        tokens_left_out=max(0, len(one.tokens) - most),
        bar=(50.0 if (one.advantage or 0.0) > 0 else 50.0 - width, width) if width else None,
        likelihood=math.exp(min(0.0, sum(known) / len(known))) if known else None,
    )


def _token(one: CandidateTurn, place: int) -> ShownToken:
    text = one.tokens[place][:1000]
    logprob = one.logprobs[place] if place < len(one.logprobs) else None
    seen = text.replace("\n", "⏎\n").replace("\t", "⇥\t") or "∅"
    level = label = None
    if logprob is not None and logprob == logprob:
        probability = math.exp(min(0.0, logprob))
        level = sum(probability >= bound for bound in BOUNDS)
        label = f"probability {probability:.1%}, log-probability {logprob:.3f}"
    what = repr(text[:40]) if text else "no text of its own (an end, or a part of a character)"
    return ShownToken(text=seen, level=level, label=f"token {place + 1}: {what}, {label or 'probability not recorded'}")

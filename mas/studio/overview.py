"""The list of all runs, and the page of one."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mas.studio.site import Link, Studio


def routes(studio: Studio) -> list[Route]:
    """`/` and `/runs/{run}`."""
    studio.links.append(Link("Runs", "/"))
    studio.run_links.append(Link("Curves", ""))

    def every(request: Request) -> Response:
        return studio.page(request, "overview.html", runs=studio.runs.all())

    def one(request: Request) -> Response:
        return studio.page(request, "run.html", run=studio.run_of(request))

    return [Route("/", every, methods=["GET"]), Route("/runs/{run}", one, methods=["GET"])]

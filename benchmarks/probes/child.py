"""One probe of one framework in a process of its own: `python -m benchmarks.probes.child langgraph untaken`.

Prints the outcome as JSON behind `MARK`: `kind`, `evidence` and `version`; or `absent`, why the framework is not there.
"""

import asyncio
import json
import logging
import os
import sys
import warnings
from importlib import import_module
from importlib.metadata import version
from typing import Any

from benchmarks.probes.judge import Outcome, Trace, first_line, judge
from benchmarks.probes.shapes import PROBES
from mas import __version__

RUN_LIMIT_S = 40.0
"""Seconds that a run may take; only a cycle up to a framework's own limit needs more than two."""
MARK = "outcome: "
"""Begins the line with the outcome; whatever else a framework prints does not count."""

_BUGS = (NameError, AttributeError, ImportError)
"""Errors of a probe's own code: they are no framework's word on the graph."""

_QUIET = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "LANGSMITH_TRACING": "false",
    "OTEL_SDK_DISABLED": "true",
}


async def run_probe(system: Any, probe: str) -> Outcome:
    """Build the graph and run it once.

    Args:
        system: a module of `benchmarks.probes.systems`.
    """
    if probe in system.NOT_OFFERED:
        return Outcome("not offered", system.NOT_OFFERED[probe])
    trace = Trace(PROBES[probe])
    try:
        run = system.build(trace.shape, trace.work)
    except _BUGS:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the graph was refused
        return Outcome("refused at build", first_line(error))
    error_at_run: BaseException | None = None
    try:
        async with asyncio.timeout(RUN_LIMIT_S):
            await run()
    except TimeoutError:
        return Outcome("silent stall", f"nothing happened any more; stopped after {RUN_LIMIT_S:.0f} s; {trace.order}")
    except _BUGS:
        raise
    except BaseException as error:  # noqa: BLE001 - frameworks wrap what ends an endless cycle in their own errors
        error_at_run = error
    return judge(probe, trace, error_at_run)


def main() -> None:
    """Print the outcome, and leave at once, whatever threads a framework has left behind."""
    name, probe = sys.argv[1:]
    os.environ.update(_QUIET)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    found: dict[str, str]
    try:
        system = import_module(f"benchmarks.probes.systems.of_{name}")
    except ModuleNotFoundError as error:
        found = {"absent": str(error)}
    else:
        outcome = asyncio.run(run_probe(system, probe))
        number = __version__ if name == "mas" else version(system.PACKAGE)
        found = {"kind": outcome.kind, "evidence": outcome.evidence, "version": number}
    print(f"\n{MARK}{json.dumps(found)}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()

"""Processes of their own for tests, forked from a server that has loaded what trains; it starts once per session."""

import multiprocessing

FORKED = multiprocessing.get_context("forkserver")
# The same list for all tests: the first process decides what the server loads.
FORKED.set_forkserver_preload(
    [
        "pytest",
        "mas.cli",
        "mas.api.train",
        "mas.observe.event_file",
        "mas.runs.report",
        "mas.runs.train",
        "mas.scenarios.relay",
        "mas.training.distributed",
        "mas.bus.mqtt",
    ]
)

"""`mas` commands that run until they are told to end, in processes of their own."""

import sys
from subprocess import Popen

COMMAND = (sys.executable, "-W", "error", "-m", "mas")


def greeting_of(process: Popen[str]) -> str:
    """What it prints until it says how it is ended; all of it where it ends before."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("Ctrl-C"):
            break
    return "".join(lines)

"""Cleans up after a driver that was killed: `python guard.py FD DIRECTORY`.

It reads the numbers of process groups from the pipe FD, `+N` for one that begins and `-N` for one that has ended. When
the pipe is closed, it kills those that are left and removes DIRECTORY. It imports nothing of mas: it starts in a moment
and stays small.
"""

import os
import shutil
import signal
import sys
import time

_TRIES, _PAUSE_S = 20, 0.25


def main() -> None:
    """Wait for the end of the driver, and clean up."""
    groups: set[int] = set()
    with os.fdopen(int(sys.argv[1]), encoding="ascii") as pipe:
        for line in pipe:
            (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            continue
    for _ in range(_TRIES):  # what ends beside this may still write there
        shutil.rmtree(sys.argv[2], ignore_errors=True)
        if not os.access(sys.argv[2], os.F_OK):
            break
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()

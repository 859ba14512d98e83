"""One life of a server that keeps its requests in a journal.

    python kept_worker.py JOURNAL

Prints `asked ADAPTER` when the engine is asked, and its address as soon as it serves.
"""

import asyncio
import sys
from pathlib import Path

from kept_lives import Voices, life

from mas.endpoint import running


async def serve(journal: Path) -> None:
    engine = Voices(lambda name: print("asked", name, flush=True))
    async with life(journal, engine) as served, running(served.app) as address:
        print(address, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))

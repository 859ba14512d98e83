"""Worker processes of a study, which end with it. What a process imports to begin is in this file, and quick."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with this one, and at once where the block raises: nobody waits for what they work on then.

    Ctrl-C at a terminal, which reaches them, too, is for this process alone.
    """
    others = active_children()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        try:
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # processes that begin inherit it
            try:
                for _ in range(workers):
                    pool.submit(int)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield pool
        except BaseException:
            for process in active_children():
                if process not in others:
                    process.kill()
            raise


def end_with_parent() -> None:
    """End this worker as soon as the process that started it is gone, however it went."""
    parent = parent_process()
    assert parent is not None

    def wait_and_end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait_and_end, name="mas-parent-watch", daemon=True).start()

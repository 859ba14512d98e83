"""What is awaited: the event loop goes on meanwhile, and cancelling ends the work."""

import asyncio
import contextvars
import gc
import inspect
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import mas
from mas.core.concurrency import asynchronous, exclusive, run_blocking

LIMIT_S = 60.0


async def test_the_loop_goes_on_while_a_function_works_in_the_context_of_its_caller() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")
    name.set("caller")
    released = threading.Event()

    def work(number: int, *, twice: bool) -> tuple[str, int]:
        """Waits for the loop."""
        assert released.wait(LIMIT_S)
        return name.get(), number * (1 + twice)

    awaited = asyncio.create_task(asynchronous(work)(4, twice=True))
    asyncio.get_running_loop().call_soon(released.set)
    assert await awaited == ("caller", 8)


async def test_an_error_is_the_one_that_the_function_raises() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await asynchronous(fail)()


@pytest.mark.parametrize("is_nested", [False, True], ids=["in its thread", "where a loop runs"])
async def test_cancelling_ends_what_the_function_runs_and_waits_for_the_end(is_nested: bool) -> None:
    begun, ended = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def endless() -> None:
        loop.call_soon_threadsafe(begun.set)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def around() -> None:
        run_blocking(endless())

    awaited = asyncio.create_task(asynchronous(lambda: run_blocking(around() if is_nested else endless()))())
    await asyncio.wait_for(begun.wait(), LIMIT_S)
    awaited.cancel()
    with pytest.raises(asyncio.CancelledError):
        await awaited
    assert ended.is_set()


async def test_one_works_at_a_time_and_one_that_waits_is_cancelled_at_once() -> None:
    released, ran = threading.Event(), []

    def work(number: int) -> None:
        assert released.wait(LIMIT_S)
        ran.append(number)

    first, second, third = (asyncio.create_task(asynchronous(work)(number)) for number in (1, 2, 3))
    await asyncio.sleep(0)  # all three are in line
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert ran == []
    released.set()
    await asyncio.gather(first, third)
    assert ran == [1, 3]


async def test_nothing_else_works_in_another_thread_beside_it() -> None:
    begun, released, order = asyncio.Event(), threading.Event(), []
    loop = asyncio.get_running_loop()

    @exclusive
    def first() -> None:
        loop.call_soon_threadsafe(begun.set)
        assert released.wait(LIMIT_S)
        order.append("first")

    @exclusive
    def second() -> None:
        order.append("second")

    awaited = asyncio.create_task(asynchronous(first)())
    await asyncio.wait_for(begun.wait(), LIMIT_S)
    other = threading.Thread(target=second)
    other.start()
    assert order == []
    released.set()
    await awaited
    other.join(LIMIT_S)
    assert order == ["first", "second"]


async def test_what_was_cancelled_leaves_no_error_that_nobody_took() -> None:
    begun, complaints, loop = asyncio.Event(), [], asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, what: complaints.append(what))

    async def forever() -> None:
        loop.call_soon_threadsafe(begun.set)
        await asyncio.Event().wait()

    awaited = asyncio.create_task(asynchronous(run_blocking)(forever()))
    await asyncio.wait_for(begun.wait(), LIMIT_S)
    awaited.cancel()
    with pytest.raises(asyncio.CancelledError):
        await awaited
    del awaited
    await asyncio.sleep(0)  # the loop lets go of it
    gc.collect()
    assert complaints == []


def test_a_fork_waits_for_no_thread_of_its_parent() -> None:
    code = (
        "import asyncio, os\n"
        "from mas.core.concurrency import asynchronous, exclusive\n"
        "work = asynchronous(exclusive(lambda: os.getpid()))\n"
        "asyncio.run(work())\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(asyncio.run(work()) != os.getpid())\n"
        "print(os.waitpid(child, 0)[1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.stdout == "0\n", done.stderr


async def test_what_was_cancelled_runs_no_coroutine_any_more() -> None:
    begun, released, ran = asyncio.Event(), threading.Event(), []
    loop = asyncio.get_running_loop()

    async def later() -> None:
        ran.append(1)

    def load_and_run() -> None:
        loop.call_soon_threadsafe(begun.set)
        assert released.wait(LIMIT_S)
        run_blocking(later())

    awaited = asyncio.create_task(asynchronous(load_and_run)())
    await asyncio.wait_for(begun.wait(), LIMIT_S)
    awaited.cancel()
    loop.call_soon(released.set)
    with pytest.raises(asyncio.CancelledError):
        await awaited
    assert ran == []


def test_every_asynchronous_name_takes_what_the_other_takes_and_is_documented() -> None:
    pairs = [(mas.train, mas.train_async), (mas.evaluate, mas.evaluate_async)]
    pairs += [(getattr(mas.Run, name), getattr(mas.Run, f"{name}_async")) for name in ("evaluate", "play", "ask")]
    pairs += [(mas.League.play, mas.League.play_async)]
    for plain, awaited in pairs:
        assert inspect.iscoroutinefunction(awaited)
        assert inspect.signature(awaited) == inspect.signature(plain)
        assert awaited.__name__ == f"{plain.__name__}_async"
        assert awaited.__doc__.startswith(f"As `{plain.__name__}`, to be awaited")


async def test_a_run_is_trained_cancelled_and_goes_on(
    tmp_path: Path, small_overrides: tuple[str, ...], base_for: Any
) -> None:
    base_for("relay")
    short = ("train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2", "train.eval_every=0")
    words = ["scenario=relay", *short, *small_overrides, f"run_dir={tmp_path / 'run'}", "train.checkpoint_every=1"]
    begun, loop = asyncio.Event(), asyncio.get_running_loop()

    class Told:
        """Where progress is printed; the first step that is done is told to the loop."""

        def write(self, text: str) -> int:
            if "step 1/" in text:
                loop.call_soon_threadsafe(begun.set)
            return len(text)

        def flush(self) -> None:
            """Nothing is kept."""

    console = Console(file=Told(), width=200)
    training = asyncio.create_task(mas.train_async(mas.load_config([*words, "train.steps=100000"]), console=console))
    await asyncio.wait_for(begun.wait(), LIMIT_S)
    training.cancel()
    with pytest.raises(asyncio.CancelledError):
        await training
    done = mas.Run(tmp_path / "run").steps
    assert 1 <= done < 100000
    run = await mas.train_async(mas.load_config([*words, f"train.steps={done + 1}"]), quiet=True)
    assert run.steps == done + 1
    played, told = await asyncio.gather(run.play_async(task=1), run.evaluate_async(tasks=1))
    assert played.episode == run.play(task=1).episode
    assert set(told) == {"untrained", "trained"}


async def test_a_tournament_is_awaited(tmp_path: Path) -> None:
    cup = await mas.League("two_player:kuhn_poker", tmp_path / "cup.db").play_async(["random", "cfr"], games=2)
    assert len(cup.table.standings) == 2

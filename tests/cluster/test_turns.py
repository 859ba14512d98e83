"""Calls that arrive in any order begin in that of their numbers, whatever becomes of them."""

import asyncio
import random

from mas.cluster.turns import Turns


async def test_calls_begin_in_order_though_some_are_cancelled_and_some_never_come() -> None:
    for seed in range(50):
        draw = random.Random(seed)
        turns, begun = Turns(), list[int]()

        async def call(number: int, turns: Turns = turns, begun: list[int] = begun) -> None:
            try:
                await turns.wait(number)
                turns.pass_on(number)
                begun.append(number)
            finally:
                turns.pass_on(number)

        numbers = list(range(20))
        lost = set(draw.sample(numbers, 4))
        draw.shuffle(numbers)
        tasks = {number: asyncio.create_task(call(number)) for number in numbers if number not in lost}
        await asyncio.sleep(0)
        for number in draw.sample(sorted(tasks), 3):
            tasks[number].cancel()
        for number in lost:
            turns.pass_on(number)
            turns.pass_on(number)
        async with asyncio.timeout(10):
            ends = await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert begun == sorted(begun)
        assert len(begun) == sum(end is None for end in ends) >= 13
        assert turns.is_passed(19)
        assert not turns.is_passed(20)


async def test_a_number_that_was_passed_before_its_call_came_does_not_wait() -> None:
    turns = Turns()
    turns.pass_on(1)
    assert turns.is_passed(1)
    assert not turns.is_passed(0)
    waiting = asyncio.create_task(turns.wait(2))
    await asyncio.sleep(0)
    assert not waiting.done()
    turns.pass_on(0)
    async with asyncio.timeout(10):
        await waiting

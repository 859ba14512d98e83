"""A program that is trained as it is: two roles, `finder` and `reader`, find how many things somebody has.

    python examples/lookups.py > lookups.jsonl
    mas gateway model=smollm2 scenario.options.path=lookups.jsonl scenario.options.roles=[finder,reader] \
        scenario.options.max_tokens=6 run_dir=runs/lookup
    python examples/gateway/lookup_agent.py          # in another terminal

The agent is `answer`; nothing in it knows of training. The rest says which episode it plays, and what that was worth.
"""

import asyncio
import re
import sys

from openai import AsyncOpenAI

from mas.gateway.client import Gateway

AT_ONCE = 16
"""Episodes that are played at the same time."""


async def ask(client: AsyncOpenAI, role: str, question: str) -> str:
    """What a role says."""
    answer = await client.chat.completions.create(model=role, messages=[{"role": "user", "content": question}])
    return (answer.choices[0].message.content or "").strip()


async def answer(client: AsyncOpenAI, question: str) -> str:
    """The agent: who is asked about, and then what that person has."""
    jobs, counts, asked = question.split(". ")
    _, _, things, _, _, job, _ = asked.split()
    person = await ask(client, "finder", f"{jobs}. What is the name of the {job}? Answer with the name.")
    return await ask(client, "reader", f"{counts}. How many {things} does {person} have? Answer with the number.")


async def play(gateway: Gateway) -> None:
    """One episode after the other, until training is over."""
    episodes = gateway.episodes()
    while (episode := await asyncio.to_thread(next, episodes, None)) is not None:
        with episode:
            async with AsyncOpenAI(base_url=episode.base_url, api_key="none") as client:
                said = await answer(client, episode.task["question"])
            number = re.search(r"[0-9]+", said)
            reward = float(number is not None and int(number[0]) == episode.task["answer"])
            await asyncio.to_thread(episode.end, reward)


async def main(url: str = "http://127.0.0.1:8000") -> None:
    """Play several episodes at once."""
    await asyncio.gather(*(play(Gateway(url)) for _ in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

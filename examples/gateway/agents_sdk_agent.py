"""An agent of OpenAI's Agents SDK that is trained as it is: `finder` says who is asked about, `reader` the number.

    python examples/lookups.py > lookups.jsonl
    mas gateway model=smollm2 scenario.options.path=lookups.jsonl scenario.options.roles=[finder,reader] \
        scenario.options.max_tokens=6 train.eval_tasks=35 run_dir=runs/lookup-sdk
    python examples/gateway/agents_sdk_agent.py      # in another terminal, with openai-agents 0.24
"""

import asyncio
import re
import sys
from concurrent.futures import ThreadPoolExecutor

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

from mas.gateway.client import Gateway

AT_ONCE = 16
"""Episodes that are played at the same time."""


async def answer(base_url: str, question: str) -> str:
    """The agents: who is asked about, and then what that person has."""
    jobs, counts, asked = question.split(". ")
    _, _, things, _, _, job, _ = asked.split()
    async with AsyncOpenAI(base_url=base_url, api_key="none") as client:
        finder = Agent(
            name="finder",
            instructions="Answer with a name.",
            model=OpenAIChatCompletionsModel("finder", openai_client=client),
        )
        reader = Agent(
            name="reader",
            instructions="Answer with a number.",
            model=OpenAIChatCompletionsModel("reader", openai_client=client),
        )
        person = await Runner.run(finder, f"{jobs}. What is the name of the {job}?")
        number = await Runner.run(reader, f"{counts}. How many {things} does {person.final_output.strip()} have?")
    return str(number.final_output)


def play(url: str) -> None:
    """One episode after the other, until training is over."""
    for episode in Gateway(url).episodes():
        with episode:
            said = re.search(r"[0-9]+", asyncio.run(answer(episode.base_url, episode.task["question"])))
            episode.end(float(said is not None and int(said[0]) == episode.task["answer"]))


def main(url: str = "http://127.0.0.1:8000") -> None:
    """Play several episodes at once."""
    set_tracing_disabled(True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(play, [url] * AT_ONCE))


if __name__ == "__main__":
    main(*sys.argv[1:])

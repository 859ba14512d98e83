"""A graph of LangGraph that is trained as it is: `finder` says who is asked about, `reader` the number.

    python examples/lookups.py > lookups.jsonl
    mas gateway model=smollm2 scenario.options.path=lookups.jsonl scenario.options.roles=[finder,reader] \
        scenario.options.max_tokens=6 run_dir=runs/lookup-graph
    python examples/gateway/langgraph_agent.py       # in another terminal, with langgraph 1.2 and langchain-openai 1.7
"""

import asyncio
import re
import sys
from typing import TypedDict

import httpx
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

from mas.gateway.client import Gateway

AT_ONCE = 16
"""Episodes that are played at the same time."""


class Lookup(TypedDict, total=False):
    """What the nodes of the graph share."""

    question: str
    person: str
    said: str


def model(role: str, base_url: str, http: httpx.AsyncClient) -> ChatOpenAI:
    """A role as LangChain asks it."""
    return ChatOpenAI(model=role, base_url=base_url, api_key="none", http_async_client=http)


async def answer(base_url: str, question: str) -> str:
    """The graph: who is asked about, and then what that person has."""
    jobs, counts, asked = question.split(". ")
    _, _, things, _, _, job, _ = asked.split()

    async def find(state: Lookup) -> Lookup:
        said = await model("finder", base_url, http).ainvoke(
            f"{jobs}. What is the name of the {job}? Answer with the name."
        )
        return {"person": str(said.content).strip()}

    async def read(state: Lookup) -> Lookup:
        text = f"{counts}. How many {things} does {state['person']} have? Answer with the number."
        said = await model("reader", base_url, http).ainvoke(text)
        return {"said": str(said.content)}

    graph = StateGraph(Lookup)
    graph.add_node("find", find)
    graph.add_node("read", read)
    graph.add_edge(START, "find")
    graph.add_edge("find", "read")
    graph.add_edge("read", END)
    async with httpx.AsyncClient() as http:
        state = await graph.compile().ainvoke({"question": question})
    return str(state["said"])


async def play(gateway: Gateway) -> None:
    """One episode after the other, until training is over."""
    episodes = gateway.episodes()
    while (episode := await asyncio.to_thread(next, episodes, None)) is not None:
        with episode:
            said = await answer(episode.base_url, episode.task["question"])
            number = re.search(r"[0-9]+", said)
            reward = float(number is not None and int(number[0]) == episode.task["answer"])
            await asyncio.to_thread(episode.end, reward)


async def main(url: str = "http://127.0.0.1:8000") -> None:
    """Play several episodes at once."""
    await asyncio.gather(*(play(Gateway(url)) for _ in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

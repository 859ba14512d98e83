"""A graph of LangGraph that is trained as it is: `finder` says who is asked about, `reader` the number.

    python examples/lookups.py > lookups.jsonl
    mas gateway model=smollm2 scenario.options.path=lookups.jsonl scenario.options.roles=[finder,reader] \
        scenario.options.max_tokens=6 train.eval_tasks=35 run_dir=runs/lookup-graph
    python examples/gateway/langgraph_agent.py       # in another terminal, with langgraph 1.2 and langchain-openai 1.7
"""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
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


def answer(base_url: str, http: httpx.Client, question: str) -> str:
    """The graph: who is asked about, and then what that person has."""
    jobs, counts, asked = question.split(". ")
    _, _, things, _, _, job, _ = asked.split()

    def ask(role: str, text: str) -> str:
        model = ChatOpenAI(model=role, base_url=base_url, api_key="none", http_client=http)
        return str(model.invoke(text).content).strip()

    def find(state: Lookup) -> Lookup:
        return {"person": ask("finder", f"{jobs}. What is the name of the {job}? Answer with the name.")}

    def read(state: Lookup) -> Lookup:
        text = f"{counts}. How many {things} does {state['person']} have? Answer with the number."
        return {"said": ask("reader", text)}

    graph = StateGraph(Lookup)
    graph.add_node("find", find)
    graph.add_node("read", read)
    graph.add_edge(START, "find")
    graph.add_edge("find", "read")
    graph.add_edge("read", END)
    return str(graph.compile().invoke({"question": question})["said"])


def play(url: str) -> None:
    """One episode after the other, until training is over."""
    for episode in Gateway(url).episodes():
        with episode, httpx.Client() as http:
            said = re.search(r"[0-9]+", answer(episode.base_url, http, episode.task["question"]))
            episode.end(float(said is not None and int(said[0]) == episode.task["answer"]))


def main(url: str = "http://127.0.0.1:8000") -> None:
    """Play several episodes at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(play, [url] * AT_ONCE))


if __name__ == "__main__":
    main(*sys.argv[1:])

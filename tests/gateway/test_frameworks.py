"""Teams of other frameworks learn: relay, played by a plain script, a graph of LangGraph and agents of the Agents SDK,
each with its real client, on the tiny base."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypedDict

import httpx
import pytest
from conftest import BaseFor
from relay_program import ROLES, play_all, say, text_of, write_tasks
from trained_program import train_program

from mas.config.options import ModelOptions
from mas.gateway.client import Episode

Say = Callable[[Episode], str]
"""Plays a task's two calls; the digit that the team answers."""


def plain(episode: Episode) -> str:
    row = episode.task
    sent = text_of(say(episode, "planner", f"P{row['goal']}>"))
    return text_of(say(episode, "executor", f"E{row['table']};{sent}>"))


class Relay(TypedDict, total=False):
    """What the nodes of the graph share."""

    sent: str
    said: str


def langgraph(episode: Episode) -> str:
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, StateGraph

    row = episode.task
    with httpx.Client() as http:

        def ask(role: str, prompt: str) -> str:
            model = ChatOpenAI(model=role, base_url=episode.base_url, api_key="none", http_client=http)
            return str(model.invoke(prompt).content)

        def plan(state: Relay) -> Relay:
            return {"sent": ask("planner", f"P{row['goal']}>")}

        def act(state: Relay) -> Relay:
            return {"said": ask("executor", f"E{row['table']};{state['sent']}>")}

        graph = StateGraph(Relay)
        graph.add_node("plan", plan)
        graph.add_node("act", act)
        graph.add_edge(START, "plan")
        graph.add_edge("plan", "act")
        graph.add_edge("act", END)
        return str(graph.compile().invoke({})["said"])


def agents_sdk(episode: Episode) -> str:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    row = episode.task

    async def play() -> str:
        async with AsyncOpenAI(base_url=episode.base_url, api_key="none") as client:

            async def ask(role: str, prompt: str) -> str:
                model = OpenAIChatCompletionsModel(role, openai_client=client)
                return str((await Runner.run(Agent(name=role, model=model), prompt)).final_output)

            sent = await ask("planner", f"P{row['goal']}>")
            return await ask("executor", f"E{row['table']};{sent}>")

    return asyncio.run(play())


FRAMEWORKS: Mapping[str, Say] = {"plain": plain, "langgraph": langgraph, "agents_sdk": agents_sdk}


@pytest.mark.slow
@pytest.mark.nightly(shard=False)  # minutes each
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_team_of_a_framework_learns(name: str, seed: int, base_for: BaseFor, tmp_path: Path) -> None:
    def play(episode: Episode) -> None:
        episode.end(float(FRAMEWORKS[name](episode) == episode.task["answer"]))

    options = [
        f"model.path={base_for('relay', ModelOptions()).name}",
        f"scenario.options.path={write_tasks(tmp_path / 'tasks.jsonl', 300, 60)}",
        "scenario.options.split=part",
        f"scenario.options.roles=[{','.join(ROLES)}]",
        "scenario.options.max_tokens=1",
        "algorithm.sampler.candidates=8",
        "algorithm.loss.entropy=0.05",
        "learner.lr=0.005",
        "train.tasks_per_step=8",
        "train.steps=30",
        "train.eval_tasks=60",
        "train.eval_every=0",
        f"train.seed={seed}",
    ]
    train_program(options, tmp_path / "run", lambda url: play_all(url, play))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    greedy = [line["eval"]["greedy"]["success"] for line in lines if "greedy" in line.get("eval", {})]
    print(name, seed, "greedy", greedy, "reward", [round(line["reward"], 2) for line in lines if "adapters" in line])
    assert greedy[0] < 0.5
    assert greedy[-1] > greedy[0] + 0.3

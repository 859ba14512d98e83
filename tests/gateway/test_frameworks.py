"""Teams of other frameworks learn: a graph of LangGraph and agents of the Agents SDK, each with its real client, make
the two calls of relay on the tiny base."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypedDict

import httpx
import pytest
from conftest import BaseFor
from relay_program import ROLES, play_all, write_tasks
from trained_program import train_program

from mas.config.options import ModelOptions
from mas.gateway.client import GatewayEpisode

Relayed = Callable[[GatewayEpisode], tuple[str, str]]
"""Plays a task's two calls; what the planner and the executor say."""


class Relay(TypedDict, total=False):
    """What the nodes of the graph share."""

    sent: str
    said: str


def langgraph(episode: GatewayEpisode) -> tuple[str, str]:
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
        end = graph.compile().invoke({})
    return str(end["sent"]), str(end["said"])


def agents_sdk(episode: GatewayEpisode) -> tuple[str, str]:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    row = episode.task

    async def play() -> tuple[str, str]:
        async with AsyncOpenAI(base_url=episode.base_url, api_key="none") as client:

            async def ask(role: str, prompt: str) -> str:
                model = OpenAIChatCompletionsModel(role, openai_client=client)
                return str((await Runner.run(Agent(name=role, model=model), prompt)).final_output)

            sent = await ask("planner", f"P{row['goal']}>")
            return sent, await ask("executor", f"E{row['table']};{sent}>")

    return asyncio.run(play())


FRAMEWORKS: Mapping[str, Relayed] = {"langgraph": langgraph, "agents_sdk": agents_sdk}


@pytest.mark.slow
@pytest.mark.nightly(shard=False)  # minutes each
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_team_of_a_framework_learns(name: str, seed: int, base_for: BaseFor, tmp_path: Path) -> None:
    """The team is paid for an executor that says 7, the planner alone besides for a c."""

    def play(episode: GatewayEpisode) -> None:
        sent, said = FRAMEWORKS[name](episode)
        episode.end(float(said == "7"), rewards={"planner": float(sent == "c")})

    options = [
        f"model.path={base_for('relay', ModelOptions()).name}",
        f"scenario.options.path={write_tasks(tmp_path / 'tasks.jsonl', 60, 40)}",
        "scenario.options.split=part",
        f"scenario.options.roles=[{','.join(ROLES)}]",
        "scenario.options.max_tokens=1",
        "algorithm.sampler.candidates=8",
        "algorithm.loss.entropy=0.05",
        "learner.lr=0.005",
        "learner.minibatches=4",
        "train.steps=10",
        "train.tasks_per_step=4",
        "train.eval_tasks=20",
        "train.eval_every=0",
        f"train.seed={seed}",
    ]
    train_program(options, tmp_path / "run", lambda url: play_all(url, play))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    greedy = [line["eval"]["greedy"]["success"] for line in lines if "greedy" in line.get("eval", {})]
    planner = [line["roles"]["planner"]["terms"]["own.role"] for line in lines if "roles" in line]
    print(name, seed, "greedy success", greedy, "the planner's reward", planner)
    assert greedy[0] < 0.5
    assert greedy[-1] > 0.9
    assert max(planner[:2]) < 0.6 < min(planner[-3:])

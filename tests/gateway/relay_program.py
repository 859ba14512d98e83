"""A program that plays `relay` by calls of a planner and an executor, with prompts that the tiny base was taught."""

import json
import os
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from mas.gateway.client import Gateway, GatewayEpisode
from mas.scenarios.relay import KEYS, make

ROLES = ("planner", "executor")
Played = Callable[[GatewayEpisode], None]


def write_tasks(path: Path, train: int, held_out: int) -> Path:
    """A file of different tasks of relay."""
    rows: dict[str, dict[str, str]] = {}
    seed = 0
    while len(rows) < train + held_out:
        state = make(Random(seed))
        seed += 1
        split = "train" if len(rows) < train else "eval"
        answer = state.table[state.goal]
        rows.setdefault(
            KEYS[state.goal] + state.table,
            {"goal": KEYS[state.goal], "table": state.table, "answer": answer, "part": split},
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows.values()), encoding="utf-8")
    return path


def post(url: str, content: Mapping[str, Any], **headers: str) -> dict[str, Any]:
    """A request as JSON."""
    own = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('MAS_API_KEY', 'none')}"}
    request = urllib.request.Request(url, json.dumps(content).encode(), own | headers, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def say(episode: GatewayEpisode, role: str, prompt: str, **more: Any) -> dict[str, Any]:
    """What a role says, as the endpoint answers it."""
    body = {"model": role, "messages": [{"role": "user", "content": prompt}], "max_tokens": 1, **more}
    return post(f"{episode.base_url}/chat/completions", body)


def text_of(answer: Mapping[str, Any]) -> str:
    """The text of an answer."""
    return str(answer["choices"][0]["message"]["content"])


def play_relay(episode: GatewayEpisode) -> None:
    """One episode: the team is paid for an executor that says 7, the planner alone besides for a c."""
    row = episode.task
    sent = text_of(say(episode, "planner", f"P{row['goal']}>"))
    said = text_of(say(episode, "executor", f"E{row['table']};{sent}>"))
    episode.end(float(said == "7"), rewards={"planner": float(sent == "c")})


def play_all(url: str, play: Played = play_relay, at_once: int = 8, retry_s: float = 60.0) -> int:
    """Play until training is over; how many episodes that were."""

    def run(_: int) -> int:
        count = 0
        for episode in Gateway(url, retry_s=retry_s).episodes():
            with episode:
                play(episode)
            count += 1
        return count

    with ThreadPoolExecutor(at_once) as pool:
        return sum(pool.map(run, range(at_once)))

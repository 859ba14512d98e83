"""A program of one role, `solver`. Its answers are constrained to one digit.

    python examples/lookups.py > lookups.jsonl
    mas gateway model=smollm2 scenario.options.path=lookups.jsonl scenario.options.roles=[solver] \
        scenario.options.max_tokens=6 train.steps=20 train.tasks_per_step=8 train.eval_tasks=35 run_dir=runs/solver
    python examples/gateway/solver_agent.py          # in another terminal

`structured_outputs` is a parameter of vLLM's server; a training computes probabilities over the same tokens.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

from mas.gateway.client import Gateway

AT_ONCE = 16
"""Episodes that are played at the same time."""
FORM = {"structured_outputs": {"regex": "[0-9]"}}


def answer(client: OpenAI, question: str) -> str:
    """Ask the model how many things a person has; returns one digit."""
    said = client.chat.completions.create(
        model="solver", messages=[{"role": "user", "content": question}], extra_body=FORM
    )
    return said.choices[0].message.content or ""


def play(url: str) -> None:
    """One episode after the other, until training is over."""
    for episode in Gateway(url).episodes():
        with episode, OpenAI(base_url=episode.base_url, api_key="none") as client:
            said = answer(client, episode.task["question"])
            episode.end(float(said == str(episode.task["answer"])))


def main(url: str = "http://127.0.0.1:8000") -> None:
    """Play several episodes at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(play, [url] * AT_ONCE))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A program that is trained as it is: two roles, `finder` and `reader`, find how many things somebody has.

    python examples/lookups.py > lookups.jsonl
    mas gateway model=smollm2 scenario.options.path=lookups.jsonl scenario.options.roles=[finder,reader] \
        scenario.options.max_tokens=6 train.eval_tasks=35 run_dir=runs/lookup
    python examples/gateway/lookup_agent.py          # in another terminal

The agent is `answer`; nothing in it knows of training. The rest says which episode it plays, and what that was worth.
"""

import re
import sys
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

from mas.gateway.client import Gateway

AT_ONCE = 16
"""Episodes that are played at the same time."""


def ask(client: OpenAI, role: str, question: str) -> str:
    """What a role says."""
    answer = client.chat.completions.create(model=role, messages=[{"role": "user", "content": question}])
    return (answer.choices[0].message.content or "").strip()


def answer(client: OpenAI, question: str) -> str:
    """The agent: who is asked about, and then what that person has."""
    jobs, counts, asked = question.split(". ")
    _, _, things, _, _, job, _ = asked.split()
    person = ask(client, "finder", f"{jobs}. What is the name of the {job}? Answer with the name.")
    return ask(client, "reader", f"{counts}. How many {things} does {person} have? Answer with the number.")


def play(url: str) -> None:
    """One episode after the other, until training is over."""
    for episode in Gateway(url).episodes():
        with episode, OpenAI(base_url=episode.base_url, api_key="none") as client:
            said = re.search(r"[0-9]+", answer(client, episode.task["question"]))
            episode.end(float(said is not None and int(said[0]) == episode.task["answer"]))


def main(url: str = "http://127.0.0.1:8000") -> None:
    """Play several episodes at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(play, [url] * AT_ONCE))


if __name__ == "__main__":
    main(*sys.argv[1:])

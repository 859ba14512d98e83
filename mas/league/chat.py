"""Players that a server elsewhere speaks for: any model behind an OpenAI-compatible `/chat/completions`."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mas.config.sources import chat_options
from mas.core.engine import Engine, Request, Sampling
from mas.league.match import Chance
from mas.scenarios.game_rules import LONGEST_ACTION
from mas.serving.remote_chat import ChatEngine

_MOVE = re.compile(r"^[\s*`>]*MOVE[\s:*`]+(?P<move>.+?)[\s*`]*$", re.MULTILINE)
_TOLD = (
    "You play a game against somebody, in the seat that you are told. You see what it knows and its legal moves. "
    "Think as long as you like; nobody but you reads it. End with one line: MOVE and one of the legal moves, as in: "
    "MOVE {example}"
)
_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class ChatPlayer:
    """A model that is shown its view as lines of `field: text` and ends its answer with `MOVE action`.

    An answer without such a line is taken as the move itself, so that the game's rule for illegal ones holds. The
    server is sent the seed of the move; whether it heeds it is up to the server.
    """

    engine: Engine
    temperature: float = 1.0

    async def move(self, asked: Chance) -> str:
        fields = {name: text for name, text in asked.observation.fields.items() if text}
        if asked.legal is not None:
            fields["legal"] = "\n".join(asked.legal)
        told = _TOLD.format(example=asked.legal[0] if asked.legal else "...")
        shown = "\n".join(f"{name}: {text}" for name, text in fields.items())
        tokenizer = self.engine.tokenizer
        request = Request(
            prompt_ids=tokenizer.chat(told, shown),
            sampling=Sampling(temperature=self.temperature, max_tokens=_TOKENS, stop=self.engine.stop_ids),
            seeds=(asked.random.getrandbits(63),),
        )
        (said,) = await self.engine.generate(request)
        ids = said.token_ids[:-1] if said.finish == "stop" else said.token_ids
        return move_in(tokenizer.decode(ids))


def move_in(answer: str) -> str:
    """The move of an answer: behind the last MOVE that begins a line, else all of it."""
    found = _MOVE.findall(answer)
    return (found[-1] if found else answer.strip())[:LONGEST_ACTION]


@asynccontextmanager
async def open_chat(source: str) -> AsyncIterator[ChatPlayer]:
    """The player of `openai:MODEL@URL` or `openai:MODEL@URL#VARIABLE`, the environment variable that holds the key.

    Raises:
        ConfigError: it reads otherwise, the key is not set, or the server does not have the model.
        EngineError: there is no such server.
    """
    engine = await ChatEngine.start(chat_options(source), source)
    try:
        yield ChatPlayer(engine)
    finally:
        await engine.close()

"""Answering one request that was read: by a model's completions, or by a team's turns."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from mas.core.bus import Gap, Restart
from mas.core.concurrency import together
from mas.core.engine import AdapterRef
from mas.endpoint.completions import (
    Alternatives,
    AnsweredPrompt,
    Delta,
    Made,
    Wanted,
    answer_prompt,
    complete,
    has_grammar,
    seeds_of,
    texts_of,
    wanted_chat,
    wanted_completion,
)
from mas.endpoint.durable_requests import KeptRequests, asked_of
from mas.endpoint.errors import Refused
from mas.endpoint.formats import TextFormat
from mas.endpoint.function_calls import Calling, CallReader
from mas.endpoint.limits import PromptReader
from mas.endpoint.models import Served
from mas.endpoint.response_format import EndpointReply, Json, Shape
from mas.endpoint.teams import TeamModel, TeamTurn
from mas.endpoint.wire import ChatRequest, CompletionRequest, Prompt
from mas.runtime.payloads import Piece

NOBODY: AdapterRef | None = None
"""A team's action is made by several adapters, so none is named."""

_MEMBERS_OWN = (
    "max_tokens", "stop", "stop_token_ids", "ignore_eos", "return_token_ids", "logprobs", "top_logprobs",
    "prompt_logprobs", "echo", "top_p", "top_k", "min_p", "response_format", "structured_outputs", "tools",
    "tool_choice",
)  # fmt: skip
"""Options that a team cannot honour: its members have their own limits, and their tokens are not shown."""
_CHANGE_NOTHING: Mapping[str, object] = {
    "stop": (),
    "top_k": -1,
    "response_format": TextFormat(type="text"),
    "tool_choice": "none",
}
"""Values of these that ask for nothing, beside those that they have where they are left out."""


@dataclass(slots=True, kw_only=True)
class Answering:
    """One request on its way to its answer.

    Attributes:
        key: of a request that is kept, None: the client gave none.
        kept: keeps the requests to teams; None: they end with their client.
        on_cost: told prompt and generated tokens as they come up.
        on_joined: told those of an answer that was begun by an earlier request.
        on_first_token: told the moment (`time.perf_counter`) of a stream's first token.
        on_made: told what a model said, before the last of it is sent.
    """

    served: Served
    prompts: PromptReader
    request: CompletionRequest | ChatRequest
    reply: EndpointReply
    shape: Shape
    on_cost: Callable[[int, int], None]
    on_joined: Callable[[int, int], None]
    on_first_token: Callable[[float], None]
    on_made: Made = lambda wanted, made: None
    key: str | None = None
    kept: KeptRequests | None = None
    speaking: set[int] = field(default_factory=set)
    readers: dict[int, CallReader] = field(default_factory=dict)
    generated: int = 0

    async def run(self) -> None:
        """Answer it.

        Raises:
            Refused, EngineError: before the answer is complete; what was told until then stays told.
        """
        model = self.served.find(self.request.model)
        if isinstance(model, TeamModel):
            await self._team(model)
            return
        if self.request.return_messages:
            raise Refused(400, "return_messages is for teams: a role sends no messages", param="return_messages")
        prompts = self.request.prompts if isinstance(self.request, CompletionRequest) else ("",)
        wanted = [await self._read(model, prompt) for prompt in prompts]
        await (self._stream(wanted[0]) if self.request.stream else self._whole(wanted))

    async def _read(self, model: str | None, prompt: Prompt) -> Wanted:
        """What one prompt asks for; a conversation has messages instead."""
        texts, has_form = texts_of(self.served, model, self.request, prompt), has_grammar(self.request)
        return await self.prompts.read(texts, lambda: self._wanted(model, prompt), is_slow=has_form)

    def _wanted(self, model: str | None, prompt: Prompt) -> Wanted:
        if isinstance(self.request, ChatRequest):
            return wanted_chat(self.served, model, self.request)
        return wanted_completion(self.served, model, self.request, prompt)

    async def _whole(self, wanted: Sequence[Wanted]) -> None:
        prompt = sum(len(one.prompt_ids) for one in wanted)
        try:
            made = await together([answer_prompt(self.served.engine, one) for one in wanted], "prompt")
        except asyncio.CancelledError:  # by a client that left, or a time limit
            self.on_cost(prompt, 0)
            raise
        for answered in made:
            self.on_made(answered.wanted, answered.completions)
        choices = [choice for number, one in enumerate(made) for choice in self._choices(number, one)]
        completions = [one for answered in made for one in answered.completions]
        generated = sum(len(one.token_ids) for one in completions)
        self.on_cost(prompt, generated)
        await self.reply.whole(self.shape.whole(choices, completions[0].adapter, prompt, generated))

    def _choices(self, number: int, answered: AnsweredPrompt) -> Iterator[Json]:
        """The choices of a prompt, the `number`-th of the request."""
        shape, wanted, scores = self.shape, answered.wanted, answered.scores
        prompt = shape.prompt(wanted.prompt_ids, scores.logprobs)
        for one in answered.completions:
            index = number * self.request.n + one.index
            reader = self._reader(index)
            text = (wanted.echo or "") + reader.add(one.text, is_last=True)
            choice = shape.choice(index, text, one.finish, one.stop_reason, reader.calls)
            ids: Sequence[int] = one.token_ids
            logprobs: Sequence[float | None] = one.logprobs
            alternatives: Alternatives = one.alternatives
            if wanted.echo is not None and scores.logprobs is not None:
                ids, logprobs = [*wanted.prompt_ids, *ids], [*scores.logprobs, *logprobs]
                alternatives = [*scores.alternatives, *alternatives]
            yield choice | shape.tokens(index, ids, logprobs, alternatives, one.token_ids) | prompt

    async def _stream(self, wanted: Wanted) -> None:
        made = await complete(self.served.engine, wanted, lambda delta: self._tell(wanted, delta))
        self.on_made(wanted, made)
        if self.shape.has_usage:
            await self.reply.event(self.shape.last(made[0].adapter, len(wanted.prompt_ids), self.generated))
        await self.reply.done()

    async def _tell(self, wanted: Wanted, delta: Delta) -> None:
        """Send a piece, unless there is nothing in it that the client asked for."""
        shape, reader = self.shape, self._reader(delta.index)
        known = len(reader.calls)
        text = reader.add(delta.text, is_last=bool(delta.finish))
        said: Json = {"content": text} if text else {}
        if new := [{"index": at, **call} for at, call in enumerate(reader.calls)][known:]:
            said |= {"tool_calls": new}
        choice = shape.choice(delta.index, text, delta.finish, delta.stop_reason, reader.calls, delta=said)
        choice |= shape.tokens(delta.index, delta.token_ids, delta.logprobs, delta.alternatives)
        self.generated += len(delta.token_ids)
        self.on_cost(0 if self.speaking else len(wanted.prompt_ids), len(delta.token_ids))
        if delta.index not in self.speaking:
            await self._open(wanted, delta, choice)
        if said or delta.finish or shape.shows_tokens:
            await self.reply.event(shape.chunk([choice], delta.adapter))

    def _reader(self, index: int) -> CallReader:
        """Reads the calls of functions out of one completion."""
        if index not in self.readers:
            calling = Calling.of(self.request) if isinstance(self.request, ChatRequest) else Calling()
            self.readers[index] = CallReader(calling)
        return self.readers[index]

    async def _open(self, wanted: Wanted, delta: Delta, choice: Json) -> None:
        """Before a choice's first piece: a message's opening, and the prompt's ids where they are wanted."""
        if not self.speaking:
            self.on_first_token(time.perf_counter())
        self.speaking.add(delta.index)
        prompt = self.shape.prompt(wanted.prompt_ids, None)
        if self.shape.is_chat:
            await self.reply.event(self.shape.chunk([self.shape.opening(delta.index) | prompt], delta.adapter))
        else:
            choice |= prompt

    async def _team(self, team: TeamModel) -> None:
        message = _situation(self.request)
        self._check_messages()
        turns = await self._turns(team, message)
        prompt, generated = sum(one.prompt_tokens for one in turns), sum(one.completion_tokens for one in turns)
        if not self.request.stream:
            whole = [self.shape.choice(index, turn.action, "stop") for index, turn in enumerate(turns)]
            await self.reply.whole(self.shape.whole(map(self._team_choice, whole, turns), NOBODY, prompt, generated))
            return
        self.on_first_token(time.perf_counter())
        deltas = [self.shape.spoken(index, turn.action) for index, turn in enumerate(turns)]
        await self.reply.event(self.shape.chunk(map(self._team_choice, deltas, turns), NOBODY))
        if self.shape.has_usage:
            await self.reply.event(self.shape.last(NOBODY, prompt, generated))
        await self.reply.done()

    def _team_choice(self, choice: Json, turn: TeamTurn) -> Json:
        """The choice, which says whether the team passed (then it has no text), and what its members said."""
        said = [{"agent": line.agent, "content": line.text, "failure": line.failure} for line in turn.said]
        return choice | {"passed": not turn.action} | ({"messages": said} if self.request.return_messages else {})

    def _check_messages(self) -> None:
        """Refuse to tell what members say where it is not to be told."""
        if not self.request.return_messages:
            return
        if not self.served.shows_messages:
            why = "what members say to each other is not shown: start the server with --show-messages"
            raise Refused(403, f"return_messages: {why}", param="return_messages", code="not_shown")
        if self.kept is not None:
            why = "requests that a journal keeps have no messages: start the server without --journal"
            raise Refused(400, f"return_messages: {why}", param="return_messages", code="unsupported_option")

    async def _turns(self, team: TeamModel, message: str) -> list[TeamTurn]:
        for text in team.texts(message):
            await self.prompts.check(text)
        if self.kept is not None:
            turns, is_new = await self.kept.turns(asked_of(team, message, self.request, self.key), self.on_cost)
            for turn in turns if not is_new else ():
                self.on_joined(turn.prompt_tokens, turn.completion_tokens)
            return turns
        parts = asyncio.Queue[Json | None]()
        is_told = self.request.return_messages and self.request.stream
        plays = [
            team.turn(
                message,
                seed,
                self.request.temperature,
                on_part=partial(_put, parts, index) if is_told else None,
                on_cost=self.on_cost,
            )
            for index, seed in enumerate(seeds_of(self.request))
        ]
        telling = asyncio.create_task(self._tell_parts(parts))
        try:
            turns = await together(plays, "team-turn")
            parts.put_nowait(None)
            await telling
        finally:
            telling.cancel()
        return turns

    async def _tell_parts(self, parts: "asyncio.Queue[Json | None]") -> None:
        """Send what members say while they say it, until the turns are over."""
        while (part := await parts.get()) is not None:
            await self.reply.event(self.shape.chunk((), NOBODY) | {"member": part})


def _put(parts: "asyncio.Queue[Json | None]", index: int, agent: str, told: Piece | Gap | Restart) -> None:
    """A part as clients get it: `index`: of the choice; `restart`: all that came of this agent before is void."""
    text = {"content": told.text} if isinstance(told, Piece) else {"content": "", "restart": isinstance(told, Restart)}
    parts.put_nowait({"index": index, "agent": agent, **text})


def _situation(request: CompletionRequest | ChatRequest) -> str:
    """The text that describes a team's situation: the prompt, or the last message of the user."""
    fields = type(request).model_fields
    for name in _MEMBERS_OWN:
        if name in fields and getattr(request, name) not in (fields[name].default, _CHANGE_NOTHING.get(name)):
            why = "its members have their own, and what they say to each other is not shown"
            raise Refused(400, f"{name} is not possible with a team: {why}", param=name, code="unsupported_option")
    if isinstance(request, CompletionRequest):
        prompt, *others = request.prompts
        if isinstance(prompt, str) and not others:
            return prompt
        raise Refused(400, "a team is asked with one text, not with several or with token ids", param="prompt")
    said = [message.content for message in request.messages if message.role == "user"]
    if not said:
        raise Refused(400, "there is no message of the user, which describes the team's situation", param="messages")
    return said[-1]

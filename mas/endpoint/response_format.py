"""Answers as they go over the wire: OpenAI's objects with vLLM's additions, and `adapter`, which says who spoke.

The one answer of a request is sent whole as JSON, or in events as they come; an error fits in both.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from starlette.types import Send

from mas.core.engine import AdapterRef, Tokenizer
from mas.endpoint.errors import Refused
from mas.endpoint.wire import ChatRequest, CompletionRequest
from mas.endpoint.wire_base import Wire

Json = dict[str, Any]
LOWEST = -9999.0
"""Stands for log-probabilities below it, which JSON might not be able to write."""
_WHOLE = (b"content-type", b"application/json")
_EVENTS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))


class Shape:
    """The form of one request's answers: a chat's messages, or a completion's texts."""

    def __init__(self, request: CompletionRequest | ChatRequest, tokenizer: Tokenizer) -> None:
        self.request = request
        self.is_chat = isinstance(request, ChatRequest)
        self.has_logprobs = request.logprobs is not None and request.logprobs is not False  # 0 asks for them
        self.shows_tokens = self.has_logprobs or request.return_token_ids
        self._tokenizer = tokenizer
        self._id = f"{'chatcmpl' if self.is_chat else 'cmpl'}-{uuid4().hex}"
        self._created = int(time.time())
        self._offsets = [0] * request.completions

    def whole(self, choices: Iterable[Json], ref: AdapterRef | None, prompt: int, generated: int) -> Json:
        """The answer in one piece."""
        kind = "chat.completion" if self.is_chat else "text_completion"
        return self._envelope(kind, choices, ref) | {"usage": _usage(prompt, generated)}

    def chunk(self, choices: Iterable[Json], ref: AdapterRef | None) -> Json:
        """A piece of a streamed answer."""
        kind = "chat.completion.chunk" if self.is_chat else "text_completion"
        return self._envelope(kind, choices, ref) | ({"usage": None} if self.has_usage else {})

    def last(self, ref: AdapterRef | None, prompt: int, generated: int) -> Json:
        """The chunk behind a streamed answer that says what it cost."""
        return self.chunk((), ref) | {"usage": _usage(prompt, generated)}

    @property
    def has_usage(self) -> bool:
        """Whether a stream ends with `last`."""
        options = self.request.stream_options
        return options is not None and options.include_usage

    def choice(
        self,
        index: int,
        text: str,
        finish: str,
        stop_reason: str | int | None = None,
        calls: Sequence[Json] = (),
        *,
        delta: Json | None = None,
    ) -> Json:
        """A choice of a whole answer; or of a chunk.

        Args:
            finish: empty: the choice goes on.
            calls: those of functions, all until now.
            delta: what is new in a chunk's message; None: it is no chunk.
        """
        message: Json = {"role": "assistant", "content": text}
        if calls:
            message |= {"content": text or None, "tool_calls": list(calls)}
        chat: Json = {"message": message} if delta is None else {"delta": delta}
        finish = "tool_calls" if finish == "stop" and calls else finish
        end = {"logprobs": None, "finish_reason": finish or None, "stop_reason": stop_reason}
        return {"index": index, **(chat if self.is_chat else {"text": text}), **end}

    def opening(self, index: int) -> Json:
        """The choice that a streamed message begins with."""
        return self.choice(index, "", "", delta={"role": "assistant", "content": ""})

    def spoken(self, index: int, text: str) -> Json:
        """The choice of a chunk that says all at once."""
        return self.choice(index, text, "stop", delta={"role": "assistant", "content": text})

    def tokens(
        self,
        index: int,
        ids: Sequence[int],
        logprobs: Sequence[float | None],
        alternatives: Sequence[Sequence[tuple[int, float]]] = (),
        generated: Sequence[int] | None = None,
    ) -> Json:
        """What a choice says of its next tokens, as far as the request asked for it.

        Args:
            logprobs: None for a prompt's first token.
            alternatives: of each token, the most likely ones at its place; empty: they were not asked for.
            generated: those of the ids that are not the prompt's; None: all.
        """
        own = ids if generated is None else generated
        fields: Json = {"token_ids": list(own)} if self.request.return_token_ids else {}
        if not self.has_logprobs:
            return fields
        words = [self._word(token) for token in ids]
        values = [None if value is None else max(value, LOWEST) for value in logprobs]
        others = [[(self._word(token), max(value, LOWEST)) for token, value in place] for place in alternatives]
        places = zip(words, values, others or [[]] * len(words), strict=True)
        if self.is_chat:
            return fields | {"logprobs": {"content": [_chat_logprob(*place) for place in places]}}
        return fields | {"logprobs": self._logprobs(index, words, values, [_likely(*place) for place in places])}

    def prompt(self, ids: Sequence[int], logprobs: Sequence[float | None] | None) -> Json:
        """What a choice says of the prompt's tokens, as far as the request asked for it."""
        fields: Json = {"prompt_token_ids": list(ids)} if self.request.return_token_ids else {}
        if logprobs is None or getattr(self.request, "prompt_logprobs", None) is None:
            return fields
        scored = [
            None if value is None else {str(token): self._scored(token, value)}
            for token, value in zip(ids, logprobs, strict=True)
        ]
        return fields | {"prompt_logprobs": scored}

    def _logprobs(
        self, index: int, words: list[str], values: list[float | None], told: list[dict[str, float] | None]
    ) -> Json:
        offsets = []
        for word in words:
            offsets.append(self._offsets[index])
            self._offsets[index] += len(word)
        return {"tokens": words, "token_logprobs": values, "top_logprobs": told, "text_offset": offsets}

    def _scored(self, token: int, value: float) -> Json:
        """Engines know the log-probability of a token, not its rank."""
        return {"logprob": max(value, LOWEST), "rank": None, "decoded_token": self._tokenizer.decode((token,))}

    def _word(self, token: int) -> str:
        return f"token_id:{token}" if self.request.return_tokens_as_token_ids else self._tokenizer.decode((token,))

    def _envelope(self, kind: str, choices: Iterable[Json], ref: AdapterRef | None) -> Json:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self.request.model,
            "choices": list(choices),
            "adapter": None if ref is None else {"name": ref.name, "version": ref.version},
        }


def _usage(prompt: int, generated: int) -> Json:
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}


def _likely(word: str, value: float | None, others: Sequence[tuple[str, float]]) -> dict[str, float] | None:
    """The most likely tokens at a place and the one that stands there; of several with one text the most likely."""
    if value is None:
        return None
    told: dict[str, float] = {}
    for other, own in (*others, (word, value)):
        told[other] = max(own, told.get(other, own))
    return told


def _chat_logprob(word: str, value: float | None, others: Sequence[tuple[str, float]]) -> Json:
    return _said(word, value) | {"top_logprobs": [_said(other, own) for other, own in others]}


def _said(word: str, value: float | None) -> Json:
    return {"token": word, "logprob": value, "bytes": list(word.encode())}


class EndpointReply:
    """Nothing is sent before the first piece, so that an error until then has its own status.

    Attributes:
        status: what the request ended with: that of the answer, or of the error behind its first events.
        model: that is asked; empty until it is known to be served.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_begun = False
        self._order = asyncio.Lock()
        self.status, self.model = 200, ""

    def begin(self, request: Wire) -> Wire:
        """The request that is answered, which may ask for the same in another form."""
        return request

    async def whole(self, answer: Mapping[str, Any]) -> None:
        """The answer in one piece."""
        await self._json(200, answer, {})

    async def event(self, answer: Mapping[str, Any]) -> None:
        """A piece of a streamed answer."""
        await self.send_event(_data(encoded(answer)))

    async def done(self) -> None:
        """The end of a streamed answer."""
        await self.send_event(_data(b"[DONE]"))
        await self.close()

    async def fail(self, error: Refused) -> None:
        """The error, as the answer or as the last event of one."""
        self.status = error.status
        if self._is_begun:
            await self.send_event(_data(encoded(error.body())))
            await self.done()
        else:
            await self._json(error.status, error.body(), error.headers)

    async def send_event(self, event: bytes) -> None:
        """An event as it stands in the stream."""
        async with self._order:
            if not self._is_begun:
                self._is_begun = True
                await self._send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
            await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def close(self) -> None:
        """Nothing more comes."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _json(self, status: int, content: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        body = encoded(content)
        more = [(name.encode(), value.encode()) for name, value in headers.items()]
        length = (b"content-length", str(len(body)).encode())
        self._is_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": [_WHOLE, length, *more]})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def _data(text: bytes) -> bytes:
    return b"data: " + text + b"\n\n"


def encoded(content: Mapping[str, Any]) -> bytes:
    """As it goes over the wire."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()

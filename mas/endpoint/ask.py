"""From a request to what the engine is asked: prompt ids, sampling, seeds; defaults from the role that speaks."""

import secrets
from collections.abc import Sequence

from mas.core.engine import Sampling, Tokenizer
from mas.endpoint.errors import Refused
from mas.endpoint.models import RoleModel, Served
from mas.endpoint.speak import Wanted
from mas.endpoint.wire import ChatMessage, ChatRequest, CompletionRequest, Sampled

COMPLETION_TOKENS = 16
"""`max_tokens` of a raw completion where neither the client nor a role says it, as OpenAI has it."""


def texts_of(served: Served, adapter: str | None, request: Sampled) -> list[str]:
    """All that must be tokenized for a request."""
    texts = [*(request.stop or ())]
    if isinstance(request, ChatRequest):
        texts += [message.content for message in request.messages]
        texts.append(served.speaker(adapter).system)
    elif isinstance(request, CompletionRequest) and isinstance(request.prompt, str):
        texts.append(request.prompt)
    return texts


def wanted_completion(served: Served, adapter: str | None, request: CompletionRequest) -> Wanted:
    """What a raw prompt asks for."""
    tokenizer = served.engine.tokenizer
    if isinstance(request.prompt, str):
        begin = tokenizer.begin if request.add_special_tokens else ()
        prompt_ids = begin + tokenizer.encode(request.prompt)
    else:
        prompt_ids = request.prompt
    return _wanted(served, adapter, request, prompt_ids, COMPLETION_TOKENS)


def wanted_chat(served: Served, adapter: str | None, request: ChatRequest) -> Wanted:
    """What a conversation asks for."""
    prompt_ids = chat_prompt(served.engine.tokenizer, served.speaker(adapter), request.messages)
    return _wanted(served, adapter, request, prompt_ids, None)


def chat_prompt(tokenizer: Tokenizer, speaker: RoleModel, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
    """The conversation through the chat template, with the role's own system message where there is none; or, for
    roles that do not chat, the contents line by line.

    Raises:
        RefusedRequest: the chat template does not take these messages.
    """
    if not speaker.chats:
        return tokenizer.begin + tokenizer.encode("\n".join(message.content for message in messages))
    turns = [("system" if one.role == "developer" else one.role, one.content) for one in messages]
    if speaker.system and all(role != "system" for role, _ in turns):
        turns.insert(0, ("system", speaker.system))
    return tokenizer.chat_messages(turns)


def seeds_of(request: Sampled) -> tuple[int, ...]:
    """One seed per completion: that of the request and those after it, or a random one."""
    first = secrets.randbits(63) if request.seed is None else request.seed
    return seeds_from(first, request.n)


def seeds_from(first: int, count: int) -> tuple[int, ...]:
    """A seed and those after it."""
    return tuple((first + index) % 2**64 for index in range(count))


def _wanted(
    served: Served, adapter: str | None, request: Sampled, prompt_ids: tuple[int, ...], usual: int | None
) -> Wanted:
    speaker, tokenizer = served.speaker(adapter), served.engine.tokenizer
    if not prompt_ids:
        raise Refused(400, "the prompt is empty: give at least one token", param="prompt")
    says_nothing = request.stop is None and not request.stop_token_ids and not request.ignore_eos
    stops = speaker.stop if says_nothing else request.stop or ()
    single = _single_tokens(tokenizer, stops)
    own = () if request.ignore_eos else served.engine.stop_ids
    stop_ids = dict.fromkeys((*own, *request.stop_token_ids, *single))
    sampling = Sampling(
        temperature=speaker.temperature if request.temperature is None else request.temperature,
        max_tokens=request.max_tokens or _default_tokens(speaker.max_tokens or usual, served.context - len(prompt_ids)),
        stop=tuple(stop_ids),
    )
    return Wanted(
        prompt_ids=prompt_ids,
        seeds=seeds_of(request),
        sampling=sampling,
        stops=stops,
        reasons={**{token: token for token in request.stop_token_ids}, **single},
        adapter=adapter,
    )


def _single_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[int, str]:
    """Token id -> text, for the texts that are exactly one token; one for unknown characters is none."""
    encoded = {text: tokenizer.encode(text) for text in texts}
    return {ids[0]: text for text, ids in encoded.items() if len(ids) == 1 and tokenizer.decode(ids) == text}


def _default_tokens(usual: int | None, room: int) -> int:
    """What is usual, or less where the context has less room; at least 1, so that the engine says what is too long."""
    return max(1, room if usual is None else min(usual, room))

"""Text as token ids where a model's own tokenizer is not at hand: one token per character."""

from collections.abc import Sequence

from mas.core.errors import EngineError, RefusedRequest

END = 0
"""The token that ends a text."""
CHARACTERS = 0x110001
"""How many ids there are: every Unicode character, and the end."""
_ROLES = ("system", "user", "assistant")


class CharacterTokenizer:
    """One token per Unicode character: its code point + 1; 0 ends a text.

    Args:
        has_chat: whether it pretends to have a chat template, which puts an empty line behind every message.
    """

    begin: tuple[int, ...] = ()

    def __init__(self, *, has_chat: bool = True) -> None:
        self.has_chat = has_chat

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple([ord(character) + 1 for character in text])

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join([chr(token - 1) for token in token_ids if END < token < CHARACTERS])

    def chat(self, system: str, user: str, prefill: str = "") -> tuple[int, ...]:
        told = (("system", system),) if system else ()
        return self.chat_messages((*told, ("user", user))) + self.encode(prefill)

    def chat_messages(self, messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        if not self.has_chat:
            raise EngineError("this tokenizer was made without a chat template")
        return self.encode("".join(f"{content}\n\n" for _, content in messages))


class MessageTokenizer(CharacterTokenizer):
    """Keeps the messages of a conversation apart, for models that are sent messages and answer with text.

    Before every message stands a token of its own for the role that speaks.
    """

    size = CHARACTERS + len(_ROLES)
    """How many ids there are."""

    def chat(self, system: str, user: str, prefill: str = "") -> tuple[int, ...]:
        begun = (("assistant", prefill),) if prefill else ()
        return self.chat_messages((("system", system), ("user", user), *begun))

    def chat_messages(self, messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        ids: list[int] = []
        for role, content in messages:
            if role not in _ROLES:
                raise RefusedRequest(f"no role {role!r} in a conversation; there are: {', '.join(_ROLES)}")
            ids += (CHARACTERS + _ROLES.index(role), *self.encode(content))
        return tuple(ids)

    def messages(self, token_ids: Sequence[int]) -> list[dict[str, str]]:
        """What `chat_messages` encoded, an empty system message left out; a plain text is one message of the user."""
        ids = tuple(token_ids)
        starts = [place for place, token in enumerate(ids) if token >= CHARACTERS]
        if not starts or starts[0] != 0:
            return [{"role": "user", "content": self.decode(ids)}]
        said = [
            (_ROLES[ids[start] - CHARACTERS], self.decode(ids[start:stop]))
            for start, stop in zip(starts, [*starts[1:], len(ids)], strict=True)
        ]
        return [{"role": role, "content": text} for role, text in said if text or role != "system"]

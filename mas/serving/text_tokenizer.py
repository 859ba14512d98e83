"""Text as token ids where a model's own tokenizer is not at hand: one token per character."""

from collections.abc import Sequence

END = 0
"""The token that ends a text."""
CHARACTERS = 0x110001
"""How many ids there are: every Unicode character, and the end."""
_SYSTEM = CHARACTERS
_USER = CHARACTERS + 1


class CharacterTokenizer:
    """One token per Unicode character: its code point + 1; 0 ends a text."""

    begin: tuple[int, ...] = ()

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(ord(character) + 1 for character in text)

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(token - 1) for token in token_ids if END < token < CHARACTERS)

    def chat(self, system: str, user: str) -> tuple[int, ...]:
        return self.encode(f"{system}\n\n{user}\n\n")


class MessageTokenizer(CharacterTokenizer):
    """Keeps the messages of a conversation apart, for models that are sent messages and answer with text."""

    size = CHARACTERS + 2

    def chat(self, system: str, user: str) -> tuple[int, ...]:
        return (_SYSTEM, *self.encode(system), _USER, *self.encode(user))

    def messages(self, token_ids: Sequence[int]) -> list[dict[str, str]]:
        """What `chat` encoded, empty messages left out; ids of a plain text are one message of the user."""
        ids = tuple(token_ids)
        if not ids or ids[0] != _SYSTEM:
            return [{"role": "user", "content": self.decode(ids)}]
        middle = ids.index(_USER)
        parts = {"system": self.decode(ids[:middle]), "user": self.decode(ids[middle:])}
        return [{"role": role, "content": text} for role, text in parts.items() if text or role == "user"]

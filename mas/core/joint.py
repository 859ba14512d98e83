"""The action of a team whose members act together: a JSON object of what each of them does."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

import msgspec

_READ = msgspec.json.Decoder(dict[str, str])


def joint_action(said: Mapping[str, str]) -> str:
    """Agent -> what it does, as the one text that a world gets; empty (a pass) where nobody does anything."""
    texts = {agent: text.encode(errors="replace").decode() for agent, text in said.items()}
    return msgspec.json.encode(texts).decode() if texts else ""


def read_joint(action: str, agents: Collection[str]) -> Mapping[str, str] | None:
    """Agent -> what it does. None: it is no JSON object of texts, is empty, or names somebody else."""
    try:
        said = _READ.decode(action)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return MappingProxyType(said) if said and said.keys() <= set(agents) else None

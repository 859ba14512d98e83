"""What is served under which name: the bare base, every adapter of the engine, and teams."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mas.core.engine import Engine
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.endpoint.errors import Refused
from mas.endpoint.teams import TeamModel

TEAM = "team:"
"""Begins every team's model name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleModel:
    """How the role that uses an adapter is asked, where the client does not say.

    Attributes:
        system: put first in a conversation without a system message; empty: nothing.
        chats: whether a conversation goes through the chat template; False: its texts, line by line, are the prompt.
        max_tokens: None: whatever room there is.
        most_tokens: of an answer, whatever the client asks for; None: as many as it asks for.
    """

    system: str = ""
    chats: bool = False
    max_tokens: int | None = None
    temperature: float = 1.0
    stop: tuple[str, ...] = ()
    most_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Everything that one server serves. Adapters that are published later are served, too.

    Attributes:
        base: model name of the bare base.
        context: tokens that a prompt and its completion may have together.
        roles: adapter -> the role that uses it; one that is not named here is asked like the base.
        created: seconds since 1970, told as the age of every model.
        longest_token: characters that a token stands for, at most.
        shows_messages: whether clients may ask for what a team's members say to each other.

    Raises:
        ConfigError: two models have one name.
    """

    engine: Engine
    base: str
    context: int
    roles: Mapping[str, RoleModel]
    teams: Sequence[TeamModel]
    created: int
    longest_token: int = 128
    shows_messages: bool = False

    def __post_init__(self) -> None:
        names = self.names()
        double = next((name for name in names if names.count(name) > 1), None)
        if double is not None:
            raise ConfigError(f"two models are called {double!r}: give the base, the adapter or the team another name")

    def names(self) -> list[str]:
        """All model names: the base first, teams last."""
        return [self.base, *sorted(self.engine.adapters()), *(TEAM + team.name for team in self.teams)]

    def find(self, name: str) -> str | TeamModel | None:
        """The adapter (None: the bare base) or the team behind a model name.

        Raises:
            Refused: there is no such model.
        """
        if name in self.engine.adapters():
            return name
        if name == self.base:
            return None
        for team in self.teams:
            if name == TEAM + team.name:
                return team
        raise Refused(
            404, f"no model {name!r}. {did_you_mean(name, self.names())}", param="model", code="model_not_found"
        )

    def role(self, adapter: str | None) -> RoleModel:
        """How an adapter, or the base, is asked."""
        known = None if adapter is None else self.roles.get(adapter)
        return known or RoleModel(chats=self.engine.tokenizer.has_chat)

    def cards(self) -> Iterator[dict[str, Any]]:
        """Every model as `GET /v1/models` lists it."""
        yield self._card(self.base, "base", None)
        for name, ref in sorted(self.engine.adapters().items()):
            yield self._card(name, "adapter", self.base) | {"version": ref.version}
        for team in self.teams:
            yield self._card(TEAM + team.name, "team", self.base) | {"example": team.example}

    def _card(self, name: str, kind: str, parent: str | None) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self.created,
            "owned_by": "mas",
            "root": name,
            "parent": parent,
            "max_model_len": self.context,
            "kind": kind,
        }

"""A role that an agent elsewhere plays, as a team's file says it: what has no effect is refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from mas.bus.memory import MemoryBus
from mas.commands.serve import check_protocols
from mas.config.access import stored_classes
from mas.config.trust import check_accesses
from mas.core.errors import ConfigError, GraphError, MissingPackage, RunDirectoryError, TrustError
from mas.core.remote_agent import RemoteAgent
from mas.core.role import RoleSpec
from mas.graph import compile_team, load_team
from mas.roles import build_roles
from mas.runtime.team import TeamRuntime
from mas.serving.remote_a2a import A2aEngine
from mas.testing.scripted import ScriptedEngine

URL = "https://agents.example/critic"


def team(**role: Any) -> dict[str, Any]:
    """A team of one role that an agent elsewhere plays."""
    return {
        "name": "asked",
        "roles": {"critic": {"type": "executor", "view": "solo", "a2a": {"url": URL, "key_env": "CRITIC_KEY"}, **role}},
        "edges": ["start -> critic", "critic -> done"],
        "output": "critic",
    }


def test_the_role_is_frozen_and_its_file_can_be_written_and_read_again(tmp_path: Path) -> None:
    spec = load_team(team())
    critic = spec.roles["critic"]
    assert (critic.voice, critic.trainable) == ("a2a", False)
    assert critic.a2a is not None
    assert critic.a2a.card_url == f"{URL}/.well-known/agent-card.json"
    path = tmp_path / "asked.yaml"
    path.write_text(yaml.safe_dump(spec.model_dump(mode="json", exclude_defaults=True)))
    assert load_team(path) == spec
    assert RoleSpec.model_validate({"a2a": {"url": f"{URL}/card.json"}}).a2a.card_url == f"{URL}/card.json"  # type: ignore[union-attr]


def test_the_fingerprint_of_other_teams_does_not_know_of_it() -> None:
    plain = team() | {"roles": {"critic": {"type": "executor", "view": "solo"}}}
    before, after = (compile_team(one, build_roles(one)).digest for one in map(load_team, (plain, team())))
    assert before == "cc7d33de8d2139f5", "as it was before roles had `a2a` and `privileges`: journals stay theirs"
    assert after != before


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "trained": ({"trainable": True}, "leave trainable out"),
    "two models": ({"peer": "other", "trainable": False}, "so that peer has no effect"),
    "a template": ({"template": "C{goal}>"}, "so that template has no effect"),
    "a limit": ({"max_tokens": 5}, "so that max_tokens has no effect"),
    "a temperature": ({"temperature": 0.5}, "so that temperature has no effect"),
    "another voice": ({"voice": "human"}, "voice: a2a and a2a go together"),
    "a voice alone": ({"a2a": None, "voice": "a2a"}, "voice: a2a and a2a go together"),
    "no address": ({"a2a": {"url": "agents.example"}}, "is no address"),
    "a key in the address": ({"a2a": {"url": "https://me:sesame@agents.example"}}, "give the address alone"),
    "a key as a variable": ({"a2a": {"url": URL, "key_env": "sk-1234"}}, "no name of an environment variable"),
    "a header without a key": ({"a2a": {"url": URL, "header": "X-Key"}}, "no effect without key_env"),
    "no header": ({"a2a": {"url": URL, "key_env": "K", "header": "a: b"}}, "no name of an HTTP header"),
    "an unknown key": ({"a2a": {"url": URL, "key": "sesame"}}, "unknown key 'roles.critic.a2a.key'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_has_no_effect_or_no_meaning_is_refused(name: str) -> None:
    role, why = WRONG[name]
    with pytest.raises(GraphError, match=why) as caught:
        load_team(team(**role))
    assert "sk-1234" not in str(caught.value)


async def test_without_an_open_endpoint_the_engine_does_not_play_the_role() -> None:
    spec, bus = load_team(team()), MemoryBus()
    with pytest.raises(ConfigError, match="role 'critic' is played by an agent elsewhere"):
        TeamRuntime(compile_team(spec, build_roles(spec)), ScriptedEngine(lambda *_: "x"), bus, adapters={})
    await bus.close()


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mas.core.remote_agent.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"role 'critic', which .* needs the package a2a-sdk.*'mas\[a2a\]'"):
        A2aEngine(RemoteAgent(url=URL), "critic")
    with pytest.raises(MissingPackage, match=r"serving A2A needs the package a2a-sdk.*'mas\[a2a\]'"):
        check_protocols(a2a=True)


def test_the_agent_of_somebody_elses_run_must_be_allowed(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(yaml.safe_dump(team()))
    (access,) = stored_classes(path)
    card = f"{URL}/.well-known/agent-card.json"
    assert access.what == f"ask the agent of {card} with the key in the environment variable CRITIC_KEY"
    with pytest.raises(TrustError, match=r"roles\.critic\.a2a"):
        check_accesses([access], "run directory x")
    path.write_text(yaml.safe_dump(team(a2a={"url": 3})))
    with pytest.raises(RunDirectoryError, match="an 'a2a' cannot be read"):
        stored_classes(path)

"""What a role has learned as text stands in its own prompts; without any, prompts are as they were."""

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Observation
from mas.core.errors import ConfigError
from mas.core.messages import Plan
from mas.core.role import Message, RoleSpec, View
from mas.endpoint.teams import fields_read
from mas.graph.plan import compile_team
from mas.roles import PromptedRole, build_role, build_roles
from mas.scenarios import build_scenario

SEEN = View(observation=Observation({"x": "1"}), messages=(Message("planner", Plan(text="go")),))
LEARNED = ("Look first.", "Then act.")


def role(**options: object) -> PromptedRole:
    made = build_role("r", RoleSpec.model_validate(options))
    assert isinstance(made, PromptedRole)
    return made


@pytest.mark.parametrize(
    ("template", "bare", "taught"),
    [
        (None, "x: 1\nplanner: go\nr:", "Look first.\nThen act.\nx: 1\nplanner: go\nr:"),
        ("{x}>", "1>", "Look first.\nThen act.\n1>"),
        ("{x}\n{experiences}{from.planner}>", "1\ngo>", "1\nLook first.\nThen act.\ngo>"),
    ],
)
def test_a_compact_prompt_has_a_line_for_each(template: str | None, bare: str, taught: str) -> None:
    assert role(template=template).prompt(SEEN) == bare
    assert role(template=template, experiences=LEARNED).prompt(SEEN) == taught


def test_a_chat_prompt_has_them_in_the_instructions_and_nowhere_else() -> None:
    system, user = role(instructions="Be good.").chat(SEEN)
    assert role(instructions="Be good.", experiences=LEARNED).chat(SEEN) == (
        f"{system}\n\nWhat earlier attempts at such tasks have taught you:\n[G0] Look first.\n[G1] Then act.",
        user,
    )


def test_an_experience_is_text_and_never_a_template() -> None:
    assert role(template="{experiences}{x}", experiences=["{x} {self} {{"]).prompt(SEEN) == "{x} {self} {{\n1"


@pytest.mark.parametrize("text", ["", " x", "two\nlines", "a\u2028b"])
def test_an_experience_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="not one line"):
        RoleSpec(experiences=(text,))


def test_the_place_of_experiences_is_no_field_of_an_observation() -> None:
    scenario = build_scenario(ScenarioOptions(name="relay"))
    team = scenario.teams["team"]
    roles = {
        name: spec.model_copy(update={"template": "{experiences}" + (spec.template or "")})
        for name, spec in team.roles.items()
    }
    changed = team.model_copy(update={"roles": roles})
    before, after = (fields_read(compile_team(one, build_roles(one))) for one in (team, changed))
    assert before == after


def test_only_an_unknown_name_in_a_template_is_an_error() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'experiences'"):
        role(template="{experience}").prompt(SEEN)

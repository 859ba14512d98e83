from pathlib import Path

import pytest

from mas.core.errors import ConfigError
from mas.core.role import RoleSpec
from mas.core.team import TeamSpec
from mas.roles import BUILT_IN, build_role, build_roles


def refused(match: str, **spec: object) -> None:
    with pytest.raises(ConfigError, match=match):
        build_role("mine", RoleSpec.model_validate(spec))


def test_build_roles_makes_every_role_under_its_name() -> None:
    spec = TeamSpec(name="t", roles={"a": RoleSpec(), "b": RoleSpec(type="planner")}, edges=(), output="a")
    roles = build_roles(spec)
    assert {name: (role.name, role.emits) for name, role in roles.items()} == {"a": ("a", "note"), "b": ("b", "plan")}


@pytest.mark.parametrize("kind", sorted(BUILT_IN))
def test_every_built_in_type_hears_failures_even_if_accepts_leaves_them_out(kind: str) -> None:
    assert build_role("r", RoleSpec(type=kind, accepts=("plan",))).accepts == {"plan", "failure"}


def test_an_unknown_type_names_the_nearest() -> None:
    refused(r"'mine'.*'plannr'.*Did you mean 'planner'\?.*package.module:Class", type="plannr")


def test_a_module_that_cannot_be_imported_is_named() -> None:
    refused("module 'no_such_module' cannot be imported", type="no_such_module:Role")
    refused("module '' cannot be imported", type=":Role")
    refused("there is no file no_such_file.py", type="no_such_file.py:Role")


def test_a_class_that_does_not_exist_names_the_nearest() -> None:
    refused("no class 'Refere'.*Did you mean 'Referee'", type="referee:Refere")
    refused("no class 'NOT_A_CLASS'", type="referee:NOT_A_CLASS")


def test_a_class_in_a_file_needs_no_package(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from mas.roles.base import PromptedRole\n\nclass Mine(PromptedRole):\n    mark = 7\n")
    role = build_role("mine", RoleSpec(type=f"{file}:Mine"))
    assert (type(role).__name__, vars(type(role))["mark"]) == ("Mine", 7)
    refused("has no class 'Mien'.*Did you mean 'Mine'", type=f"{file}:Mien")


def test_a_class_that_is_no_role_is_told_what_it_lacks() -> None:
    refused(
        r"is no role: it lacks \['emits', 'accepts', 'routes', 'prompt', 'chat', 'parse'\]", type="referee:NotARole"
    )


def test_a_class_with_another_constructor_is_refused() -> None:
    refused(r"could not be made from \(name, spec\)", type="referee:NeedsMore")


def test_a_users_class_is_made_with_its_routes() -> None:
    assert build_role("mine", RoleSpec(type="referee:Referee")).routes == ("play", "stop")


def test_a_role_refuses_to_emit_what_it_cannot_build() -> None:
    refused(
        "cannot emit 'verdict'. Possible: 'action', 'feedback', 'items', 'note', 'plan'",
        type="executor",
        emits="verdict",
    )
    refused("cannot emit 'action'.*Possible: 'verdict'", type="verifier", emits="action")


def test_a_failure_route_must_be_a_route_of_the_role() -> None:
    refused("no route 'reject'.*Nothing is possible", type="executor", failure_route="reject")
    refused("no route 'rejct'.*Did you mean 'reject'", type="verifier", failure_route="rejct")


def test_a_verifier_needs_two_different_answers() -> None:
    refused("two different answers", type="verifier", accept_text="Yes", reject_text="yes ")
    refused("two different answers", type="verifier", accept_text="")


def test_an_empty_choice_is_refused() -> None:
    refused("empty choice", type="executor", choices=["a", ""])

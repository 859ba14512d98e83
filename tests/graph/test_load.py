import re
from pathlib import Path

import pytest

from mas.config.plain_values import read_stored
from mas.core.errors import GraphError, RunDirectoryError
from mas.core.role import RoleSpec
from mas.core.team import EdgeSpec
from mas.graph import compile_team, load_team
from mas.roles import build_roles

DATA = Path(__file__).parent / "data"
TEAMS = sorted(path for path in DATA.glob("*.yaml") if path.name != "two_file_planner.yaml")
GOOD = {"name": "t", "roles": {"a": {"type": "executor"}}, "edges": ["start -> a", "a -> done"], "output": "a"}


def refused(changes: dict[str, object]) -> str:
    with pytest.raises(GraphError) as caught:
        load_team(GOOD | changes)
    return str(caught.value)


def written(folder: Path, text: str) -> Path:
    path = folder / "team.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", TEAMS, ids=lambda path: path.stem)
def test_every_example_team_loads_and_compiles(path: Path) -> None:
    spec = load_team(path)
    assert spec.name == path.stem
    assert load_team(str(path)) == spec
    assert compile_team(spec, build_roles(spec)).spec is spec


def test_edges_are_written_as_arrows_with_route_and_bound() -> None:
    spec = load_team(GOOD | {"edges": ["a -> b when ok loop 3", {"source": "a", "target": "b"}]})
    assert spec.edges == (EdgeSpec(source="a", target="b", when="ok", loop=3), EdgeSpec(source="a", target="b"))


def test_a_role_may_live_in_a_file_of_its_own() -> None:
    assert load_team(DATA / "two_file.yaml").roles["planner"] == RoleSpec(
        type="planner", instructions="Plan in one line.", max_tokens=32
    )


def test_a_role_without_keys_has_the_defaults(tmp_path: Path) -> None:
    path = written(tmp_path, "name: t\nroles: {a: }\nedges: [start -> a]\noutput: a\n")
    assert load_team(path).roles == {"a": RoleSpec()}


def test_an_unknown_key_names_its_place_value_and_neighbours() -> None:
    message = refused({"roles": {"a": {"tempreature": 3}}, "otput": "a"})
    assert "unknown key 'roles.a.tempreature' (value 3). Did you mean 'temperature'" in message
    assert "unknown key 'otput' (value 'a'). Did you mean 'output'" in message
    assert "unknown key 'edges.0.frm' (value 1)" in refused({"edges": [{"source": "a", "target": "b", "frm": 1}]})
    below = refused({"roles": {"a": {"constraint": {"rgex": "x"}}}})
    assert "unknown key 'roles.a.constraint.rgex' (value 'x'). Did you mean 'regex'" in below


def test_a_missing_key_is_named() -> None:
    with pytest.raises(GraphError, match="the key 'output' is missing"):
        load_team({"name": "t", "roles": {}, "edges": []})


def test_a_value_that_does_not_fit_is_shown_with_what_fits() -> None:
    assert "'joins.a.need': need is 'every'; possible: 'all', 'any', 'quorum', or a number" in refused(
        {"joins": {"a": "every"}}
    )
    assert "'roles.a.max_tokens' is 0, but: input should be greater than or equal to 1" in refused(
        {"roles": {"a": {"max_tokens": 0}}}
    )


def test_an_edge_that_is_no_arrow_is_shown_with_the_form() -> None:
    assert "'edges.0': edge 'a => b' is not of the form 'a -> b [when ROUTE] [loop N] [map]'" in refused(
        {"edges": ["a => b"]}
    )


def test_a_message_kind_that_does_not_exist_names_the_kinds() -> None:
    assert "'roles.a': message kind 'acton' does not exist; possible: ['action'," in refused(
        {"roles": {"a": {"emits": "acton"}}}
    )


def test_a_pattern_that_is_no_expression_is_refused() -> None:
    assert "pattern '(' is not a regular expression" in refused({"roles": {"a": {"pattern": "("}}})


def test_yaml_words_that_became_truth_values_are_told_to_be_quoted(tmp_path: Path) -> None:
    text = "name: t\nroles: {a: {type: verifier, accept_text: yes}}\nedges: [start -> a]\noutput: a\n"
    with pytest.raises(GraphError, match=r"'roles.a.accept_text' is True, but: .*put it in quotes"):
        load_team(written(tmp_path, text))


def test_long_values_are_shortened() -> None:
    message = refused({"joins": "x" * 500})
    assert "xxx..." in message
    assert "x" * 100 not in message


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "name: t\n")
    with pytest.raises(GraphError, match=rf"{path} is not a team:\n"):
        load_team(path)


def test_errors_in_a_role_file_name_that_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("tipe: planner\n", encoding="utf-8")
    path = written(tmp_path, "name: t\nroles: {a: a.yaml}\nedges: []\noutput: a\n")
    with pytest.raises(GraphError, match=r"a.yaml is not a role:\n  - unknown key 'tipe'.*Did you mean 'type'"):
        load_team(path)


def test_a_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    written(tmp_path, "name: t\n")
    with pytest.raises(GraphError, match=r"taem.yaml cannot be read: No such file.*Did you mean 'team.yaml'"):
        load_team(tmp_path / "taem.yaml")
    with pytest.raises(GraphError, match=r"cannot be read: No such file or directory\.$"):
        load_team(tmp_path / "nowhere" / "team.yaml")


def test_what_is_not_yaml_or_no_mapping_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="is not YAML"):
        load_team(written(tmp_path, "name: [t"))
    with pytest.raises(GraphError, match=r"holds \['a'\], but a mapping"):
        load_team(written(tmp_path, "- a"))


@pytest.mark.timeout(30)
def test_aliases_that_stand_for_gigabytes_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x]", *(f"a{n + 1}: &a{n + 1} [{','.join([f'*a{n}'] * 10)}]" for n in range(9))]
    with pytest.raises(GraphError, match="is not YAML: its aliases stand for more than 2,097,152 values"):
        load_team(written(tmp_path, "\n".join(lines)))


@pytest.mark.timeout(30)
def test_aliases_of_one_long_list_are_counted_in_little_time(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="its aliases stand for more than 2,097,152 values"):
        load_team(written(tmp_path, f"a: &a [{'1,' * 40_000}]\nb: [{'*a,' * 4_000}]"))


def test_a_key_written_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="'output' is written twice"):
        load_team(written(tmp_path, "name: t\noutput: a\noutput: b\n"))


@pytest.mark.parametrize(("value", "tag"), [("!!binary aGk=", "!!binary"), ("2026-01-31", "!!timestamp")])
def test_values_other_than_texts_and_numbers_are_refused(tmp_path: Path, value: str, tag: str) -> None:
    (tmp_path / "team.yaml").write_text(f"name: {value}\n")
    with pytest.raises(GraphError, match=f"is not YAML: the tag {tag} is not read here, only texts"):
        load_team(tmp_path / "team.yaml")


def test_yaml_tags_build_no_objects(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="is not YAML"):
        load_team(written(tmp_path, "name: !!python/object/apply:os.getcwd []\n"))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("!!int x", "'x' is no value of the tag !!int"),
        ("!!bool x", "'x' is no value of the tag !!bool"),
        ('!!float ""', "'' is no value of the tag !!float"),
        ("9" * 5000, "is no value of the tag !!int"),
        ("{<<: {a: 1}}", "the tag !!merge is not read here"),
        ("[" * 3000, "it is nested too deeply"),
    ],
    ids=["int", "bool", "float", "digits", "merge", "depth"],
)
def test_yaml_that_pyyaml_stumbles_over_is_one_error(value: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(f"name: {value}\n")
    with pytest.raises(GraphError, match=re.escape(said)):
        load_team(tmp_path / "team.yaml")
    (tmp_path / "config.yaml").write_text(f"scenario: {value}\n")
    with pytest.raises(RunDirectoryError, match=re.escape(said)):
        read_stored(tmp_path / "config.yaml")

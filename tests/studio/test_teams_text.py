"""Teams in the editor: reading within bounds, problems at their lines, changes of the form, the process that checks."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import mas
from mas.core.records import Line
from mas.graph.load import load_team
from mas.studio.team_changes import (
    AddEdge,
    AddRole,
    Change,
    ChangeError,
    RemoveRole,
    RenameRole,
    SetEdge,
    SetJoin,
    SetRole,
    SetTeam,
    WriteOut,
    changed,
    written,
)
from mas.studio.team_checker import TeamChecker, TeamQuestion
from mas.studio.team_episode import travels
from mas.studio.team_svg import team_svg
from mas.studio.team_text import CheckedTeam, check_text, read_team

TEAM = """\
name: t
roles:
  planner: {type: planner}
  executor:
    type: executor
    template: "{from.planner}>"
  verifier: {type: verifier}
edges:
  - start -> planner
  - planner -> executor
  - executor -> verifier
  - verifier -> done when accept
  - verifier -> executor when reject loop 2
joins: {executor: any}
output: executor
"""
FOLDER = Path(mas.__file__).parent / "scenarios"
TEAM_FILES = sorted(
    path for path in FOLDER.rglob("*.yaml") if isinstance(content := yaml.safe_load(path.read_text()), dict)
    and "roles" in content and ("edges" in content or "protocol" in content)
)  # fmt: skip


@pytest.fixture(scope="module")
def checker() -> Iterator[TeamChecker]:
    made = TeamChecker()
    yield made
    made.close()


def _problems(text: str) -> list[tuple[int | None, str]]:
    return [(one.line, one.text) for one in check_text(text).problems]


def test_shipped_teams_are_without_problems_and_are_the_same_after_they_were_written_anew() -> None:
    assert len(TEAM_FILES) > 50
    for path in TEAM_FILES:
        checked = check_text(path.read_text())
        assert checked.problems == (), path
        assert checked.content is not None
        again = written(checked.content)
        assert read_team(again)[0] == checked.content, path
        assert load_team(yaml.safe_load(again)) == load_team(path), path


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("output: executor", "output: executer", 15, "Did you mean 'executor'?"),
        ("type: planner", "type: plannr", 3, "unknown type 'plannr'"),
        ("{type: planner}", "{type: planner, max_tokens: 0}", 3, "greater than or equal to 1"),
        ("planner -> executor", "planner -> executr", 10, "unknown agent 'executr'"),
        ("planner -> executor", "planner to executor", 10, "is not of the form"),
        ("when reject loop 2", "when reject", 8, "has no bound"),
        ("when accept", "when accepted", 12, "accepted"),
        ("joins: {executor: any}", "joins: {executor: 0}", 14, "a number of branches from 1"),
        ("name: t", "name: t\nnme: t", 2, "unknown key 'nme'"),
        ("name: t", "name: [", 3, "not YAML"),
        ("name: t", "name: t\nname: u", 2, "written twice"),
    ],
)
def test_a_problem_stands_at_its_line(old: str, new: str, line: int, said: str) -> None:
    assert old in TEAM
    problems = _problems(TEAM.replace(old, new, 1))
    assert any(at == line and said in text for at, text in problems), problems


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x" * 70_000, "65,536 at most"),
        (BOMB, "aliases stand for more than 2,097,152 values"),
        (BOMB[: BOMB.index("f: ")], "20,000 at most"),
        ("a: &a [*a]", "stands within what it stands for"),
        ("name: !!python/object/apply:os.system [touch /tmp/no]", "the tag !!python/object/apply:os.system"),
        ("name: !!binary aGVsbG8=", "the tag !!binary"),
        ("[" * 1500, "nested too deeply"),
        (TEAM.replace("{type: planner}", "/etc/passwd"), "opens no other file"),
        (TEAM + "agents: {planner: {team: /etc/passwd}}\n", "opens no other file"),
        (TEAM + "agents: {a: {team: {agents: {b: {team: /dev/zero}}}}}\n", "opens no other file"),
        ("name: v\nroles: {}\nprotocol: {name: vote, voters: 1000000000}", "64 at most"),
        (TEAM.replace("type: planner", "type: 'antigravity:Planner'"), "does not import"),
        (TEAM.replace("type: planner", "type: 'evil.py:Planner'"), "does not import"),
        ("name: a\x1b[31m", "not YAML"),
        ("", "a mapping of keys"),
        ("1: 2\nname: x", "keys should be strings"),
    ],
)
def test_hostile_text_is_a_problem_and_nothing_that_it_names_is_opened_or_imported(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    problems = _problems(text)
    assert any(said in shown for _, shown in problems), problems
    assert not (tmp_path / "ran").exists()
    assert not any("root:" in shown for _, shown in problems)


def test_a_team_with_a_foreign_class_is_drawn_without_it() -> None:
    checked = check_text(TEAM.replace("type: planner", "type: 'evil.py:Planner'"))
    assert [one.place for one in checked.problems] == ["roles.planner.type"]
    assert "planner" in team_svg(checked.spec, checked.kinds)


def _after(*changes: Change, text: str = TEAM) -> CheckedTeam:
    content, _ = read_team(text)
    for change in changes:
        content = changed(content, change)
    return check_text(written(content))


def test_a_role_that_is_added_and_connected_makes_a_team_without_problems() -> None:
    checked = _after(
        AddRole(role="critic", type="feedback"),
        SetEdge(number=4),
        AddEdge(source="verifier", target="critic", when="reject", loop=""),
        AddEdge(source="critic", target="executor", loop="2"),
        SetRole(role="critic", key="max_tokens", value="16"),
        SetRole(role="critic", key="choices", value="better\nworse"),
    )
    assert checked.problems == ()
    assert checked.spec.roles["critic"].max_tokens == 16
    assert checked.spec.roles["critic"].choices == ("better", "worse")
    assert checked.spec.edges[-1].loop == 2


def test_a_role_that_is_removed_takes_its_edges_and_joins_along() -> None:
    content = changed(read_team(TEAM)[0], RemoveRole(role="executor"))
    assert "joins" not in content
    assert content["edges"] == ["start -> planner", "verifier -> done when accept"]
    assert list(content["roles"]) == ["planner", "verifier"]


def test_a_role_that_is_renamed_is_renamed_wherever_the_team_names_it() -> None:
    checked = _after(RenameRole(role="planner", to="thinker"), RenameRole(role="executor", to="doer"))
    assert checked.problems == ()
    assert list(checked.spec.roles) == ["thinker", "doer", "verifier"]
    assert checked.spec.roles["doer"].template == "{from.thinker}>"
    assert (checked.spec.output, dict(checked.spec.joins).keys()) == ("doer", {"doer"})


def test_an_option_without_a_value_is_left_out() -> None:
    content = changed(read_team(TEAM)[0], SetRole(role="executor", key="template", value=""))
    assert content["roles"]["executor"] == {"type": "executor"}
    content = changed(content, SetRole(role="executor", key="trainable", value="false"))
    assert content["roles"]["executor"]["trainable"] is False


def test_a_number_that_is_none_stays_and_is_a_problem_at_its_place() -> None:
    checked = _after(SetRole(role="planner", key="max_tokens", value="many"))
    assert [one.place for one in checked.problems] == ["roles.planner.max_tokens"]


def test_the_team_and_its_joins_are_set() -> None:
    checked = _after(SetTeam(key="name", value="other"), SetJoin(agent="executor", value="1"))
    assert (checked.spec.name, checked.spec.join("executor").need) == ("other", 1)
    content = changed(read_team(TEAM)[0], SetJoin(agent="executor", value="all"))
    assert "joins" not in content


def test_the_edges_of_a_protocol_are_written_out_as_the_same_team() -> None:
    for path in TEAM_FILES:
        content, _ = read_team(path.read_text())
        if "protocol" not in content:
            continue
        out = changed(content, WriteOut())
        assert "protocol" not in out
        checked = check_text(written(out))
        assert checked.problems == (), path
        assert checked.spec.edges == load_team(path).edges
        assert checked.spec.output == load_team(path).output


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (AddRole(role="planner"), "already"),
        (AddRole(role="a b"), "is no name"),
        (RemoveRole(role="nobody"), "there is no role 'nobody'"),
        (RenameRole(role="planner", to="executor"), "is taken"),
        (SetRole(role="planner", key="price", value="1"), "no field 'price'"),
        (AddEdge(source="a", target="b", loop="-1"), "from 1"),
        (AddEdge(source="a -> b", target="b"), "is no name"),
        (SetEdge(number=99), "no edge 99"),
        (WriteOut(), "no protocol"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_and_changes_nothing(change: Change, said: str) -> None:
    content, _ = read_team(TEAM)
    with pytest.raises(ChangeError, match=said):
        changed(content, change)
    assert content == read_team(TEAM)[0]


def test_the_drawing_escapes_every_name_and_has_every_edge() -> None:
    checked = check_text(TEAM.replace("planner", "'<script>&'").replace("{from.'<script>&'}", ""))
    assert checked.spec is None or "<script>" not in team_svg(checked.spec, checked.kinds)
    spec = check_text(TEAM).spec
    drawn = team_svg(spec, {})
    assert sorted(int(at) for part in drawn.split('data-edges="')[1:] for at in part.split('"')[0].split()) == [
        0,
        1,
        2,
        3,
        4,
    ]
    hostile = spec.model_copy(update={"name": '"><img src=x onerror=alert(1)>'})
    assert "<img" not in team_svg(hostile, {"planner": "<b>"})
    assert "<b>" not in team_svg(hostile, {"planner": "<b>"})


def test_a_team_that_is_not_well_formed_is_drawn_all_the_same() -> None:
    for old, new in [
        (" loop 2", ""),
        ("- start -> planner", "- start -> nobody"),
        ("planner -> executor", "done -> start"),
    ]:
        checked = check_text(TEAM.replace(old, new))
        assert checked.problems
        assert "verifier" in team_svg(checked.spec, checked.kinds)


def _line(agent: str, text: str, turn: int = 0) -> Line:
    return Line(turn=turn, agent=agent, prompt="", text=text)


def test_answers_travel_on_the_edges_that_the_flow_takes() -> None:
    spec = check_text(TEAM).spec
    said = [_line("planner", "p"), _line("executor", "a"), _line("verifier", "reject"), _line("executor", "b")]
    (travel,) = travels(spec, [*said, _line("verifier", "accept")])
    assert travel.is_exact
    assert travel.began == (0,)
    assert travel.edges == ((1,), (2,), (4,), (2,), (3,))


def test_answers_that_the_flow_does_not_allow_lead_to_those_that_speak_next() -> None:
    spec = check_text(TEAM).spec
    (travel,) = travels(spec, [_line("verifier", "accept"), _line("executor", "a")])
    assert not travel.is_exact
    assert travel.edges == ((4,), ())


def test_the_process_answers_and_survives_a_question_that_ends_it(checker: TeamChecker) -> None:
    assert checker.ask(TeamQuestion(text=TEAM)).problems == ()
    deep = checker.ask(TeamQuestion(text="{" * 1500))
    assert "nested too deeply" in deep.problems[0].text
    answer = checker.ask(TeamQuestion(text=TEAM, change=AddRole(role="new")))
    assert answer.text is not None
    assert "  new:\n    type: agent\n" in answer.text
    assert answer.form is not None
    assert answer.form.agents == ("planner", "executor", "verifier", "new")


def test_a_check_that_takes_too_long_is_ended_and_the_next_one_is_answered() -> None:
    # (x+x+)+y over many x backtracks for longer than any test waits.
    slow = "name: t\nroles: {a: {type: executor, pattern: '(x+x+)+y'}}\nedges: [start -> a, a -> done]\noutput: a\n"
    checker = TeamChecker(check_s=1.0)
    try:
        late = checker.ask(TeamQuestion(text=slow, lines=(_line("a", "x" * 60),)))
        assert "took too long" in late.problems[0].text
        checker._check_s = 60.0
        assert checker.ask(TeamQuestion(text=TEAM)).problems == ()
    finally:
        checker.close()

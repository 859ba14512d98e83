"""What a run directory from somebody else can reach: nothing that the user has not named."""

import json
import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mas.config.access import accesses_of
from mas.config.load import load_config, overrides_of
from mas.config.options import Config
from mas.config.plain_values import MOST_BYTES, literal
from mas.config.stored_run import load_run_config
from mas.config.trust import check_accesses, check_links, remember, trusted_path, trusting
from mas.core.errors import ConfigError, RunDirectoryError, TrustError

SECRET = "a-secret-of-the-user"
EVIL = "https://evil.example/v1"


@pytest.fixture(autouse=True)
def nothing_is_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("MAS_TEST_SECRET", SECRET)
    return


def run_with(run: Path, config: dict[str, Any], team: dict[str, Any] | None = None) -> Path:
    """A run directory of somebody else's."""
    run.mkdir(exist_ok=True)
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    if team is not None:
        (run / "team.yaml").write_text(yaml.safe_dump(team))
    return run


TEAM: dict[str, Any] = {
    "name": "evil",
    "roles": {"solver": {"type": "os:system", "choices": ["a"]}},
    "edges": ["start -> solver", "solver -> done"],
    "output": "solver",
}


def opponents(**options: object) -> dict[str, Any]:
    return {"algorithm": {"opponents": options}}


OPENAI = {"engine": {"name": "openai", "remote": {"url": EVIL, "key_env": "MAS_TEST_SECRET", "api": "chat"}}}


@pytest.mark.parametrize("text", ["${oc.env:MAS_TEST_SECRET}", "${scenario.name}", "a${b}c", "${", "\\${oc.env:X}"])
def test_stored_text_is_never_interpolated(tmp_path: Path, text: str) -> None:
    run = run_with(tmp_path / "run", {"scenario": {"name": "relay"}, "run_dir": text, "algorithm": {"name": text}})
    config = load_run_config(run, ["train.eval_tasks=5"])
    assert (config.algorithm.name, config.train.eval_tasks) == (text, 5)


def test_a_run_is_where_it_was_found_and_not_where_it_says(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", {"run_dir": str(tmp_path / "elsewhere")})
    assert load_run_config(run).run_dir == str(run)
    assert load_run_config(run, ["run_dir=mine"]).run_dir == "mine"


@pytest.mark.parametrize("text", ["${oc.env:MAS_TEST_SECRET}", "\\${a}", "a\\\\${b}'", "it's\\", "$", "\\$ b\\"])
def test_the_command_that_repeats_a_run_says_its_texts_and_not_what_they_would_resolve_to(text: str) -> None:
    config = Config(run_dir=text)
    assert load_config(overrides_of(config)) == config
    assert SECRET not in " ".join(overrides_of(config))
    assert load_config([f"run_dir={literal(text)}"]).run_dir == text


def test_an_override_may_read_the_environment_and_cannot_read_stored_values(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", {"scenario": {"name": "relay"}})
    assert load_run_config(run, ["run_dir=${oc.env:MAS_TEST_SECRET}"]).run_dir == SECRET
    with pytest.raises(ConfigError, match="refers to a value that cannot be found"):
        load_run_config(run, ["run_dir=${scenario.name}"])


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (OPENAI, f"send requests to {EVIL} with the key in the environment variable MAS_TEST_SECRET   ("),
        ({"engine": {"name": "vllm_server", "remote": {"url": EVIL}}}, f"send requests to {EVIL}   (engine.remote)"),
        (
            {"engine": {"name": "vllm_server", "remote": {"replicas": [EVIL], "key_env": "MAS_TEST_SECRET"}}},
            f"send requests to {EVIL} with the key in the environment variable MAS_TEST_SECRET   (engine.remote.rep",
        ),
        (
            {"peers": {"helper": {"url": EVIL, "key_env": "PATH"}}},
            f"{EVIL} with the key in the environment variable PATH",
        ),
        ({"peers": {"helper": {"url": EVIL, "api": "completions", "tokenizer": "x/y"}}}, "load the tokenizer x/y"),
        ({"model": {"path": "somebody/model"}}, "load the model somebody/model   (model.path)"),
        ({"model": {"path": "/etc"}}, "load the model /etc"),
        ({"model": {"path": "smollm2"}}, "load the model smollm2   (model.path)"),
        ({"train": {"start": "/srv/run@3"}}, "begin with the adapters of /srv/run   (train.start)"),
        (opponents(players={"a": f"openai:m@{EVIL}#PATH"}), f"{EVIL} with the key in the environment variable PATH"),
        (opponents(players={"a": "run:/srv/run@3"}), "play with the run /srv/run   (algorithm.opponents.players.a)"),
        (opponents(league="/srv/league.db"), "play with the members of /srv/league.db   (algorithm.opponents.league)"),
        (opponents(league="postgresql://evil/x"), "play with the members of postgresql://evil/x"),
        (
            {"engine": {"name": "vllm", "vllm": {"gguf": {"a": 1}}}},
            'start vLLM with {"gguf": {"a": 1}}',
        ),
        ({"scenario": {"name": "questions", "options": {"path": "/etc/passwd"}}}, "read /etc/passwd"),
        (
            {"scenario": {"name": "questions", "options": {"path": "../../x.jsonl"}}},
            "/x.jsonl   (scenario.options.path)",
        ),
        (
            {"scenario": {"name": "bridge", "options": {"id": "open_spiel:efg_game(filename=secret.efg)"}}},
            "/secret.efg   (scenario.options.id)",
        ),
        ({"algorithm": {"team": "/srv/team.yaml"}}, "read /srv/team.yaml   (algorithm.team)"),
        (
            {"engine": {"name": "openai", "remote": {"shared_dir": "/srv"}}},
            "write into /srv   (engine.remote.shared_dir)",
        ),
        (
            {"train": {"tasks": {"source": "mixture", "arms": {"a": {"options": {"f": "/etc/x"}}, "b": {}}}}},
            "read /etc/x   (train.tasks.arms.a.options.f)",
        ),
    ],
)
def test_what_a_stored_run_names_outside_of_itself_is_refused_and_shown(
    tmp_path: Path, config: dict[str, Any], wanted: str
) -> None:
    run = run_with(tmp_path / "run", {"scenario": {"name": "relay"}, **config})
    with pytest.raises(TrustError) as refused:
        load_run_config(run)
    assert wanted in str(refused.value)
    assert "--trust" in str(refused.value)
    assert SECRET not in str(refused.value)
    with trusting():
        load_run_config(run)


def test_values_that_the_command_line_names_are_used(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", OPENAI)
    named = [f"engine.remote.url={EVIL}", "engine.remote.key_env=MAS_TEST_SECRET"]
    assert load_run_config(run, named).engine.remote.url == EVIL
    mine = load_run_config(run, ["engine.remote.url=http://127.0.0.1:9/v1", "engine.remote.key_env=null"])
    assert mine.engine.remote.key_env is None
    for part in named:  # the other half would still be the run's
        with pytest.raises(TrustError, match=r"\(engine.remote\)"):
            load_run_config(run, [part])
    assert load_run_config(run, [f"engine.remote.url={EVIL}/", named[1]]).engine.remote.url == EVIL
    remote = {"replicas": [EVIL], "key_env": "MAS_TEST_SECRET"}
    run_with(run, {"engine": {"name": "vllm_server", "remote": remote}})
    named = ["engine.remote.key_env=MAS_TEST_SECRET", "engine.remote.url=http://127.0.0.1:8000/v1"]
    assert load_run_config(run, [*named, f"engine.remote.replicas=['{EVIL}']"]).engine.remote.replicas == (EVIL,)
    with pytest.raises(TrustError, match=r"\(engine.remote.replicas\)"):
        load_run_config(run, named)
    run_with(run, {"model": {"path": "x/y"}})
    assert load_run_config(run, ["model.path=z/w"]).model.path == "z/w"


def test_the_error_says_the_overrides_that_allow_it(tmp_path: Path) -> None:
    with pytest.raises(TrustError) as refused:
        load_run_config(run_with(tmp_path / "run", OPENAI))
    assert f"(engine.remote.url={EVIL} engine.remote.key_env=MAS_TEST_SECRET)" in str(refused.value)


PEER = {"peers": {"helper": {"url": EVIL, "key_env": "MAS_TEST_SECRET"}}}
VLLM = {"engine": {"name": "vllm", "vllm": {"worker_cls": "evil.Worker"}}}
PATHS = {"scenario": {"name": "questions", "options": {"files": ["/etc/passwd"]}}}


@pytest.mark.parametrize(
    ("config", "override"),
    [(PEER, "peers={}"), (OPENAI, "engine.remote={}"), (VLLM, "engine.vllm={}"), (PATHS, "scenario.options={}")],
)
def test_an_empty_mapping_takes_the_place_of_what_is_stored(
    tmp_path: Path, config: dict[str, Any], override: str
) -> None:
    found = load_run_config(run_with(tmp_path / "run", config), [override])
    assert accesses_of(found, tmp_path / "run") == []


@pytest.mark.parametrize("named", [{}, {"url": EVIL}, {"url": EVIL, "key_env": "OTHER"}, {"url": EVIL, "key_env": {}}])
def test_an_access_is_named_by_each_of_its_values_and_not_by_a_key_above_them(named: dict[str, Any]) -> None:
    wanted = accesses_of(Config.model_validate(PEER))
    both = {"url": EVIL, "key_env": "MAS_TEST_SECRET"}
    check_accesses(wanted, "a run", {"peers": {"helper": both}})
    check_accesses(wanted, "a run", {f"peers.helper.{key}": value for key, value in both.items()})
    for said in ({"peers": {"helper": named}}, {"peers.helper": named}):
        with pytest.raises(TrustError):
            check_accesses(wanted, "a run", said)


def test_values_inside_of_lists_and_mappings_are_named_by_the_whole(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", PATHS)
    for override in ("scenario.options.files=['/etc/passwd']", "scenario.options.files.0='/etc/passwd'"):
        assert load_run_config(run, [override]).scenario.options == {"files": ["/etc/passwd"]}
    with pytest.raises(TrustError):
        load_run_config(run, ["scenario.options.other=1"])
    run_with(run, VLLM)
    assert load_run_config(run, ["engine.vllm={worker_cls: evil.Worker}"]).engine.vllm
    with pytest.raises(TrustError):
        load_run_config(run, ["engine.vllm.max_num_seqs=4"])


@pytest.mark.parametrize("path", ["$(touch x)/y';id;'", "a b/c", "x;id/y"])
def test_the_overrides_that_the_error_says_can_be_given_to_a_shell(tmp_path: Path, path: str) -> None:
    run = run_with(tmp_path / "run", {"model": {"path": path}})
    with pytest.raises(TrustError) as refused:
        load_run_config(run)
    said = str(refused.value).partition("command line (")[2].partition("), add --trust")[0]
    assert load_run_config(run, shlex.split(said)).model.path == path


def test_what_is_stored_makes_no_lines_of_the_error_and_steers_no_terminal(tmp_path: Path) -> None:
    peer = {"url": "https://evil.example/v1"}
    config = {"peers": {"\x1b[2Jy\n  import mine": peer, "x; id #": {**peer}}, "model": {"path": "a\nb\u202e"}}
    with pytest.raises(TrustError) as refused:
        load_run_config(run_with(tmp_path / "run", config))
    lines = str(refused.value).splitlines()
    assert len(lines) == 5
    assert all(line.isprintable() for line in lines)
    assert r"(peers.\x1b[2Jy\n  import mine)" in lines[1]
    assert "'peers.x; id #.url=https://evil.example/v1'" in lines[-1]


@pytest.mark.parametrize("config", [{"train": {"start": "a\0b"}}, opponents(players={"a": "run:a\0b"})])
def test_a_path_with_a_zero_byte_is_refused_as_others(tmp_path: Path, config: dict[str, Any]) -> None:
    run = run_with(tmp_path / "run", {})
    (run / "config.yaml").write_text(json.dumps(config))
    with pytest.raises(TrustError, match="u0000"):
        load_run_config(run)


def test_nothing_is_remembered_while_all_is_trusted() -> None:
    with trusting():
        remember(accesses_of(Config.model_validate(OPENAI)))
    assert not trusted_path().exists()


def test_a_copy_of_a_stored_configuration_is_stored(tmp_path: Path) -> None:
    stored = load_run_config(run_with(tmp_path / "run", {}))
    assert stored.model_copy(update={"run_dir": "mine"}).is_stored
    assert not load_config([]).is_stored


def test_what_the_user_trained_with_is_trusted_later_and_nothing_near_it(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", OPENAI)
    remember(accesses_of(Config.model_validate(OPENAI)))
    remember(accesses_of(Config.model_validate(OPENAI)))
    assert load_run_config(run).engine.remote.url == EVIL
    lines = trusted_path().read_text().splitlines()
    assert lines[0].startswith("#")
    assert lines[1:] == [f"send requests to {EVIL} with the key in the environment variable MAS_TEST_SECRET"]
    assert Path(os.environ["XDG_CONFIG_HOME"]) in trusted_path().parents
    run_with(run, {"engine": {"name": "openai", "remote": {"url": EVIL, "key_env": "PATH"}}})
    with pytest.raises(TrustError, match="PATH"):
        load_run_config(run)


def test_a_value_cannot_pass_for_another_line_of_the_trusted_file() -> None:
    odd = Config.model_validate({"model": {"path": 'x\nload the model y with "z"'}})
    (access,) = accesses_of(odd)
    assert access.what == 'load the model "x\\nload the model y with \\"z\\""'


@pytest.mark.parametrize("nested", [False, True])
def test_classes_of_a_stored_team_are_not_imported(tmp_path: Path, nested: bool) -> None:
    config = {"scenario": {"name": "relay"}, "algorithm": {"team": "team.yaml"}}
    run = run_with(tmp_path / "run", config, TEAM)
    with pytest.raises(TrustError, match=r"import os:system   \(team.yaml, roles.solver.type\)"):
        load_run_config(run)
    assert load_run_config(run, uses=["model"]).algorithm.team == str(run / "team.yaml")
    if nested:  # a member that is a team, and a role in another file
        for part in ({"agents": {"solve": {"team": {"name": "inner"}}}}, {"roles": {"solver": "/etc/passwd"}}):
            run_with(run, config, TEAM | part)
            with pytest.raises(RunDirectoryError, match="the team of a run stands in one file"):
                load_run_config(run)


def test_a_team_that_the_command_line_names_is_that_one_and_not_the_runs_copy(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", {"algorithm": {"team": "team.yaml"}}, TEAM)
    mine = tmp_path / "mine.yaml"
    assert load_run_config(run, [f"algorithm.team={mine}"]).algorithm.team == str(mine)


def test_paths_inside_the_run_need_no_trust(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run_with(
        run, {"model": {"path": str(run / "model")}, "scenario": {"name": "x", "options": {"p": f"{run}/a.jsonl"}}}
    )
    assert load_run_config(run).model.path == str(run / "model")
    outside = f"{run}/../other"
    run_with(run, {"model": {"path": outside}})
    with pytest.raises(TrustError, match=f"load the model {outside}"):
        load_run_config(run)


def test_links_that_lead_out_of_a_run_are_refused(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", {})
    (run / "team.link").symlink_to("config.yaml")
    (tmp_path / "latest").symlink_to(run)
    load_run_config(tmp_path / "latest")  # the user's own link to the run
    (run / "checkpoints").symlink_to(tmp_path)
    with pytest.raises(TrustError, match=f"use {tmp_path} in place of checkpoints"):
        load_run_config(run, uses=[])
    with pytest.raises(TrustError, match="a symbolic link"):
        check_links(run)
    with trusting():
        check_links(run)


def test_a_pipe_in_a_run_is_refused(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", {})
    os.mkfifo(run / "metrics.jsonl")
    with pytest.raises(RunDirectoryError, match="neither a file nor a directory"):
        check_links(run)


def _bomb() -> str:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_bomb, "aliases are not read here"),
        (lambda: "a: " + "[" * 50_000, "nested too deeply"),
        (lambda: "x" * (MOST_BYTES + 1), "longer than 4 MiB"),
        (lambda: "!!python/object/apply:os.system [id]", "object/apply:os.system is not read here"),
        (lambda: "run_dir: !!timestamp 2026-01-01", "the tag !!timestamp is not read here"),
        (lambda: "run_dir: !!set {a}", "the tag !!set is not read here"),
        (lambda: "- a list", "holds no configuration"),
    ],
)
def test_a_configuration_that_is_made_to_hurt_is_one_error(tmp_path: Path, make: Callable[[], str], said: str) -> None:
    run = run_with(tmp_path / "run", {})
    (run / "config.yaml").write_text(make())
    with pytest.raises(RunDirectoryError, match=said):
        load_run_config(run)


def test_keys_that_are_no_texts_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load_run_config(run_with(tmp_path / "run", {1: {2: 3}, "engine": {None: 1}}))


@pytest.mark.parametrize("tag", ["!!binary ZXZpbC5weTpzY29yZQ==", "!!str evil.py:score", "[evil.py:score]"])
def test_a_reward_function_of_a_stored_run_is_code_whatever_its_yaml_type(tmp_path: Path, tag: str) -> None:
    run = run_with(tmp_path / "run", {})
    (run / "config.yaml").write_text(f"scenario: {{name: questions, options: {{path: d.jsonl, reward: {tag}}}}}")
    with pytest.raises((TrustError, RunDirectoryError), match=r"import .*evil\.py:score|the tag !!binary is not read"):
        load_run_config(run)


@pytest.mark.parametrize("reward", [b"evil.py:score", ["evil.py:score"], 1, "evil.py:score"])
def test_every_value_of_a_reward_is_an_access_to_code(reward: object) -> None:
    options = {"path": "d.jsonl", "reward": reward}
    config = Config.model_validate({"scenario": {"name": "questions", "options": options}})
    assert "code" in [access.kind for access in accesses_of(config)]
    config = Config.model_validate(
        {"train": {"tasks": {"source": "mixture", "arms": {"a": {"options": options}, "b": {}}}}}
    )
    assert "code" in [access.kind for access in accesses_of(config)]

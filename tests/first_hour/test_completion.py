"""Tab in bash, zsh and fish: commands, options, and the names behind `scenario=`."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Mas = Callable[..., Any]
Complete = Callable[..., list[str]]


@pytest.fixture
def complete(mas: Mas, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """What fish is offered for a line."""

    def run(line: str) -> list[str]:
        monkeypatch.setenv("_MAS_COMPLETE", "complete_fish")
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        ran = mas()
        assert (ran.code, ran.err) == (0, "")
        return [found.partition("\t")[0] for found in ran.out.splitlines() if found]

    return run


def test_commands_are_offered_with_their_help(mas: Mas, complete: Complete) -> None:
    assert complete("mas tr") == ["train"]
    assert {"new", "check", "train", "league"} <= set(complete("mas "))
    assert complete("mas league tab") == ["table"]


def test_presets_are_offered_behind_their_key(complete: Complete) -> None:
    assert complete("mas train sc") == ["scenario="]
    assert complete("mas train scenario=two_") == ["scenario=two_hop", "scenario=two_player"]
    assert complete("mas train scenario=relay algorithm=gig") == ["algorithm=gigpo"]
    assert complete("mas doctor model=smo") == ["model=smollm2"]
    assert complete("mas train train.steps=") == []


def test_names_are_offered_where_one_is_asked_for(complete: Complete) -> None:
    assert complete("mas scenarios plan") == ["plan_path"]
    assert complete("mas algorithms gig") == ["gigpo"]


def test_zsh_gets_what_it_evaluates(mas: Mas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MAS_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "mas train scenario=two_")
    assert mas().out == '_arguments \'*: :(("scenario=two_hop"\n"scenario=two_player"))\'\n'


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_about_mas(shell: str, mas: Mas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MAS_COMPLETE", f"source_{shell}")
    ran = mas()
    assert ran.code == 0
    assert "_MAS_COMPLETE=complete_" + shell in ran.out


BASH = """
eval "$(_MAS_COMPLETE=source_bash mas)"
COMP_WORDS=(mas train scenario = two_h); COMP_CWORD=4; _mas_completion mas; echo "${COMPREPLY[*]}"
COMP_WORDS=(mas train model =); COMP_CWORD=3; _mas_completion mas; echo "${COMPREPLY[*]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_a_real_bash_takes_the_value_alone_as_it_splits_words_at_the_equals_sign(tmp_path: Path) -> None:
    program = tmp_path / "mas"
    program.write_text(f"#!{sys.executable}\nfrom mas.cli import main\nmain()\n")
    program.chmod(0o755)
    names = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(["bash", "-c", BASH], capture_output=True, text=True, env=names, check=True)
    value, models = done.stdout.splitlines()
    assert value == "two_hop"
    assert {"tiny", "smollm2"} <= set(models.split())

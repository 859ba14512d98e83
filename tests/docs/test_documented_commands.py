"""Every command in the docs works: short ones are run at a small size, long ones are checked without running."""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import typer.main
from click import ClickException
from pages import PAGES, ROOT, blocks, prose, read
from typer.core import TyperGroup

from mas.cli import app
from mas.config.load import load_config
from mas.core.errors import MasError
from mas.study.options import ABLATION, ablation, load_study
from mas.study.protocol import find_protocol

Mas = Callable[..., Any]
SHORT = (
    "train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2",
)  # fmt: skip
SHORTER = {"algorithm=at2po": ("algorithm.options.chains=1",)}
"""What a preset needs beside two candidates."""
ELSEWHERE = ("engine=vllm", "engine=openai", "engine=tinker", "engine.name=", "peers.", "cluster=")
"""Begins overrides that need more than this process."""
RUN_ELSEWHERE = ("bench", "deadletters", "serve", "agent", "sandbox", "studio", "openenv", "tinker", "mcp", "tools")
"""Commands that need more than themselves, or take minutes: run in the tests of their own folders."""
COMMAND = typer.main.get_command(app)
NAMES: dict[str, Any] = getattr(COMMAND, "commands")  # noqa: B009 - a group, which its type does not say


def commands(page: str) -> list[list[str]]:
    """Words behind `mas` of every command in a page's bash blocks."""
    lines = [line for block in blocks(page, "bash") for line in block.text.replace("\\\n", " ").splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [found[1:] for found in words if found[:1] == ["mas"]]


def check_usage(words: list[str]) -> None:
    """Refuse unknown commands, options and missing arguments, without running anything."""
    name, *rest = words
    command = NAMES[name]
    if isinstance(command, TyperGroup):
        name, *rest = rest
        command = command.commands[name]
    command.make_context(name, list(rest))


def shortened(words: list[str], small: tuple[str, ...]) -> list[str]:
    """The command at a size for tests; long ones as the check of their configuration."""
    name, *rest = words
    if words[:2] == ["cluster", "plan"]:
        return [*(word for word in words if not word.startswith("model=")), *small]
    if any(word.startswith(("model.path=", "model=")) for word in rest):  # tests/serving/test_smollm.py trains one
        usual = ["scenario=program"] if name == "gateway" else []
        return ["config", *usual, *rest]
    if name == "train":
        # Text that is learned has no LoRA.
        fit = [word for word in small if "lora" not in word] if "algorithm=training_free" in words else small
        return [*words, *SHORT, *fit, *(more for word in words for more in SHORTER.get(word, ()))]
    if words[:2] == ["league", "respond"]:
        is_run = any(word.startswith("run:") for word in words)
        return [*words, "--games", "20", *SHORT, *(() if is_run else small)]
    is_untrained = name == "run" and "=" in rest[0]
    is_played = name == "play" and not {"--others", "--run"} & set(rest) and not re.search("/solo|:", rest[0])
    if words[:2] == ["league", "psro"]:  # options and overrides that stand later win
        few = [word for word in (*SHORT, *small) if not word.startswith("train.steps=")]
        return [*words, "--iterations", "1", "--steps", "1", *few]
    if name == "base" or is_untrained or is_played:
        return [*words, *small]
    return ["eval", *(word for word in rest if word != "200"), "2"] if name == "eval" and rest[-1] == "200" else words


def write_files(page: str, folder: Path) -> None:
    """The files that a page shows or makes with an example, as its reader writes them."""
    for block in (*blocks(page, "yaml"), *blocks(page, "jsonl"), *blocks(page, "python")):
        is_example = block.language == "python" and "/" in (block.file or "")  # in examples/, or of a package
        if block.file is not None and not is_example:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
    if not (folder / "examples").exists():
        copytree(ROOT / "examples", folder / "examples")
    lines = [line for block in blocks(page, "bash") for line in block.text.splitlines()]
    for script, made in re.findall(r"^python ((?:examples/)?\w+\.py) > (\S+)$", "\n".join(lines), re.MULTILINE):
        with (folder / made).open("w") as file:
            subprocess.run([sys.executable, folder / script], check=True, stdout=file)


def test_every_command_of_every_page_is_one_and_its_configuration_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = []
    for page in COMMANDED:
        folder = tmp_path / page
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        write_files(page, folder)
        for words in commands(page):
            try:
                check_usage(words)
                if words[0] in ("train", "config", "base"):
                    load_config([word for word in words[1:] if "=" in word and not word.startswith(("run_dir=", "-"))])
            except (KeyError, ClickException, MasError) as error:
                wrong.append((page, words, error))
    assert wrong == []


COMMANDED = [page for page in PAGES if commands(page)]
RUN_ALWAYS = ["README.md", "docs/quickstart.md"]
"""What a newcomer types; the shard has one in 56 of the others, whose configurations are all loaded above."""


@pytest.mark.matrix("page", COMMANDED, default=RUN_ALWAYS)
@pytest.mark.timeout(240)
def test_every_command_of_a_page_works(
    page: str, mas: Mas, small_overrides: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(page, tmp_path)
    only_checked = set[str]()
    for words in commands(page):
        if words[0] in ("demo", "study"):
            name = "demo" if words[0] == "demo" else next(iter(words[1:]), "full")
            if name == ABLATION:
                ablation([word for word in words if "=" in word], seeds=1)
            else:
                assert find_protocol(name) or load_study(name)
            continue
        if (
            words[0] in RUN_ELSEWHERE
            or words[:2] in (["league", "demo"], ["base", "smollm2"])
            or {"--bus", "--hub"} & set(words)
        ):
            continue
        # Tested in tests/cli/test_hub.py, tests/openenv and tests/scenarios; jaxmarl is a large extra.
        if any(re.search("hub:|=openenv:http|=verifiers:", word) for word in words) or (
            find_spec("jaxmarl") is None and any("jaxmarl:" in word for word in words)
        ):
            continue
        if words[0] == "broker" and "--write-only" not in words:  # it ends with a signal only: tests/broker
            continue
        if any(
            word.startswith(ELSEWHERE) for word in words
        ):  # played in tests/serving, and tests/training/test_peers.py and test_workers.py
            words = ["config", *(word for word in words[1:] if "=" in word and not word.startswith("run_dir="))]
        short = shortened(words, small_overrides)
        if words[0] == "train" and short[0] == "config":
            only_checked |= {word.removeprefix("run_dir=") for word in words if word.startswith("run_dir=")}
        elif any(word.endswith(run) for word in words for run in only_checked):  # about a run that was not made
            continue
        ran = mas(*short)
        assert ran.code == 0, f"{words}: {ran.err}"


def test_commands_named_in_a_sentence_exist() -> None:
    names = [(page, name) for page in PAGES for name in re.findall(r"`mas ([a-z]+)", prose(page))]
    assert [(page, name) for page, name in names if name not in NAMES] == []


def test_every_command_is_documented() -> None:
    page = read("docs/commands.md")
    for name, command in NAMES.items():
        assert f"`mas {name}`" in page
        for below in command.commands if isinstance(command, TyperGroup) else ():
            assert f"`mas {name} {below}`" in page
        assert re.search(rf"^## .*\b{name}\b|^mas {name} ", page, re.MULTILINE)


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = [(page, name) for page in PAGES for name in re.findall(r"`make ([a-z-]+)", prose(page))]
    for page in PAGES:
        for block in blocks(page, "bash"):
            named += [(page, name) for name in re.findall(r"^make ([a-z-]+)", block.text, re.MULTILINE)]
    assert [(page, name) for page, name in named if name not in targets] == []

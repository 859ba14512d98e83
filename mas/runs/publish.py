"""A trained team as a folder for others, with a model card, and its upload to a model hub.

    published.json   format, base, and a SHA-256 per file
    config.yaml      what is needed to play; see `mas.runs.public_config`
    team.yaml        the team
    adapters/NAME/   a PEFT directory per adapter, or experiences/ROLE.json where roles have learned as text
    README.md        the model card, with learning_curve.svg

The folder is a run directory, so every command that plays a run plays it. It has no conversations and no metrics file.
"""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import yaml

from mas.config.access import CONFIG_FILE, PLAYS, TEAM_FILE, accesses_of, class_access, is_of_mas, team_accesses
from mas.config.options import SMOLLM2, TINY, Config
from mas.config.stored_run import load_run_config
from mas.core.errors import ConfigError, HubError
from mas.core.host import cache_directory
from mas.core.team import TeamSpec
from mas.core.version import VERSION
from mas.observe.charts import curves_svg
from mas.observe.curves import curve
from mas.observe.files import write_directory_atomic, writing
from mas.observe.metrics import read_metrics
from mas.observe.report_records import Chart
from mas.runs.hub_client import asking, check_login, check_repository, open_hub, without_token
from mas.runs.hub_folder import LOOKS
from mas.runs.hub_source import PREFIX
from mas.runs.model_card import KINDS, CardFacts, evaluated, model_card
from mas.runs.overrides import PLAYING, check_used
from mas.runs.public_config import last_part, public_command, public_config
from mas.runs.resolve import resolve
from mas.serving.model_sources import PUBLISHED as SMOLLM2_ORIGIN
from mas.training.published import FORMAT, PUBLISHED, Published, PublishedBase, weights_digest
from mas.training.setup import Setup

_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIAL")
_SHORTEST_SECRET = 8
"""Characters of a variable's value from which on it is looked for in what is published."""


def export_team(run: Path, out: Path, overrides: Sequence[str] = ()) -> None:
    """Write the folder of a run's team, as of its latest checkpoint, with its model card. No request is sent.

    Args:
        out: a new directory, or an empty one.
        overrides: of what plays, put over the run's configuration, such as `scenario.options.reward=null`.

    Raises:
        ConfigError: something is in `out` already, or the team cannot do without code, or a file would hold a path or a
            secret of this machine.
        RunDirectoryError: nothing has been saved yet, or the directory cannot be written.
        Otherwise as `load_run_config` and `resolve`.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is there already and not empty: choose another directory with --out")
    with writing(out):
        files = team_files(run, list(overrides), "", None)
        out.parent.mkdir(parents=True, exist_ok=True)
        write_directory_atomic(out, files)


def publish_team(run: Path, repository: str, *, overrides: Sequence[str] = (), is_public: bool = False) -> str:
    """Write the folder and upload it in one commit; a repository that is not there is made.

    Args:
        repository: ORG/NAME. is_public: whether everybody may read it; a repository that is there must be so already.

    Returns:
        `hub:ORG/NAME@COMMIT`.

    Raises:
        HubError: no login, no such name, a repository whose visibility is the other one, or a hub that refuses.
        RunDirectoryError: the folder to upload cannot be written.
        Otherwise as `export_team`.
    """
    check_repository(repository)
    check_login()
    api, what = open_hub(), f"{PREFIX}{repository} cannot be published"
    files = team_files(run, list(overrides), repository, api)
    with ExitStack() as held:
        with writing("the folder that is uploaded", ": let TMPDIR name a directory with room"):
            out = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="mas-hub-"))) / "team"
            write_directory_atomic(out, files)
        with asking(what):
            api.create_repo(repository, private=not is_public, exist_ok=True)
            there = api.model_info(repository)
            if bool(there.private) == is_public:
                now, flag = ("private", "without --public") if is_public else ("public", "with --public")
                raise HubError(f"{what}: it is there already and {now}. Change that on the hub, or publish {flag}")
            done = api.upload_folder(
                repo_id=repository,
                folder_path=out,
                commit_message=f"Team of mas {VERSION}",
                delete_patterns=["adapters/*", "experiences/*", *LOOKS],
            )
    return f"{PREFIX}{repository}@{done.oid}"


def team_files(run: Path, overrides: list[str], repository: str, api: Any) -> dict[str, bytes]:
    """Name -> content of every file of the folder.

    Args:
        repository: ORG/NAME, for the commands of the card; empty: the card names the folder.
        api: the hub's client, which is asked for the license of the base; None: nobody is asked.

    Raises:
        As `export_team`.
    """
    check_used("export", overrides, PLAYING)
    config = load_run_config(run, overrides, uses=PLAYS)
    setup, plain = resolve(config), public_config(config)
    _check_no_code(plain, setup.team)
    learned, step = _learned(run, setup)
    base = _base_of(learned, setup)
    recorded = Path(_recorded(learned)[0])
    is_on_hub = base is not None and not (recorded.is_absolute() or recorded.is_dir())
    files = {name: _with_base(content, base) for name, content in learned.items()}
    files[CONFIG_FILE] = yaml.safe_dump(plain.model_dump(mode="json"), sort_keys=False, allow_unicode=True).encode()
    files[TEAM_FILE] = _team_text(setup.team)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    published = Published(format=FORMAT, mas=VERSION, base=base, files=sums)
    files[PUBLISHED] = msgspec.json.format(msgspec.json.encode(published), indent=1) + b"\n"
    lines = [line for line in read_metrics(run / "metrics.jsonl") if step is None or line["step"] <= step]
    svg = _curve(lines, setup)
    command, left_out = public_command(load_run_config(run, uses=["code"]))
    facts = CardFacts(
        name=f"{PREFIX}{repository}" if repository else ".",
        setup=setup,
        trained=load_run_config(run, uses=()),
        model=plain.model.path,
        note=SMOLLM2_ORIGIN.note if plain.model.path == SMOLLM2 else "",
        base=base,
        is_on_hub=is_on_hub,
        license=_license(plain.model.path, base, api if is_on_hub else None),
        lines=lines,
        has_curve=svg is not None,
        command=command,
        left_out=left_out,
    )
    files |= {"README.md": model_card(facts).encode()} | ({} if svg is None else {"learning_curve.svg": svg.encode()})
    _check_nothing_private(files, run)
    return files


def _team_text(team: TeamSpec) -> bytes:
    return yaml.safe_dump(team.model_dump(mode="json", exclude_defaults=True), sort_keys=False).encode()


def _check_no_code(config: Config, team: TeamSpec) -> None:
    """Refuse a team that others could not play without running somebody's code or programs."""
    found = [*accesses_of(config), *team_accesses(team)]
    found += [class_access(role.type, f"roles.{name}.type") for name, role in team.roles.items() if ":" in role.type]
    for access in found:
        if access.kind == "code" and not is_of_mas(access):
            raise ConfigError(
                f"this team cannot be published: it would {access.what} ({access.where}), and nothing from a hub is "
                "executed. Set that key to null or to something of mas on this command line, or share the run directory"
            )


def _learned(run: Path, setup: Setup) -> tuple[dict[str, bytes], int | None]:
    """The files of the latest checkpoint's adapters or experiences, and its step; None: there is no checkpoint."""
    from mas.training.checkpoint import checkpoint_steps
    from mas.training.libraries import FOLDER, library_files
    from mas.training.saved import adapter_directories, saved_libraries

    steps = checkpoint_steps(run / "checkpoints")
    step = steps[-1] if steps else None
    if setup.algorithm.is_training_free:
        found = library_files(saved_libraries(run))
        assert all(name.startswith(f"{FOLDER}/") for name in found)
        return found, step
    files = {}
    for folder in adapter_directories(run):
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            files[f"adapters/{folder.name}/{name}"] = (folder / name).read_bytes()
    return files, step


def _recorded(learned: Mapping[str, bytes]) -> tuple[str, str | None]:
    """Name and revision of the base, as adapters record it; the name is empty where there is no adapter."""
    for name, content in learned.items():
        if name.endswith("/adapter_config.json"):
            config = json.loads(content)
            return str(config.get("base_model_name_or_path") or ""), config.get("revision")
    return "", None


def _base_of(learned: Mapping[str, bytes], setup: Setup) -> PublishedBase | None:
    name, revision = _recorded(learned)
    if not name:
        return None
    if not Path(name).is_dir():
        return PublishedBase(name=last_part(name) if Path(name).is_absolute() else name, revision=revision)
    weights = None if setup.model.path == TINY else weights_digest(Path(name))
    return PublishedBase(name=Path(name).resolve().name, weights=weights)


def _with_base(content: bytes, base: PublishedBase | None) -> bytes:
    """An adapter's configuration with the base as others know it; other files as they are."""
    if base is None or not content.startswith(b"{"):
        return content
    config = json.loads(content)
    if "base_model_name_or_path" not in config:
        return content
    return json.dumps(config | {"base_model_name_or_path": base.name}, indent=1, sort_keys=True).encode()


def _curve(lines: Sequence[Mapping[str, Any]], setup: Setup) -> str | None:
    """Success on held-out tasks by step as SVG; None: fewer than two evaluations."""
    metrics = {kind: f"eval/{kind}/success" for kind in KINDS}
    series = [curve(kind, [lines], metric) for kind, metric in metrics.items() if len(evaluated(lines, metric)) > 1]
    if not series:
        return None
    chart = Chart(
        title=f"Success on held-out tasks of {setup.scenario.name}",
        x_label="training step",
        y_label="success",
        series=tuple(series),
        y_range=(-0.02, 1.02),
    )
    return curves_svg([chart], columns=1)


def _license(model: str, base: PublishedBase | None, api: Any) -> str | None:
    """Of the base; None: it is not known."""
    if model in (TINY, SMOLLM2):
        return "apache-2.0" if model == SMOLLM2 else None
    if base is None or api is None:
        return None
    try:
        with asking("the base"):
            card = api.model_info(base.name).card_data
    except HubError:  # does not know the base, or does not answer
        return None
    found = getattr(card, "license", None)
    return found if isinstance(found, str) else None


def _check_nothing_private(files: Mapping[str, bytes], run: Path) -> None:
    """Refuse to publish a path of this machine or the value of a secret variable, wherever it came from."""
    places = {Path.home(), Path.cwd(), run.resolve(), cache_directory().resolve()}
    private = {str(place): f"the path {place}" for place in places if len(place.parts) > 2 or place == Path.home()}
    private |= {
        value: f"the value of the environment variable {name}"
        for name, value in os.environ.items()
        if _SECRET.search(name.upper()) and len(value) >= _SHORTEST_SECRET
    }
    for name, content in files.items():
        if name.endswith(".safetensors"):
            continue
        text = content.decode()
        for value, what in private.items():
            if value in text or without_token(text) != text:
                raise ConfigError(
                    f"{name} of the published team would hold {what}: nothing was written. Change the option or the "
                    "team that says it"
                )

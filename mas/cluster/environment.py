"""What a worker inherits: few variables, no secrets, the driver's module path and a number of threads."""

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "VIRTUAL_ENV",
        "MAS_CACHE",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONHASHSEED",
        "PYTHONPYCACHEPREFIX",
        "PYTHONUTF8",
        "PYTHONWARNINGS",
        "PYTHONPATH",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "OMP_PROC_BIND",
        "KMP_AFFINITY",
    }
)
_PREFIXES = (
    "LC_",
    "HF_",
    "TRANSFORMERS_",
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "GLOO_",
    "TORCH_",
    "PYTORCH_",
    "TRITON_",
    "VLLM_",
)
_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSW", "PASSPHRASE", "CREDENTIAL", "AUTH", "COOKIE", "BEARER")
_SECRET_WORDS = frozenset({"PASS", "PAT", "PWD", "JWT", "CERT", "PRIVATE"})
"""Between underscores: parts of harmless names, as PAT is of PATH."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS")


def is_passed_on(name: str, names: Collection[str]) -> bool:
    """Whether a worker gets a variable. `names`: those that the user wants passed on, secrets or not."""
    if name in names or name in _NAMES:
        return True
    return name.startswith(_PREFIXES) and not _may_be_secret(name.upper())


def _may_be_secret(name: str) -> bool:
    return any(word in name for word in _SECRETS) or not _SECRET_WORDS.isdisjoint(name.split("_"))


def clean_environment(variables: Mapping[str, str], names: Collection[str], threads: int) -> dict[str, str]:
    """The variables that a worker gets, with the driver's module path and the number of threads."""
    kept = {name: value for name, value in variables.items() if is_passed_on(name, names)}
    return kept | thread_variables(threads) | {"PYTHONPATH": python_path()}


def thread_variables(threads: int) -> dict[str, str]:
    """What numeric libraries read when they are loaded."""
    return dict.fromkeys(_THREADS, str(threads)) | {"TOKENIZERS_PARALLELISM": "false"}


def python_path() -> str:
    """Where this process finds modules, as PYTHONPATH: a worker finds the same factories."""
    return os.pathsep.join(str(Path(entry).absolute()) if entry else str(Path.cwd()) for entry in sys.path)


def resident_bytes() -> int | None:
    """Memory that this process holds; None where the platform does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")

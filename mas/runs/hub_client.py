"""The client of a model hub, `huggingface_hub`, whose failures become one sentence each, without the user's token.

The hub's address comes from HF_ENDPOINT; the token from HF_TOKEN or the client's own login (`hf auth login`).
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mas.core.errors import HubError, MasError
from mas.core.printable import printable
from mas.core.version import VERSION

if TYPE_CHECKING:
    from huggingface_hub import HfApi

REPOSITORY = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
COMMIT = re.compile(r"[0-9a-f]{40}")
_WHY = 300
"""Characters of a hub's or its client's error that are repeated."""
_LOGIN = "set HF_TOKEN to a token that may do this, or log in with `hf auth login`"


def check_repository(name: str) -> str:
    """The name of a repository, `ORG/NAME`, as it is.

    Raises:
        HubError: it is none.
    """
    if re.fullmatch(REPOSITORY, name, re.ASCII) is None or "--" in name or ".." in name or name.endswith(".git"):
        raise HubError(f"{name!r} is no repository of a hub: write ORG/NAME, such as my-org/my-team")
    return name


def open_hub() -> "HfApi":
    """The client. It sends no request yet."""
    from huggingface_hub import HfApi

    return HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, library_name="mas", library_version=VERSION)


def check_login() -> None:
    """Refuse to publish without a token.

    Raises:
        HubError: there is none.
    """
    from huggingface_hub import get_token

    if get_token() is None:
        raise HubError(f"publishing needs a login to the hub: {_LOGIN}")


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Make whatever the client raises in the block one sentence that begins with `what`.

    Raises:
        HubError: the hub cannot be reached, refuses, or answers with what its client cannot read.
    """
    try:
        yield
    except MasError:
        raise
    except Exception as error:  # noqa: BLE001 - of a hub, and of whatever its client raises
        raise HubError(f"{what}: {_why(error)}") from None


def _why(error: Exception) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set, so no hub is asked"
    if isinstance(error, errors.RevisionNotFoundError):
        return "there is no such revision"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.RepositoryNotFoundError) and status != 401:
        return f"there is no such repository, or it is private: {_LOGIN}"
    if status in (401, 403):
        return f"the hub refuses (status {status}): {_LOGIN}"
    told = [error, *([error.__cause__] if error.__cause__ is not None else [])]
    said = ": ".join((str(one).strip() or type(one).__name__).splitlines()[0].rstrip(".") for one in told)[:_WHY]
    if status is None and "connect" in f"{type(error).__name__} {said}".lower():
        return f"the hub cannot be reached ({without_token(said)}); HF_ENDPOINT says where it is"
    return printable(without_token(said))


def without_token(text: str) -> str:
    """The text, with the user's token, wherever it stands, replaced by its name."""
    from huggingface_hub import get_token

    token = get_token()
    return text.replace(token, "[HF_TOKEN]") if token else text

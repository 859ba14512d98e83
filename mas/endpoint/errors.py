"""What a request is answered with when it fails: OpenAI's form of an error, and the status of every error of mas."""

import logging
from collections.abc import Mapping
from typing import Any

from mas.core.errors import MasError, RefusedRequest, UnknownAdapter

_log = logging.getLogger(__name__)

_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 503: "service_unavailable"}
RETRY_AFTER_S = 1
"""When a client that met a full server may come again."""


class Refused(MasError):
    """A request that is answered with an HTTP error.

    Args:
        status: of HTTP, 400 to 599.
        param: the request's field that is wrong, None where it is no field.
        code: a word for programs, None where the status says it all.
        retry_after_s: of a status that says to come again, after how many seconds.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int = RETRY_AFTER_S,
    ) -> None:
        super().__init__(message)
        self._retry_after_s, self.status, self.param, self.code = retry_after_s, status, param, code

    @property
    def headers(self) -> Mapping[str, str]:
        if self.status == 401:
            return {"WWW-Authenticate": "Bearer"}
        return {"Retry-After": str(self._retry_after_s)} if self.status in (429, 503) else {}

    def body(self) -> dict[str, Any]:
        """The error as OpenAI writes it."""
        usual = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = _KINDS.get(self.status, usual)
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


def refusal(error: Exception) -> Refused:
    """The answer to an error. What is no error of mas is logged here, and its text told to nobody."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, UnknownAdapter):
        return Refused(404, str(error), param="model", code="model_not_found")
    if isinstance(error, RefusedRequest):
        return Refused(400, str(error))
    if isinstance(error, RecursionError):
        return Refused(400, "the request nests too deeply")
    if isinstance(error, MasError):
        _log.error("a request failed: %s: %s", type(error).__name__, error)
        return Refused(500, str(error), code="engine_error")
    _log.error("a request failed", exc_info=error)
    return Refused(500, "an error inside the server, which has logged it; the request may be right")

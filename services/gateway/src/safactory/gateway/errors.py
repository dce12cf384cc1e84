"""What the gateway answers when it does not relay: `{"error": {"type", "message", "code"}}`, as OpenAI does."""

from __future__ import annotations

from fastapi.responses import JSONResponse

RETRY_AFTER_S = 1


class Refusal(Exception):
    """A call that is not admitted: it costs no step and is not recorded, only counted."""

    def __init__(self, http_status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.kind = kind

    def response(self) -> JSONResponse:
        """Return the answer to the client."""
        return error_response(self.http_status, self.kind, str(self))


def error_response(http_status: int, kind: str, message: str) -> JSONResponse:
    """Return an error body; overload also says when to come again."""
    headers = {"Retry-After": str(RETRY_AFTER_S)} if http_status in (429, 503) else {}
    body = {"error": {"type": kind, "message": message, "code": http_status}}
    return JSONResponse(body, status_code=http_status, headers=headers)

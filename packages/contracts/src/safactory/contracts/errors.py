"""The error tree: one class for each boundary that a failure crosses, each saying whether a retry can help.

    SafactoryError
    ├── ConfigError         a file, line or field that a person must mend          never
    ├── PoisonError         a record that no retry can read                        never
    ├── BusError            the broker did not take or give a record               yes
    ├── ArchiveError        ClickHouse refused or did not answer                   yes
    ├── ObjectError         the object store refused or did not answer             yes
    │   └── ObjectCorrupt   its bytes are not those that the reference promises    never
    ├── ServiceError        another service of ours did not answer as agreed       yes
    ├── UpstreamError       a model server refused, failed or fell silent          `retryable`
    ├── RunnerError         an agent's process broke the runner contract           never
    ├── EvaluatorError      a rule evaluator raised, hung or gave no number        never
    └── WeightsError        a weight push was refused or did not verify            yes

Adding one: name it for the boundary, not for the cause; put the way out into the message.
"""

from __future__ import annotations


class SafactoryError(Exception):
    """Any failure that Safactory names itself."""

    retryable: bool = False
    """Whether the same thing can succeed later without a person's help."""


class ConfigError(SafactoryError):
    """A file, line or field is wrong; the message says which, and what is allowed."""

    def __init__(self, message: str, *, file: str = "", line: int = 0, field: str = "") -> None:
        place = f"{file}:{line}" if file and line else file
        super().__init__(": ".join(part for part in (place, field, message) if part))
        self.file = file
        self.line = line
        self.field = field


class PoisonError(SafactoryError):
    """A record cannot be read, now or ever."""


class BusError(SafactoryError):
    """The broker did not take or give a record in time."""

    retryable = True


class ArchiveError(SafactoryError):
    """ClickHouse refused a statement or did not answer."""

    retryable = True


class ObjectError(SafactoryError):
    """The object store refused or did not answer."""

    retryable = True


class ObjectCorrupt(ObjectError):
    """An object's bytes differ from the size or digest in its reference."""

    retryable = False


class ServiceError(SafactoryError):
    """Another service of ours did not answer as agreed."""

    retryable = True


class UpstreamError(SafactoryError):
    """A model server refused, failed or fell silent."""

    def __init__(self, message: str, *, http_status: int = 0, retryable: bool = True) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.retryable = retryable


class RunnerError(SafactoryError):
    """An agent's process broke the runner contract."""


class EvaluatorError(SafactoryError):
    """A rule evaluator raised, ran out of time, or gave no finite number."""


class WeightsError(SafactoryError):
    """A weight push was refused, cut or did not verify."""

    retryable = True

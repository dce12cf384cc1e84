"""The error tree, as its docstring prints it."""

from __future__ import annotations

import re

import pytest

from safactory.contracts import errors
from safactory.contracts.errors import ConfigError, SafactoryError

PRINTED = dict(re.findall(r"[├└]── (\w+) .* (never|yes|`retryable`)$", errors.__doc__ or "", re.MULTILINE))


def of_the_tree(kind: type[SafactoryError]) -> list[type[SafactoryError]]:
    inside = [below for below in kind.__subclasses__() if below.__module__ == errors.__name__]
    return [*inside, *(deeper for below in inside for deeper in of_the_tree(below))]


def test_the_docstring_prints_the_whole_tree() -> None:
    assert {kind.__name__ for kind in of_the_tree(SafactoryError)} == set(PRINTED)


@pytest.mark.parametrize("kind", of_the_tree(SafactoryError), ids=lambda kind: kind.__name__)
def test_an_error_says_whether_a_retry_can_help(kind: type[SafactoryError]) -> None:
    if PRINTED[kind.__name__] != "`retryable`":
        assert kind.retryable is (PRINTED[kind.__name__] == "yes")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConfigError("is wrong", file="a.yaml", line=3, field="x.y"), "a.yaml:3: x.y: is wrong"),
        (ConfigError("is wrong", file="a.yaml"), "a.yaml: is wrong"),
        (ConfigError("is wrong", field="PORT"), "PORT: is wrong"),
        (ConfigError("is wrong", line=3), "is wrong"),
    ],
)
def test_a_config_error_names_the_place(error: ConfigError, text: str) -> None:
    assert str(error) == text

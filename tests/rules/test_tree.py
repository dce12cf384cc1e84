"""The house rules that no linter knows, over every file under version control.

A rule is a function from a tree to its findings, so that each can be shown to find a violation planted in a folder.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePath

import pytest

from safactory.contracts.topics import EVENT_OF

FILE_LINES_MAX = 300
FUNCTION_LINES_MAX = 60
LAUNCHER_LINES_MAX = 30
NAMES_OF_NOTHING = {"utils.py", "util.py", "helpers.py", "helper.py", "common.py", "manager.py", "misc.py"}
COMMAND_LINE = "packages/sdk/src/safactory/sdk/__main__.py"
READS_ENVIRONMENT = {
    "packages/testkit/src/safactory/testkit/plugin.py": "which connected servers the tests run on",
    "services/runtime-worker/src/safactory/runtime_worker/runner_fork.py": "gives the runner its own environment",
}
"""Beside the folders that pyproject.toml frees from TID251, and with the reason."""

Rule = Callable[[Path, Sequence[str]], list[str]]


def hand_written(files: Sequence[str]) -> list[str]:
    return [name for name in files if name.endswith(".py") and "/contracts/rpc/" not in name]


def parsed(root: Path, files: Sequence[str]) -> Iterator[tuple[str, ast.Module]]:
    for name in hand_written(files):
        yield name, ast.parse((root / name).read_text(), name)


def long_files(root: Path, files: Sequence[str]) -> list[str]:
    lines = {name: len((root / name).read_text().splitlines()) for name in hand_written(files)}
    return [f"{name}: {count} lines" for name, count in lines.items() if count > FILE_LINES_MAX]


def long_functions(root: Path, files: Sequence[str]) -> list[str]:
    found = []
    for name, tree in parsed(root, files):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    found.append(f"{name}:{node.lineno}: {node.name} has {lines} lines")
    return found


def long_launchers(root: Path, files: Sequence[str]) -> list[str]:
    launchers = [name for name in files if PurePath(name).name == "__main__.py" and name != COMMAND_LINE]
    return [name for name in launchers if len((root / name).read_text().splitlines()) > LAUNCHER_LINES_MAX]


def closed_namespaces(_: Path, files: Sequence[str]) -> list[str]:
    return [name for name in files if name.endswith("src/safactory/__init__.py")]


def open_packages(_: Path, files: Sequence[str]) -> list[str]:
    """Find folders of a part without an `__init__.py`: import-linter would not look into them."""
    places = [PurePath(name) for name in files if re.search(r"src/safactory/\w+/.*\.py$", name)]
    return sorted({f"{place.parent}/__init__.py" for place in places} - set(files))


def names_of_nothing(_: Path, files: Sequence[str]) -> list[str]:
    return [name for name in files if PurePath(name).name in NAMES_OF_NOTHING]


def strange_parts(root: Path, files: Sequence[str]) -> list[str]:
    """Find folders, distributions and import names that do not agree."""
    found = []
    for name in files:
        place = PurePath(name)
        if place.parts[0] not in ("services", "packages") or len(place.parts) < 2:
            continue
        folder, module = place.parts[1], place.parts[1].replace("-", "_")
        if len(place.parts) > 2 and place.parts[2] == "src" and place.parts[3:5] != ("safactory", module):
            found.append(f"{name}: is not under safactory/{module}")
        if place.parts[2:] == ("pyproject.toml",):
            project = tomllib.loads((root / name).read_text())["project"]["name"]
            if project != f"safactory-{folder}":
                found.append(f"{name}: is called {project}, not safactory-{folder}")
    return found


def nameless_handlers(_: Path, files: Sequence[str]) -> list[str]:
    """Find handler files that are not named after an event."""
    events = {kind.replace(".", "_") + ".py" for kind in EVENT_OF} | {"__init__.py"}
    return [name for name in files if fnmatch(name, "services/*/handlers/*.py") and PurePath(name).name not in events]


def prints(root: Path, files: Sequence[str]) -> list[str]:
    return [
        f"{name}:{node.lineno}"
        for name, tree in parsed(root, [name for name in files if name.startswith("services/")])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]


def environment_readers(root: Path, files: Sequence[str]) -> list[str]:
    ruff = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["per-file-ignores"]
    free = [pattern for pattern, rules in ruff.items() if "TID251" in rules]
    judged = [name for name in files if name not in READS_ENVIRONMENT and not any(fnmatch(name, p) for p in free)]
    return [name for name, tree in parsed(root, judged) if any(map(_reads_environment, ast.walk(tree)))]


def _reads_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(alias.name in ("environ", "getenv") for alias in node.names)
    return isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv") and _name(node.value) == "os"


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


RULES: dict[str, tuple[Rule, str, str]] = {
    "a file fits in 300 lines": (long_files, "a.py", "x = 1\n" * 301),
    "a function fits in 60 lines": (long_functions, "a.py", "def f():\n" + "    x = 1\n" * 60),
    "a launcher fits in 30 lines": (long_launchers, "services/a/src/safactory/a/__main__.py", "x = 1\n" * 31),
    "nothing closes the namespace": (closed_namespaces, "packages/a/src/safactory/__init__.py", ""),
    "every folder of a part is a package": (open_packages, "services/a/src/safactory/a/app.py", ""),
    "a file is named for a thing": (names_of_nothing, "services/a/src/safactory/a/utils.py", ""),
    "folder and import name agree": (strange_parts, "services/a-b/src/safactory/a-b/app.py", ""),
    "folder and distribution agree": (strange_parts, "services/a-b/pyproject.toml", '[project]\nname = "a-b"\n'),
    "a handler is named for its event": (nameless_handlers, "services/a/src/safactory/a/handlers/things.py", ""),
    "services do not print": (prints, "services/a/src/safactory/a/app.py", "print(1)\n"),
    "only settings read the environment": (
        environment_readers, "services/a/src/safactory/a/app.py", "import os\nx = os.environ['X']\n",
    ),
    "nor import it": (environment_readers, "services/a/src/safactory/a/app.py", "from os import getenv\n"),
}  # fmt: skip
"""What must hold → the rule, and a file that breaks it."""


@pytest.mark.parametrize("rule", RULES)
def test_the_tree_keeps(rule: str, root: Path, files: list[str]) -> None:
    assert RULES[rule][0](root, files) == []


@pytest.mark.parametrize("rule", RULES)
def test_a_violation_is_found_of(rule: str, root: Path, tmp_path: Path) -> None:
    check, name, text = RULES[rule]
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    (tmp_path / "pyproject.toml").write_text((root / "pyproject.toml").read_text())
    found = check(tmp_path, [name])
    assert len(found) == 1
    assert str(PurePath(name).parent) in found[0]


def test_the_list_of_files_is_that_of_the_whole_house(files: list[str]) -> None:
    rooms = {"/".join(PurePath(name).parts[:2]) for name in files}
    assert {"packages/contracts", "services/scheduler", "services/runtime-worker", "tests/rules"} <= rooms


def test_every_exception_is_still_needed(root: Path) -> None:
    for name in READS_ENVIRONMENT:
        assert any(map(_reads_environment, ast.walk(ast.parse((root / name).read_text())))), name


def test_every_part_has_one_handler_file_per_event_and_no_two_spellings(files: list[str]) -> None:
    handlers = [PurePath(name) for name in files if re.fullmatch(r"services/.*/handlers/[a-z]\w+\.py", name)]
    assert len(handlers) >= 10
    assert len({(place.parts[1], place.name) for place in handlers}) == len(handlers)

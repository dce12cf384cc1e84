"""`RuleFile`: one environment's `rule_evaluator.py`, loaded once for each state of the file.

It may export a class `RuleEvaluator` with `evaluate(request, spec, trajectory)`, or a function `evaluate_rule` or
`evaluate` with the same arguments; each may be a coroutine function.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from safactory.contracts.errors import EvaluatorError
from safactory.evaluator.evaluation import EvaluatedTrajectory, EvaluationRequest, EvaluationSpec

Rule = Callable[[EvaluationRequest, EvaluationSpec, EvaluatedTrajectory], object]


class RuleFile:
    """A loaded evaluator."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = _state(path)
        self._rule = _rule(_load(path), path)

    @property
    def is_current(self) -> bool:
        """Whether the file is still what was loaded."""
        return self._state == _state(self._path)

    def evaluate(self, request: EvaluationRequest, spec: EvaluationSpec, trajectory: EvaluatedTrajectory) -> object:
        """Call the rule on this, the main thread, where a library may set alarms."""
        sys.path.insert(0, str(self._path.parent))
        try:
            output = self._rule(request, spec, trajectory)
            return asyncio.run(_awaited(output)) if inspect.isawaitable(output) else output
        finally:
            sys.path.remove(str(self._path.parent))


async def _awaited(output: object) -> object:
    assert inspect.isawaitable(output)
    return await output


def _state(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise EvaluatorError(f"{path} cannot be read: {error.strerror}") from error
    return stat.st_mtime_ns, stat.st_size


def _load(path: Path) -> ModuleType:
    name = f"safactory_rule_{abs(hash(path))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise EvaluatorError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
        _forget_siblings(path.parent, name)
    return module


def _forget_siblings(folder: Path, own_name: str) -> None:
    """Let two environments have modules of one name beside their evaluators: each keeps what it has imported."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name != own_name and file and Path(file).parent == folder:
            del sys.modules[name]


def _rule(module: ModuleType, path: Path) -> Rule:
    rule: Rule | None = None
    if evaluator := getattr(module, "RuleEvaluator", None):
        rule = evaluator().evaluate
    for name in ("evaluate_rule", "evaluate"):
        rule = rule or getattr(module, name, None)
    if rule is None:
        raise EvaluatorError(f"{path} exports none of RuleEvaluator, evaluate_rule, evaluate")
    return rule

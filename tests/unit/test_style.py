"""Tests rules of docs/architecture.md that make code easy to read: one statement, one thought."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("t2t_repro", "t2t_repro.problems", "t2t_repro.hparams", "t2t_repro.bin")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def sources() -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each file of the product, such as "data/records.py"."""
    for package in PACKAGES:
        folder = Path(str(importlib.import_module(package).__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder.parent).as_posix().removeprefix("t2t_repro/")
            yield name, path.read_text("utf-8")


def is_packed(node: ast.AST) -> bool:
    """Returns True for `a, b = x, y`, unless both sides have the same elements, as in a swap."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    target = node.targets[0]
    if not isinstance(target, ast.Tuple):
        return False
    names = sorted(map(ast.unparse, target.elts))
    return names != sorted(map(ast.unparse, node.value.elts))


def has_boolean_index(node: ast.AST) -> bool:
    """Returns True for `pair[x == y]`, `pair[not x]`, and `pair[is_x]`."""
    if not isinstance(node, ast.Subscript):
        return False
    index = node.slice.func if isinstance(node.slice, ast.Call) else node.slice
    name = index.attr if isinstance(index, ast.Attribute) else ast.unparse(index)
    is_not = isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.Not)
    return isinstance(index, ast.Compare) or is_not or name.startswith(("is_", "has_"))


def is_nested(node: ast.AST) -> bool:
    """Returns True for a comprehension whose elements are comprehensions."""
    if not isinstance(node, COMPREHENSIONS):
        return False
    elements = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
    return any(isinstance(element, COMPREHENSIONS) for element in elements)


def faults(text: str) -> list[str]:
    """Returns the lines that break a rule, each with its number."""
    lines = text.splitlines()
    numbers = [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if is_packed(node) or has_boolean_index(node) or is_nested(node)
    ]
    return [f"{number}: {lines[number - 1].strip()}" for number in sorted(numbers)]


def test_each_statement_has_one_thought() -> None:
    found = [f"{name}:{fault}" for name, text in sources() for fault in faults(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("fault", "cure"),
    [
        ("a, b = x, y", "a, b = b, a"),
        ("(a, b)[x == y]", "a[x + y]"),
        ("a[not x]", "a[x]"),
        ("a[self.is_b]", "a[self.b]"),
        ("[[f(x) for x in y] for y in z]", "[f(x) for y in z for x in y]"),
        ("{x: [y for y in x] for x in z}", "{x: list(x) for x in z}"),
    ],
)
def test_a_fault_is_found(fault: str, cure: str) -> None:
    assert faults(fault) == [f"1: {fault}"]
    assert not faults(cure)

"""Tests that imports have no cycles between modules or folders, and follow the order in
docs/architecture.md.
"""

import ast
import graphlib
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ENGINE = "t2t_repro"
LEVELS = (
    ("errors",),
    ("files", "console"),
    ("devices", "hparam"),
    ("corpora", "parsing"),
    ("metrics",),
    ("problem",),
    ("registry",),
    ("data",),
    ("layers",),
    ("models",),
    ("checkpoints",),
    ("decoding",),
    ("serving", "training"),
    ("ctranslate2", "huggingface", "keras", "rivals", "tensor2tensor", "visualization"),
    ("insights", "paper", "beam", "opennmt_tf"),
    ("problems", "hparams"),
    ("bin",),
    ("__main__",),
)
"""The folders and loose modules, from the bottom to the top: tools, core, annexes (from rivals on),
programs. A folder imports only folders of lower levels.
"""
RANKS = {folder: rank for rank, folders in enumerate(LEVELS) for folder in folders}
APPLICATIONS = ("problems", "hparams", "bin")
"""Top-level folders, installed inside t2t_repro."""


def source_files() -> dict[str, Path]:
    """Returns the files of all modules as {module name after installation: path}."""
    files = {}
    for package in (ENGINE, *(f"{ENGINE}.{folder}" for folder in APPLICATIONS)):
        folder = Path(str(importlib.import_module(package).__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            files[".".join((package, *parts)).removesuffix(".__init__")] = path
    return files


def imports(node: ast.AST) -> Iterator[str]:
    """Yields the names that code imports at module level, inside functions and for type checking."""  # noqa: E501
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert not child.level, f"relative import of {child.module}"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from imports(child)


def dependencies(files: dict[str, Path]) -> dict[str, set[str]]:
    """Returns {module: modules that it imports}, for imports of this project's modules."""
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        names = imports(ast.parse(path.read_text("utf-8")))
        modules = (name if name in files else name.rpartition(".")[0] for name in names)
        graph[module] = {name for name in modules if name in files and name != ENGINE}
    return graph


def folder_of(module: str) -> str:
    """Returns a module's folder inside t2t_repro/, or the module's own name if it lies directly in
    t2t_repro/.
    """
    return module.split(".")[1] if module != ENGINE else ENGINE


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """Returns {module: modules that it imports} for all modules of this project."""
    return dependencies(source_files())


def test_modules_do_not_import_each_other_in_a_cycle(graph: dict[str, set[str]]) -> None:
    assert len(graph) > 60 and sum(map(len, graph.values())) > 200
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def test_imports_go_down_from_programs_through_annexes_and_core_to_tools(
    graph: dict[str, set[str]],
) -> None:
    for module, imported in graph.items():
        source = folder_of(module)
        for target in {folder_of(name) for name in imported} - {source}:
            assert RANKS.get(source, 0) > RANKS[target], f"{module} imports {target}"

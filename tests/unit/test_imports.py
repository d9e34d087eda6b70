"""Tests that imports have no cycles between modules or folders, and follow the order in
docs/architecture.md.
"""

import ast
import graphlib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ENGINE = "t2t_repro"
LEVELS = (
    ("errors",),
    ("files", "console"),
    ("devices", "hparam"),
    ("corpora",),
    ("metrics",),
    ("problem",),
    ("registry",),
    ("data",),
    ("layers",),
    ("models",),
    ("checkpoints",),
    ("decoding",),
    ("serving", "training"),
    (
        "ctranslate2",
        "huggingface",
        "keras",
        "parsing",
        "rivals",
        "tensor2tensor",
        "visualization",
    ),
    ("insights", "paper", "beam", "opennmt_tf"),
    ("annexes", "problems", "hparams"),
    ("bin",),
    ("__main__",),
)
"""The folders and loose modules, from the bottom to the top: tools, core, annexes (from
ctranslate2 on), programs. A folder imports only folders of lower levels.
"""
RANKS = {folder: rank for rank, folders in enumerate(LEVELS) for folder in folders}
FIRST_ANNEX = RANKS["ctranslate2"]
ANNEX_NAMES = re.compile(
    r"\b(ctranslate2|huggingface|insights|opennmt_tf|parsing|rivals|visualization)\b"
    # These names are also words of messages, so only the names of their modules count.
    r"|\bt2t_repro\.(beam|keras|paper|tensor2tensor)\b|\bkeras\.translation_model\b"
)
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
    """Yields the names that code imports, also inside functions and for type checking."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert not child.level, f"relative import of {child.module}"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from imports(child)


def words(node: ast.AST) -> Iterator[str]:
    """Yields the names and strings in code, except in imports and docstrings."""
    for child in ast.iter_child_nodes(node):
        is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if is_docstring or isinstance(child, ast.Import | ast.ImportFrom):
            continue
        for field in ("id", "attr", "arg", "name", "value"):
            if isinstance(text := getattr(child, field, None), str):
                yield text
        yield from words(child)


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


def test_the_core_does_not_know_the_names_of_annexes() -> None:
    for module, path in source_files().items():
        if RANKS.get(folder_of(module), 0) < FIRST_ANNEX:
            for word in words(ast.parse(path.read_text("utf-8"))):
                assert not ANNEX_NAMES.search(word), f"{module} has {word!r}"

"""Tests that quotes, links, commands, imports and versions in README.md and in docs/ are correct."""  # noqa: E501

import dataclasses
import importlib
import itertools
import os
import re
import runpy
import textwrap
from pathlib import Path
from typing import Any

import pytest
import setuptools

import t2t_repro
from t2t_repro import registry
from t2t_repro.paper import size

ROOT = Path(__file__).parents[2]
SOURCE = Path(t2t_repro.__file__).parents[1]
"""The folder of t2t_repro/: ROOT, or where a wheel is installed."""
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PAPER = (ROOT / "docs" / "the_paper_in_code.md").read_text("utf-8")
QUOTES = re.findall(
    r"^\[(\S+\.py)\]\(\.\./\1\)\n\n```python\n(.*?)^```", PAPER, re.DOTALL | re.MULTILINE
)
PROBLEMS = (
    "numbers_ende",
    "text_files",
    "tfds",
    "wmt_ende",
    "wmt_enfr",
    "wsj_parsing",
    "wsj_parsing_semi",
)
COMMON_FLAGS = {"completion", "help", "registry_help", "t2t_usr_dir", "version"}


def test_all_python_on_the_papers_page_is_a_quote() -> None:
    assert QUOTES
    assert len(QUOTES) == PAPER.count("```python")


@pytest.mark.parametrize(("path", "quote"), QUOTES)
def test_a_quote_is_verbatim(path: str, quote: str) -> None:
    source = (SOURCE / path).read_text("utf-8").splitlines()
    start = 0
    for fragment in quote.rstrip("\n").split("\n...\n"):
        fragment = textwrap.dedent(fragment)
        count = fragment.count("\n") + 1
        places = (
            i
            for i in range(start, len(source))
            if textwrap.dedent("\n".join(source[i : i + count])) == fragment
        )
        start = next(places, -1)
        assert start >= 0, f"{path} does not contain:\n{fragment}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    # tests/system/test_site.py checks the headings.
    for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)", page.read_text("utf-8")):
        linked = os.path.relpath(page.parent / target, ROOT)
        assert (
            target.startswith("http") or (ROOT / linked).exists() or (SOURCE / linked).exists()
        ), target


def test_readme_is_short_and_leads_to_every_page() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert readme.count("\n") <= 120
    linked = {ROOT / target for target in re.findall(r"\]\(([^)#]+\.md)", readme)}
    assert linked >= {*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "docs/api/index.md"} - {
        ROOT / "README.md"
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_flags_that_exist(page: Path) -> None:
    commands = 0
    settings = {
        field.name
        for name in PROBLEMS
        for field in dataclasses.fields(registry.problem_class(name).Settings)
    }
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    for line in itertools.chain.from_iterable(
        re.split(r"\n| \| ", block.replace("\\\n", " ")) for block in blocks
    ):
        if command := re.match(r"\s*(?:\w+=\S+ )?t2t-([\w-]+) (.*)", line):
            commands += 1
            program = importlib.import_module(f"t2t_repro.bin.t2t_{command[1].replace('-', '_')}")
            options = re.sub(r'"[^"]*"|#.*', "", command[2])
            for flag in re.findall(r"--(\w+)", options):
                assert flag in {*program.FLAGS, *settings, *COMMON_FLAGS}, line
    assert commands >= 5 or page.name != "README.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_names_that_examples_import_exist(page: Path) -> None:
    for line in re.findall(r"^from t2t_repro.* import .*$", page.read_text("utf-8"), re.MULTILINE):
        exec(line, {})


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Returns the arguments of `setup` in setup.py."""
    arguments: dict[str, Any] = {}
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(setuptools, "setup", lambda **values: arguments.update(values))
    runpy.run_path("setup.py")
    return arguments


def test_all_files_name_the_same_version_and_date(package: dict[str, Any]) -> None:
    released = re.search(
        r"^## (\d\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    cited = re.search(
        r"^version: (\S+)\ndate-released: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE
    )
    assert released and cited and released.groups() == cited.groups()
    assert released[1] == package["version"] == t2t_repro.__version__


def test_ci_runs_on_the_pythons_that_the_package_supports(package: dict[str, Any]) -> None:
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(package["classifiers"]))
    (matrix,) = re.findall(
        r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    )
    assert re.findall(r"[\d.]+", matrix) == supported


def test_extras_that_are_named_exist(package: dict[str, Any]) -> None:
    texts = [path.read_text("utf-8") for path in [*PAGES, *(ROOT / "benchmarks").glob("*.py")]]
    extras = {
        extra
        for text in texts
        for extra in re.findall(r'install [^`\n]*"(?:\.|/?t2t_repro)\[(\w+)\]', text)
    }
    assert (
        {"beam", "benchmarks", "ctranslate2", "jax", "test"}
        <= extras
        <= package["extras_require"].keys()
    )


def test_the_tables_of_hparams_are_those_of_the_classes() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "hparams_table.py"))
    assert script["PAGE"].read_text("utf-8").endswith(script["tables"]())


def test_tables_of_models_have_the_numbers_of_parameters_of_all_their_sets() -> None:
    # A row is such as: | `gnmt` | 8 | 280.8 M with 32,000 wordpieces |
    row = r"^\| `(\w+)` .*?\| ([\d,.]+)( M)? with [^|]*?(\d[\d,]*)"
    rows = re.findall(row, (ROOT / "docs" / "rivals.md").read_text("utf-8"), re.MULTILINE)
    transformers = ("transformer", "opennmt_transformer")
    sets = {
        name
        for name in registry._hparams.names()
        if registry.hparams(name).model not in transformers
    }
    assert {name for name, *_ in rows} == sets
    for name, number, is_million, vocabulary in rows:
        parameters = size.parameters(registry.hparams(name), int(vocabulary.replace(",", "")))
        decimals = len(number.partition(".")[2])
        assert number == (
            f"{parameters / 1e6:.{decimals}f}" if is_million else f"{parameters:,}"
        ), name

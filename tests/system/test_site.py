"""Tests of the documentation site, which this module builds with mkdocs.yml and then reads without
mkdocs.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {
    *(
        path.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        for path in ROOT.glob("docs/**/*.md")
    ),
    *(f"{path.stem}.html" for path in ROOT.glob("*.md") if path.name != "README.md"),
}
WEB = ("http", "https", "mailto")
API = {
    "registry.py": [],
    "models/model.py": [],
    "problem.py": ["Problem"],
    "hparam.py": ["HParams", "DecodeHParams", "Traits", "hparam", "transformer_only"],
    "decoding/translator.py": ["Translator"],
    "decoding/translation.py": ["Translation", "Hypothesis"],
    "serving/client.py": ["Client", "Answer"],
}
"""For each module with documented names, its documented classes; an empty list means everything in
the module.
"""
UNDOCUMENTED = {"T", "DECODING_METHODS"}
"""Public names in these modules that are of no use outside them."""


class Html(HTMLParser):
    """A page of the site: its ids, its links (all, and those in its navigation), and the files that
    it loads.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.navigation: set[str] = set()
        self.loaded: set[str] = set()
        self._open_navs = 0
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open_navs += tag == "nav"
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if "href" in values:
            (self.loaded if tag == "link" else self.links).add(values["href"])
            self.navigation |= {values["href"]} if self._open_navs else set()
        self.loaded |= {
            values[name] for name in ("src", "srcset", "data", "poster") if name in values
        }

    def handle_endtag(self, tag: str) -> None:
        self._open_navs -= tag == "nav"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Html]:
    """Returns the pages of the site. Fails if mkdocs has a warning."""
    folder = tmp_path_factory.mktemp("site").resolve()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert built.returncode == 0, built.stderr
    return {path: Html(path) for path in folder.rglob("*.html")}


def target(site: dict[Path, Html], page: Path, url: str) -> Path:
    """Returns the file to which a URL of a page leads. 404.html has URLs from the top of the
    site.
    """
    path = unquote(urlsplit(url).path)
    file = top(site) / path.lstrip("/") if page.name == "404.html" else page.parent / path
    return Path(os.path.normpath(file)) if path else page


def top(site: dict[Path, Html]) -> Path:
    """Returns the folder of the site."""
    return min(site, key=lambda page: len(page.parts)).parent


def test_no_link_is_dead(site: dict[Path, Html]) -> None:
    links = [
        (page, url)
        for page, html in site.items()
        for url in html.links
        if urlsplit(url).scheme not in WEB
    ]
    assert len(links) > 1000
    assert not [
        f"{page.name}: {url}" for page, url in links if not leads_somewhere(site, page, url)
    ]


def leads_somewhere(site: dict[Path, Html], page: Path, url: str) -> bool:
    """Returns True if the file to which a URL leads exists, and has the id if the URL has one."""
    file = target(site, page, url)
    fragment = unquote(urlsplit(url).fragment)
    return file.is_file() and (not fragment or fragment in site[file].ids)


def test_pages_load_only_files_of_the_site(site: dict[Path, Html]) -> None:
    loaded = [(page, url) for page, html in site.items() for url in html.loaded]
    loaded += [(css, url) for css in top(site).rglob("*.css") for url in urls_in_css(css)]
    assert len({url for _, url in loaded}) > 20
    outside = [
        f"{file.name}: {url}"
        for file, url in loaded
        if urlsplit(url).netloc or not target(site, file, url).is_file()
    ]
    assert not outside


def urls_in_css(path: Path) -> Iterator[str]:
    """Yields the URLs that a style sheet loads."""
    for match in re.finditer(
        r"url\(\s*[\"']?(.*?)[\"']?\s*\)|@import\s+[\"'](.*?)[\"']", path.read_text("utf-8")
    ):
        url = match[1] or match[2]
        if not url.startswith(("data:", "#")):
            yield url


def test_the_navigation_has_every_page(site: dict[Path, Html]) -> None:
    assert site[top(site) / "index.html"].navigation >= PAGES


@pytest.mark.parametrize("module", API)
def test_the_reference_has_the_public_names(site: dict[Path, Html], module: str) -> None:
    documented = {id for html in site.values() for id in html.ids}
    prefix = f"t2t_repro.{module.removesuffix('.py').replace('/', '.')}."
    missing = {name for name in public_names(module) if prefix + name not in documented}
    assert not missing
    assert not {id for id in documented if re.match(r"t2t_repro\..*\._[^_]", id)}


def public_names(module: str) -> Iterator[str]:
    """Yields the documented names of a module: "name", and "Class.name" for members of classes."""
    for name, statement in definitions(ast.parse((ROOT / "t2t_repro" / module).read_text("utf-8"))):
        if name in API[module] or not API[module]:
            yield name
            if isinstance(statement, ast.ClassDef):
                yield from (f"{name}.{member}" for member, _ in definitions(statement))


def definitions(scope: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.stmt]]:
    """Yields the public classes, functions and variables that a module or class defines, by
    name.
    """
    for statement in scope.body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                pass
            case _:
                continue
        if not name.startswith("_") and name not in UNDOCUMENTED:
            yield name, statement

"""Hooks of the documentation site (mkdocs.yml): pages from the top-level folder, links, and
formulas.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
ROOT = DOCS.parent
TOP_LEVEL = {ROOT / "README.md": "index.md"} | {
    path: path.name for path in ROOT.glob("*.md") if path.stem != "README"
}
"""Pages in the top-level folder, with their names on the site."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
"""A link to a file: "!" for a picture, text, path, anchor."""
PICTURE = re.compile(r'\b(src|srcset)="([^":]+)"')
"""A picture in HTML: attribute, path."""
FORMULA = re.compile(r"^\$\$(.+)\$\$$", re.MULTILINE)
COMMANDS = re.compile(
    r"^```\n(?=(t2t-|(cat|cd|docker|export|git|make|pip|python)\b))", re.MULTILINE
)
"""The start of a block of commands."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the top-level folder."""
    for path, name in TOP_LEVEL.items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Returns the page's text with links that work on the site, and with formulas in MathML, which
    needs no script.

    Blocks of commands get the language that the site needs to color them.
    """
    source = Path(str(page.file.abs_src_path))
    folder = os.path.dirname(page.file.src_uri) or "."

    def on_site(link: re.Match[str]) -> str:
        mark, text, target, anchor = link.groups(default="")
        path = Path(os.path.normpath(source.parent / target))
        if not path.exists():  # mkdocs reports it
            return link[0]
        if path not in TOP_LEVEL and not path.is_relative_to(DOCS):
            return _source_link(text, str(path.relative_to(ROOT)), config.repo_url)
        if path.suffix == ".md" and text.removeprefix("docs/") in (
            path.name,
            path.stem,
        ):  # a title reads better
            text = re.split(r"[\n:]", path.read_text("utf-8"))[0].removeprefix("# ")
        name = TOP_LEVEL.get(path) or path.relative_to(DOCS)
        return f"{mark}[{text}]({os.path.relpath(name, folder)}{anchor})"

    def picture(link: re.Match[str]) -> str:
        return f'{link[1]}="{os.path.relpath(source.parent / link[2], DOCS / folder)}"'

    text = PICTURE.sub(picture, LINK.sub(on_site, markdown))
    return FORMULA.sub(_mathml, COMMANDS.sub("```bash\n", text))


def _source_link(text: str, path: str, repo_url: str | None) -> str:
    """Returns a link to a file that is not on the site, or only its text if the repository has no
    public address.
    """
    if repo_url:
        return f"[{text}]({repo_url.rstrip('/')}/blob/HEAD/{path})"
    name = text.strip("`")
    return f"`{name}`" if path.endswith(name) else f"{text} (`{path}`)"


def _mathml(formula: re.Match[str]) -> str:
    return f'<div class="formula">{convert(formula[1], display="block")}</div>'

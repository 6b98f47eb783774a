"""Configuration of Sphinx for `bin/docs`: the documentation as a site, and the man pages (with the tag `man`).

The site is the Markdown of the repository as it is.  README.md is the first page.  The README.md of each folder of docs
is the navigation: it names the pages beside it and the folders below it.  A page that it does not name is a warning,
and `bin/docs` fails on it.
"""

import csv
import html
import os
import re
import shutil
from dataclasses import fields
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.util import logging

import ipf
from ipf.config.console import ConsoleSettings
from ipf.config.settings import Settings

logger = logging.getLogger(__name__)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#: ]+)(#[^)]*)?\)")
_COVERAGE = "docs/reference/mapping-coverage"
_MORE = ["etc/man/ipfctl", "etc/man/ipf"]

project = "ipf"
author = "the ipf developers"
copyright = "the ipf developers, Apache-2.0"
version = release = ipf.__version__
today = f"ipf {release}"

extensions = ["myst_parser", "sphinx_click"]
myst_heading_anchors = 4

if "man" in tags:  # noqa: F821  a name that Sphinx defines
    root_doc = "ipf"
    suppress_warnings = ["toc.not_included"]
else:
    root_doc = "README"
    include_patterns = [
        "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**.md", "maps/README.md", "etc/man/*.rst",
        "etc/**README.md",
    ]  # fmt: skip
    exclude_patterns = [".*", "build", "dist", "fhir", "ipf", "tests", "var", "**/__pycache__"]

man_pages = [
    ("ipfctl", "ipfctl", "operate a running ipf", "", 1),
    ("ipf", "ipf", "HL7 v2 to FHIR R4 interface engine with a FHIR server and subscriptions", "", 7),
]

html_theme = "furo"
html_title = f"ipf {release}"
html_favicon = "../../ipf/console/static/icon.svg"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["table-search.js"]
pygments_style = "default"


def prepare(app: Sphinx, name: str, source: list[str]) -> None:
    """Change the text of one page before it is read."""
    root = Path(app.srcdir)
    folder = (root / name).parent
    if name == "README":
        source[0] += _toctree(
            ["docs/README", "CONTRIBUTING", "CHANGELOG", "maps/README", *_MORE, *_readmes(root, "[!p]*")]
        )
    elif name.startswith("docs/") and name.endswith("/README"):
        source[0] += _toctree(_named(source[0], folder, root))
    if name == "docs/reference/vendor-profiles":
        source[0] += _toctree(_readmes(root, "profiles*"))
    if name == _COVERAGE:
        source[0] += _searchable(root / f"{name}.csv")
    for place, declared in (("{settings}", Settings), ("{ui_settings}", ConsoleSettings)):
        source[0] = source[0].replace(place, _settings(declared)) if name.endswith("ipf") else source[0]
    source[0] = _LINK.sub(lambda link: _without_folder(folder, link), source[0])


def _without_folder(folder: Path, link: re.Match[str]) -> str:
    """A link to a folder leads to its README.md; its text alone stays where there is none."""
    target = folder / link[2]
    if not target.is_dir():
        return link[0]
    return f"[{link[1]}]({link[2]}/README.md)" if (target / "README.md").exists() else link[1]


def _named(index: str, folder: Path, root: Path) -> list[str]:
    """The pages of a folder, and the indexes of the folders below it, in the order of its README.md."""
    there = [*folder.glob("*.md"), *folder.glob("*/README.md")]
    pages = {str(path.relative_to(root).with_suffix("")) for path in there if path != folder / "README.md"}
    links = [os.path.relpath(folder / link[2], root).removesuffix(".md") for link in _LINK.finditer(index)]
    named = [link for link in links if link in pages]
    for page in sorted(pages.difference(named)):
        logger.warning("%s.md: %s/README.md does not name this page", page, folder.relative_to(root))
    return list(dict.fromkeys(named))


def _readmes(root: Path, folder: str) -> list[str]:
    """The pages beside the files that they explain."""
    found = sorted((root / "etc").glob(f"{folder}/**/README.md"))
    return [str(path.relative_to(root).with_suffix("")) for path in found]


def _toctree(pages: list[str]) -> str:
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(f"/{page}" for page in pages) + "\n```\n"


def _searchable(rows: Path) -> str:
    """A table of a CSV file in HTML, with a field that `table-search.js` reads; nothing without the file."""
    if not rows.exists():
        return ""
    head, *lines = csv.reader(rows.read_text(encoding="utf-8").splitlines())
    cells = ["".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in lines]
    titles = "".join(f"<th>{html.escape(title)}</th>" for title in head)
    body = "\n".join(f"<tr>{row}</tr>" for row in cells)
    label = '<label>Search the rows: <input type="search" class="table-search" aria-controls="rows"></label> '
    head_row = f"<thead><tr>{titles}</tr></thead>"
    table = f'<table id="rows" class="docutils">{head_row}<tbody>\n{body}\n</tbody></table>'
    return f"\n## All rows\n\n```{{raw}} html\n<p>{label}<output></output></p>\n{table}\n```\n"


def _settings(declared: type) -> str:
    """A definition list of all variables, in reStructuredText."""
    rows = sorted((one.metadata["variable"] for one in fields(declared)), key=lambda row: row.name)
    return "\n".join(f"``{row.name}``\n   {row.meaning.replace('*', chr(92) + '*')}" for row in rows)


def add_index(app: Sphinx, error: Exception | None) -> None:
    """Web servers look for index.html."""
    if error is None and app.builder.name == "html":
        shutil.copyfile(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_lexer("fml", TextLexer)
    app.connect("source-read", prepare)
    app.connect("build-finished", add_index)

"""Configuration of Sphinx for `bin/docs`: the documentation as a site, and the man pages (with the tag `man`).

The site is the Markdown of the repository as it is.  README.md is the first page, and the table "Documentation" in it
is the navigation: a page that the table does not name is a warning, and `bin/docs` ends with it.
"""

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
pygments_style = "default"


def prepare(app: Sphinx, name: str, source: list[str]) -> None:
    """Change the text of one page before it is read."""
    if name == "README":
        source[0] += _toctree(_navigation(source[0], Path(app.srcdir)))
    if name == "docs/profiles":
        source[0] += _toctree(_readmes(Path(app.srcdir), "profiles*"))
    for place, declared in (("{settings}", Settings), ("{ui_settings}", ConsoleSettings)):
        source[0] = source[0].replace(place, _settings(declared)) if name.endswith("ipf") else source[0]
    folder = (Path(app.srcdir) / name).parent
    source[0] = _LINK.sub(lambda link: _without_folder(folder, link), source[0])


def _without_folder(folder: Path, link: re.Match[str]) -> str:
    """A link to a folder leads to its README.md; its text alone stays where there is none."""
    target = folder / link[2]
    if not target.is_dir():
        return link[0]
    return f"[{link[1]}]({link[2]}/README.md)" if (target / "README.md").exists() else link[1]


def _navigation(readme: str, root: Path) -> list[str]:
    """The pages that the table in README.md names, in its order, and those that are of no use on a forge."""
    table = readme.partition("## Documentation")[2]
    named = [link[2].removesuffix(".md") for link in _LINK.finditer(table) if link[2].endswith(".md")]
    pages = [str(path.relative_to(root).with_suffix("")) for path in sorted((root / "docs").glob("**/*.md"))]
    for page in pages:
        if page not in named:
            logger.warning('%s.md: the table "Documentation" of README.md does not name this page', page)
    others = [*_MORE, *sorted({*_readmes(root, "*")} - {*_readmes(root, "profiles*")})]
    return [*named, *(page for page in others if page not in named)]


def _readmes(root: Path, folder: str) -> list[str]:
    """The pages beside the files that they explain."""
    found = sorted((root / "etc").glob(f"{folder}/**/README.md"))
    return [str(path.relative_to(root).with_suffix("")) for path in found]


def _toctree(pages: list[str]) -> str:
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(f"/{page}" for page in pages) + "\n```\n"


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

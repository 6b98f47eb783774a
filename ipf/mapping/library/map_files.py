"""Map files of a folder, parsed at once or on demand.

What arrives: `messages/*.fml`, `segments/*.fml`, `datatypes/*.fml`.  What leaves: `Maps` by canonical, and the map of
each message type.  For a file that is parsed on demand, its header gives url and message types at once.  Problem
MAPPING names file, line and column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ipf.errors import Category, Problem
from ipf.mapping.language.grammar import parse, parse_header
from ipf.mapping.language.model import StructureMap

MESSAGES = "messages"
_FOLDERS = ("datatypes", "segments", MESSAGES)


class UnparsedMap:
    """The text of a map, parsed on first use."""

    __slots__ = ("_file", "_made", "_text")

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._made: StructureMap | None = None

    def content(self) -> StructureMap:
        """The map.  Two threads may parse it at once; the result is the same."""
        text = self._text
        if self._made is None:
            self._made = parse(text, self._file)
            self._text = ""
        return self._made


class Maps(Mapping[str, StructureMap]):
    """Maps by canonical, in order.  Checked maps may be added unparsed."""

    def __init__(self, maps: Iterable[StructureMap] = ()) -> None:
        self._made: dict[str, StructureMap | UnparsedMap] = {one.url: one for one in maps}

    def add(self, url: str, content: StructureMap | UnparsedMap) -> None:
        """Add a map; it replaces one with the same canonical."""
        self._made[url] = content

    def discard(self, url: str) -> None:
        """Remove a map, if it is there."""
        self._made.pop(url, None)

    def with_more(self, maps: Iterable[StructureMap]) -> Maps:
        """These maps and others, which replace those with the same canonical."""
        made = Maps()
        made._made = self._made | {one.url: one for one in maps}
        return made

    def __getitem__(self, url: str) -> StructureMap:
        found = self._made[url]
        return found.content() if isinstance(found, UnparsedMap) else found

    def __contains__(self, url: object) -> bool:
        return url in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def read_folder(folder: Path, maps: Maps, *, parsed: bool) -> dict[str, str]:
    """Add the maps of a folder; returns canonicals by message type.

    `parsed` False: the maps are checked already; parse them on demand.
    """
    files: dict[str, str] = {}
    types: dict[str, str] = {}
    for name in _FOLDERS:
        for path in sorted((folder / name).glob("*.fml")):
            file = path.relative_to(folder).as_posix()
            text = _text(path, file)
            content = parse(text, file) if parsed else UnparsedMap(text, file)
            header = content if isinstance(content, StructureMap) else parse_header(text, file)
            if header.url in files:
                raise Problem(Category.MAPPING, f"has the url of {files[header.url]}: {header.url}", file)
            files[header.url] = file
            maps.add(header.url, content)
            if name == MESSAGES:
                types |= dict.fromkeys((path.stem, *types_of(header)), header.url)
    return types


def types_of(content: StructureMap) -> list[str]:
    """The message types in the header of a map."""
    return content.meta("types").replace(",", " ").split()


def _text(path: Path, file: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Problem(Category.MAPPING, f"is not UTF-8 at byte {error.start}", file) from None
    except OSError as error:
        raise Problem(Category.MAPPING, f"cannot be read: {error.strerror}", file) from None

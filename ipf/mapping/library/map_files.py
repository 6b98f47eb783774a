"""Maps as they are written, by canonical: of a folder, parsed now or when a map is first looked at.

What arrives: `messages/*.fml`, `segments/*.fml`, `datatypes/*.fml`.  What leaves: `Maps`, and which message type has
which map.  A file that is parsed later gives its url and its message types at once, from its header.  Problem MAPPING
names file, line and column.
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
    """The text of a map, until somebody looks at the map."""

    __slots__ = ("_file", "_made", "_text")

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._made: StructureMap | None = None

    def content(self) -> StructureMap:
        """The map.  Two threads may parse it at once, which costs nothing but time."""
        text = self._text
        if self._made is None:
            self._made = parse(text, self._file)
            self._text = ""
        return self._made


class Maps(Mapping[str, StructureMap]):
    """Maps by canonical, in order.  What is known to be right may be added unread."""

    def __init__(self, maps: Iterable[StructureMap] = ()) -> None:
        self._made: dict[str, StructureMap | UnparsedMap] = {one.url: one for one in maps}

    def add(self, url: str, content: StructureMap | UnparsedMap) -> None:
        """A map; it takes the place of one with this canonical."""
        self._made[url] = content

    def with_more(self, maps: Iterable[StructureMap]) -> Maps:
        """These and others, which go before those with the same canonical."""
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
    """Add the maps of a folder; the canonicals of those of message types, by type.

    `parsed` False: they are known to be right, and are parsed when they are looked at.
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
    """The message types that a map names in its header."""
    return content.meta("types").replace(",", " ").split()


def _text(path: Path, file: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Problem(Category.MAPPING, f"is not UTF-8 at byte {error.start}", file) from None
    except OSError as error:
        raise Problem(Category.MAPPING, f"cannot be read: {error.strerror}", file) from None

"""The files of a release: one file, a folder, a ZIP archive or a .tgz, found by their names; rows with their places."""

from __future__ import annotations

import csv
import io
import re
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO

from ipf.errors import Category, Problem

MOST_FAULTS = 20
LONGEST_FIELD = 10_000_000


class Faults:
    """Rows that cannot be read.  Problem MALFORMED when there are many, and at `check`."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def add(self, file: str, line: int, reason: str) -> None:
        """Note a row."""
        self._found.append(f"{file}:{line}: {reason}")
        if len(self._found) >= MOST_FAULTS:
            self.check()

    def check(self) -> None:
        """Raise the Problem of the rows that were noted."""
        if self._found:
            raise Problem(Category.MALFORMED, "; ".join(self._found))


class Row(dict[str, str]):
    """A row by the names of its columns, with its place."""

    def __init__(self, names: list[str], values: list[str], file: str, line: int) -> None:
        super().__init__(zip(names, values, strict=True))
        self.file = file
        self.line = line


class Files:
    """The files at a path.  Used in a `with` statement; nothing is unpacked to disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stack = ExitStack()
        self._archive: zipfile.ZipFile | None = None
        self._names: list[str] = []

    def __enter__(self) -> Files:
        if not self.path.exists():
            raise Problem(Category.NOT_FOUND, f"{self.path} does not exist")
        if self.path.is_dir():
            self._names = sorted(str(one.relative_to(self.path)) for one in self.path.rglob("*") if one.is_file())
        elif zipfile.is_zipfile(self.path):
            try:
                self._archive = self._stack.enter_context(zipfile.ZipFile(self.path))
            except (zipfile.BadZipFile, OSError) as error:
                raise Problem(Category.MALFORMED, f"{self.path}: {error}") from error
            self._names = sorted(one for one in self._archive.namelist() if not one.endswith("/"))
        else:
            self._names = [self.path.name]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def names(self, pattern: str) -> list[str]:
        """The files whose name (without folders) a regular expression matches whole."""
        wanted = re.compile(pattern, re.IGNORECASE)
        return [one for one in self._names if wanted.fullmatch(one.replace("\\", "/").rpartition("/")[2])]

    def name(self, pattern: str, what: str) -> str:
        """The one file of a kind.  Problem NOT_FOUND without one, AMBIGUOUS with several."""
        found = self.names(pattern)
        if not found:
            raise Problem(Category.NOT_FOUND, f"{self.path} has no {what}")
        if len(found) > 1:
            raise Problem(Category.AMBIGUOUS, f"{self.path} has several files with {what}: {', '.join(found)[:500]}")
        return found[0]

    def open(self, name: str) -> IO[bytes]:
        """The content of a file."""
        if self._archive is not None:
            return self._archive.open(name)
        return (self.path / name if self.path.is_dir() else self.path).open("rb")

    def lines(self, name: str) -> Iterator[tuple[int, str]]:
        """Number and text of each line.  Problem MALFORMED for one that is not UTF-8."""
        number = 0
        with self._readable(name), self.open(name) as source:
            for number, raw in enumerate(source, 1):
                try:
                    yield number, raw.decode().rstrip("\r\n").removeprefix("\ufeff" if number == 1 else "")
                except UnicodeDecodeError as error:
                    raise Problem(Category.MALFORMED, f"{name}:{number}: not UTF-8") from error

    def tab_rows(self, name: str, names: list[str], faults: Faults) -> Iterator[Row]:
        """Rows of a file with a header, separated by tabs, without quotes; it must have the columns `names`."""
        lines = self.lines(name)
        header = next(lines, (1, ""))[1].split("\t")
        _check_columns(name, header, names)
        for number, line in lines:
            values = line.split("\t")
            if len(values) == len(header):
                yield Row(header, values, name, number)
            elif line:
                faults.add(name, number, f"{len(values)} columns instead of {len(header)}")

    def csv_rows(self, name: str, names: list[str], faults: Faults) -> Iterator[Row]:
        """Rows of a CSV file with a header; it must have the columns `names`."""
        csv.field_size_limit(LONGEST_FIELD)
        with self._readable(name), self.open(name) as source:
            reader = csv.reader(io.TextIOWrapper(source, "utf-8-sig", newline=""))
            header = next(reader, [])
            _check_columns(name, header, names)
            try:
                for values in reader:
                    if len(values) == len(header):
                        yield Row(header, values, name, reader.line_num)
                    elif values:
                        faults.add(name, reader.line_num, f"{len(values)} columns instead of {len(header)}")
            except (csv.Error, UnicodeDecodeError) as error:
                raise Problem(Category.MALFORMED, f"{name}:{reader.line_num + 1}: {error}") from error

    def piped_rows(self, name: str, names: list[str], faults: Faults) -> Iterator[Row]:
        """Rows of an RRF file: columns in this order, each followed by a bar."""
        for number, line in self.lines(name):
            values = line.removesuffix("|").split("|")
            if len(values) == len(names):
                yield Row(names, values, name, number)
            elif line:
                faults.add(name, number, f"{len(values)} columns instead of {len(names)}")

    @staticmethod
    def _readable(name: str) -> _Readable:
        return _Readable(name)


class _Readable:
    """Turns errors of archives into Problems that name the file."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, zipfile.BadZipFile | tarfile.TarError | EOFError | OSError):
            raise Problem(Category.MALFORMED, f"{self._name}: {error}") from error


def _check_columns(name: str, header: list[str], names: list[str]) -> None:
    missing = [one for one in names if one not in header]
    if missing:
        raise Problem(Category.MALFORMED, f"{name}:1: there is no column {', '.join(missing)}")

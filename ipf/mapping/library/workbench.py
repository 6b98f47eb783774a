"""Trying out a map before it is installed: on one message, and on the last messages of its type.

What arrives: the text of a map in the FHIR Mapping Language, and messages.  What leaves: the result with its trace, or
the mistake with its place; and how the results differ from those of the installed map.  Nothing is stored, nothing is
installed; other messages are converted meanwhile.

A candidate takes the place of the installed map with the same canonical, and of its message types, in a library of its
own.  Maps that it does not use are shared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ipf.errors import Category, Problem
from ipf.hl7.message import Message
from ipf.mapping.language.grammar import parse
from ipf.mapping.language.printer import print_map
from ipf.mapping.library.installation import Installation, RunInThread
from ipf.mapping.library.maps import Library
from ipf.mapping.library.service import as_claimed, result_json
from ipf.ports import Claimed, Clock, Inbox, Json
from ipf.ports.inbox import MessageFilter
from ipf.ports.mapping_admin import MapWorkbench

CANDIDATE = "candidate.fml"
MOST_COMPARED = 200
_PLACE = re.compile(r"(?P<file>.*):(?P<line>\d+):(?P<column>\d+)")


@dataclass(frozen=True, slots=True)
class Mistake:
    """Why a text is no map, or a message cannot be mapped.  `line`, `column`: in the text, from 1; None elsewhere."""

    text: str
    file: str = ""
    line: int | None = None
    column: int | None = None

    def as_json(self) -> Json:
        """As the admin API shows it."""
        return {"message": self.text, "file": self.file or None, "line": self.line, "column": self.column}


class Workbench:
    """Trials on the maps in use."""

    def __init__(self, installation: Installation, inbox: Inbox, run_in_thread: RunInThread, clock: Clock) -> None:
        self._clock = clock
        self._installation = installation
        self._inbox = inbox
        self._run_in_thread = run_in_thread

    async def source(self, canonical: str) -> Json:
        """The text of an installed map.  Problem NOT_FOUND."""
        library = self._installation.library
        if canonical not in library.maps:
            raise Problem(Category.NOT_FOUND, f"no StructureMap {canonical[:200]} is installed")
        content = await self._run_in_thread(lambda: library.maps[canonical])
        return {"url": content.url, "file": content.file or None, "text": print_map(content)}

    async def attempt(self, text: str | None, raw: bytes | None, message_id: int | None) -> Json:
        """The result of a map (None: the installed one) for a message: its bytes, or the id of a stored one.

        `mistake` instead of a result, when there is one.  Problem NOT_FOUND, VALUE.
        """
        claimed = await self._message(raw, message_id)
        made: Json = await self._run_in_thread(lambda: self._attempt(text, claimed))
        return made

    async def compare(self, text: str, message_type: str, limit: int) -> Json:
        """How the results of a map for the newest messages of a type differ from those of the installed map."""
        wanted = MessageFilter(message_type=message_type)
        page = await self._inbox.page(wanted, min(limit, MOST_COMPARED), 0)
        rows = [row for one in page.rows if (row := await self._inbox.get(one.id)) is not None]
        made: Json = await self._run_in_thread(lambda: self._compare(text, [as_claimed(row) for row in rows]))
        return {"message_type": message_type, "messages": len(rows), **made}

    async def _message(self, raw: bytes | None, message_id: int | None) -> Claimed:
        if message_id is not None:
            row = await self._inbox.get(message_id)
            if row is None:
                raise Problem(Category.NOT_FOUND, f"there is no message with id {message_id}")
            return as_claimed(row)
        if not raw:
            raise Problem(Category.VALUE, "message or message_id is required")
        message = Message.parse(raw)
        header = message.header
        source = header.source_system, header.source_id, message.message_type
        return Claimed(0, 0, "", self._clock(), *source, raw, "", 0)

    def _attempt(self, text: str | None, claimed: Claimed) -> Json:
        try:
            return {"mistake": None, **result_json(self._library(text).explain(claimed, trace=True))}
        except Problem as problem:
            return {"mistake": mistake_of(problem).as_json()}

    def _library(self, text: str | None) -> Library:
        """The installed maps with the candidate.  FmlError for a text that is no map."""
        library = self._installation.library
        return library if text is None else library.with_candidate(parse(text, CANDIDATE))

    def _compare(self, text: str, messages: Sequence[Claimed]) -> Json:
        try:
            candidate = self._library(text)
        except Problem as problem:
            return {"mistake": mistake_of(problem).as_json(), "same": 0, "differing": []}
        same, differing = 0, []
        for claimed in messages:
            before, after = _shown(self._installation.library, claimed), _shown(candidate, claimed)
            if before == after:
                same += 1
            else:
                differing.append({"id": claimed.id, "before": before, "after": after})
        return {"mistake": None, "same": same, "differing": differing}


def mistake_of(problem: Problem) -> Mistake:
    """A Problem of a map, with its place where it names one (`FILE:LINE:COLUMN`)."""
    found = _PLACE.fullmatch(problem.place or "")
    if found is None:
        return Mistake(str(problem))
    return Mistake(problem.text, found["file"], int(found["line"]), int(found["column"]))


def _shown(library: Library, claimed: Claimed) -> Json:
    """The Bundle of a message, or the mistake."""
    try:
        return library.explain(claimed).bundle
    except Problem as problem:
        return {"mistake": mistake_of(problem).as_json()}


_: type[MapWorkbench] = Workbench

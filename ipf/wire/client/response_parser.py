"""LookupResult over HTTP/1.1 read as far as delivery needs them: the status, Retry-After, and where the answer ends.

Bytes in, as they come; out: whether the answer is complete, and whether its connection may take another request.  The
body is counted and forgotten.  Whatever is doubtful ends with the connection, so nothing is ever taken for the
beginning of the next answer.

Source: RFC 9112 sections 2 to 9; RFC 9110 sections 10.2.3 and 15.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HEAD_LIMIT = 64 * 1024
_LONGEST_LINE = 4096
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/1\.([0-9]) ([1-5][0-9][0-9])[ \r\n]")
_FIELD = re.compile(rb"^(content-length|transfer-encoding|connection|retry-after):[ \t]*([^\r\n]*)", re.I | re.M)
_LENGTH = re.compile(rb"[0-9]{1,15}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(;.*)?")
_BEGINNING = b"HTTP/1."
_WITHOUT_BODY = (204, 304)


class NoHttp(Exception):
    """What came is no HTTP/1.1 answer."""


class AnswerReader:
    """Reads one answer; at most `body_limit` bytes of its body.

    `status` is None until its head is complete.  `may_stay`: the answer ended where it said, and nothing came after it.
    """

    def __init__(self, body_limit: int) -> None:
        self.status: int | None = None
        self.retry_after: bytes | None = None
        self.may_stay = True
        self.began = False
        self._buffer = b""
        self._budget = body_limit
        self._left: int | None = None  # of a body of known length
        self._chunks = False
        self._skip = 0
        self._in_trailer = False

    def feed(self, data: bytes) -> bool:
        """Take some bytes; True when the answer is complete.  Raises NoHttp."""
        self.began = True
        if self.status is None:
            self._buffer += data
            if not self._read_head():
                return False
            data, self._buffer = self._buffer, b""
        self._budget -= len(data)
        complete = self._read_chunks(data) if self._chunks else self._read_length(data)
        if not complete and self._budget < 0:
            self.may_stay = False
            return True
        return complete

    # -- the head

    def _read_head(self) -> bool:
        while True:
            end = _END_OF_HEAD.search(self._buffer)
            if end is None:
                if len(self._buffer) > HEAD_LIMIT or not _BEGINNING.startswith(self._buffer[: len(_BEGINNING)]):
                    raise NoHttp
                return False
            head, self._buffer = self._buffer[: end.end()], self._buffer[end.end() :]
            status = _STATUS.match(head)
            if status is None:
                raise NoHttp
            code = int(status[2])
            if code == 101:
                raise NoHttp  # nobody asked for another protocol
            if code >= 200:
                self._understand(code, head, status[1] == b"0")
                return True

    def _understand(self, code: int, head: bytes, is_old: bool) -> None:
        fields: dict[bytes, list[bytes]] = {}
        for name, value in _FIELD.findall(head):
            fields.setdefault(name.lower(), []).append(value.strip())
        self._left = _length(fields.get(b"content-length", ()))
        encodings = fields.get(b"transfer-encoding", ())
        if code in _WITHOUT_BODY:
            self._left = 0
        elif encodings:
            self._chunks = [one.lower() for one in encodings] == [b"chunked"]
            self.may_stay = self._chunks and self._left is None
            self._left = None
        if is_old or any(b"close" in one.lower() for one in fields.get(b"connection", ())):
            self.may_stay = False
        if self._left is not None and self._left > self._budget:
            self._budget = -1
        self.retry_after = next(iter(fields.get(b"retry-after", ())), None)
        self.status = code

    # -- the body

    def _read_length(self, data: bytes) -> bool:
        if self._left is None:  # it ends with the connection
            self.may_stay = False
            return False
        self._left -= len(data)
        if self._left < 0:
            self.may_stay = False
        return self._left <= 0

    def _read_chunks(self, data: bytes) -> bool:
        self._buffer += data
        while True:
            if self._skip:
                passed = min(self._skip, len(self._buffer))
                self._buffer, self._skip = self._buffer[passed:], self._skip - passed
            line, newline, rest = self._buffer.partition(b"\n")
            if self._skip or not newline:
                return self._doubtful() if len(line) > _LONGEST_LINE else False
            line, self._buffer = line.rstrip(b"\r"), rest
            if self._in_trailer:
                if not line:
                    self.may_stay = self.may_stay and not rest
                    return True
                continue
            size = _CHUNK.fullmatch(line)
            if size is None:
                return self._doubtful()
            length = int(size[1], 16)
            self._in_trailer = length == 0
            self._skip = length + 2 if length else 0

    def _doubtful(self) -> bool:
        """The status is known; where the body ends is not."""
        self.may_stay = False
        return True


def _length(values: Iterable[bytes]) -> int | None:
    texts = {text.strip() for value in values for text in value.split(b",")}
    if not texts:
        return None
    if len(texts) > 1 or not _LENGTH.fullmatch(text := texts.pop()):
        raise NoHttp
    return int(text)

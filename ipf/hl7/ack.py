r"""Acknowledgements: MSH with the applications swapped, MSA, and ERR for a refused message.

Separators, version, processing id, control id and character set are those of the message.  ERR has the fields of v2.5
(location, code, severity, user message) in every version, since older receivers skip unknown fields; below v2.5 it has
also ERR-1 and MSA-3.

Source: HL7 v2.9 sections 2.9 (acknowledgement), 2.14.5 (ERR), 2.14.8 (MSA), tables 0008, 0155, 0357, 0516.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from ipf.hl7.escape import DEFAULT_SEPARATORS, escape
from ipf.hl7.header import Header

ACCEPTED = frozenset(("AA", "CA"))
FALLBACK_VERSION = "2.5.1"
FALLBACK_PROCESSING = "P"

_ENHANCED = {"AA": "CA", "AE": "CE", "AR": "CR"}
_TABLE_0357 = {
    "100": "Segment sequence error",
    "101": "Required field missing",
    "102": "Data type error",
    "103": "Table value not found",
    "200": "Unsupported message type",
    "201": "Unsupported event code",
    "202": "Unsupported processing id",
    "203": "Unsupported version id",
    "204": "Unknown key identifier",
    "205": "Duplicate key identifier",
    "206": "Application record locked",
    "207": "Application internal error",
}
# HL7 table 0155: whether an acknowledgement is wanted, by outcome.
_WANTED = {
    ("AL", True): True,
    ("AL", False): True,
    ("NE", True): False,
    ("NE", False): False,
    ("SU", True): True,
    ("SU", False): False,
    ("ER", True): False,
    ("ER", False): True,
    ("", True): False,
    ("", False): False,
}


def acknowledgement_code(accept: str, application: str, code: str) -> str | None:
    """The acknowledgement code, or None when the sender wants no acknowledgement.

    `accept` is MSH-15, `application` MSH-16, `code` the outcome in original mode (AA, AE or AR).

    ==============  ============  ======================================================================
    MSH-15          MSH-16        acknowledgement
    ==============  ============  ======================================================================
    empty           empty         original mode: AA, AE or AR, always
    AL, SU or ER    any           CA, CE or CR where MSH-15 asks for it in this outcome; else as below
    NE or empty     AL, SU or ER  AA, AE or AR where MSH-16 asks for it in this outcome
    NE or empty     NE or empty   none
    ==============  ============  ======================================================================

    One field is enough for enhanced mode (HL7 v2.9 section 2.9.2: in original mode both are absent); the empty one then
    counts as NE.  `MSH-15 = NE, MSH-16 = AL` is original mode expressed in enhanced mode.  At most one acknowledgement
    is sent, as in Mirth, since the server can only promise storage while the sender waits.  A value outside table 0155
    counts as AL, so that no sender waits in vain.
    """
    if not accept and not application:
        return code
    good = code in ACCEPTED
    if _WANTED.get((accept, good), True):
        return _ENHANCED[code]
    return code if _WANTED.get((application, good), True) else None


def acknowledge(
    header: Header | None,
    code: str,
    *,
    text: str | None = None,
    error_code: str | None = None,
    location: str | None = None,
    now: datetime,
    control_id: str,
) -> bytes:
    """The acknowledgement message, without MLLP framing.

    `header`: of the acknowledged message; None when it could not be read.  `text`: user message, without patient data.
    `error_code`: HL7 table 0357.  `location`: such as `MSH-10` or `PID-3.1`.  `control_id`: MSH-10 of the
    acknowledgement.
    """
    if header is None:
        return _write(code, text, error_code, location, control_id, timestamp(now))
    head, middle, tail = _around(header, code)
    msh = f"{head}{timestamp(now)}{middle}{control_id}{tail}{header.field(10)}"
    if code not in ACCEPTED:
        msh += _details(header, text, error_code, location)
    return (msh + "\r").encode(header.codec, "replace")


def accepted(header: Header, *, now: datetime, control_id: str) -> bytes | None:
    """The acknowledgement of a stored message (AA), in its acknowledgement mode; None when its sender wants none.

    The bytes equal those of `acknowledge`; the parts that a sender repeats are cached.
    """
    frame = _acceptance(header) if header.pattern is None else _known_acceptance(header.pattern)
    if frame is None:
        return None
    head, middle, tail = frame
    return f"{head}{timestamp(now)}{middle}{control_id}{tail}{header.field(10)}\r".encode(header.codec, "replace")


def _acceptance(header: Header) -> tuple[str, str, str] | None:
    code = acknowledgement_code(header.accept_ack, header.application_ack, "AA")
    return _around(header, code) if code is not None else None


_known_acceptance = lru_cache(maxsize=256)(_acceptance)


def _around(header: Header, code: str) -> tuple[str, str, str]:
    """The text before MSH-7, between MSH-7 and MSH-10, and from there to MSA-2."""
    separator = header.separators.field
    trigger = header.trigger
    kind = header.separators.component.join(("ACK", trigger, "ACK")) if trigger else "ACK"
    charset = header.field(18)
    field = header.field
    head = (
        f"MSH{separator}{field(2)}{separator}{field(5)}{separator}{field(6)}{separator}{field(3)}{separator}{field(4)}"
        f"{separator}"
    )
    tail = (
        f"{separator}{field(11) or FALLBACK_PROCESSING}{separator}{field(12) or FALLBACK_VERSION}"
        f"{separator * 6 + charset if charset else ''}\rMSA{separator}{code}{separator}"
    )
    return head, f"{separator}{separator}{kind}{separator}", tail


def _write(
    code: str, text: str | None, error_code: str | None, location: str | None, control_id: str, timestamp: str
) -> bytes:
    """The acknowledgement of a message without a readable header."""
    msh = f"MSH|^~\\&|||||{timestamp}||ACK|{control_id}|P|{FALLBACK_VERSION}\rMSA|{code}|"
    blank = Header(["MSH", "|", "^~\\&"], DEFAULT_SEPARATORS, "utf-8")
    return (msh + (_details(blank, text, error_code, location) if code not in ACCEPTED else "") + "\r").encode()


def _details(header: Header, text: str | None, error_code: str | None, location: str | None) -> str:
    """The text after MSA-2: MSA-3 for old versions, and the ERR segment."""
    separators = header.separators
    number = error_code or "207"
    meaning = escape(_TABLE_0357.get(number, "Application internal error"), separators)
    said = escape(text or "", separators)
    err = [""] * 9
    err[2] = _location(location, separators.component)
    err[3] = separators.component.join((number, meaning, "HL70357"))
    err[4] = "E"
    err[8] = said
    msa_text = ""
    if _older_than_2_5(header.version):
        err[1] = _old_location(location, number, meaning, separators.component, separators.subcomponent)
        msa_text = separators.field + said if said else ""
    err[0] = "ERR"
    return msa_text + "\r" + separators.field.join(err)


def _place(location: str | None) -> list[str]:
    """`MSH-9.2` as segment, occurrence, field, repetition and component (ERL)."""
    if not location:
        return []
    segment, _, rest = location.partition("-")
    field, _, component = rest.partition(".")
    place = [segment, "1"]
    if field:
        place.append(field)
    if component:
        place += ["1", component]
    return place


def _location(location: str | None, component: str) -> str:
    return component.join(_place(location))


def _old_location(location: str | None, number: str, meaning: str, component: str, subcomponent: str) -> str:
    """ERR-1 before v2.5 (ELD): segment, sequence, field, code."""
    place = [*_place(location), "", "", ""][:3]
    return component.join((*place, subcomponent.join((number, meaning, "HL70357"))))


@lru_cache(maxsize=64)
def _older_than_2_5(version: str) -> bool:
    parts = version.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        return False
    return (int(parts[0]), int(parts[1])) < (2, 5)


class _Seconds:
    """The time of acknowledgements, formatted once a second."""

    def __init__(self) -> None:
        self._began = datetime.min.replace(tzinfo=UTC)
        self._text = ""

    def text(self, now: datetime) -> str:
        if not (_NONE <= now - self._began < _SECOND and now.tzinfo is self._began.tzinfo):
            self._began = now.replace(microsecond=0)
            self._text = now.strftime("%Y%m%d%H%M%S%z")
        return self._text


_NONE, _SECOND = timedelta(0), timedelta(seconds=1)
timestamp = _Seconds().text

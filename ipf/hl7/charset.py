"""Character sets: MSH-18 codes to Python codecs, and decoding that never fails.

MSH-18 holds codes of HL7 table 0211.  Its first repetition is the character set of the message (blank: ASCII).  Further
repetitions are sets for ISO 2022 escapes, as in `~ISO IR87`, the usual form in Japan; when the message has such an
escape, the codec of ISO 2022 decodes it.  Order: MSH-18, else UTF-8; then the fallback of the listener; then UTF-8 with
U+FFFD for invalid bytes.  The caller keeps the original bytes, and a replay uses these.

Source: HL7 v2.9 section 2.14.9.18 (MSH-18), table 0211 (https://terminology.hl7.org/CodeSystem-v2-0211.html).
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

DEFAULT_CODEC = "utf-8"
DEFAULT_FALLBACK = "iso8859-1"

_ESCAPE = b"\x1b"
_JAPANESE = "iso2022_jp_ext"  # covers all Japanese codes of the table: JIS X 0201, 0208 and 0212
_TABLE_0211 = {
    "ASCII": "utf-8",  # a superset; senders declare ASCII and send UTF-8
    "8859/1": "iso8859-1",
    "8859/2": "iso8859-2",
    "8859/3": "iso8859-3",
    "8859/4": "iso8859-4",
    "8859/5": "iso8859-5",
    "8859/6": "iso8859-6",
    "8859/7": "iso8859-7",
    "8859/8": "iso8859-8",
    "8859/9": "iso8859-9",
    "8859/15": "iso8859-15",
    "ISO IR6": "utf-8",
    "ISO IR13": _JAPANESE,
    "ISO IR14": _JAPANESE,
    "ISO IR87": _JAPANESE,
    "ISO IR159": _JAPANESE,
    "JAS2020": _JAPANESE,
    "JIS X 0202": _JAPANESE,
    "GB 18030-2000": "gb18030",
    "KS X 1001": "euc_kr",
    "CNS 11643-1992": "euc_tw",
    "BIG-5": "big5",
    "UNICODE": "utf-8",
    "UNICODE UTF-8": "utf-8",
    "UNICODE UTF-16": "utf-16",
    "UNICODE UTF-32": "utf-32",
}
_NORMALISED = {"".join(filter(str.isalnum, name)).upper(): codec for name, codec in _TABLE_0211.items()}


@dataclass(frozen=True, slots=True)
class Decoded:
    """Text, its codec, and a warning when the codec differs from MSH-18 or bytes were invalid."""

    text: str
    codec: str
    warning: str | None = None


@lru_cache(maxsize=256)
def codec_of(name: str) -> str | None:
    """Python codec of a table 0211 code, or of a common name (`UTF-8`, `ISO-8859-1`, `windows-1252`).

    None for an unknown name.
    """
    key = "".join(filter(str.isalnum, name)).upper()
    if not key:
        return None
    candidate = _NORMALISED.get(key) or name.strip().lower().removeprefix("unicode").strip()
    try:
        info = codecs.lookup(candidate)
    except (LookupError, ValueError):
        return None
    return info.name if getattr(info, "_is_text_encoding", True) else None


def sniff(raw: bytes) -> str | None:
    """Codec of a message in UTF-16 or with a byte order mark; None for all others, whose MSH is ASCII-compatible."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if raw[:3] == b"\xef\xbb\xbf":
        return "utf-8-sig"
    if raw[:4] == b"M\x00S\x00":
        return "utf-16-le"
    return "utf-16-be" if raw[:4] == b"\x00M\x00S" else None


def is_wide(raw: bytes) -> bool:
    """Whether a message is in UTF-16."""
    return (sniff(raw) or "").startswith("utf-16")


def decode(raw: bytes, names: Sequence[str] = (), fallback: str = DEFAULT_FALLBACK) -> Decoded:
    """Text of `raw`.  `names`: MSH-18 as sent, first repetition first; never raises."""
    declared = codec_of(names[0]) if names and names[0] else DEFAULT_CODEC
    if len(names) > 1 and _ESCAPE in raw:
        declared = _switched(names) or declared
    if raw.isascii() and (declared is None or declared == DEFAULT_CODEC or declared.startswith("iso8859")):
        return Decoded(raw.decode("ascii"), declared or DEFAULT_CODEC, None if declared else _unknown(names[0]))
    candidates = [declared] if declared else []
    candidates += [codec for codec in (DEFAULT_CODEC, fallback) if codec not in candidates]
    for codec in candidates:
        try:
            return Decoded(raw.decode(codec), codec, _warning(names, declared, codec))
        except (UnicodeDecodeError, LookupError):
            continue
    return Decoded(raw.decode(DEFAULT_CODEC, "replace"), DEFAULT_CODEC, "some bytes are in no known character set")


def decode_with(raw: bytes, codec: str) -> Decoded:
    """Text of `raw` in a given codec; invalid bytes become U+FFFD, with a warning."""
    try:
        return Decoded(raw.decode(codec), codec)
    except LookupError:
        return decode(raw)
    except UnicodeDecodeError:
        return Decoded(raw.decode(codec, "replace"), codec, f"some bytes are not {codec}")


def _switched(names: Sequence[str]) -> str | None:
    """The codec of ISO 2022 among the repetitions of MSH-18, if there is one."""
    return next((codec for codec in map(codec_of, names) if codec and codec.startswith("iso2022")), None)


def _unknown(name: str) -> str:
    return f"MSH-18 names an unknown character set: {name[:40]}"


def _warning(names: Sequence[str], declared: str | None, used: str) -> str | None:
    if used == declared:
        return None
    return _unknown(names[0]) if declared is None else f"not all bytes are {declared}; read as {used}"

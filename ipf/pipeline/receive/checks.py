"""What a header says about storing its message: the codec of its text, and whether its key can be stored."""

from __future__ import annotations

import re

from ipf.errors import Category, Problem
from ipf.hl7.charset import DEFAULT_CODEC, decode, sniff
from ipf.hl7.header import Header

MAX_KEY_LENGTH = 255
"""Characters of MSH-3.1, MSH-10 and MSH-9 together."""


def codec_for(raw: bytes, header: Header, fallback: str) -> str:
    """The codec that decodes the whole message."""
    if raw[:3] != b"MSH":
        wide = sniff(raw)
        if wide is not None:
            return wide
    if raw.isascii() and not header.field(18):
        return fallback if _escapes_other_bytes(raw, header.separators.escape) else DEFAULT_CODEC
    return decode(raw, header.charset_names, fallback).codec


def _escapes_other_bytes(raw: bytes, mark: str) -> bool:
    """Whether hexadecimal escapes hold bytes that are no UTF-8."""
    sign = mark.encode()
    if not sign or sign + b"X" not in raw:
        return False
    one = re.escape(sign) + rb"X(?:[0-9A-Fa-f]{2})+" + re.escape(sign)
    for run in re.finditer(b"(?:" + one + b")+", raw):
        try:
            bytes.fromhex(run[0].replace(sign, b"").replace(b"X", b"").decode()).decode()
        except UnicodeError:
            return True
    return False


def invalid_key(header: Header) -> Problem | None:
    """The problem of a key that cannot be stored; None when there is none."""
    keys = header.source_id + header.source_system + header.message_type
    if len(keys) <= MAX_KEY_LENGTH and "\x00" not in keys:
        return None
    for value, place in (
        (header.source_id, "MSH-10"),
        (header.source_system, "MSH-3.1"),
        (header.message_code, "MSH-9.1"),
        (header.trigger, "MSH-9.2"),
    ):
        if len(value) > MAX_KEY_LENGTH:
            return Problem(Category.VALUE, f"the value is longer than {MAX_KEY_LENGTH} characters", place)
        if "\x00" in value:
            return Problem(Category.VALUE, "the value contains a NUL character", place)
    return None

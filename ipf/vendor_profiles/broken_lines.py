r"""Lines that are no segments, joined to the field before them: for senders that break texts by carriage returns.

What arrives: the segments of a message as split at carriage returns.  What leaves: the same, or fewer.  A line break in
a text becomes `\.br\`, in the data of a document (OBX-5 of type ED) nothing.

A line is joined when its name is no segment of any version of the standard and no Z segment.  What looks like a damaged
segment (`pid|1`, a blank before `OBX|2`) is left as it is, so that the message fails: joined, its values would be lost
in the text of another segment.  Nothing is joined to MSH.

Source: HL7 v2.9 sections 2.5.2 (segments), 2.7.6 (formatting codes of texts)
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.hl7.escape import Separators
from ipf.hl7.structure import all_segment_names

_DOCUMENT = "ED"


def joined(lines: Sequence[str], separators: Separators) -> list[str]:
    """The segments."""
    found: list[str] = []
    for line in lines:
        if len(found) > 1 and _is_text(line, separators.field):
            found[-1] += _line_break(found[-1], separators) + line
        else:
            found.append(line)
    return found


def _is_text(line: str, separator: str) -> bool:
    """Whether a line goes on with the text before it."""
    name, mark = line[:3], line[3:4]
    if name in all_segment_names() or (name[:1] == "Z" and name.isalnum() and name.isupper()):
        return mark not in (separator, "")
    start = line.strip()
    return start[:3].upper() not in all_segment_names() or start[3:4] != separator


def _line_break(segment: str, separators: Separators) -> str:
    fields = segment.split(separators.field, 6)
    if fields[0] == "OBX" and fields[2:3] == [_DOCUMENT] and len(fields) == 6:
        return ""
    return f"{separators.escape}.br{separators.escape}"

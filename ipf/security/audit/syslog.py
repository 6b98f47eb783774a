"""Syslog messages with audit messages, framed for TLS.

A frame is the length of the message in bytes, a blank, and the message.  The facility is 10 (security), the severity
notice, for failures warning.  There is no byte order mark: the XML names its encoding (IHE ITI CP-477).

Source: RFC 5424; RFC 5425 section 4.3; IHE ITI TF-2 3.20.4.1.2.
"""

from __future__ import annotations

import re

from ipf.ports import Json
from ipf.security.audit.dicom import audit_messages

APP_NAME = "ipf"
MESSAGE_ID = "IHE+RFC-3881"
_NOTICE, _WARNING = 10 * 8 + 5, 10 * 8 + 4
_NOT_NAME = re.compile(r"[^!-~]")


def frames_of(event: Json, host: str, process: int) -> bytes:
    """The frames of an AuditEvent.  `host`: the name of this machine; `process`: the number of this process."""
    priority = _NOTICE if event["outcome"] == "0" else _WARNING
    sender = _NOT_NAME.sub("-", host)[:255] or "-"
    head = f"<{priority}>1 {event['recorded']} {sender} {APP_NAME} {process} {MESSAGE_ID} - ".encode()
    return b"".join(b"%d %s%s" % (len(head) + len(body), head, body) for body in audit_messages(event))

"""A syslog server over TLS (RFC 5425), for `tests/syslog_server.py`: the standard library alone, so it starts at once.

Arguments: port, file, key, certificate, ca, seconds.  It appends the base64 of each message to the file, one a line,
and waits so many seconds before each read.  A client needs a certificate of `ca`.
"""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from base64 import b64encode
from typing import Any


def main(port: str, path: str, key: str, certificate: str, ca: str, seconds: str) -> None:
    """Serve until killed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(("127.0.0.1", int(port)))
    print("ready", flush=True)
    while True:
        accepted, _ = listener.accept()
        threading.Thread(target=_serve, args=(context, accepted, path, float(seconds)), daemon=True).start()


def _serve(context: ssl.SSLContext, accepted: socket.socket, path: str, seconds: float) -> None:
    try:
        secured = context.wrap_socket(accepted, server_side=True)
    except (ssl.SSLError, OSError):
        return
    waiting, never = b"", threading.Event()
    with open(path, "a", encoding="ascii") as file:
        while True:
            never.wait(seconds)
            try:
                waiting += (read := secured.recv(16_384))
            except OSError:
                return
            if not read:
                break
            waiting = _take(waiting, file)
    try:
        secured.unwrap().close()
    except OSError:
        pass


def _take(waiting: bytes, file: Any) -> bytes:
    """Write the complete frames; what is left of the bytes."""
    while b" " in waiting:
        length, _, rest = waiting.partition(b" ")
        if len(rest) < int(length):
            break
        file.write(b64encode(rest[: int(length)]).decode() + "\n")
        file.flush()
        waiting = rest[int(length) :]
    return waiting


if __name__ == "__main__":
    main(*sys.argv[1:])

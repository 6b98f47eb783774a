"""Why an endpoint string cannot be used, in words for an operator."""

from __future__ import annotations

import errno
import os
import socket

from OpenSSL.crypto import Error as CryptoError
from OpenSSL.SSL import Error as TlsError
from twisted.internet.error import CannotListenError, VerifyError

UNUSABLE = (
    CannotListenError, CryptoError, TlsError, VerifyError, ValueError, TypeError, LookupError, OSError, OverflowError,
)  # fmt: skip
"""What Twisted raises for an endpoint string that it cannot read or open."""

_REASONS = {
    errno.EADDRINUSE: "the {what} is in use",
    errno.EADDRNOTAVAIL: "this host has no such address",
    errno.EINVAL: "this host has no such address",
    errno.EACCES: "this user may not open the {what}",
    errno.EPERM: "this user may not open the {what}",
    errno.ENOENT: "no such file or folder",
    errno.EAFNOSUPPORT: "this host has no IPv6",
    errno.EMFILE: "this process has too many open files",
}
_PRIVILEGED = 1024


def reason_of(error: Exception) -> str:
    """The reason of one of `UNUSABLE`."""
    if isinstance(error, CannotListenError):
        return _socket_reason(error)
    if isinstance(error, OverflowError):
        return "a port is a number from 0 to 65535"
    if isinstance(error, OSError):
        text = _REASONS.get(error.errno or 0, error.strerror or str(error)).format(what="file")
        path = error.filename2 or error.filename  # of a lock file: its process, then its path
        return f"{os.fsdecode(path)}: {text}" if path else text
    if isinstance(error, KeyError):
        return f"systemd passed no socket named {error.args[0]}"
    if isinstance(error, IndexError):
        return "systemd passed no socket of this index"
    if isinstance(error, CryptoError | TlsError):
        return "a file of privateKey, certKey or extraCertChain is not PEM"
    if isinstance(error, VerifyError):
        return "the certificate in certKey is not that of the key in privateKey"
    return str(error)


def is_in_use(error: Exception) -> bool:
    """Whether another socket has the address."""
    return isinstance(error, CannotListenError) and getattr(error.socketError, "errno", 0) == errno.EADDRINUSE


def _socket_reason(error: CannotListenError) -> str:
    """The reason of the kernel, of the resolver of `interface`, or of the lock file of a unix socket."""
    failed, is_unix = error.socketError, isinstance(error.port, bytes | str)
    if isinstance(failed, socket.gaierror):
        return f"{error.interface} is not an address of this host"
    number = getattr(failed, "errno", None)
    if str(failed) == "Cannot acquire lock":  # Twisted: a process that runs has the lock file of the path
        number = errno.EADDRINUSE
    if number is None:  # the path is too long
        return str(failed)
    if number == errno.EACCES and not is_unix and error.port < _PRIVILEGED:
        return f"ports below {_PRIVILEGED} need the capability CAP_NET_BIND_SERVICE"
    return _REASONS.get(number, str(getattr(failed, "strerror", failed))).format(what="path" if is_unix else "port")

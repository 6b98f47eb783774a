"""Parsers: each turns the text of an environment variable into a value, or raises ValueError with what is expected."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_network
from zoneinfo import ZoneInfo

HIGHEST = 2**31 - 1  # the largest number that timers and database columns take
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,18}\.?|[0-9]{0,18}\.[0-9]{1,18})(e[+-]?[0-9]{1,2})?", re.IGNORECASE)


def text(value: str) -> str:
    """Any text."""
    return value


def optional(value: str) -> str | None:
    """Any text; None if it is blank."""
    return value.strip() or None


def boolean(value: str) -> bool:
    """true or false (also yes/no, on/off, 1/0)."""
    word = value.strip().lower()
    if word in ("true", "yes", "on", "1"):
        return True
    if word in ("false", "no", "off", "0"):
        return False
    raise ValueError("expected true or false")


def integer(low: int, high: int = HIGHEST) -> Callable[[str], int]:
    """A parser of whole numbers from `low` to `high`."""

    def parse(value: str) -> int:
        text = value.strip()
        number = int(text) if _WHOLE_NUMBER.fullmatch(text) else low - 1
        if not low <= number <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return number

    return parse


def decimal(low: float, high: float = HIGHEST) -> Callable[[str], float]:
    """A parser of numbers from `low` to `high`."""

    def parse(value: str) -> float:
        text = value.strip()
        number = float(text) if _NUMBER.fullmatch(text) else low - 1
        if not low <= number <= high:
            raise ValueError(f"expected a number from {low:g} to {high:.15g}")
        return number

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    """A parser that accepts the given words, in upper or lower case."""

    def parse(value: str) -> str:
        for word in words:
            if value.strip().lower() == word.lower():
                return word
        raise ValueError("expected one of " + ", ".join(words))

    return parse


def channel_security(value: str) -> str:
    """strict, relaxed or permissive; anything else is strict, so that a typing error cannot weaken security."""
    word = value.strip().lower()
    return word if word in ("strict", "relaxed", "permissive") else "strict"


def time_zone(value: str) -> str:
    """The name of a time zone, such as Europe/Vienna."""
    try:
        ZoneInfo(value.strip())
    except (LookupError, OSError, ValueError):
        raise ValueError("expected a time zone such as Europe/Vienna") from None
    return value.strip()


def http_url(value: str) -> str:
    """An http or https URL."""
    if not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", value.strip()):
        raise ValueError("expected a URL such as https://host:port/path, with http or https and without ? and #")
    return value.strip()


_POSTGRES_URL = re.compile(r"postgres(ql)?://\S*|[a-z_]+ *=.*")


def postgres_url(value: str) -> str | None:
    """A connection string of libpq, as a URL or as key=value; None if it is blank."""
    word = value.strip()
    if word and not _POSTGRES_URL.fullmatch(word):
        raise ValueError("expected postgresql://user:password@host:5432/database")
    return word or None


def words(value: str) -> tuple[str, ...]:
    """Names separated by spaces or commas."""
    return tuple(value.replace(",", " ").split())


_PATIENT = re.compile(r"([^\s:,/]+:)?Patient/[A-Za-z0-9\-.]{1,64}")


def patients(value: str) -> tuple[str, ...]:
    """Patients, within a tenant or in all of them: Patient/1, or tenant:Patient/1."""
    found = words(value)
    if not all(_PATIENT.fullmatch(one) for one in found):
        raise ValueError("expected patients such as Patient/1 or tenant:Patient/1, several separated by spaces")
    return found


_LABEL = re.compile(r"[ULMNRV]|[^\s|,]+\|[^\s|,]+")


def labels(value: str) -> tuple[str, ...]:
    """Security labels: codes of v3-Confidentiality, or system|code; separated by spaces or commas."""
    found = words(value)
    for one in found:
        if not _LABEL.fullmatch(one):
            raise ValueError("expected labels such as R or https://hospital.example/labels|VIP")
    return found


_MESSAGE_TYPE = re.compile(r"[A-Z0-9]+_[A-Z0-9]+")


def message_types(value: str) -> tuple[str, ...]:
    """Message types such as ADT_A04, separated by spaces or commas."""
    found = words(value)
    for one in found:
        if not _MESSAGE_TYPE.fullmatch(one):
            raise ValueError("expected message types such as ADT_A04, several separated by spaces")
    return found


def charset(value: str) -> str:
    """A character set that Python supports, such as iso8859-1."""
    name = value.strip()
    try:
        if codecs.lookup(name)._is_text_encoding:  # a text encoding, as `bytes.decode` requires
            return name
    except (LookupError, ValueError):
        pass
    raise ValueError("expected a character set such as utf-8, iso8859-1 or cp1252")


def endpoint_patterns(value: str) -> tuple[str, ...]:
    """Host patterns such as *.example.org and networks such as 10.1.0.0/16, separated by spaces or commas."""
    found = words(value)
    for one in found:
        try:
            is_valid = "://" not in one and ("/" not in one or ip_network(one, strict=False) is not None)
        except ValueError:
            is_valid = False
        if not is_valid:
            raise ValueError(f"expected host patterns or networks such as 10.1.0.0/16, not {one}")
    return found


@dataclass(frozen=True, slots=True)
class Listener:
    """A named Twisted endpoint string, e.g. `lab=tcp:2576`."""

    name: str
    endpoint: str

    def __str__(self) -> str:
        """The text in the variable."""
        return self.endpoint if self.name == self.endpoint else f"{self.name}={self.endpoint}"


def listeners(value: str) -> tuple[Listener, ...]:
    """Endpoint strings separated by spaces, each optionally `name=endpoint`; the default name is the endpoint."""
    found = []
    for word in value.split():
        name, sign, endpoint = word.partition("=")
        named = bool(sign) and ":" not in name
        found.append(Listener(name, endpoint) if named else Listener(word, word))
    if len({one.name for one in found}) != len(found):
        raise ValueError("two listeners have the same name")
    return tuple(found)


def pairs(value: str) -> tuple[tuple[str, str], ...]:
    """`name=value` separated by spaces or commas."""
    found = [tuple(word.split("=", 1)) for word in words(value)]
    if any(len(one) != 2 or not all(one) for one in found):
        raise ValueError("expected name=value, several separated by spaces")
    if len({one[0] for one in found}) != len(found):
        raise ValueError("a name has two values")
    return tuple((one[0], one[1]) for one in found)


_DURATION = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def intervals(value: str) -> tuple[tuple[str, int], ...]:
    """`sender=time` separated by commas, as (sender, seconds); a name may have blanks, `*` is every other sender."""
    found: dict[str, int] = {}
    for part in filter(str.strip, value.split(",")):
        name, _, text = part.rpartition("=")
        time = _DURATION.fullmatch(text.strip())
        if not name.strip() or time is None:
            raise ValueError("expected sender=time such as LAB=15m, with s, m, h or d, several separated by commas")
        if name.strip() in found:
            raise ValueError("a sender has two times")
        found[name.strip()] = int(time[1]) * _SECONDS[time[2]]
    return tuple(found.items())


def named(value: str) -> tuple[tuple[str, str], ...]:
    """Names, each optionally with `=value` (else empty), separated by spaces or commas."""
    return tuple((name, rest) for name, _, rest in (word.partition("=") for word in words(value)))


def networks(value: str) -> tuple[tuple[str, str], ...]:
    """`network` or `listener=network`, separated by spaces or commas, as (listener or "", network)."""
    found = []
    for word in words(value):
        listener, sign, network = word.partition("=")
        if not sign:
            listener, network = "", word
        try:
            found.append((listener, str(ip_network(network, strict=False))))
        except ValueError:
            raise ValueError(f"expected networks such as 10.1.0.0/16, not {network}") from None
    return tuple(found)


def host_names(value: str) -> tuple[str, ...]:
    """Names or addresses of this server in URLs, without port."""
    found = words(value)
    for one in found:
        if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9.\-]{0,251}[A-Za-z0-9.])?|\[[0-9A-Fa-f:.]+\]", one):
            raise ValueError("expected host names such as ehr.example.org, without a port")
    return found


def origins(value: str) -> tuple[str, ...]:
    """Web origins such as https://app.example.org, or `*`."""
    found = words(value)
    for one in found:
        if one != "*" and not re.fullmatch(r"https?://[A-Za-z0-9.\-\[\]:]+", one):
            raise ValueError("expected origins such as https://app.example.org, without a path")
    return found


def secret(value: str) -> str | None:
    """A secret that keys are derived from; None if it is blank."""
    word = value.strip()
    if any(len(one) < 16 for one in word.split()):
        raise ValueError("expected at least 16 characters")
    return word or None


_SMTP_URL = re.compile(r"smtps?://([^\s/?#@:]+:[^\s/?#@]+@)?[^\s/?#@:]+(:[0-9]{1,5})?/?(\?from=[^\s&@]+@[^\s&@]+)?")


def smtp_url(value: str) -> str:
    """A mail server URL, smtp:// or smtps://, with user and password or neither."""
    if not _SMTP_URL.fullmatch(value.strip()):
        raise ValueError("expected smtp://host or smtps://user:password@host?from=address")
    return value.strip()


_SYSLOG_URL = re.compile(r"tls://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?/?")
SYSLOG_PORT = 6514


def syslog_server(value: str) -> tuple[str, int]:
    """Host and port of a log server over TLS: tls://host or tls://host:port."""
    read = _SYSLOG_URL.fullmatch(value.strip())
    port = int(read[2] or SYSLOG_PORT) if read is not None else 0
    if read is None or not 0 < port < 65_536:
        raise ValueError("expected tls://host or tls://host:port")
    return read[1].strip("[]"), port


def surfaces(value: str) -> tuple[str, ...]:
    """Surfaces of the audit trail: fhir, admin, or both."""
    found = tuple(dict.fromkeys(words(value.lower())))
    if not found or not {"fhir", "admin"}.issuperset(found):
        raise ValueError("expected fhir, admin, or both separated by a comma")
    return found

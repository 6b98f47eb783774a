"""Code systems defined by a grammar or an external list: units, media types, languages, time zones, currencies.

Each is a test of a code.  Sources: https://ucum.org/ucum, RFC 6838, RFC 5646, IANA tz, ISO 4217 (active
codes of 2024 and those that R4's own value set has).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from ipf.fhir import ucum
from ipf.fhir.structure.required_codes import is_media_type

_LANGUAGE = re.compile(r"([A-Za-z]{2,8}|[xi])(-[A-Za-z0-9]{1,8})*")
_ISO_4217 = """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF
    CHE CHF CHW CLF CLP CNY COP COU CRC CUC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GGP GHS GIP
    GMD GNF GTQ GYD HKD HNL HRK HTG HUF IDR ILS IMP INR IQD IRR ISK JEP JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD
    KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD
    OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SLL SOS SPL SRD SSP STN SVC
    SYP SZL THB TJS TMT TND TOP TRY TTD TVD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV WST XAF XAG XAU
    XBA XBB XBC XBD XCD XDR XOF XPD XPF XPT XSU XTS XUA XXX YER ZAR ZMW ZWL
"""
CURRENCIES = frozenset(_ISO_4217.split())


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    from zoneinfo import available_timezones

    return frozenset(available_timezones())


OPEN_SYSTEMS: Mapping[str, Callable[[str], bool]] = {
    "urn:ietf:bcp:13": is_media_type,
    "urn:ietf:bcp:47": lambda code: _LANGUAGE.fullmatch(code) is not None,
    "urn:iso:std:iso:4217": CURRENCIES.__contains__,
    "https://www.iana.org/time-zones": lambda code: code in _zones(),
    ucum.SYSTEM: ucum.is_unit,
}
"""Whether a code belongs to the system, by the system's url."""


def open_test(url: str, filters: Sequence[Sequence[str]]) -> Callable[[str], bool] | None:
    """The test of an open system with these filters (property, operator, value); None when one is not known.

    `canonical` of UCUM: units of the dimension of the value (https://hl7.org/fhir/R4/ucum.html).
    """
    tests = [OPEN_SYSTEMS.get(url), *(_filter(url, *one) for one in filters)]
    known = [one for one in tests if one is not None]
    return (lambda code: all(test(code) for test in known)) if len(known) == len(tests) else None


def _filter(url: str, name: str, operator: str, value: str) -> Callable[[str], bool] | None:
    wanted = ucum.measure(value) if (url, name, operator) == (ucum.SYSTEM, "canonical", "=") else None
    if wanted is None:
        return None
    dimensions = wanted.dimensions
    return lambda code: (found := ucum.measure(code)) is not None and found.dimensions == dimensions

"""The unit that was meant, for a text that is no UCUM code.

Looked up in this order: well-known wrong spellings (`mmHg`, `°C`, `mcg`), names of units (`milligram`, `pounds`), the
same letters in other case (`MMOL/L`), and the spelling that is nearest.  Each unknown unit of a code is looked up for
itself (`mmHg/min` becomes `mm[Hg]/min`).  What is proposed is always a valid code; nothing is proposed for a text
that resembles none.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import lru_cache

from ipf.fhir.ucum.parser import LONGEST_CODE, UnitError, is_unit, parse
from ipf.fhir.ucum.table import table

_WELL_KNOWN = """
mmHg mm[Hg] | mm_Hg mm[Hg] | mm(Hg) mm[Hg] | torr mm[Hg] | Torr mm[Hg] | cmHg cm[Hg] | cmH2O cm[H2O] | mmH2O mm[H2O]
cmH20 cm[H2O] | inHg [in_i'Hg] | inH2O [in_i'H2O] | °C Cel | ºC Cel | degC Cel | [degC] Cel | celsius Cel | Celsius Cel
°F [degF] | ºF [degF] | degF [degF] | fahrenheit [degF] | Fahrenheit [degF] | ℃ Cel | ℉ [degF] | °K K | ° deg
µg ug | μg ug | mcg ug | mcL uL | gm g | gms g | grams g | gr g | kgs kg | Kg kg | KG kg | mgs mg | mgm mg | lb [lb_av]
lbs [lb_av] | pound [lb_av] | pounds [lb_av] | oz [oz_av] | ounce [oz_av] | ounces [oz_av] | in [in_i] | inch [in_i]
inches [in_i] | ft [ft_i] | foot [ft_i] | feet [ft_i] | yd [yd_i] | yard [yd_i] | mile [mi_i] | miles [mi_i] | mi [mi_i]
sec s | secs s | second s | seconds s | msec ms | mins min | minute min | minutes min | hr h | hrs h | H h | hour h
hours h | day d | days d | D d | week wk | weeks wk | wks wk | month mo | months mo | mth mo | year a | years a | yr a
yrs a | y a | cc cm3 | ccm cm3 | cmm mm3 | cumm mm3 | ml mL | liter L | liters L | litre L | litres L | mEq meq
uEq ueq | Eq eq | MEQ meq | mOsm mosm | Osm osm | mosmol mosm | IU [iU] | iU [iU] | mIU m[iU] | uIU u[iU] | kIU k[iU]
MIU 10*6.[iU] | µIU u[iU] | μIU u[iU] | units U | unit U | percent % | pct % | permille [ppth] | ‰ [ppth]
ppm [ppm] | ppb [ppb] | bpm {beats}/min | BPM {beats}/min | beats/min {beats}/min | beats/minute {beats}/min
breaths/min {breaths}/min | breaths/minute {breaths}/min | /minute /min | per_min /min | rpm {rotations}/min
calories cal | Cal [Cal] | psi [psi] | PSI [psi] | pH [pH] | PH [pH] | CFU [CFU] | cfu [CFU] | PFU [PFU] | HPF [HPF]
hpf [HPF] | LPF [LPF] | lpf [LPF] | dpt [diop] | diopter [diop] | Fr [Ch] | French [Ch] | tsp [tsp_us] | tbsp [tbs_us]
cup [cup_us] | gal [gal_us] | pt [pt_us] | qt [qt_us] | floz [foz_us] | fl_oz [foz_us] | ohm Ohm | Ω Ohm | ohms Ohm
degree deg | degrees deg | microgram ug | Å Ao | Angstrom Ao | gtt [drp] | drop [drp] | drops [drp] | MET [MET]
x10^3/uL 10*3/uL | x10E3/uL 10*3/uL | 10e3/uL 10*3/uL | 10E3/uL 10*3/uL | 10e6/uL 10*6/uL | 10E6/uL 10*6/uL
10e9/L 10*9/L | 10E9/L 10*9/L | 10e12/L 10*12/L | 10E12/L 10*12/L | M/uL 10*6/uL | Mil/uL 10*6/uL | K/mcL 10*3/uL
Thou/uL 10*3/uL | thou/uL 10*3/uL | Million/uL 10*6/uL | copies {copies} | cells {cells} | ratio {ratio}
index {index} | score {score} | tablet {tbl} | tablets {tbl} | tab {tbl} | capsule {capsule} | puff {puff} | 1.0 1
"""
_RESEMBLING = (
    ("µ", "u"),
    ("μ", "u"),
    ("²", "2"),
    ("³", "3"),
    ("·", "."),
    ("×", "."),
    ("⁻", "-"),
    ("¹", "1"),
    ("^", ""),
)
_PIECES = re.compile(r"([./(){}])")
_COMMON_PREFIXES = ("", "m", "u", "n", "k", "c", "d", "p", "f", "M")
_NEAR = 0.75


@lru_cache(maxsize=2048)
def proposal(text: str) -> str | None:
    """A valid code for a text that is none; None when it is valid already or resembles no code."""
    if not text or len(text) > LONGEST_CODE or is_unit(text):
        return None
    return next((one for one in _candidates(text) if is_unit(one)), None)


def refusal(text: str) -> str:
    """Why a text is no UCUM code, with the code that was meant."""
    try:
        parse(text)
    except UnitError as error:
        meant = proposal(text)
        return f"{error}; did you mean {meant!r}?" if meant else str(error)
    return ""


def _candidates(text: str) -> Iterator[str]:
    known = _well_known()
    if text in known:
        yield known[text]
    spaced = text.strip()
    yield spaced
    plain = re.sub(r"\b1\.73[ _.]?m(?:\^?2|²)(?!\w)", "{1.73_m2}", spaced.rstrip("./"))
    for mark, instead in _RESEMBLING:
        plain = plain.replace(mark, instead)
    plain = re.sub(r"\s+per\s+", "/", plain)
    for blank in ("", "_"):
        joined = re.sub(r"\s+", blank, plain)
        yield known.get(joined, joined)
    yield from _mended(re.sub(r"\s+", "", plain))
    named = _names().get(spaced.lower()) or _names().get(spaced.lower().removesuffix("s"))
    if named:
        yield named
    yield from _mended(re.sub(r"\s*([./()])\s*", r"\1", plain))


def _mended(text: str) -> Iterator[str]:
    """The code with each unknown unit replaced."""
    inside, parts = False, []
    for piece in _PIECES.split(text):
        inside = piece == "{" or (inside and piece != "}")
        known = inside or not piece or piece in "./(){}" or is_unit(piece)
        parts.append(piece if known else _meant(piece))
    if all(part is not None for part in parts):
        yield "".join(part or "" for part in parts)


def _meant(unit: str) -> str | None:
    """The code of one unit without operators; an exponent or a number before it is kept."""
    direct = _well_known().get(unit) or _names().get(unit.lower()) or _names().get(unit.lower().removesuffix("s"))
    if direct is not None:
        return direct if is_unit(direct) and not set("./") & set(direct) else f"({direct})"
    number = re.fullmatch(r"([0-9]+)([^0-9*^].*)", unit)
    if number is not None:
        rest = number[2] if is_unit(number[2]) else _meant(number[2])
        return None if rest is None else f"{number[1]}.{rest}"
    power = re.fullmatch(r"(.*[^0-9+-])([+-]?[0-9]+)", unit)
    if power is not None:
        base = _meant(power[1])
        return None if base is None or "." in base or "/" in base else f"{base}{power[2]}"
    return _other_case(unit) or _nearest(unit)


def _other_case(unit: str) -> str | None:
    return _capitals().get(unit.upper())


def _nearest(unit: str) -> str | None:
    if len(unit) < 3:
        return None
    known = table().atoms
    bare = {code.strip("[]").upper(): code for code in known}
    if unit.upper() in bare:
        return bare[unit.upper()]
    near = difflib.get_close_matches(unit, [*known, *_prefixed()], 1, _NEAR)
    if near:
        return near[0]
    names = _names()
    near = difflib.get_close_matches(unit.lower(), names, 1, 0.8)
    if near:
        return names[near[0]]
    known_wrong = _well_known()
    near = difflib.get_close_matches(unit, [one for one in known_wrong if len(one) > 4], 1, 0.8)
    return known_wrong[near[0]] if near else None


@lru_cache(maxsize=1)
def _well_known() -> dict[str, str]:
    rows = (row.split() for row in _WELL_KNOWN.replace("\n", "|").split("|") if row.strip())
    return {row[0]: row[1] for row in rows}


@lru_cache(maxsize=1)
def _prefixed() -> tuple[str, ...]:
    """Metric atoms behind the prefixes that clinical units have."""
    metric = [one.code for one in table().atoms.values() if one.metric]
    return tuple(prefix + code for code in metric for prefix in _COMMON_PREFIXES if prefix)


@lru_cache(maxsize=1)
def _capitals() -> dict[str, str]:
    """Codes by their letters in capitals: the spelling without regard to case, then UCUM's own of such systems."""
    found: dict[str, str] = {}
    for atom in table().atoms.values():
        for code in (atom.code.upper(), atom.upper):
            found.setdefault(code, atom.code)
    for code in _prefixed():
        found.setdefault(code.upper(), code)
    return found


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    """Codes by names in small letters; with a prefix for metric units."""
    found: dict[str, str] = {}
    for atom in table().atoms.values():
        for one in atom.names:
            found.setdefault(one.lower(), atom.code)
            if atom.metric:
                for prefix in table().prefixes.values():
                    found.setdefault(prefix.name + one.lower(), prefix.code + atom.code)
    return found

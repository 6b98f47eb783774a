"""Messages for load: an ADT^A01 of about 1.2 kB and ten segments, with fresh control ids and patients."""

from __future__ import annotations

VT, END = b"\x0b", b"\x1c\r"

_HEAD = b"MSH|^~\\&|BENCH|GENERAL|IPF|IPF|20260102030405||ADT^A01^ADT_A01|"
_BODY = (
    b"|P|2.5.1|||AL|NE\r"
    b"EVN|A01|20260102030405|||OPER1^Olsen^Ove\r"
    b"PID|1||%(patient)s^^^GENERAL^MR||Hansen^Kari^Anne^^Ms^^L~Hansen^Kalle^^^^^N||19700315|F||2106-3^White^HL70005|"
    b"Storgata 12^Apt 3^Oslo^^0155^NOR^H~Postboks 9^^Oslo^^0102^NOR^M||+4722112233^PRN^PH^^47^22^112233~"
    b"^NET^Internet^kari.hansen@example.org|+4722998877^WPN^PH|no|M|LUT|ACC%(patient)s^^^GENERAL^AN|||||||N\r"
    b"PD1||||D123^Solberg^Silje^^^Dr^^^NPI\r"
    b"NK1|1|Hansen^Per^^^Mr|SPO^Spouse^HL70063|Storgata 12^^Oslo^^0155^NOR|+4791234567^PRN^CP|||20200101\r"
    b"PV1|1|I|W3^301^2^GENERAL^^N^B1^3|E|||D123^Solberg^Silje^^^Dr^^^NPI|D456^Berg^Bjorn^^^Dr^^^NPI|"
    b"D789^Lund^Liv^^^Dr^^^NPI|MED||||7|||D123^Solberg^Silje^^^Dr^^^NPI|IP|V%(patient)s^^^GENERAL^VN|INS1|||||||"
    b"|||||||||||||||||20260102023000\r"
    b"PV2|||R07.4^Chest pain^I10||||||20260105\r"
    b"AL1|1|DA|70618^Penicillin^RXNORM|SV|Anaphylaxis|19990401\r"
    b"DG1|1|I10|I20.9^Angina pectoris^I10||20260102|A\r"
    b"IN1|1|PLAN1^Basic plan^LOCAL|INS1^^^GENERAL^NIIP|Trygg Insurance|Havnegata 1^^Bergen^^5003^NOR|||G77||||"
    b"20250101|20271231|||Hansen^Kari^Anne|SEL|19700315|Storgata 12^^Oslo^^0155^NOR|||||||||||||||||POL998877\r"
)


def adt(control_id: str, patient: str) -> bytes:
    """One framed ADT^A01."""
    return VT + _HEAD + control_id.encode() + _BODY % {b"patient": patient.encode()} + END


def plain(control_id: str, patient: str) -> bytes:
    """One framed ADT^A01 of four segments: MSH, EVN, PID and PV1 of the dense one."""
    segments = (_BODY % {b"patient": patient.encode()}).split(b"\r")
    kept = [segment for segment in segments if not segment.startswith((b"PD1", b"NK1", b"PV2", b"AL1", b"DG1", b"IN1"))]
    return VT + _HEAD + control_id.encode() + b"\r".join(kept) + END


def oru(control_id: str, size: int) -> bytes:
    """One framed ORU^R01 of about `size` bytes, most of it one embedded document."""
    head = b"MSH|^~\\&|BENCHORU|GENERAL|IPF|IPF|20260102030405||ORU^R01^ORU_R01|" + control_id.encode() + b"|P|2.5.1\r"
    head += b"PID|1||P1^^^GENERAL^MR||Hansen^Kari\rOBR|1|||18842-5^Discharge summary^LN\r"
    head += b"OBX|1|ED|PDF^Report||^AP^^Base64^"
    return VT + head + b"QUJD" * ((size - len(head)) // 4) + b"||||||F\r" + END

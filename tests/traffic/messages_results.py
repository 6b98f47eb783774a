"""Messages for load: an ORU^R01 with many observations, and one that carries a document; without MLLP frame."""

from __future__ import annotations

_HEAD = (
    "MSH|^~\\&|LIS|GENERAL|IPF|IPF|20260102030405||ORU^R01^ORU_R01|{control_id}|P|2.5.1|||AL|NE\r"
    "PID|1||{patient}^^^GENERAL^MR||Hansen^Kari^Anne||19700315|F|||Storgata 12^^Oslo^^0155^NOR^H||+4722112233\r"
    "PV1|1|I|W3^301^2^GENERAL||||D123^Solberg^Silje^^^Dr^^^NPI||||||||||||V{patient}^^^GENERAL^VN\r"
    "ORC|RE|O{control_id}^HIS|F{control_id}^LIS||CM||||20260102020000|||D123^Solberg^Silje^^^Dr^^^NPI\r"
    "OBR|1|O{control_id}^HIS|F{control_id}^LIS|24323-8^Comprehensive metabolic panel^LN|||20260102013000|||||||||"
    "D123^Solberg^Silje^^^Dr^^^NPI||||||20260102030000||CH|F|||||||T77&Teknes&Tom\r"
)
_TESTS = (
    ("2345-7", "Glucose", "NM", "5.{0}", "mmol/L", "3.9-6.1", "N"),
    ("2951-2", "Sodium", "NM", "14{0}", "mmol/L", "136-145", "N"),
    ("2823-3", "Potassium", "NM", "6.{0}", "mmol/L", "3.5-5.1", "H"),
    ("5778-6", "Color of Urine", "CWE", "371254008^Yellow^SCT", "", "", ""),
    ("1988-5", "CRP", "SN", "<^{0}", "mg/L", "<5", ""),
    ("8251-1", "Comment", "ST", "Hemolysis slight ({0})", "", "", ""),
)


def oru(observations: int = 30, control_id: str = "R1", patient: str = "P1") -> bytes:
    """An ORU^R01 of one order with `observations` OBX, an NTE after every tenth, and an SPM: 35 segments for 30."""
    lines = []
    for number in range(1, observations + 1):
        code, name, kind, value, unit, normal, flag = _TESTS[number % len(_TESTS)]
        units = f"{unit}^^UCUM" if unit else ""
        lines.append(
            f"OBX|{number}|{kind}|{code}^{name}^LN|{number}|{value.format(number % 10)}|{units}|{normal}|{flag}|||F|||"
            "20260102013000|LAB1^Main laboratory^L|T77^Teknes^Tom^^^^^^LIS|||20260102023000\r"
        )
        if number % 10 == 0:
            lines.append(f"NTE|1|L|Checked twice ({number}).\r")
    head = _HEAD.format(control_id=control_id, patient=patient)
    specimen = (
        f"SPM|1|S{control_id}&HIS^S{control_id}&LIS||BLD^Blood^HL70487|||||||||||||20260102013000|20260102014500\r"
    )
    return (head + "".join(lines) + specimen).encode()


def oru_orders(orders: int, results: int, control_id: str, patient: str) -> bytes:
    """A framed ORU^R01 of so many orders with so many numeric results each."""
    head = rf"MSH|^~\&|LAB|HOSP|EHR|HOSP|20260701120000||ORU^R01^ORU_R01|{control_id}|P|2.5.1"
    lines = [head, f"PID|1||{patient}^^^HOSP^MR||Hansen^Ola||19800101|M", "PV1|1|I|W^1^1^HOSP"]
    for order in range(orders):
        numbers = f"P{control_id}{order}|F{control_id}{order}"
        lines.append(f"ORC|RE|{numbers}")
        lines.append(f"OBR|{order + 1}|{numbers}|{order}^Panel^L|||20260701110000|||||||||||||||20260701115000|||F")
        for result in range(results):
            value = f"{result % 200}.5|mg/dL^mg/dL^UCUM|1-200"
            lines.append(f"OBX|{result + 1}|NM|{result}^Test {result}^L||{value}|N|||F|||20260701110000")
    return b"\x0b" + "\r".join(lines).encode() + b"\x1c\r"


def oru_document(size: int = 1_000_000, control_id: str = "R1", patient: str = "P1") -> bytes:
    """An ORU^R01 of about `size` bytes, most of it one PDF in base64."""
    head = _HEAD.format(control_id=control_id, patient=patient).encode()
    head += b"OBX|1|ED|PDF^Report^L||^application^pdf^Base64^"
    tail = b"||||||F|||20260102013000\r"
    return head + b"JVBERi0xLjQKJeLj" * ((size - len(head) - len(tail)) // 16) + tail

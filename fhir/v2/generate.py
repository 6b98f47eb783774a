#!/usr/bin/env python3
"""Writes `structures.json` beside this file: HL7 v2 message structures of versions 2.1 to 2.8.2, and table 0354.

Run it in an environment that has hl7apy 1.3.5 (`pip install hl7apy==1.3.5`, MIT licence); it refuses any other content.
Only facts are taken: which segments and groups a message structure holds, in which order, how often.

The notation is HL7's own abstract message syntax: `[X]` optional, `{X}` repeating, `<X|Y>` a choice, and `NAME(...)`
a named group.  Group names are without the structure's name before them, as the v2-to-FHIR guide writes them.  Choice
groups that only the XML schemas name (`CHOICE`, `..._SUPPGRP`) are written as plain choices.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

VERSIONS = ("2.1", "2.2", "2.3", "2.3.1", "2.4", "2.5", "2.5.1", "2.6", "2.7", "2.8", "2.8.1", "2.8.2")
PINNED = "66cc86e59a35b854c76250b374a1249296c9fd8387969f8af92a6dd47e557593"
# One name for one thing: ORU_R01 of v2.3 alone says RESPONSE where all others say PATIENT_RESULT.
# v2.5.1 names groups of OUL after all segments that they hold, and the referral messages name AUT with CTD in five ways.
RENAMED = {
    ("ORU_R01", "RESPONSE"): "PATIENT_RESULT",
    ("OUL_R22", "OBXTCDSIDNTE_SUPPGRP"): "RESULT",
    ("OUL_R23", "PIDPD1NTE_SUPPGRP"): "PATIENT",
    ("OUL_R23", "PV1PV2_SUPPGRP"): "VISIT",
    ("OUL_R23", "SPMOBXSACINVOBRORCNTETQ1TQ2OBXTCDSIDNTECTI_SUPPGRP"): "SPECIMEN",
    ("OUL_R23", "TQ1TQ2_SUPPGRP"): "TIMING_QTY",
    ("OUL_R23", "OBXTCDSIDNTE_SUPPGRP"): "RESULT",
    ("OUL_R24", "PIDPD1NTE_SUPPGRP"): "PATIENT",
    ("OUL_R24", "PV1PV2_SUPPGRP"): "VISIT",
    ("OUL_R24", "SPMOBXSACINV_SUPPGRP"): "SPECIMEN",
    ("OUL_R24", "TQ1TQ2_SUPPGRP"): "TIMING_QTY",
    ("OUL_R24", "OBXTCDSIDNTE_SUPPGRP"): "RESULT",
}
RENAMED |= {
    (structure, name): meant
    for structure in ("REF_I12", "RRI_I12")
    for name, meant in (
        ("AUTHORIZATION", "AUTHORIZATION_CONTACT"),
        ("AUTHORIZATION_CONTACT1", "AUTHORIZATION_CONTACT"),
        ("AUTHORIZATION_CONTACT2", "AUTHORIZATION_CONTACT"),
        ("AUTCTD_SUPPGRP2", "AUTHORIZATION_CONTACT"),
        ("PROVIDER", "PROVIDER_CONTACT"),
        ("VISIT", "PATIENT_VISIT"),
    )
}
# The two patients of a swap of beds, and of a link, stand one after the other without a group in most versions: a group in
# all versions, so that it is known which visit is whose.
REPEATED = {"ADT_A17": ("PID", "PATIENT"), "ADT_A24": ("PID", "PATIENT"), "ADT_A37": ("PID", "PATIENT")}

# A structure of ours, for messages that are read by the generic map (maps/messages/Generic.fml): whatever follows a PID is about that
# patient, in any order.
GENERIC = (
    "MSH [{<SFT|EVN|UAC>}] [{PATIENT(PID "
    "[{<PD1|ROL|PRT|NK1|PV1|PV2|OBX|AL1|IAM|DG1|PR1|GT1|IN1|IN2|IN3>}])}]"
)

# HL7 table 0354 (v2.8.2, with what older versions add): message code, structure, trigger events.
TABLE_0354 = """
ADT ADT_A01 A01 A04 A08 A13
ADT ADT_A02 A02
ADT ADT_A03 A03
ADT ADT_A05 A05 A14 A28 A31
ADT ADT_A06 A06 A07
ADT ADT_A09 A09 A10 A11
ADT ADT_A12 A12
ADT ADT_A15 A15
ADT ADT_A16 A16
ADT ADT_A17 A17
ADT ADT_A18 A18
ADT ADT_A20 A20
ADT ADT_A21 A21 A22 A23 A25 A26 A27 A29 A32 A33
ADT ADT_A24 A24
ADT ADT_A30 A30 A34 A35 A36 A46 A47 A48 A49
ADT ADT_A37 A37
ADT ADT_A38 A38
ADT ADT_A39 A39 A40 A41 A42
ADT ADT_A43 A43
ADT ADT_A44 A44
ADT ADT_A45 A45
ADT ADT_A50 A50 A51
ADT ADT_A52 A52 A53
ADT ADT_A54 A54 A55
ADT ADT_A60 A60
ADT ADT_A61 A61 A62
ADR ADR_A19 A19
BAR BAR_P01 P01
BAR BAR_P02 P02
BAR BAR_P05 P05
BAR BAR_P06 P06
BAR BAR_P10 P10
BAR BAR_P12 P12
CRM CRM_C01 C01 C02 C03 C04 C05 C06 C07 C08
CSU CSU_C09 C09 C10 C11 C12
DFT DFT_P03 P03
DFT DFT_P11 P11
MDM MDM_T01 T01 T03 T05 T07 T09 T11
MDM MDM_T02 T02 T04 T06 T08 T10
ORU ORU_R01 R01 W01
ORU ORU_R30 R30 R31 R32 R40
OUL OUL_R21 R21
OUL OUL_R22 R22
OUL OUL_R23 R23
OUL OUL_R24 R24
PEX PEX_P07 P07 P08
PGL PGL_PC6 PC6 PC7 PC8
PMU PMU_B01 B01 B02
PMU PMU_B03 B03
PMU PMU_B04 B04 B05 B06
PPG PPG_PCG PCG PCH PCJ
PPP PPP_PCB PCB PCC PCD
PPR PPR_PC1 PC1 PC2 PC3
RDE RDE_O11 O11 O25
RRE RRE_O12 O12 O26
QBP QBP_Q21 Q21 Q22 Q23 Q24 Q25
QCN QCN_J01 J01 J02
REF REF_I12 I12 I13 I14 I15
RPA RPA_I08 I08 I09 I10 I11
RPI RPI_I01 I01 I04
RQA RQA_I08 I08 I09 I10 I11
RQC RQC_I05 I05 I06
RQI RQI_I01 I01 I02 I03
RRI RRI_I12 I12 I13 I14 I15
RSP RSP_K23 K23 K24
SIU SIU_S12 S12 S13 S14 S15 S16 S17 S18 S19 S20 S21 S22 S23 S24 S26 S27
SRM SRM_S01 S01 S02 S03 S04 S05 S06 S07 S08 S09 S10 S11
SRR SRR_S01 S01 S02 S03 S04 S05 S06 S07 S08 S09 S10 S11
TCU TCU_U10 U10 U11
LSU LSU_U12 U12 U13
"""


def main() -> None:
    found = digest()
    if found != PINNED:
        raise SystemExit(f"hl7apy has unexpected content: {found}")
    tables = {
        "source": "hl7apy 1.3.5 (MIT), facts of HL7 v2.1 to v2.8.2; HL7 table 0354",
        "events": events(),
        "structures": structures(),
    }
    target = Path(__file__).with_name("structures.json")
    target.write_text(json.dumps(tables, indent=0, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")


def digest() -> str:
    """SHA-256 over the files that are read."""
    spec = importlib.util.find_spec("hl7apy")
    if spec is None or spec.origin is None:
        raise SystemExit("hl7apy is not installed")
    summed = hashlib.sha256()
    for version in VERSIONS:
        for name in ("messages.py", "groups.py"):
            summed.update((Path(spec.origin).parent / module_name(version) / name).read_bytes())
    return summed.hexdigest()


def module_name(version: str) -> str:
    return "v" + version.replace(".", "_")


def events() -> dict[str, str]:
    """`ADT_A04` to `ADT_A01`."""
    facts = {}
    for line in TABLE_0354.strip().splitlines():
        code, structure, *triggers = line.split()
        facts.update({f"{code}_{trigger}": structure for trigger in triggers})
    return facts


def structures() -> dict[str, list[list[str]]]:
    """Structure to a list of [versions separated by a space, abstract syntax]."""
    gathered: dict[str, dict[str, list[str]]] = {}
    for version in VERSIONS:
        tables = importlib.import_module(f"hl7apy.{module_name(version)}")
        for name in tables.MESSAGES:
            syntax = grouped(name, written(tables, name, name))
            gathered.setdefault(name, {}).setdefault(syntax, []).append(version)
    gathered["GENERIC"] = {GENERIC: list(VERSIONS)}
    return {name: [[" ".join(at), syntax] for syntax, at in found.items()] for name, found in gathered.items()}


def grouped(name: str, syntax: str) -> str:
    """A structure whose second half says the same as its first, with both as a repeating group.

    In OUL of v2.8 a document of the order (OBX, TXA) would stand where the results do (OBR, ORC, OBX): it is left out.
    """
    if name.startswith("OUL_"):
        syntax = syntax.replace(" [ORDER_DOCUMENT(OBX [{PRT}] TXA)]", "")
    first, group_name = REPEATED.get(name, ("", ""))
    head, *halves = syntax.split(f" {first}") if first else [syntax]
    if len(halves) == 2 and not halves[1]:  # A24 of v2.1: the second patient has no visit, which is optional then
        halves = ["".join(f" [{segment}]" for segment in halves[0].split())] * 2
    if len(halves) != 2 or halves[0] != halves[1]:
        return syntax
    return f"{head} {{{group_name}({first}{halves[0]})}}"


def written(tables: Any, name: str, structure: str) -> str:
    """Abstract syntax of the content of one message or group."""
    definition = tables.MESSAGES[name] if name in tables.MESSAGES and name == structure else tables.GROUPS[name]
    parts = [item(tables, child, structure) for child in definition[1]]
    return ("|" if definition[0] == "choice" else " ").join(parts)


def item(tables: Any, child: Any, structure: str) -> str:
    name, _, (least, most), kind = child
    text = group(tables, name, structure) if kind == "GRP" else name
    if most == -1:
        text = "{" + text + "}"
    return f"[{text}]" if least == 0 else text


def group(tables: Any, name: str, structure: str) -> str:
    short = name.removeprefix(structure + "_")
    body = written(tables, name, structure)
    if tables.GROUPS[name][0] == "choice":
        return f"<{body}>" if anonymous(short) else f"{short}(<{body}>)"
    return f"{RENAMED.get((structure, short), short)}({body})"


def anonymous(name: str) -> bool:
    return name.endswith(("CHOICE", "_SUPPGRP"))


if __name__ == "__main__":
    main()

"""What the erasure flow sends, and the scan that looks for it: every column of every table, and the data folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.faults.scenario import Scenario

MARKED = "zwmark"
HIS, PRIOR, OTHER = (
    ("zwmark77", "Zwmarkname^Zwmarkfirst"), ("zwmark78", "Zwmarkname^Zwmarkfirst"), ("P2", "Hansen^Kari"),
)  # fmt: skip
CELLS = """
SELECT table_name, column_name, data_type FROM information_schema.columns
WHERE table_schema = 'public' AND table_name IN (SELECT relname FROM pg_class WHERE relkind IN ('r', 'p'))
ORDER BY 1, 2"""

_NO_RESOURCE = "SELECT count(*) FROM {table} t WHERE NOT EXISTS (SELECT FROM resources r WHERE r.rid = {column})"
_NO_MESSAGE = "SELECT count(*) FROM {table} t WHERE NOT EXISTS (SELECT FROM message_bodies b WHERE b.id = {column})"
DANGLING = {
    "fhir": (_NO_RESOURCE, {
        "resource_versions": "t.rid", "index_text": "t.rid", "index_date": "t.rid", "index_quantity": "t.rid",
        "index_words": "t.rid",
        "subscription_grants": "t.rid", "subscription_events": "t.resource_rid",
    }),
    "ipf": (_NO_MESSAGE, {
        "message_text": "t.message_id", "message_keys": "t.id", "unmapped_messages": "t.message_id",
        "identity_conflicts": "t.message_id",
        "admin_job_messages": "t.message_id", "message_states": "coalesce(t.original_id, t.id)",
    }),
}  # fmt: skip


def segments(*lines: str) -> bytes:
    """A frame."""
    return b"\x0b" + "".join(f"{line}\r" for line in lines).encode() + b"\x1c\r"


def header(number: str, kind: str) -> str:
    """MSH."""
    return f"MSH|^~\\&|FEED|GENERAL|IPF|IPF|20260102030405||{kind}|{number}|P|2.5.1"


def mark(patient: str) -> str:
    """What marks texts of a patient."""
    return "plain" if patient == OTHER[0] else MARKED


def admission(number: str, trigger: str, patient: tuple[str, str], phone: str = "1", sex: str = "F") -> bytes:
    """An ADT message with address, telephone numbers, next of kin and a note."""
    id_, name = patient
    text = mark(id_)
    return segments(
        header(number, f"ADT^{trigger}^ADT_A01"), "EVN|A01|20260102030405",
        f"PID|1||{id_}^^^GENERAL^MR||{name}||19700315|{sex}|||{text}street 1^^{text}town^^{text}zip"
        f"||{phone}^PRN^PH~^NET^Internet^{text}@example.org",
        f"NK1|1|{text}kin^Ola|SPO|{text}kinstreet 2|{text}kinphone",
        f"PV1|1|I|W3^301^2^GENERAL||||D1^Solberg^Silje^^^Dr^^^NPI|||MED|||||||||V{id_}^^^GENERAL^VN",
        f"DG1|1||I10^{text}diagnosis^I10|{text}described|20260102|A",
        f"AL1|1|DA|1^{text}allergy^L|SV|{text}reaction",
    )  # fmt: skip


def merge(number: str, survivor: tuple[str, str], prior: tuple[str, str]) -> bytes:
    """An A40: the prior number belongs to the survivor."""
    return segments(
        header(number, "ADT^A40^ADT_A39"), "EVN|A40|20260102030405",
        f"PID|1||{survivor[0]}^^^GENERAL^MR||{survivor[1]}", f"MRG|{prior[0]}^^^GENERAL^MR",
    )  # fmt: skip


def result(number: str, patient: tuple[str, str], kind: str = "ORU^R01^ORU_R01") -> bytes:
    """A laboratory result with notes, or with an unknown type a message that fails."""
    id_, name = patient
    text = mark(id_)
    return segments(
        header(number, kind), f"PID|1||{id_}^^^GENERAL^MR||{name}||19700315|F", f"NTE|1||{text}note of the patient",
        f"OBR|1|O{id_}^LAB|F{id_}^LAB|718-7^Hemoglobin^LN|||20260102030405|||||||||||||||20260102|||F",
        f"OBX|1|ST|718-7^Hemoglobin^LN||{text}result||||||F|||20260102030405", f"NTE|1||{text}comment",
    )  # fmt: skip


REJECTED = segments("XXX|^~\\&|no header", "PID|1||zwmark77^^^GENERAL^MR||Zwmarkname^Zwmarkfirst")


def remains(scenario: Scenario, marks: Sequence[str]) -> dict[str, int]:
    """Number of rows by table and column in which a mark stands, in both databases."""
    found = {}
    for database in ("ipf", "fhir"):
        by_table: dict[str, list[tuple[str, str]]] = {}
        for table, column, kind in scenario.sql(database, CELLS):
            text = f"encode({column}, 'escape')" if kind == "bytea" else f"{column}::text"
            tests = " OR ".join(f"strpos(lower({text}), '{one.lower()}') > 0" for one in marks)
            by_table.setdefault(table, []).append((column, f"count(*) FILTER (WHERE {tests})"))
        for table, columns in by_table.items():
            (counts,) = scenario.sql(database, f"SELECT {', '.join(test for _, test in columns)} FROM {table}")
            found |= {
                f"{table}.{column}": int(count)
                for (column, _), count in zip(columns, counts, strict=True)
                if int(count)
            }
    return found


def is_audit(place: str) -> bool:
    """Whether a place belongs to the audit trail, which stays."""
    return re.match(r"audit_(records|unchained|chain)", place) is not None


def dangling(scenario: Scenario) -> dict[str, int]:
    """Rows that name rows which are gone."""
    found = {}
    for database, (query, columns) in DANGLING.items():
        for table, column in columns.items():
            count = int(scenario.psql(query.format(table=table, column=column), database).strip())
            if count:
                found[table] = count
    return found


def marked_files(folder: Path, marks: Sequence[str]) -> list[str]:
    """Files of the data folder outside of PostgreSQL in which a mark stands."""
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and "postgres" not in path.relative_to(folder).parts
        and any(one.lower().encode() in path.read_bytes().lower() for one in marks)
    ]  # fmt: skip

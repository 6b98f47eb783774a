"""From the socket, or the request, to the stored resource: nobody's data on somebody else, and nothing of nobody."""

from __future__ import annotations

from typing import Any

from tests.flows.engine import TOKEN, EngineTestCase

FAMILY = "engine"
KIND = "application/hl7-v2"


def head(sender: str, kind: str, control_id: str) -> str:
    """An MSH."""
    return f"MSH|^~\\&|{sender}|GENERAL|IPF|IPF|20260301||{kind}|{control_id}|P|2.5.1"


def pid(number: str, name: str = "Person") -> str:
    """A PID."""
    return f"PID|1||{number}^^^GENERAL^MR||{name}^Given"


def pv1(number: str) -> str:
    """A PV1 with its visit number."""
    return f"PV1|1|I|W^1{'|' * 16}{number}"


def text(*segments: str) -> bytes:
    """A message, or several."""
    return "\r".join(segments).encode() + b"\r"


ORDER, OTHER_ORDER = "ORC|RE|{0}A\rOBR|1|{0}A||718-7^Hgb^LN", "ORC|RE|{0}B\rOBR|2|{0}B||718-7^Hgb^LN"
RESULT = "OBX|1|NM|718-7^Hgb^LN||13|g/dL|||||F"


class PersonTests(EngineTestCase):
    def owners(self, resource_type: str, sender: str) -> dict[str, str]:
        """The number of the patient by the number of each resource of this sender."""
        found = {}
        for one in self.found(f"{resource_type}?_count=1000"):
            numbers = [number["value"] for number in one.get("identifier", ()) if number["value"].startswith(sender)]
            if numbers:
                who = self.ask("GET", f"/fhir/{one['subject']['reference']}")
                found[numbers[0]] = next(number["value"] for number in who["identifier"])
        return found

    def batch(self, sender: str, separator: str = "\r") -> bytes:
        """Two persons, each with a visit, without BHS."""
        messages = [
            (
                head(sender, "ADT^A08^ADT_A01", name),
                f"EVN|A08|2026{separator}{pid(sender + name)}",
                pv1(sender + f"V{name}"),
            )
            for name in ("ALPHA", "BRAVO")
        ]
        return separator.join(segment for message in messages for segment in message).encode() + separator.encode()

    def both(self, sender: str) -> None:
        """Both messages are stored and converted, and each visit is of its person."""
        for name in ("ALPHA", "BRAVO"):
            self.row(sender, name, "DELIVERED")
        expected = {f"{sender}VALPHA": f"{sender}ALPHA", f"{sender}VBRAVO": f"{sender}BRAVO"}
        self.assertEqual(self.owners("Encounter", sender), expected)

    def test_two_messages_in_a_frame(self) -> None:
        """Whatever ends the lines; both are acknowledged."""
        for number, separator in enumerate(("\r", "\n", "\r\n")):
            sender = f"FRAME{number}"
            (answer,) = self.send(self.batch(sender, separator))
            self.assertEqual([one for one in answer if one.startswith(b"MSA")], [b"MSA|AA|ALPHA", b"MSA|AA|BRAVO"])
            self.both(sender)

    def test_vaccinations_of_two_children_in_a_frame(self) -> None:
        """Each is of its child, and has the zone of its own MSH-7."""
        sender, made = "CHILDREN", []
        for name, zone in (("ALPHA", "+0500"), ("BRAVO", "-0300")):
            msh = head(sender, "VXU^V04^VXU_V04", name).replace("|20260301|", f"|20260301101500{zone}|")
            rxa = "RXA|0|1|20260301090000||20^DTaP^CVX|0.5|mL"
            made += [msh, pid(sender + name), f"ORC|RE||{sender}{name}I", rxa]
        (answer,) = self.send(text(*made))
        self.assertEqual([one for one in answer if one.startswith(b"MSA")], [b"MSA|AA|ALPHA", b"MSA|AA|BRAVO"])
        for name, time in (("ALPHA", "2026-03-01T09:00:00+05:00"), ("BRAVO", "2026-03-01T09:00:00-03:00")):
            self.row(sender, name, "DELIVERED")
            (given,) = self.found(f"Immunization?patient.identifier={sender}{name}")
            self.assertEqual(given["occurrenceDateTime"], time)
            self.assertEqual([one["value"] for one in given["identifier"]], [f"{sender}{name}I"])

    def test_two_messages_in_a_request(self) -> None:
        """HL7 v2 over HTTP, and the admin API."""
        status, body = self.post(self.engine.lab, self.batch("WEB2"), KIND, Authorization=f"Bearer {TOKEN}")
        self.assertEqual((status, body.count(b"MSA|AA|")), (200, 2))
        self.both("WEB2")
        found = self.ask("POST", "/admin/ingest", self.batch("ADMIN2"))
        self.assertEqual(
            [(one["source_id"], one["code"]) for one in found["messages"]], [("ALPHA", "AA"), ("BRAVO", "AA")]
        )
        self.both("ADMIN2")

    def refused(self, sender: str, control_id: str, *segments: str) -> Any:
        """The message fails for good, and nothing of it is stored."""
        (answer,) = self.send(text(*segments))
        self.assertIn(f"MSA|AA|{control_id}".encode(), answer)
        row = self.row(sender, control_id, "DEAD_LETTER")
        self.assertIs(row["permanent"], True)
        return row["last_error"]

    def test_two_subjects_in_a_message(self) -> None:
        """A second PID, PV1 or TXA where the structure has one, and a merge of two into one."""
        sender = "TWO"
        a, b, v, w = pid("TWOA"), pid("TWOB"), pv1("TWOV"), pv1("TWOW")
        orders = ORDER.format("TWO"), OTHER_ORDER.format("TWO")
        for control_id, place, segments in (
            ("T1", "PID", (head(sender, "ADT^A08^ADT_A01", "T1"), a, v, b, w)),
            (
                "T2",
                "PID",
                (head(sender, "MDM^T02^MDM_T02", "T2"), a, b, v, "TXA|1|OP|||||||||TWOD", "OBX|1|TX|||x||||||F"),
            ),
            ("T3", "PV1", (head(sender, "OMG^O19^OMG_O19", "T3"), a, v, orders[0], w, orders[1])),
            ("T4", "PV1", (head(sender, "ORM^O01^ORM_O01", "T4"), a, v, orders[0], w, orders[1])),
            ("T5", "PV1", (head(sender, "ORU^R01^ORU_R01", "T5"), a, v, orders[0], RESULT, w, orders[1], RESULT)),
            ("T6", "MRG", (head(sender, "ADT^A40^ADT_A39", "T6"), a, "MRG|TWOC^^^GENERAL^MR", "MRG|TWOD^^^GENERAL^MR")),
        ):
            self.assertIn(f"{place}: ", self.refused(sender, control_id, *segments), control_id)
        self.assertEqual(self.found("Patient?identifier=TWOA,TWOB,TWOC,TWOD"), [])

    def test_one_number_of_two_patients(self) -> None:
        """One report, visit or order of two patients in a message: the second one is not put on the first."""
        sender, a, b = "BOTH", pid("BOTHA"), pid("BOTHB")
        order = "OBR|1||BOTHF|718-7^Hgb^LN"
        appointment = f"SCH|1|BOTHS{'|' * 9}^^^20260301080000{'|' * 15}BOTHP"
        for control_id, place, segments in (
            ("B1", "subject", (head(sender, "ORU^R01^ORU_R01", "B1"), a, order, RESULT, b, order, RESULT)),
            ("B2", "subject", (head(sender, "SIU^S12^SIU_S12", "B2"), "SCH|1|BOTHT", a, pv1("BOTHV"), b, pv1("BOTHV"))),
        ):
            self.assertIn(f".{place}: ", self.refused(sender, control_id, *segments), control_id)
        self.assertEqual(self.found("Patient?identifier=BOTHA,BOTHB"), [])
        self.send(text(head(sender, "ORU^R01^ORU_R01", "B3"), a, order, RESULT, a, "OBR|2||BOTHG|718-7^Hgb^LN", RESULT))
        self.row(sender, "B3", "DELIVERED")
        self.send(text(head(sender, "SIU^S12^SIU_S12", "B4"), appointment, a, b))
        self.row(sender, "B4", "DELIVERED")
        self.assertEqual(self.owners("ServiceRequest", sender), dict.fromkeys(("BOTHF", "BOTHG", "BOTHP"), "BOTHA"))

    def test_a_subject_that_is_missing(self) -> None:
        """Segment and structure are named."""
        sender, a = "NOBODY", pid("NOBODYA")
        for control_id, place, segments in (
            ("N1", "PID", (head(sender, "ADT^A01^ADT_A01", "N1"), "EVN|A01|2026", pv1("NOBODYV"))),
            ("N2", "PID", (head(sender, "DFT^P03^DFT_P03", "N2"), "EVN|P03|2026", "FT1|1|||2026||CG|X")),
            ("N3", "MRG", (head(sender, "ADT^A40^ADT_A39", "N3"), "EVN|A40|2026", a)),
            ("N4", "OBR", (head(sender, "ORU^R01^ORU_R01", "N4"), a, RESULT)),
            ("N5", "PID", (head(sender, "ORU^R01^ORU_R01", "N5"), ORDER.format("NOBODY"), RESULT)),
            ("N6", "line 2", (head(sender, "ADT^A01^ADT_A01", "N6"), a.lower(), pv1("NOBODYW"))),
            (
                "N7",
                "line 6",
                (head(sender, "ORU^R01^ORU_R01", "N7"), a, ORDER.format("NOBODY"), "OBX|1|ST|X||screen", "ing"),
            ),
            ("N8", "PID", (head(sender, "ADT^A01^ADT_A01", "N8"), 'PID|1||""||""||19800101|F', pv1("NOBODYX"))),
            ("N11", "MRG", (head(sender, "ADT^A40^ADT_A39", "N11"), "EVN|A40|2026", a, "MRG|||NOBODYACC")),
            ("N12", "stores nothing", (head(sender, "PPR^PC1^PPR_PC1", "N12"), a, "PRB|AD|2026")),
            ("N9", "ORC", (head(sender, "ORM^O01^ORM_O01", "N9"), a, pv1("NOBODYY"))),
            ("N10", "stores nothing", (head(sender, "SIU^S23^SIU_S12", "N10"), "SCH|1|NOBODYB||||X|Y", "RGS|1|A")),
        ):
            said = self.refused(sender, control_id, *segments)
            self.assertIn(place if " nothing" in place else f"{place}: ", said, control_id)
        self.assertEqual(self.found("Patient?identifier=NOBODYA"), [])
        self.assertEqual(self.found("Encounter?identifier=NOBODYX,NOBODYY"), [])

    def test_what_msh_says(self) -> None:
        """Its zone is that of all times, a sender may have a universal id only, and bytes in escapes fall back."""
        msh = "MSH|^~\\&|^1.2.840.77^ISO|GENERAL|IPF|IPF|20260301101500+0500||ORU^R01^ORU_R01|MSH1||2.5.1"
        result = "OBX|1|ST|X^X^L||caf\\XE9\\||||||F|||20260301090000"
        (answer,) = self.send(text(msh, pid("MSHSAYS"), ORDER.format("MSHSAYS"), result))
        self.assertEqual((answer[0].split(b"|")[10], answer[1]), (b"P", b"MSA|AA|MSH1"))
        self.row("1.2.840.77", "MSH1", "DELIVERED")
        (found,) = self.found("Observation?subject:Patient.identifier=MSHSAYS")
        self.assertEqual((found["effectiveDateTime"], found["valueString"]), ("2026-03-01T09:00:00+05:00", "café"))

    def test_another_person_under_an_equal_number(self) -> None:
        """A conflict of kind overlay in the queue and the trace; nothing is stored before it is answered."""
        man, woman = "OVERA^^^NORTH^MR||Holt^Carl||19480302|M", "OVERA^^^NORTH^MR||Imani^Ruth||19990714|F"
        self.send(text(head("OVER", "ADT^A08^ADT_A01", "O1"), "EVN|A08|2026", f"PID|1||{man}", "PV1|1|N"))
        self.row("OVER", "O1", "DELIVERED")
        self.send(text(head("OVER", "ORU^R01^ORU_R01", "O2"), f"PID|1||{woman}", ORDER.format("OVER"), RESULT))
        row = self.row("OVER", "O2", "DEAD_LETTER")
        self.assertIn("another person", row["last_error"])
        (conflict,) = self.ask("GET", "/admin/identity-conflicts?source_system=OVER")["items"]
        self.assertEqual((conflict["kind"], conflict["status"]), ("overlay", "open"))
        trace = self.ask("GET", f"/admin/observe/trace/{row['correlation_id']}")
        self.assertEqual([one["kind"] for one in trace["identity_conflicts"]], ["overlay"])
        (stored,) = self.found("Patient?identifier=OVERA")
        self.assertEqual((stored["name"][0]["family"], stored["meta"]["versionId"]), ("Holt", "1"))
        self.assertEqual(self.found(f"Observation?subject=Patient/{stored['id']}"), [])
        self.ask("POST", f"/admin/identity-conflicts/{conflict['id']}/answer", {"answer": "apart"})
        self.row("OVER", "O2", "DELIVERED")
        found = self.found("Patient?identifier=OVERA")
        self.assertEqual(sorted(one["name"][0]["family"] for one in found), ["Holt", "Imani"])
        (report,) = self.found("DiagnosticReport?identifier=OVERA")
        of = self.ask("GET", f"/fhir/{report['subject']['reference']}")
        self.assertEqual(of["name"][0]["family"], "Imani")

    def test_a_person_that_differs_in_part(self) -> None:
        """A marriage: the Patient is updated, the trace has a closed row, and no conflict is open."""
        for control_id, name in (("W1", "Holt"), ("W2", "Imani")):
            person = f"PID|1||WEDA^^^NORTH^MR||{name}^Ruth||19990714|F"
            self.send(text(head("WED", "ADT^A08^ADT_A01", control_id), "EVN|A08|2026", person, "PV1|1|N"))
            row = self.row("WED", control_id, "DELIVERED")
        (stored,) = self.found("Patient?identifier=WEDA")
        self.assertEqual((stored["name"][0]["family"], stored["meta"]["versionId"]), ("Imani", "2"))
        (traced,) = self.ask("GET", f"/admin/observe/trace/{row['correlation_id']}")["identity_conflicts"]
        self.assertEqual((traced["kind"], traced["status"]), ("difference", "closed"))
        self.assertEqual(traced["candidates"], [f"Patient/{stored['id']}"])
        self.assertEqual(self.ask("GET", "/admin/identity-conflicts?source_system=WED&status=open")["items"], [])

    def test_results_with_one_number(self) -> None:
        """Three OBX with one OBX-21, and a later order with it: each is a result of its own."""
        obx = "OBX|{0}|NM|{1}^{1}^LN||{0}|mmol/L|||||F||||||||||7^LABX".format
        three = [obx(place, code) for place, code in enumerate(("2823-3", "2951-2", "2075-0"), 1)]
        person = pid("NUMA")
        for control_id, order, results in (("R1", "NUM1", three), ("R2", "NUM2", [obx(9, "2345-7")])):
            obr = f"OBR|1||{order}||24323-8^Panel^LN|||2026"
            self.send(text(head("NUM", "ORU^R01^ORU_R01", control_id), person, obr, *results))
            self.row("NUM", control_id, "DELIVERED")
        found = self.found("Observation?identifier=7&subject.identifier=NUMA")
        values = {one["code"]["coding"][0]["code"]: one["valueQuantity"]["value"] for one in found}
        self.assertEqual(values, {"2823-3": 1, "2951-2": 2, "2075-0": 3, "2345-7": 9})
        self.assertEqual({one["meta"]["versionId"] for one in found}, {"1"})

    def test_results_of_a_later_order(self) -> None:
        """The same OBX-21 and test: another order makes another result, a correction of the order updates its own."""
        for sender, number in (("ORDR", "R700100"), ("ORDC", "1")):
            obx = f"OBX|1|NM|2823-3^Potassium^LN||{{}}|mmol/L|||||{{}}||||||||||{number}^LABX".format
            for control_id, order, result in (("R1", "A", (4, "F")), ("R2", "B", (5, "F")), ("R3", "A", (4.5, "C"))):
                segments = (pid(f"{sender}X"), f"OBR|1||{sender}{order}|24323-8^Panel^LN|||2026", obx(*result))
                self.send(text(head(sender, "ORU^R01^ORU_R01", control_id), *segments))
                self.row(sender, control_id, "DELIVERED")
            found = self.found(f"Observation?subject.identifier={sender}X")
            values = {(one["valueQuantity"]["value"], one["meta"]["versionId"]) for one in found}
            self.assertEqual(values, {(4.5, "2"), (5, "1")}, number)

    def test_susceptibilities_of_two_organisms(self) -> None:
        """OBR-26 and OBR-29: each result is derived from its organism."""
        sender, organism = "CULTURE", "OBX|{0}|CWE|600-7^Bacteria^LN|{0}|{1}||||||F".format
        panel = ("OBR|{0}|CULP{0}|CULF{0}|50545-3^Susc^LN" + "|" * 22 + "600-7&Bacteria&LN^{1}|||^CULF1").format
        cipro = "OBX|1|ST|18906-8^Cipro^LN||{0}||||||F".format
        culture = [
            "OBR|1|CULP1|CULF1|630-4^Culture^LN",
            organism(1, "112283007^Coli^SCT"),
            organism(2, "3092008^Staph^SCT"),
        ]
        panels = [panel(2, 1), cipro("S"), panel(3, 2), cipro("R")]
        self.send(text(head(sender, "ORU^R01^ORU_R01", "C1"), pid("CULTUREA"), *culture, *panels))
        self.row(sender, "C1", "DELIVERED")
        found = self.found("Observation?subject:Patient.identifier=CULTUREA&code=18906-8")
        of = {}
        for one in found:
            (link,) = one["derivedFrom"]
            of[one["valueString"]] = self.ask("GET", f"/fhir/{link['reference']}")["valueCodeableConcept"]
        self.assertEqual({value: one["coding"][0]["display"] for value, one in of.items()}, {"S": "Coli", "R": "Staph"})

    def test_transform_refuses_and_reads_alike(self) -> None:
        """`$transform`, with the installed map and with the candidate of a request, answers 400 and names the place."""
        path, kind = "/mapping/fhir/StructureMap/$transform", "x-application/hl7-v2+er7"
        port, a = self.engine.http_port, pid("TRANSA")
        for place, segments in (
            ("PID", (head("TRANS", "ADT^A08^ADT_A01", "1"), a, pid("TRANSB"))),
            ("PID", (head("TRANS", "ADT^A08^ADT_A01", "1"), pv1("V"))),
            ("line 3", (head("TRANS", "ADT^A08^ADT_A01", "1"), a, head("TRANS", "ADT^A08^ADT_A01", "2"), a)),
            ("line 3", (head("TRANS", "ADT^A08^ADT_A01", "1"), a, "ing")),
        ):
            for source in ("", "?source=urn:ipf:map:ADT_A01"):
                status, body = self.post(port, text(*segments), kind, path=path + source)
                self.assertEqual((status, f'"{place}"'.encode() in body), (400, True), (segments, body))
        msh = "MSH|^~\\&|TRANS|GENERAL|IPF|IPF|20260301101500+0500||ORU^R01^ORU_R01|3|P|2.5.1"
        result = f"{RESULT}|||20260301090000"
        status, body = self.post(port, text(msh, a, ORDER.format("TRANS"), result), kind, path=path)
        self.assertEqual((status, b'"2026-03-01T09:00:00+05:00"' in body), (200, True), body)

    def test_a_visit_that_is_told_again(self) -> None:
        """The same PV1 before a further order: report and result keep their patient."""
        sender, v = "AGAIN", pv1("AGAINV")
        self.send(text(head(sender, "ORU^R01^ORU_R01", "A1"), pid("AGAINA"), v, ORDER.format("AGAIN"), RESULT, v,
                       OTHER_ORDER.format("AGAIN"), RESULT))  # fmt: skip
        self.row(sender, "A1", "DELIVERED")
        self.assertEqual(set(self.owners("DiagnosticReport", "AGAIN").values()), {"AGAINA"})
        self.assertEqual(len(self.owners("DiagnosticReport", "AGAIN")), 2)

    def test_what_is_left_out_stays(self) -> None:
        """From the socket to the stored Patient: A28 with all, then A08, A40 and A03 with little, then nulls."""
        sender, number = "OMIT", "OMIT1^^^GENERAL^MR"
        whole = f"PID|1||{number}||Person^Given||19800101|F|||1 Main^^Town||555||ENG|M|||987-65-4321"
        self.send(text(head(sender, "ADT^A28^ADT_A05", "O1"), "EVN|A28|2026", whole))
        self.row(sender, "O1", "DELIVERED")
        (first,) = self.found("Patient?identifier=OMIT1")
        for control_id, kind, *more in (
            ("O2", "ADT^A08^ADT_A01", pv1("OMITV")),
            ("O3", "ADT^A40^ADT_A39", "MRG|OMIT2^^^GENERAL^MR"),
            ("O4", "ADT^A03^ADT_A03", pv1("OMITV")),
        ):
            self.send(text(head(sender, kind, control_id), "EVN||2026", f"PID|1||{number}||Person^Given", *more))
            self.row(sender, control_id, "DELIVERED")
            (after,) = self.found("Patient?identifier=OMIT1")
            for name in ("birthDate", "gender", "telecom", "address", "communication", "maritalStatus", "identifier"):
                self.assertEqual(after[name], first[name], (control_id, name))
        nulls = f'PID|1||{number}||Person^Given||""' + "|" * 12 + '""'
        self.send(text(head(sender, "ADT^A08^ADT_A01", "O5"), "EVN||2026", nulls, pv1("OMITV")))
        self.row(sender, "O5", "DELIVERED")
        (after,) = self.found("Patient?identifier=OMIT1")
        self.assertNotIn("birthDate", after)
        self.assertEqual([one["value"] for one in after["identifier"]], ["OMIT1"])
        self.assertEqual(after["gender"], "female")

"""Facts about the samples of the corpus, written by hand from the standard and the guide, not from what the maps made.

A line: sample, resource type, path (lists flattened), and the value that one of them must have; `!` before the path: no
resource of the type has that value there.  `->`: the value is that of a path in the resource that the reference points
at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from twisted.trial.unittest import TestCase

from tests.corpus import samples

FACTS = """
a01_inpatient | MessageHeader | eventCoding.code | A01
a01_inpatient | MessageHeader | eventCoding.system | http://terminology.hl7.org/CodeSystem/v2-0003
a01_inpatient | MessageHeader | source.name | REGADT
a01_inpatient | MessageHeader | source._endpoint.extension.valueCode | unknown
a01_inpatient | MessageHeader | destination.name | EKG
a01_inpatient | MessageHeader | destination.receiver.display | GOODHEALTH
a01_inpatient | MessageHeader | meta.tag.code | P
a01_inpatient | MessageHeader | sender -> identifier.value | urn:oid:2.16.840.1.113883.19.4.6
a01_inpatient | MessageHeader | focus -> resourceType | Patient
a01_inpatient | MessageHeader | focus -> resourceType | Encounter
a01_inpatient | Provenance | recorded | 2026-03-01T08:30:15-05:00
a01_inpatient | Provenance | activity.coding.code | v2-fhir-transformation
a01_inpatient | Provenance | activity.coding.display | message - ADT^A01^ADT_A01
a01_inpatient | Provenance | entity.what.identifier.value | REGADT/MSG-A01-0001
a01_inpatient | Provenance | agent.type.coding.code | author
a01_inpatient | Provenance | agent.type.coding.code | assembler
a01_inpatient | Provenance | target -> resourceType | MessageHeader
a01_inpatient | Provenance | target -> name.family | Marlowe
a01_inpatient | Provenance | reason.coding.code | PATRQT
a01_inpatient | Provenance | agent.who -> name.family | Ortega
a01_minimal | Provenance | recorded | 2026-03-02T00:00:00Z
a01_minimal | ! Provenance | activity.coding.display | event - ADT^A01
a03_discharge | Provenance | occurredDateTime | 2026-03-05T11:00:00-05:00
a06_outpatient_to_inpatient | Encounter | status | in-progress
a06_outpatient_to_inpatient | Encounter | class.code | IMP
a06_outpatient_to_inpatient | Encounter | episodeOfCare -> identifier.value | EP-77
a06_outpatient_to_inpatient | EpisodeOfCare | diagnosis.condition -> code.coding.code | I50.9
a06_outpatient_to_inpatient | EpisodeOfCare | patient -> name.family | Haddad
a06_outpatient_to_inpatient | EpisodeOfCare | extension.valueString | Heart failure care
a06_outpatient_to_inpatient | Encounter | text.status | additional
a06_outpatient_to_inpatient | Encounter | diagnosis.condition -> extension.valueReference.identifier.value | DX-0
a06_outpatient_to_inpatient | Account | identifier.value | ACC-59000
a06_outpatient_to_inpatient | Account | status | unknown
a06_outpatient_to_inpatient | Account | status | active
a06_outpatient_to_inpatient | ! Patient | active | false
a06_outpatient_to_inpatient | Patient | extension.valueCodeableConcept.coding.code | VIP
a06_outpatient_to_inpatient | Device | deviceName.name | Admission Desk
a06_outpatient_to_inpatient | Device | manufacturer | Corner Lab Software
a06_outpatient_to_inpatient | Provenance | entity.what -> version.value | 4.2.1
a06_outpatient_to_inpatient | Provenance | entity.role | derivation
a06_outpatient_to_inpatient | MessageHeader | source.software | Admission Desk
a06_outpatient_to_inpatient | Provenance | occurredDateTime | 2026-03-07T08:05:00-05:00
a06_outpatient_to_inpatient | Provenance | occurredDateTime | 2026-03-07T07:55:00-05:00
a06_outpatient_to_inpatient | Provenance | activity.coding.code | UPDATE
a06_outpatient_to_inpatient | Provenance | agent.who -> name | EASTCLINIC
a06_outpatient_to_inpatient | Provenance | agent.who -> name.given | Åsa
a06_outpatient_to_inpatient | Provenance | location -> identifier.value | GOODHEALTH
a06_outpatient_to_inpatient | Provenance | reason.coding.code | TREAT
a06_outpatient_to_inpatient | CareTeam | participant.member -> name.family | Ivanova
a06_outpatient_to_inpatient | CareTeam | participant.onBehalfOf -> name | CARDIOLOGY
a06_outpatient_to_inpatient | PractitionerRole | practitioner -> address.city | Brookfield
a06_outpatient_to_inpatient | Coverage | type.coding.code | SELFPAY
a06_outpatient_to_inpatient | Coverage | beneficiary -> name.family | Haddad
a06_outpatient_to_inpatient | Basic | code.coding.code | EncounterHistory
a06_outpatient_to_inpatient | Procedure | performedPeriod.start | 2026-03-07T10:00:00-05:00
a06_outpatient_to_inpatient | Procedure | performedPeriod.end | 2026-03-07T10:45:00-05:00
a06_outpatient_to_inpatient | Procedure | code.coding.code | 92960:59:XU
a06_outpatient_to_inpatient | Procedure | partOf.identifier.value | PX-0
a06_outpatient_to_inpatient | Observation | valueCodeableConcept.coding.code | Y
a07_inpatient_to_outpatient | Encounter | class.code | AMB
a07_inpatient_to_outpatient | Encounter | status | in-progress
a07_inpatient_to_outpatient | Encounter | location.status | completed
a07_inpatient_to_outpatient | Account | identifier.value | ACC-60001
a07_inpatient_to_outpatient | ! Patient | active | false
a09_departing | Encounter | location.status | reserved
a09_departing | Encounter | location.extension.valueCodeableConcept.coding.code | temporary
a09_departing | Provenance | occurredDateTime | 2026-03-08T11:25:00-05:00
a09_departing | Observation | valueQuantity.value | 70.10
a10_arriving | Encounter | location.location -> identifier.value | GOODHEALTH/MAIN/4E/4/412/02
a10_arriving | ! Encounter | location.extension.valueCodeableConcept.coding.code | temporary
a10_arriving | Provenance | location -> physicalType.coding.code | si
a11_cancel | Encounter | status | cancelled
a12_cancel_transfer | Encounter | status | in-progress
a12_cancel_transfer | Provenance | reason.extension.valueCode | unknown
a12_cancel_transfer | Condition | code.coding.code | I21.9
a17_swap | Patient | name.given | Søren
a17_swap | Patient | generalPractitioner -> name.family | Osei
a17_swap | Observation | valueString | high & rising
a17_swap | Observation | subject -> identifier.value | 778821
a17_swap | Account | subject -> identifier.value | 778821
a17_swap | Encounter | subject -> identifier.value | 778812
a17_swap | Encounter | subject -> identifier.value | 778821
a18_merge_patient | Patient | link.type | replaces
a18_merge_patient | Patient | link.type | replaced-by
a18_merge_patient | Patient | identifier.value | ALT-7
a18_merge_patient | Patient | identifier.value | 99001
a18_merge_patient | Patient | name.family | Marlow
a18_merge_patient | Account | subject -> name.family | Marlowe
a18_merge_patient | Encounter | subject -> active | true
a34_merge_id | Patient | identifier.value | 700003
a34_merge_id | Patient | active | false
a40_merge | Patient | link.other -> identifier.value | 700001
a40_merge | Patient | link.other -> identifier.value | 778812
a40_merge | Patient | link.other -> identifier.value | 700009
a40_merge | Patient | link.other -> identifier.value | 778830
a40_merge | Patient | name.given | Żaneta
a40_merge | MessageHeader | focus -> identifier.value | 700009
a40_same_number | ! Patient | active | false
a40_same_number | ! Patient | link.type | replaces
a31_participations | MessageHeader | meta.tag.code | T
a31_participations | MessageHeader | meta.tag.system | http://terminology.hl7.org/CodeSystem/v2-0207
a31_participations | MessageHeader | meta.security.display | RESTRICTED
a31_participations | MessageHeader | meta.security.code | NORELINK
a31_participations | MessageHeader | source.endpoint | urn:dns:adt.goodhealth.example
a31_participations | MessageHeader | destination.endpoint | https://hub.example/in
a31_participations | MessageHeader | destination.receiver.identifier.value | KH-2
a31_participations | MessageHeader | responsible -> name | Good Health Trust
a31_participations | MessageHeader | language | de
a31_participations | Provenance | agent.who -> identifier.value | GHT-1
a31_participations | Patient | generalPractitioner -> specialty.coding.code | 207Q00000X
a31_participations | Patient | generalPractitioner -> name.family | Adler
a31_participations | Patient | generalPractitioner -> name | Praxis am Dom
a31_participations | ! Patient | generalPractitioner.display | Person Gone
a31_participations | Patient | _birthDate.extension.valueDateTime | 1960-02-29T15:30:00+01:00
a31_participations | Patient | multipleBirthInteger | 2
a31_participations | Patient | deceasedBoolean | false
a31_participations | PractitionerRole | telecom.extension.valueBoolean | true
a31_participations | PractitionerRole | practitioner -> address.city | Köln
a31_participations | PractitionerRole | identifier.value | LIC-77
a31_participations | PractitionerRole | organization -> type.coding.code | D
a31_participations | PractitionerRole | location -> identifier.value | PRAXIS//P1//2
a31_participations | CareTeam | participant.member -> name | Herzzentrum
a31_participations | CareTeam | participant.member -> telecom.value | +49 221 5550444
a31_participations | CareTeam | participant.period.end | 2026-04-01
a31_participations | AllergyIntolerance | recorder -> name.given | Heike
a31_participations | AllergyIntolerance | recorder -> identifier.value | 778840
a31_participations | AllergyIntolerance | recorder.display | Ina Nurse
a31_participations | AllergyIntolerance | code.coding.code | 91936005
a31_participations | AllergyIntolerance | code.text | Peanut
a31_participations | AllergyIntolerance | code.text | Latex
a31_participations | AllergyIntolerance | onsetString | as a child
a01_insurance_and_places | Coverage | identifier.value | PPO1
a01_insurance_and_places | Coverage | identifier.value | P2
a01_insurance_and_places | Coverage | extension.valueIdentifier.value | EMP-4
a01_insurance_and_places | Coverage | payor.display | Hospital plan only
a01_insurance_and_places | Coverage | subscriber -> name.given | Ren
a01_insurance_and_places | Coverage | subscriber -> name.family | Nakamura
a01_insurance_and_places | ! Coverage | type.coding.code | COMM
a01_insurance_and_places | CareTeam | participant.member.display | Case M. Anager
a01_insurance_and_places | Location | identifier.value | LOC-210B
a01_insurance_and_places | Location | identifier.system | urn:oid:2.16.840.1.113883.19.4.6.7
a01_insurance_and_places | Location | identifier.value | W3
a01_insurance_and_places | Location | description | bed at the window
"""

MERGES = {
    "a18_merge_patient": [("778812", "700001")],
    "a34_merge_id": [("778814", "700003")],
    "a40_merge": [("778812", "700001"), ("778830", "700009")],
}
"""Pairs of (who survives, who was merged into it), by medical record number."""

SWAP = """MSH|^~\\&|A|B|||20260101||ADT^A17|1|P|{}
EVN|A17|20260101
PID|||1^^^B||One
PV1||I|W^1^1||||||||||||||||V1
PID|||2^^^B||Two
PV1||I|W^1^2||||||||||||||||V2"""

MERGE = """MSH|^~\\&|A|B|||20260101||ADT^A40{}|1|P|2.5
EVN|A40|20260101
PID|||7^^^EAST^MR||One
MRG|7^^^WEST^MR"""

NEVER_TWICE = ("Patient", "Encounter", "Account", "Organization", "Location", "Practitioner", "Device")


class FactTests(TestCase):
    """Each line holds."""

    def test_facts(self) -> None:
        """The value is there, or must not be."""
        lines = [line for line in FACTS.strip().splitlines() if line]
        self.assertGreater(len(lines), 130)
        for line in lines:
            name, kind, path, value = (part.strip() for part in line.split(" | "))
            with self.subTest(fact=line):
                found = [str(one) for one in values(name, kind.lstrip("! "), path)]
                if kind.startswith("!"):
                    self.assertNotIn(value, found)
                else:
                    self.assertIn(value, found)

    def test_merges(self) -> None:
        """Both patients are in the Bundle, each names the other, and only the prior one is inactive."""
        for name, pairs in MERGES.items():
            entries = {one["fullUrl"]: one for one in samples.bundle(name)["entry"]}
            patients = [one for one in entries.values() if one["resource"]["resourceType"] == "Patient"]
            self.assertEqual(len(patients), 2 * len(pairs))
            by_number = {number(one["resource"]): one for one in patients}
            for survivor, prior_number in pairs:
                patient, prior = by_number[survivor], by_number[prior_number]
                with self.subTest(sample=name, patient=survivor):
                    self.assertEqual(links(patient), [("replaces", prior["fullUrl"])])
                    self.assertEqual(links(prior), [("replaced-by", patient["fullUrl"])])
                    self.assertIs(patient["resource"]["active"], True)
                    self.assertIs(prior["resource"]["active"], False)
                    self.assertTrue(prior["request"]["url"].endswith(f"|{prior_number}"), prior["request"])

    def test_swap(self) -> None:
        """Each of the two has the bed that the other left."""
        found = {
            entry["resource"]["subject"]["reference"]: {
                one["status"]: one["location"]["reference"] for one in entry["resource"]["location"]
            }
            for entry in samples.bundle("a17_swap")["entry"]
            if entry["resource"]["resourceType"] == "Encounter"
        }
        one, other = found.values()
        self.assertEqual((one["active"], one["completed"]), (other["completed"], other["active"]))

    def test_swap_in_old_versions(self) -> None:
        """Which visit is whose is known with and without groups, and when a segment of the first patient is missing."""
        for version in ("2.1", "2.2", "2.4", "2.8"):
            made = samples.library().transform_message(samples.parse(SWAP.format(version)))
            by_url = {one["fullUrl"]: one["resource"] for one in made["entry"]}
            visits = [one for one in by_url.values() if one["resourceType"] == "Encounter"]
            found = {number(one): number(by_url[one["subject"]["reference"]]) for one in visits}
            with self.subTest(version=version):
                self.assertEqual(found, {"V1": "1", "V2": "2"})

    def test_merge_under_other_names(self) -> None:
        """MSH-9.3 as senders write it; a prior patient of another authority is another patient, whatever the number."""
        for structure in ("", "^ADT_A39", "^ADT_A40", "^XYZ"):
            with self.subTest(structure=structure):
                made = samples.library().transform_message(samples.parse(MERGE.format(structure)))
                patients = [one["resource"] for one in made["entry"] if one["resource"]["resourceType"] == "Patient"]
                self.assertEqual([one["active"] for one in patients], [True, False])

    def test_nothing_is_told_twice(self) -> None:
        """No two entries of a Bundle have the same identifier, whatever resource of the type it is."""
        for name in samples.names():
            seen: set[tuple[str, str, str]] = set()
            for entry in samples.bundle(name)["entry"]:
                resource = entry["resource"]
                if resource["resourceType"] not in NEVER_TWICE:
                    continue
                first = resource["identifier"][0]
                key = (resource["resourceType"], first.get("system", ""), first["value"])
                with self.subTest(sample=name, key=key):
                    self.assertNotIn(key, seen)
                seen.add(key)

    def test_every_message_has_a_header_and_a_provenance(self) -> None:
        """Once the header, at the beginning; every reference of both resolves, and each has its target."""
        for name in samples.names():
            resources = [one["resource"] for one in samples.bundle(name)["entry"]]
            kinds = [one["resourceType"] for one in resources]
            with self.subTest(sample=name):
                self.assertEqual(kinds[:2], ["MessageHeader", "Provenance"])
                self.assertEqual(kinds.count("MessageHeader"), 1)
                self.assertTrue(resources[0].get("focus"), "no focus")
                for one in resources:
                    if one["resourceType"] == "Provenance":
                        self.assertTrue(one.get("recorded") or one.get("_recorded"))
                        self.assertTrue(all(agent.get("who") for agent in one["agent"]))


def number(resource: dict[str, Any]) -> str:
    """Value of the first identifier."""
    value: str = resource["identifier"][0]["value"]
    return value


def links(entry: dict[str, Any]) -> list[tuple[str, str]]:
    """Type and reference of each link of a patient."""
    return [(one["type"], one["other"]["reference"]) for one in entry["resource"]["link"]]


@cache
def resources_of(name: str) -> dict[str, dict[str, Any]]:
    """What a sample becomes, by fullUrl."""
    return {one["fullUrl"]: one["resource"] for one in samples.bundle(name)["entry"]}


def values(name: str, kind: str, path: str) -> Iterator[Any]:
    """Values at a path of the resources of a type in what a sample becomes."""
    by_url = resources_of(name)
    here, _, there = path.partition(" -> ")
    for one in (resource for resource in by_url.values() if resource["resourceType"] == kind):
        for value in at(one, here.split(".")):
            if not there:
                yield value if isinstance(value, str) else json.loads(json.dumps(value, default=str))
            elif isinstance(value, dict) and value.get("reference") in by_url:
                yield from at(by_url[value["reference"]], there.split("."))


def at(value: Any, path: list[str]) -> Iterator[Any]:
    """Values at a path, lists flattened; true and false as JSON has them."""
    if isinstance(value, list):
        for one in value:
            yield from at(one, path)
    elif not path:
        yield str(value).lower() if isinstance(value, bool) else value
    elif isinstance(value, dict) and path[0] in value:
        yield from at(value[path[0]], path[1:])

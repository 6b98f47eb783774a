"""Searches: one table of questions, answered by SQL and in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet import defer

from ipf.errors import Category, Problem
from ipf.fhir.search.language.query import parse_criteria, parse_query
from ipf.ports import Json
from tests.contracts.resources import T0, Writing, change, ids, patient

UCUM = "http://unitsofmeasure.org"
LOINC = "http://loinc.org"


def concept(code: str, system: str = LOINC, **more: Any) -> Json:
    """A CodeableConcept of one coding."""
    return {"coding": [{"system": system, "code": code, **more}]}


def observation(id: str, code: str, subject: str, **more: Any) -> Json:
    """An Observation with status final."""
    of = {"reference": f"Patient/{subject}"}
    return {"resourceType": "Observation", "id": id, "status": "final", "code": concept(code), "subject": of} | more


def quantity(value: Any, unit: str) -> Json:
    """A Quantity in a UCUM unit."""
    return {"value": value, "unit": unit, "code": unit, "system": UCUM}


def component(code: str, value: float, unit: str = "mm[Hg]") -> Json:
    """A component of an Observation."""
    return {"code": concept(code), "valueQuantity": quantity(value, unit)}


MRN = {"coding": [{"system": "urn:types", "code": "MR"}], "text": "Medical record"}
WORLD: list[Json] = [
    {"resourceType": "Organization", "id": "west", "name": "West", "identifier": [{"system": "urn:org", "value": "W"}]},
    {"resourceType": "Organization", "id": "east", "name": "East", "partOf": {"reference": "Organization/west"}},
    patient("ann", name=[{"family": "Smith", "given": ["Ann"], "prefix": ["Dr"]}], gender="female",
            identifier=[{"system": "urn:mrn", "value": "1", "type": MRN}], birthDate="1980-02-03",
            managingOrganization={"reference": "Organization/east"},
            address=[{"city": "Bern", "line": ["High Street 7"], "country": "CH"}]),
    patient("bob", name=[{"text": "Robert Jones"}], gender="male", identifier=[{"system": "urn:mrn", "value": "2"}],
            birthDate="1990", generalPractitioner=[{"identifier": {"system": "urn:npi", "value": "77"}}]),
    patient("cid", name=[{"family": "Smithers"}], telecom=[{"system": "phone", "value": "555"}]),
    observation("bp", "85354-9", "ann", effectiveDateTime="2024-03-01",
                component=[component("8480-6", 140), component("8462-4", 80)], encounter={"reference": "Encounter/e1"}),
    observation("low", "85354-9", "bob", effectiveDateTime="2024-04-01",
                component=[component("8480-6", 80), component("8462-4", 60)]),
    observation("mass", "29463-7", "ann", valueQuantity=quantity(70, "kg"), effectiveDateTime="2024-03-02"),
    observation("light", "29463-7", "bob", valueQuantity=quantity(3500, "g"), effectiveDateTime="2023-01-05"),
    observation("temp", "8310-5", "bob", valueQuantity=quantity(37, "Cel"))
    | {"code": concept("8310-5", display="Body temperature") | {"text": "Fever?"}},
    observation("smoke", "72166-2", "cid", valueCodeableConcept=concept("8517006", "http://snomed.info/sct"),
                effectivePeriod={"start": "2024-01-01", "end": "2024-06-30"}),
    {"resourceType": "Encounter", "id": "e1", "status": "finished", "class": {"code": "AMB"},
     "subject": {"reference": "Patient/ann"}, "period": {"start": "2024-03-01"}},
    {"resourceType": "ValueSet", "id": "v1", "url": "http://acme.org/fhir/ValueSet/a", "status": "active"},
    {"resourceType": "ValueSet", "id": "v2", "url": "http://acme.org/fhirish", "status": "active"},
    {"resourceType": "DocumentReference", "id": "d1", "status": "current",
     "relatesTo": [{"code": "replaces", "target": {"reference": "DocumentReference/d0"}},
                   {"code": "appends", "target": {"reference": "DocumentReference/d9"}}]},
    {"resourceType": "RiskAssessment", "id": "r1", "status": "final", "subject": {"reference": "Patient/ann"},
     "prediction": [{"probabilityDecimal": 0.25}]},
]  # fmt: skip

QUESTIONS = [
    # parts of names and addresses
    ("Patient?name=smith", "ann cid"), ("Patient?name=dr", "ann"), ("Patient?name=robert", "bob"),
    ("Patient?name:exact=Smith", "ann"), ("Patient?name:contains=mit", "ann cid"), ("Patient?phonetic=ann", "ann"),
    ("Patient?address=bern", "ann"), ("Patient?address=high", "ann"), ("Patient?address-city=bern", "ann"),
    ("Patient?address:missing=true", "bob cid"), ("Patient?name:missing=false", "ann bob cid"),
    ("Patient?name=smith,robert&gender=male", "bob"),
    # tokens
    ("Patient?identifier=urn:mrn|", "ann bob"), ("Patient?identifier:not=urn:mrn|", "cid"),
    ("Patient?identifier:of-type=urn:types|MR|1", "ann"), ("Patient?identifier:of-type=urn:types|MR|2", ""),
    ("Patient?identifier:of-type=|MR|1", "ann"), ("Patient?phone:missing=false", "cid"), ("Patient?phone=555", "cid"),
    ("Patient?email=555", ""), ("Patient?identifier:text=medical", "ann"), ("Patient?identifier:text=record", "ann"),
    ("Observation?code:text=body temp", "temp"), ("Observation?code:text=temperature", "temp"),
    ("Observation?code:text=ever", ""), ("Observation?code:text=fever&patient=ann", ""),
    ("Observation?code:text=fever&category:missing=true", "temp"), ("Observation?code:text=Body  Température", "temp"),
    ("Observation?combo-code:text=fever", "temp"), ("Observation?code:text=nothing", ""),
    ("Observation?code:text=fever,nothing", "temp"),
    ("Observation?subject:text=nobody", ""), ("Observation?code:not=29463-7", "bp low temp smoke"),
    # references
    ("Patient?general-practitioner:identifier=urn:npi|77", "bob"),
    ("Patient?general-practitioner:identifier=77", "bob"),
    ("Patient?general-practitioner:missing=false", "bob"), ("Observation?subject:Patient=ann", "bp mass"),
    ("Observation?encounter=e1", "bp"), ("Patient?_id=ann,cid", "ann cid"),
    # URIs
    ("ValueSet?url:below=http://acme.org/fhir", "v1"), ("ValueSet?url:above=http://acme.org/fhirish/x", "v2"),
    # quantities: units of one dimension are one
    ("Observation?value-quantity=70000|http://unitsofmeasure.org|g", "mass"),
    ("Observation?value-quantity=lt4|http://unitsofmeasure.org|kg", "light"),
    ("Observation?value-quantity=310.15|http://unitsofmeasure.org|K", "temp"),
    ("Observation?value-quantity=98.6|http://unitsofmeasure.org|[degF]", "temp"),
    ("Observation?value-quantity=gt99|http://unitsofmeasure.org|[degF]", ""),
    ("Observation?value-quantity=gt1|http://unitsofmeasure.org|s", ""), ("Observation?value-quantity=70||kg", "mass"),
    ("Observation?value-quantity=gt100", "light"), ("RiskAssessment?probability=gt0.2", "r1"),
    # composites
    ("Observation?code-value-quantity=29463-7$gt10|http://unitsofmeasure.org|kg", "mass"),
    ("Observation?code-value-quantity=http://loinc.org|29463-7$lt10|http://unitsofmeasure.org|kg", "light"),
    ("Observation?code-value-concept=72166-2$8517006", "smoke"), ("Observation?code-value-concept=72166-2$1", ""),
    ("Observation?component-code-value-quantity=8480-6$gt100", "bp"),
    ("Observation?component-code-value-quantity=8462-4$gt100", ""),
    ("Observation?component-code-value-quantity=http://loinc.org|8462-4$le60", "low"),
    ("Observation?component-code-value-quantity=8480-6$18.66516|http://unitsofmeasure.org|kPa", ""),
    ("Observation?component-code-value-quantity=8480-6$gt18|http://unitsofmeasure.org|kPa", "bp"),
    ("Observation?combo-code-value-quantity=8480-6$gt100,29463-7$70", "bp mass"),
    ("DocumentReference?relationship=DocumentReference/d0$replaces", "d1"),
    ("DocumentReference?relationship=DocumentReference/d9$replaces", ""),
    ("DocumentReference?relationship=d0$replaces", "d1"), ("DocumentReference?relationship=appends$d9", "d1"),
    ("DocumentReference?relationship=replaces$DocumentReference/d0", "d1"),
    ("DocumentReference?relationship=replaces$DocumentReference/d9", ""),
    # dates
    ("Observation?date=ge2024-03-02", "mass low smoke"), ("Observation?date=2024", "bp low mass smoke"),
    ("Observation?date=sa2024-03-01", "low mass"), ("Observation?date=eb2024", "light"),
    ("Observation?date=ne2024-03", "low light smoke"), ("Observation?patient=ann&code=29463-7&date=ge2024", "mass"),
    # chains
    ("Observation?patient.identifier=urn:mrn|1", "bp mass"), ("Observation?subject:Patient.name=smi", "bp mass smoke"),
    ("Observation?subject.name=robert", "low light temp"),
    ("Observation?patient.gender:not=female", "low light temp smoke"),
    ("Observation?patient.organization.name=east", "bp mass"),
    ("Observation?patient.organization.partof.identifier=urn:org|W", "bp mass"),
    ("Observation?patient.birthdate=lt1985&code=29463-7", "mass"), ("Observation?encounter.class=AMB", "bp"),
    ("Observation?patient.name=nobody", ""), ("Observation?patient._id=ann", "bp mass"),
    ("Patient?_has:Observation:patient:code=29463-7", "ann bob"),
    ("Patient?_has:Observation:patient:code=29463-7&_has:Encounter:subject:status=finished", "ann"),
    ("Organization?_has:Patient:organization:_has:Observation:patient:code=85354-9", "east"),
    ("Patient?_has:Observation:subject:component-code-value-quantity=8480-6$gt100", "ann"),
    ("Patient?_has:Observation:patient:code=none", ""),
    ("Encounter?patient._has:RiskAssessment:subject:probability=gt0", "e1"),
    ("Observation?_tag=none", ""), ("Observation?_lastUpdated=gt2020&patient=ann", "bp mass"),
]  # fmt: skip

NAMES: list[Json] = [
    patient("luz", name=[{"family": "Carreño Quiñones", "given": ["María Luz", "Ana"]}], birthDate="1970",
            generalPractitioner=[{"reference": "Organization/mary"}],
            address=[{"line": ["12 Old Main Street"], "city": "San José", "postalCode": "SW1A 1AA"}]),
    patient("eva", name=[{"family": "Müller-Lüdenscheidt", "given": ["Eva"]}, {"family": "Lopez,Joint"}],
            birthDate="1980"),
    patient("tom", name=[{"text": "Tom O’Lear (Quick) 3rd", "family": "García López de Luna"}], birthDate="1990"),
    {"resourceType": "Organization", "id": "mary", "name": "St. Mary's General Hospital", "alias": ["Old Mary"]},
    observation("bp", "85354-9", "luz"),
    {"resourceType": "Questionnaire", "id": "q", "status": "draft", "title": "Pain scale", "name": "PainScale"},
]  # fmt: skip

NAME_QUESTIONS = [
    ("Patient?family=quinones", "luz"), ("Patient?family=QUIÑ", "luz"), ("Patient?family=uinones", ""),
    ("Patient?family=carreno quinones", "luz"), ("Patient?family=carreno  qui", "luz"),
    ("Patient?family=quinones carreno", ""),
    ("Patient?family=lopez", "eva tom"), ("Patient?family=lopez de l", "tom"), ("Patient?family=de", "tom"),
    ("Patient?family=ludenscheidt", "eva"), ("Patient?family=l", "eva tom"),
    ("Patient?family=luna,quinones", "luz tom"), ("Patient?family=joint", ""), ("Patient?phonetic=quinones", "luz"),
    ("Patient?given=luz", "luz"), ("Patient?given=ana", "luz"), ("Patient?name=luz", "luz"),
    ("Patient?name=lear", "tom"), ("Patient?name=quick", "tom"), ("Patient?name=3rd", ""),
    ("Patient?name=quinones&name=luz", "luz"), ("Patient?family=quinones&given=ana&birthdate=1970", "luz"),
    ("Patient?address=main", ""), ("Patient?address=12 old", "luz"), ("Patient?address-city=jose", ""),
    ("Organization?name=hospital", "mary"), ("Organization?name=mary", "mary"),
    ("Organization?name=general hosp", "mary"), ("Questionnaire?title=scale", ""), ("Questionnaire?title=pain", "q"),
    # modifiers and filters have the whole value in view
    ("Patient?family:exact=Quiñones", ""), ("Patient?family:exact=Carreño Quiñones", "luz"),
    ("Patient?family:contains=quinones", "luz"), ("Patient?family:contains=eno qui", "luz"),
    ("Patient?family:missing=false", "luz eva tom"), ("Patient?family:missing=true", ""),
    ("Patient?_filter=family sw quinones", ""), ("Patient?_filter=family sw carreno", "luz"),
    ("Patient?_filter=family eq quinones", ""), ("Patient?_filter=family ew quinones", "luz"),
    # chains
    ("Observation?patient.family=quinones", "bp"), ("Observation?subject:Patient.name=luz", "bp"),
    ("Patient?general-practitioner:Organization.name=hospital", "luz"),
    ("Organization?_has:Patient:general-practitioner:family=quinones", "mary"),
]  # fmt: skip


class SearchContract(Writing):
    """Tests for a subclass that sets `self.store` in `setUp`."""

    async def found(self, criteria: str, **other: Any) -> list[str]:
        """Ids that a search finds, in order."""
        page = await self.store.search("default", replace(parse_criteria(criteria), **other))
        if page.total is not None and page.next is None and not other:
            self.assertEqual(page.total, len(page.matches), criteria)
        return ids(page.matches)

    async def test_queries(self) -> None:
        """The table."""
        await self.create(*WORLD)
        await self.create(patient("ann", name=[{"family": "Smith"}]), tenant="north")
        for criteria, expected in QUESTIONS:
            self.assertEqual(sorted(await self.found(criteria)), sorted(expected.split()), criteria)
            query = replace(parse_criteria(criteria), summary_count=True)
            self.assertEqual((await self.store.search("default", query)).total, len(expected.split()), criteria)

    async def test_orders_are_paged_by_key(self) -> None:
        """Several keys, missing values last, equal values: each resource once for any page size."""
        births = ["1980", "1970-05", None, "1980", None, "1990-01-01", "1970-05"]
        people = [patient(f"p{n}", name=[{"family": "BAC"[n % 3] + "x"}], gender="male") for n in range(7)]
        for one, birth in zip(people, births, strict=True):
            one |= {} if birth is None else {"birthDate": birth}
        await self.create(*people)
        for keys, expected in (
            ("birthdate", "p1 p6 p0 p3 p5 p2 p4"), ("-birthdate", "p5 p3 p0 p6 p1 p4 p2"),
            ("birthdate,-_id", "p6 p1 p3 p0 p5 p4 p2"), ("family", "p1 p4 p0 p3 p6 p2 p5"),
            ("name,birthdate", "p1 p4 p6 p0 p3 p5 p2"), ("-family,birthdate,_id", "p5 p2 p6 p0 p3 p1 p4"),
            ("_lastUpdated,_id", "p0 p1 p2 p3 p4 p5 p6"), ("-_id", "p6 p5 p4 p3 p2 p1 p0"),
        ):  # fmt: skip
            for criteria in (f"Patient?_sort={keys}", f"Patient?gender=male&_sort={keys}"):
                for count in (1, 2, 3, 7):
                    self.assertEqual(await self._walk(criteria, count), expected.split(), (criteria, count))

    async def test_orders_of_several_values(self) -> None:
        """The lowest value counts ascending, the highest descending; ties, missing values; each resource comes once."""
        spans = {"a": ["2020", "2022"], "b": ["2021"], "c": [], "d": ["2021-06", "2021-07", "2019"], "e": ["2021"],
                 "f": ["2019"], "g": []}  # fmt: skip
        codes = {"a": "yx", "b": "x", "c": "z", "d": "", "e": "zx", "f": "y", "g": "x"}
        await self.create(*(
            {"resourceType": "Goal", "id": id_, "target": [{"dueDate": one} for one in dates],
             "category": [{"coding": [{"system": "urn:c", "code": code}]} for code in codes[id_]]}
            for id_, dates in spans.items()
        ))  # fmt: skip
        for sort, expected in (
            ("target-date", "d f a b e c g"), ("-target-date", "a d e b f g c"),
            ("category,-target-date", "a b e g f c d"), ("-category,target-date", "e c f a b g d"),
            ("target-date,category", "f d a b e g c"), ("-target-date,-category,_id", "a d e b f c g"),
            ("category,_id", "a b e g f c d"), ("_id,category", "a b c d e f g"),
            ("category,-_lastUpdated", "a b e g f c d"),
        ):  # fmt: skip
            for count in (1, 2, 3, 7):
                self.assertEqual(await self._walk(f"Goal?_sort={sort}", count), expected.split(), (sort, count))

    async def _walk(self, criteria: str, count: int) -> list[str]:
        """All matches by pages forwards, which pages backwards have too."""
        query, pages, after = replace(parse_criteria(criteria), count=count), list[list[str]](), None
        while True:
            page = await self.store.search("default", query, after)
            self.assertEqual(page.total, 7)
            self.assertEqual(page.previous is None, not pages)
            pages.append(ids(page.matches))
            after = page.next
            if after is None:
                break
        for number in range(len(pages) - 2, -1, -1):
            page = await self.store.search("default", replace(query, backwards=True), page.previous)
            self.assertEqual((ids(page.matches), page.total), (pages[number], 7), (criteria, count))
            self.assertEqual((page.previous is None, page.next is None), (number == 0, False))
        found = [one for page in pages for one in page]
        last = await self.store.search("default", replace(query, backwards=True))
        self.assertEqual((ids(last.matches), last.next), (found[-count:], None))
        return found

    async def test_texts_of_codes(self) -> None:
        """Words of texts and displays, with and without codes; they follow changes and go with the resource."""
        codings = [concept("1", "urn:c", display="Glucose"), concept("x", "urn:d", display="GLUC/s")]
        code = {"text": "Blood glucose, fasting", "coding": [one["coding"][0] for one in codings]}
        one = observation("one", "1", "ann") | {"code": code}
        two = observation("two", "1", "ann") | {"code": {"text": "Urine"}}
        rids = await self.create(one, two)
        for words, expected in (
            ("glucose", "one"), ("gluc", "one"), ("blood glu", "one"), ("lucose", ""), ("urine", "two"), ("s", ""),
            ("gluc/s", "one"), ("fasting,urine", "one two"),
        ):  # fmt: skip
            self.assertEqual(await self.found(f"Observation?code:text={words}"), expected.split(), words)
            self.assertEqual(await self.found(f"Observation?code:text={words}&_sort=code"), expected.split(), words)
        self.assertEqual(await self.found("Observation?code:text=glucose&code=urn:c|1"), ["one"])
        changed = {**one, "code": two["code"]}
        await self.write(change(rids[0], changed, 2, one))
        self.assertEqual(await self.found("Observation?code:text=glucose"), [])
        self.assertEqual(await self.found("Observation?code:text=urine"), ["one", "two"])
        await self.write(change(rids[0], changed, 3, changed, deleted=True))
        self.assertEqual(await self.found("Observation?code:text=urine"), ["two"])

    async def test_words_of_names(self) -> None:
        """A name is found by each of its words; nothing else than that search changes."""
        rids = await self.create(*NAMES)
        for criteria, expected in NAME_QUESTIONS:
            self.assertEqual(sorted(await self.found(criteria)), sorted(expected.split()), criteria)
            query = replace(parse_criteria(criteria), summary_count=True)
            self.assertEqual((await self.store.search("default", query)).total, len(expected.split()), criteria)
            for sort in ("_id", "-_lastUpdated"):
                page = await self.store.search("default", parse_criteria(f"{criteria}&_sort={sort}&_count=1"))
                self.assertEqual(page.total, len(expected.split()), (criteria, sort))
        for sort, expected in (("family", "luz tom eva"), ("-family", "eva tom luz"), ("birthdate", "luz eva tom")):
            self.assertEqual(await self.found(f"Patient?name=l,q&_sort={sort}"), expected.split(), sort)
        changed = patient("luz", name=[{"family": "Carreño"}])
        await self.write(change(rids[0], changed, 2, NAMES[0]))
        self.assertEqual(await self.found("Patient?family=quinones"), [])
        self.assertEqual(await self.found("Patient?family=carreno"), ["luz"])

    async def test_near(self) -> None:
        """Circles around a point, over the date line and a pole too; pages, totals, changes."""

        def at(id_: str, latitude: float, longitude: float) -> Json:
            where = {"latitude": latitude, "longitude": longitude}
            return {"resourceType": "Location", "id": id_, "name": id_, "position": where}

        places = [
            at("bern", 46.948, 7.4474), at("thun", 46.758, 7.628), at("zurich", 47.3769, 8.5417),
            at("fiji", -17, 179.9),
            at("tonga", -17, -179.9), at("pole", 89.99, 10), at("beyond", 89.99, -170),
            {"resourceType": "Location", "id": "none", "name": "none"},
        ]  # fmt: skip
        rids = await self.create(*places)
        for query, expected in (
            ("near=46.948|7.4474|1|km", "bern"),
            ("near=46.948|7.4474|30|km", "bern thun"),
            ("near=46.948|7.4474", "bern thun"),
            ("near=46.948|7.4474|30000|m", "bern thun"), ("near=46.948|7.4474|60|[mi_i]", "bern thun zurich"),
            ("near=46.948|7.4474|95", "bern thun"), ("near=46.948|7.4474|96", "bern thun zurich"),
            ("near=-17|180|20|km", "fiji tonga"), ("near=-17|179.95|10", "fiji"), ("near=-17|-179.95|22", "fiji tonga"),
            ("near=90|0|2", "pole beyond"), ("near=89.99|10|1", "pole"), ("near=89.99|10|3", "pole beyond"),
            ("near=0|0|30000", "bern thun zurich fiji tonga pole beyond"),
            ("near=0|0|1", ""),
            ("near=46.948|7.4474|0", "bern"),
            ("near=46.948|7.4474|1,47.3769|8.5417|1", "bern zurich"), ("near=46.948|7.4474|30&name=thun", "thun"),
            ("near:missing=true", "none"), ("near=46.948|7.4474|30&_sort=-name", "thun bern"),
        ):  # fmt: skip
            self.assertEqual(await self.found(f"Location?{query}"), expected.split(), query)
            page = await self.store.search("default", replace(parse_criteria(f"Location?{query}"), count=1))
            self.assertEqual(page.total, len(expected.split()), query)
        moved = at("thun", 0, 0)
        await self.write(change(rids[1], moved, 2, places[1]))
        self.assertEqual(await self.found("Location?near=46.948|7.4474|30"), ["bern"])

    async def test_filters(self) -> None:
        """`_filter`: each operator, and, or, not, parentheses, chains, brackets."""
        await self.create(*WORLD)
        for query, expected in (
            ('Patient?_filter=family eq "smith"', "ann"), ("Patient?_filter=family sw smith", "ann cid"),
            ("Patient?_filter=family co mit", "ann cid"), ("Patient?_filter=family ew ers", "cid"),
            ("Patient?_filter=family ew SMITH", "ann"), ("Patient?_filter=family ne smith", "cid"),
            ('Patient?_filter=name eq "robert jones"', "bob"), ('Patient?_filter=address co "street 7"', "ann"),
            ("Patient?_filter=gender eq male or family eq smith", "ann bob"),
            ("Patient?_filter=gender pr false", "cid"),
            ("Patient?_filter=gender pr true and not(gender eq male)", "ann"),
            ("Patient?_filter=gender ne male", "ann"),
            ("Patient?_filter=(gender eq male or family sw smith) and birthdate lt 1985", "ann"),
            ("Patient?_filter=gender eq male or family sw smith and birthdate lt 1985", "ann bob"),
            ("Patient?_filter=not (gender eq male or birthdate pr true)", "cid"),
            ("Patient?_filter=birthdate eq 1990", "bob"),
            ("Patient?_filter=birthdate ge 1980-02-03 and birthdate le 1989", "ann"),
            ("Patient?_filter=_id eq bob", "bob"),
            ("Patient?_filter=birthdate po 1990-06", "bob"), ("Patient?_filter=birthdate sa 1985", "bob"),
            ("Patient?_filter=identifier eq urn:mrn|2", "bob"), ('Patient?_filter=identifier eq "urn:mrn|2"', "bob"),
            ("Patient?_filter=organization eq Organization/east", "ann"),
            ("Patient?_filter=organization re east", "ann"),
            ("Patient?_filter=organization.name eq east", "ann"),
            ("Patient?_filter=organization.partof.name sw we", "ann"),
            ("Patient?_filter=organization[name eq east].partof eq west", "ann"),
            ("Patient?_filter=organization[name eq west].partof eq west", ""),
            ("Patient?_filter=_id ne bob", "ann cid"),
            ("Observation?_filter=subject:Patient.family eq smith and code eq http://loinc.org|29463-7", "mass"),
            ("Observation?_filter=patient.gender eq female and value-quantity gt 60", "mass"),
            ("Observation?_filter=value-quantity eq 70000|http://unitsofmeasure.org|g", "mass"),
            ("Observation?_filter=component-code-value-quantity eq 8480-6$gt100", "bp"),
            ("Observation?_filter=date po 2024-02", "smoke"), ("Observation?_filter=date eb 2024", "light"),
            ("Observation?_filter=status eq final and (code eq 8310-5 or code eq 72166-2)", "temp smoke"),
            ("Observation?_filter=_lastUpdated lt 2000", ""), ("RiskAssessment?_filter=probability lt 0.3", "r1"),
            ("ValueSet?_filter=url sw http://acme.org/fhir/", "v1"), ("ValueSet?_filter=url ew ish", "v2"),
            ("ValueSet?_filter=url ne http://acme.org/fhirish", "v1"), ("ValueSet?_filter=url co acme", "v1 v2"),
            ("Patient?gender=female&_filter=family sw smith", "ann"), ("Patient?_filter=family eq \"a,b\"", ""),
        ):  # fmt: skip
            self.assertEqual(await self.found(query), expected.split(), query)

    async def test_full_text(self) -> None:
        """`_text` finds words of the narrative, `_content` of every text; they follow changes."""
        await self.full_text_world()
        for query, expected in (
            ("_text=metastases", "one two"), ("_text=bone metastases", "one"), ("_text=bone OR liver", "one two"),
            ("_text=(bone OR liver) and metastases", "one two"), ("_text=metastases -bone", "two"),
            ("_text=metastases NOT bone", "two"), ('_text="found in bone"', "one"), ('_text="bone found"', ""),
            ("_text=met", ""), ("_text=MÉTASTASES", "one two"), ("_text=b", ""), ("_text=smoker", ""),
            ("_text=bone,liver", "one two"), ("_text=-bone", "two three"), ("_text=nothing OR liver bone", "three"),
            ("_content=smoker", "one three"), ("_content=smoker bone", "one"), ("_content=bone", "one"),
            ("_content=Durchfall", "three"), ("_content=p", ""), ('_content="metastases heavy"', ""),
            ("_content=smoker&code=c", "three"), ("_text=metastases&_content=smoker", "one"),
            ("_content=-smoker&_text=metastases", "two"), ("_content=a1b2", "three"),
        ):  # fmt: skip
            self.assertEqual(await self.found(f"Condition?{query}"), expected.split(), query)
            page = await self.store.search("default", replace(parse_criteria(f"Condition?{query}"), count=1))
            self.assertEqual(page.total, len(expected.split()), query)
        rid, one = self.full_text[0]
        changed = {**one, "text": {"status": "generated", "div": "<div>Lung</div>"}}
        await self.write(change(rid, changed, 2, one))
        self.assertEqual(await self.found("Condition?_text=bone"), [])
        self.assertEqual(await self.found("Condition?_text=lung&_sort=-_lastUpdated"), ["one"])
        await self.write(change(rid, changed, 3, changed, deleted=True))
        self.assertEqual(await self.found("Condition?_content=smoker"), ["three"])

    async def full_text_world(self) -> None:
        """Three Conditions with narratives, notes and codes."""

        def condition(id_: str, div: str, code: str, **more: Any) -> Json:
            text = {"text": {"status": "generated", "div": f"<div xmlns='http://www.w3.org/1999/xhtml'>{div}</div>"}}
            of = {"subject": {"reference": "Patient/p"}, "code": {"coding": [{"code": code}]}}
            return {"resourceType": "Condition", "id": id_, **text, **of, **more}

        resources = [
            condition("one", "<p>Metast&#225;ses</p> <b>found</b> in bone", "a", note=[{"text": "Heavy smoker"}]),
            condition("two", "Liver: metastases.", "b"),
            condition("three", "Nothing", "c", note=[{"text": "No smoker, a1b2"}, {"text": "Durchfall"}]),
        ]
        self.full_text = list(zip(await self.create(*resources), resources, strict=True))

    async def test_pages_of_filtered_resources(self) -> None:
        """Searches that filter resources have the same pages and counts as others."""
        people = [patient(f"p{n}", identifier=[{"value": "1", "type": {"text": f"Kind {n % 2}"}}]) for n in range(9)]
        await self.create(*people)
        query = replace(parse_criteria("Patient?identifier:text=kind 1"), count=3)
        first = await self.store.search("default", query)
        self.assertEqual((ids(first.matches), first.total), (["p1", "p3", "p5"], 4))
        second = await self.store.search("default", query, first.next)
        self.assertEqual((ids(second.matches), second.total, second.next), (["p7"], 4, None))

    async def test_chains_follow_changes(self) -> None:
        """A deleted or changed resource at the far end no longer matches."""
        rids = await self.create(*WORLD)
        ann = next(place for place, one in enumerate(WORLD) if one["id"] == "ann")
        changed = {**WORLD[ann], "gender": "other"}
        self.assertEqual(await self.found("Observation?patient.gender=female"), ["bp", "mass"])
        await self.write(change(rids[ann], changed, 2, WORLD[ann]))
        self.assertEqual(await self.found("Observation?patient.gender=female"), [])
        self.assertEqual(await self.found("Observation?patient.gender=other"), ["bp", "mass"])
        await self.write(change(rids[ann], changed, 3, changed, deleted=True))
        self.assertEqual(await self.found("Observation?patient.gender=other"), [])
        self.assertEqual(await self.found("Patient?_has:Encounter:patient:status=finished"), [])

    async def test_reading_several_and_types(self) -> None:
        """In the order of the keys, without missing and deleted ones."""
        rids = await self.create(*WORLD)
        first = WORLD[0]
        await self.write(change(rids[0], first, 2, first, deleted=True))
        keys = [("Patient", "bob"), ("Organization", "west"), ("Organization", "east"), ("Patient", "no")]
        self.assertEqual(ids(await self.store.read_many("default", keys)), ["bob", "east"])
        self.assertEqual(await self.store.read_many("north", keys), [])
        self.assertEqual(await self.store.read_many("default", []), [])
        self.assertEqual(await self.store.types("default"), sorted({one["resourceType"] for one in WORLD}))
        self.assertEqual(await self.store.types("nobody"), [])

    async def test_a_token_for_each_match(self) -> None:
        """On request; each continues after its match."""
        for number in range(4):
            rid = await self.store.new_rid()
            await self.write(change(rid, patient(f"p{number}"), at=T0.replace(hour=number)))
        query = replace(parse_criteria("Patient?_sort=-_lastUpdated"), each_token=True)
        page = await self.store.search("default", query)
        rest = await self.store.search("default", query, page.ends[1])
        self.assertEqual((ids(page.matches), ids(rest.matches)), (["p3", "p2", "p1", "p0"], ["p1", "p0"]))

    async def test_hostile_values(self) -> None:
        """Injection, separators, huge numbers: no error of the store, no data lost."""
        await self.create(*WORLD)
        odd = ["'; DROP TABLE resources; --", "\\'", "a'||(SELECT 1)||'", "%", "_", "\\", "\ud7ff\U0010ffff", "é\u0301",
               "1e308", "-99999999999999999999", "\u202e", "x" * 5000, "$$", "E'\\n'", "/*", "||"]  # fmt: skip
        names = ["name", "identifier", "identifier:not", "birthdate", "_id", "_lastUpdated", "organization",
                 "name:exact", "name:contains", "general-practitioner:identifier", "organization.name",
                 "_has:Observation:patient:code", "identifier:of-type", "identifier:text", "_profile:below",
                 "_has:Observation:patient:code-value-quantity", "_has:Observation:patient:value-quantity"]  # fmt: skip
        for name in names:
            for value in odd:
                await self._answered(name, value)
        self.assertEqual(len(await self.found("Patient")), 3)

    async def _answered(self, name: str, value: str) -> None:
        try:
            await self.store.search("default", parse_query("Patient", [(name, value)]))
        except Problem as refused:
            self.assertEqual(refused.category.value.http_status, 400, (name, value, refused))

    async def test_tokens_of_other_searches_are_refused(self) -> None:
        """A token is valid for its search and order only."""
        await self.create(*WORLD)
        page = await self.store.search("default", replace(parse_criteria("Observation"), count=1))
        assert page.next is not None
        for criteria in ("Patient", "Observation?status=final"):
            await self._refused(criteria, page.next)

    async def _refused(self, criteria: str, token: str) -> None:
        search = defer.Deferred.fromCoroutine(self.store.search("default", parse_criteria(criteria), token))
        refused = await self.assertFailure(search, Problem)
        self.assertIs(refused.category, Category.VALUE)

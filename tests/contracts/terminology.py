"""What every store of imported code systems does: a suite for the fake and for PostgreSQL."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.ports.fhir.terminology import (
    ALL,
    Above,
    Among,
    AnyRule,
    Below,
    ChildOf,
    Designation,
    EveryRule,
    Facts,
    HasProperty,
    IsActive,
    NoRule,
    ParentOf,
    Rule,
)
from ipf.ports.fhir.terminology_import import NewConcept, NewSystem

URL = "http://x.test/sct"
FSN = ("http://snomed.info/sct", "900000000000003001", "Fully specified name")


def clinical(version: str = "1", **more: NewConcept) -> NewSystem:
    """A small polyhierarchy: `leaf` is below `left` and `right`."""
    rows = [
        NewConcept("root", "Clinical finding"),
        NewConcept("left", "Disorder of heart", parents=["root"], properties=[("site", "heart")]),
        NewConcept("right", "Inflammatory disorder", parents=["root"], is_abstract=True),
        NewConcept(
            "leaf", "Myocarditis of the heart", parents=["left", "right"], definition="An inflammation.\tOf muscle\\",
            properties=[("site", "heart"), ("site", "muscle"), ("odd", "")],
            designations=[Designation("de", "Herzmuskelentzündung"), Designation("en", "Myocarditis (disorder)", FSN)],
        ),
        NewConcept("old", "Old finding", is_active=False),
    ]  # fmt: skip
    concepts = {one.code: one for one in rows} | more
    return NewSystem(URL, version, "Clinical", properties={"site": "code", "odd": "string"}, concepts=concepts)


if TYPE_CHECKING:
    Suite = TestCase
else:
    Suite = object


class CodeSystemsContract(Suite):
    """On `self.systems`, a CodeSystems, and `self.load`, which imports."""

    systems: Any

    async def load(self, system: NewSystem) -> None:
        """Import a system."""
        raise NotImplementedError

    async def test_imported(self) -> None:
        self.assertEqual(list(await self.systems.imported()), [])
        await self.load(clinical())
        await self.load(clinical("2"))
        first, second = await self.systems.imported()
        self.assertEqual([first.is_current, second.is_current], [False, True])
        self.assertEqual((second.url, second.version, second.name, second.concepts), (URL, "2", "Clinical", 5))
        self.assertEqual((dict(second.properties), second.languages), ({"site": "code", "odd": "string"}, ("de", "en")))

    async def test_another_import_of_a_version_replaces_it(self) -> None:
        await self.load(clinical())
        (old,) = await self.systems.imported()
        await self.load(clinical(new=NewConcept("new", "New", parents=["leaf"])))
        (new,) = await self.systems.imported()
        self.assertEqual((new.concepts, new.is_current, new.id == old.id), (6, True, False))
        self.assertEqual(sorted(await self.systems.facts(new, ["new", "leaf"])), ["leaf", "new"])
        for call in (self.systems.facts(old, ["leaf"]), self.systems.page(old, Below("root"), (), 0, 10)):
            with self.assertRaises(Problem) as refused:
                await call
            self.assertEqual(refused.exception.category, Category.UNAVAILABLE)

    async def test_facts(self) -> None:
        await self.load(clinical())
        (system,) = await self.systems.imported()
        found = await self.systems.facts(system, ["leaf", "old", "none", "it's \\ odd"])
        expected = Facts(
            "leaf", "Myocarditis of the heart", True, False, "An inflammation.\tOf muscle\\",
            frozenset({"left", "right"}), frozenset({"leaf", "left", "right", "root"}),
            frozenset({("site", "heart"), ("site", "muscle"), ("odd", "")}),
        )  # fmt: skip
        self.assertEqual(found["leaf"], expected)
        self.assertEqual((found["old"].is_active, sorted(found)), (False, ["leaf", "old"]))
        self.assertEqual(dict(await self.systems.facts(system, [])), {})

    async def test_rules(self) -> None:
        """Rows of (rule, codes)."""
        await self.load(clinical())
        (system,) = await self.systems.imported()
        rows: list[tuple[Rule, str]] = [
            (ALL, "root left right leaf old"),
            (Below("root"), "root left right leaf"),
            (Below("none"), ""),
            (Above("leaf"), "root left right leaf"),
            (ChildOf("root"), "left right"),
            (ParentOf("leaf"), "left right"),
            (Among(frozenset({"leaf", "none", ""})), "leaf"),
            (Among(frozenset()), ""),
            (Among(frozenset({""})), ""),
            (HasProperty("site"), "left leaf"),
            (HasProperty("site", frozenset({"muscle"})), "leaf"),
            (HasProperty("odd", frozenset({""})), "leaf"),
            (IsActive(), "root left right leaf"),
            (NoRule(Below("left")), "root right old"),
            (EveryRule((Below("left"), Below("right"))), "leaf"),
            (EveryRule((Below("root"), NoRule(Among(frozenset({"root"}))))), "left right leaf"),
            (AnyRule((Among(frozenset({"old"})), ChildOf("left"))), "leaf old"),
            (AnyRule(()), ""),
        ]
        for rule, expected in rows:
            listed, total = await self.systems.page(system, rule, (), 0, 100)
            self.assertEqual({one.code for one in listed}, set(expected.split()), rule)
            self.assertIn(total, (len(expected.split()), None), rule)

    async def test_words_and_pages(self) -> None:
        """The shortest displays come first; designations have words too."""
        await self.load(clinical())
        (system,) = await self.systems.imported()
        rows: list[tuple[list[str], list[str]]] = [
            (["disor"], ["left", "right", "leaf"]),
            (["heart", "dis"], ["left", "leaf"]),
            (["herzmuskelentzundung"], ["leaf"]),
            (["root"], ["root"]),
            (["eart"], []),
        ]
        for words, expected in rows:
            listed, total = await self.systems.page(system, ALL, words, 0, 10)
            self.assertEqual(([one.code for one in listed], total), (expected, len(expected)), words)
        listed, _ = await self.systems.page(system, Below("root"), ["dis"], 1, 1)
        self.assertEqual([(one.code, one.is_abstract) for one in listed], [("right", True)])
        self.assertEqual(await self.systems.page(system, ALL, ["dis"], 7, 5), ([], 3))

    async def test_words_of_many_concepts(self) -> None:
        """Pages are in the order of the system wherever they begin; a total that is told is right."""
        chance = random.Random(3)
        rare, many = ([f"{kind}{number}" for number in range(size)] for kind, size in (("r", 5500), ("m", 1300)))
        rows = [NewConcept(code, code) for code in rare]
        rows += [NewConcept(code, f"many of {chance.randrange(10**6):06}", properties=[("odd", "1")]) for code in many]
        chance.shuffle(rows)
        await self.load(NewSystem(URL, "1", "", properties={"odd": "string"}, concepts={one.code: one for one in rows}))
        (system,) = await self.systems.imported()
        for rule, words, expected in (
            (ALL, ["many"], many),
            (HasProperty("odd"), ["of", "many"], many),
            (EveryRule((IsActive(), NoRule(HasProperty("odd")))), ["r24"], [one for one in rare if one[:3] == "r24"]),
            (NoRule(HasProperty("odd")), ["many"], []),
        ):
            ordered, found = sorted(expected, key=lambda one: (len(one), one)), []
            for offset in range(0, len(expected) + 300, 300):
                listed, total = await self.systems.page(system, rule, words, offset, 300)
                self.assertIn(total, (len(expected), None), (rule, words, offset))
                found += [one.code for one in listed]
            if expected is many:  # their displays have the same length
                ordered = sorted(many)
            self.assertEqual(found, ordered, (rule, words))

    async def test_details(self) -> None:
        await self.load(clinical())
        (system,) = await self.systems.imported()
        self.assertEqual(list(await self.systems.children(system, "root", 10)), ["left", "right"])
        found = await self.systems.designations(system, ["leaf", "left"])
        self.assertEqual(sorted(found), ["leaf"])
        self.assertIn(Designation("en", "Myocarditis (disorder)", FSN), found["leaf"])
        self.assertEqual(sorted(await self.systems.values(system, "site", 10)), ["heart", "muscle"])
        self.assertEqual(len(await self.systems.values(system, "code", 3)), 3)


class ClosureTablesContract(Suite):
    """On `self.tables`, a ClosureTables."""

    tables: Any

    async def test_versions(self) -> None:
        self.assertIsNone(await self.tables.add("a", "t", [("s", "1")]))
        self.assertIsNone(await self.tables.concepts("a", "t"))
        await self.tables.start("a", "t")
        self.assertEqual(await self.tables.add("a", "t", [("s", "1"), ("s", "2")]), 1)
        self.assertEqual(await self.tables.add("a", "t", [("s", "1")]), 1)
        self.assertEqual(await self.tables.add("a", "t", [("s", "1"), ("s", "3")]), 2)
        self.assertEqual(await self.tables.concepts("a", "t"), {("s", "1"): 1, ("s", "2"): 1, ("s", "3"): 2})
        self.assertIsNone(await self.tables.concepts("b", "t"))
        await self.tables.start("a", "t")
        self.assertEqual(await self.tables.concepts("a", "t"), {})

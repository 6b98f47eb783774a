"""Memoized results: equal to those of an uncached run, and bounded."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.config.paths import folder
from ipf.hl7.message import Message
from ipf.mapping.compiler.groups import Environment, Groups
from ipf.mapping.compiler.kinds import Kind, fhir
from ipf.mapping.language.grammar import parse
from ipf.mapping.library.maps import Library, MappingResult
from ipf.mapping.runtime.memo import MemoizedGroup, MemoPlan, ResultCache
from ipf.mapping.runtime.memo_keys import key_function
from ipf.mapping.runtime.memo_results import Result
from ipf.mapping.runtime.run import Frame, Run
from ipf.ports import Json
from tests.corpus import samples
from tests.mapping.support import HEAD
from tests.mapping_maps import generator
from tests.traffic.messages import adt

FAMILY = "maps"

CORPUS = Path(__file__).resolve().parents[2] / "corpus"


@lru_cache(maxsize=1)
def uncached() -> Library:
    """The maps of the project without the cache of results."""
    made = Library.load(folder("maps"), compiled=False, without_patient=samples.WITHOUT_PATIENT)
    made._compiler.groups.memo_plan = lambda *_: None  # type: ignore[method-assign]
    return made


def sources(result: MappingResult) -> list[object]:
    """What each entry says of the fields of its elements."""
    given = [entry.sources for entry in result.made.entries or ()]
    return [one and (one.elements, one.initial, one.stated) for one in given]


class LibraryTests(TestCase):
    every = 6
    """Of the samples; the campaign takes all."""

    def test_results_are_those_of_a_run_without_cache(self) -> None:
        library = samples.library()
        raws = [path.read_bytes() for path in sorted(CORPUS.glob("*.hl7"))[:: self.every]]
        plain = adt("C1", "P1").strip(b"\x0b\x1c\r")
        raws += (plain, plain.replace(b"|GENERAL|IPF", b"|OTHER|IPF"))  # the sender is part of identifiers
        raws.append(plain.replace(b"^", b"@"))  # other separators
        messages = [Message.parse(raw) for raw in raws]
        expected = [uncached().run(message) for message in messages]
        for _ in range(4):  # two misses, then hits
            for message, uncached_result in zip(messages, expected, strict=True):
                memoized = library.run(message)
                self.assertEqual(str(memoized.bundle), str(uncached_result.bundle))  # the order of names too
                self.assertEqual(memoized.unmapped, uncached_result.unmapped)
                self.assertEqual(memoized.warnings, uncached_result.warnings)
                self.assertEqual(memoized.unread(), uncached_result.unread())
                self.assertEqual(sources(memoized), sources(uncached_result))

    def test_generated_messages(self) -> None:
        """Results of the cache are those of a run without it, whatever the messages before left in the cache."""
        library = samples.library()
        for message_type in ("ADT_A01", "ORU_R01", "RAS_O17", "RGV_O15", "SIU_S12"):
            for number in range(5):
                message = samples.parse(generator.message(message_type, number))
                expected = without_urns(uncached().run(message, checked=False).bundle)
                for attempt in range(3):
                    made = without_urns(library.run(message, checked=False).bundle)
                    self.assertEqual(made, expected, f"{message_type} {number}, attempt {attempt}")


def without_urns(bundle: Json) -> Any:
    """The Bundle without the names of entries: twins are counted before they are merged, unless they are replayed."""
    return json.loads(re.sub(r"urn:uuid:[0-9a-f-]{36}", "urn", json.dumps(bundle, default=str)))


GROUP = """group main(source src : PID, target tgt : Patient) {
  src.PID_5 as xpn -> tgt.name as name then Name(xpn, name, src);
}
group Name(source xpn : XPN, target name : HumanName, source pid : PID) {
  xpn.XPN_1 as family -> name.family = family;
  xpn.XPN_2 as given -> name.given = given;
  xpn.XPN_5 as prefix -> name.prefix = prefix;
  %s
}"""

PURE = {
    "xpn where (pid.PID_8 = 'F') -> name.prefix = 'Ms';": (1, (8,)),
    "pid.PID_8.CWE_1 as x -> name.prefix = x;": (1, (8,)),
    "pid where (PID_8 = 'F' and PID_7.exists()) -> name.prefix = 'Ms';": (1, (7, 8)),
    "pid then Other(pid, name);": (1, (30,)),
    "pid as again -> name.prefix = 'Ms';": (1, None),
    "xpn -> name.text = (pid.children().first());": (1, None),
}
NOT_PURE = (
    "xpn -> name.text = (now().toString());",
    "xpn -> name.text = uuid();",
    "xpn -> name.given = 'x' first;",
    "xpn -> name.given = reference(name);",
    "xpn then Name(xpn, name, pid);",
    "xpn.XPN_3 as xpn -> name.text = xpn;",
)
OTHER = "\ngroup Other(source p, target n : HumanName) { p.PID_30 as x -> n.text = x; }"


class PurityTests(TestCase):
    def plan(self, rule: str) -> MemoPlan | None:
        content = parse(HEAD + GROUP % rule + OTHER, "map.fml")
        kinds = [Kind("v2", "XPN"), fhir("HumanName"), Kind("v2", "PID")]
        return Groups([content], Environment()).memo_plan(content, content.groups[1], kinds, 1)

    def test_pure_groups_and_what_they_read_of_a_segment(self) -> None:
        for rule, (_, numbers) in PURE.items():
            plan = self.plan(rule)
            self.assertIsNotNone(plan, rule)
            assert plan is not None
            self.assertEqual((plan.target, plan.bundle, plan.sources[1]), (2, 0, (3, numbers)), rule)

    def test_others(self) -> None:
        for rule in NOT_PURE:
            self.assertIsNone(self.plan(rule), rule)


SEGMENTS = {
    # two segments of which a group reads the fields 2 and 5, and whether it makes the same of both
    ("NK1|1|A|x||E", "NK1|9|A|y||E|more"): True,
    ("NK1|1|A", "NK1|2|A|x"): True,
    ("NK1|1|A||", "NK1|2|B||"): False,
    ("NK1|1|A|||E", "NK1|1|A|||F"): False,
    ("NK1", "NK1|1"): True,
    ("NK1|1|A", "NTE|1|A"): False,
}


class KeyTests(TestCase):
    def key(self, text: str, numbers: tuple[int, ...]) -> Any:
        raw = b"MSH|^~\\&|S|F|R|F|20200101||ADT^A01|1|P|2.5\r" + text.encode()
        segment = Message.parse(raw).all_segments[1]
        return key_function(MemoPlan(((1, numbers),), 2), "group")([Run(b"k"), segment, {}])

    def test_the_key_of_a_segment_holds_the_fields_read(self) -> None:
        for (one, other), same in SEGMENTS.items():
            self.assertEqual(self.key(one, (2, 5)) == self.key(other, (2, 5)), same, (one, other))
        self.assertEqual(self.key("NK1|1|A", (2,)), self.key("NK1|7|A", (2,)))
        self.assertNotEqual(self.key("NK1|1|A", (2,)), self.key("NK1|1|B", (2,)))

    def test_no_key_for_long_or_self_typed_segments(self) -> None:
        self.assertIsNone(self.key("NK1|1|" + "x" * 513, (2,)))
        self.assertIsNotNone(self.key("NK1|1|A|" + "x" * 513, (2,)))  # other fields do not count
        self.assertIsNone(self.key("OBX|1|ST", (2,)))  # one field decides how another is parsed


class CacheTests(TestCase):
    def test_it_is_bounded_and_keeps_recent_results(self) -> None:
        cache = ResultCache(10)
        for number in range(100):
            cache.put((number,), Result(b""))
            cache.missed_before((number,))
            self.assertIsNotNone(cache.get((0,)))
            self.assertLessEqual(len(cache), 10)
        self.assertIsNone(cache.get((50,)))

    def memoized(self, cache: ResultCache, runs: list[str]) -> Any:
        def run(frame: Frame) -> None:
            runs.append(frame[1])
            frame[2]["given"] = [frame[1]]

        group = MemoizedGroup(run, cache, MemoPlan(((1, None),), 2, 0))

        def call(text: str, target: dict[str, Any]) -> dict[str, Any]:
            group([Run(b"k"), text, target])
            return target

        return call

    def test_a_hit_returns_a_copy(self) -> None:
        runs: list[str] = []
        call = self.memoized(ResultCache(), runs)
        call("Kari", {})
        for _ in range(2):
            call("Kari", {})["given"].append("Anne")
        self.assertEqual(call("Kari", {}), {"given": ["Kari"]})
        self.assertEqual(runs, ["Kari", "Kari"])  # cached on the second miss
        self.assertEqual(call("Kari", {"use": "usual"}), {"use": "usual", "given": ["Kari"]})
        self.assertEqual(runs, ["Kari"] * 3)  # a target with content is part of the key

    def test_separators_are_part_of_the_key(self) -> None:
        def run(frame: Frame) -> None:
            frame[2]["text"] = frame[1].children("NK1_2")[0].text

        group = MemoizedGroup(run, ResultCache(), MemoPlan(((1, (2, 40)),), 2, 0))
        for separators, text in ((b"^~\\&", "A@B"), (b"@~\\&", "A")) * 3:
            head = b"MSH|" + separators + b"|S|F|R|F|20200101||ADT@A01|1|P|2.5\r"
            target: dict[str, Any] = {}
            group([Run(b"k"), Message.parse(head + b"NK1|1|A@B").segments("NK1")[0], target])
            self.assertEqual(target, {"text": text})

    def test_long_texts_are_not_cached(self) -> None:
        cache = ResultCache()
        call = self.memoized(cache, [])
        for _ in range(3):
            call("x" * 1000, {})
        self.assertEqual(len(cache), 0)

    def test_a_group_without_hits_bypasses_the_cache(self) -> None:
        cache = ResultCache(100_000)
        call = self.memoized(cache, [])
        for number in range(1024):
            call(str(number), {})
        for _ in range(2):  # repeats during the bypass are not cached
            for number in range(1000):
                call(str(number), {})
        self.assertEqual(len(cache), 0)

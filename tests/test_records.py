"""Quick records are what their dataclass says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from twisted.trial.unittest import TestCase

from ipf.records import quick


@quick
@dataclass(frozen=True, slots=True)
class Sample:
    """Every kind of field."""

    first: int
    second: str = "two"
    many: list[int] = field(default_factory=list)
    made: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "made", f"{self.first}{self.second}")


class QuickTests(TestCase):
    """`quick` changes how fields are written, and nothing else."""

    def test_fields_defaults_and_what_is_made_afterwards(self) -> None:
        one, other = Sample(1), Sample(1, second="b", many=[3])
        self.assertEqual((one.first, one.second, one.many, one.made), (1, "two", [], "1two"))
        self.assertEqual((other.second, other.many, other.made), ("b", [3], "1b"))
        self.assertIsNot(Sample(1).many, one.many)

    def test_equal_hashed_replaced_and_shown(self) -> None:
        self.assertEqual(Sample(1), Sample(1))
        self.assertNotEqual(Sample(1), Sample(2))
        self.assertEqual(hash(Key("a")), hash(Key("a")))
        self.assertEqual(replace(Sample(1), second="c").made, "1c")
        self.assertEqual(repr(Sample(1)), "Sample(first=1, second='two', many=[], made='1two')")

    def test_slots_stay(self) -> None:
        self.assertFalse(hasattr(Sample(1), "__dict__"))
        self.assertRaises(TypeError, Sample)


@quick
@dataclass(frozen=True, slots=True)
class Key:
    """One that can be a key."""

    name: str

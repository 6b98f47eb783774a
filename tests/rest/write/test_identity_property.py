"""Random messages about few persons: no stored Patient is of two persons."""

from __future__ import annotations

from random import Random

from ipf.errors import Problem
from ipf.ports.identity import IdentityConflict
from tests.rest.world import OnMemory
from tests.rest.write.messages import adt, store

PERSONS = ("Adams", "Berg", "Costa", "Duran")
BORN = {"Adams": "19400101", "Berg": "19500202", "Costa": "19600303", "Duran": "19700404"}
KINDS = ("MR", "PI", "NI", "SS", "", "AN", "VN")
AUTHORITIES = ("HOSP7", "HOSP9", "GOV")
SEQUENCES, LENGTH = 60, 12


class PropertyTests(OnMemory):
    async def test_no_patient_is_of_two_persons(self) -> None:
        """Each person has its own number of each authority and type; values of different kinds repeat among persons."""
        for seed in range(SEQUENCES):
            await self.setUp()
            random = Random(seed)
            texts = [self.message(random) for _ in range(LENGTH)]
            results = await store(self.world, *texts)
            for text, result in zip(texts, results, strict=True):
                if isinstance(result, Problem):
                    self.assertIsInstance(result, IdentityConflict, text)
            self.check(seed, texts)

    def check(self, seed: int, texts: list[str]) -> None:
        """All versions of a Patient have one family name."""
        for (_, resource_type, id), versions in self.world.store.versions.items():
            if resource_type == "Patient":
                families = {name for name in PERSONS for version in versions if f'"{name}"' in version.body.decode()}
                self.assertEqual(len(families), 1, f"seed {seed}: Patient/{id} is of {families}\n" + "\n".join(texts))

    def message(self, random: Random) -> str:
        """One to three numbers of a person; the name is always sent, the birth date mostly."""
        person = random.randrange(len(PERSONS))
        chosen = [self.number(random, person) for _ in range(random.randint(1, 3))]
        more = {name: self.number(random, person) for name in ("second", "fourth") if random.random() < 0.3}
        family = PERSONS[person]
        born = BORN[family] if random.random() < 0.8 else ""
        return adt("~".join(chosen), family, born, **more)

    def number(self, random: Random, person: int) -> str:
        """Numbers of two persons are equal when their kinds differ: person + kind, modulo the number of persons."""
        place, authority = random.randrange(len(KINDS)), random.choice(AUTHORITIES)
        value = 100 + (person + place) % len(PERSONS)
        is_sent_with_type = random.random() < 0.8
        kind = KINDS[place] if is_sent_with_type else ""
        return f"{value if is_sent_with_type else 200 + person}^^^{authority}^{kind}"

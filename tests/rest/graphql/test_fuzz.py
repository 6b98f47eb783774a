"""Random and damaged GraphQL queries: each has an answer, none an exception.  `IPF_GRAPHQL_RUNS` asks for more."""

from __future__ import annotations

import json
import os
from random import Random

from graphql import GraphQLInterfaceType, GraphQLObjectType, get_named_type

from ipf.rest.graphql.schema import schema
from tests.rest.graphql.test_graphql import PATIENT
from tests.rest.world import OnMemory

RUNS = int(os.environ.get("IPF_GRAPHQL_RUNS", "200"))
LITERALS = ('"x"', "1", "2", "official", '"family"', '"final"', "true")
ODD = ('"x"', "1", "-1", "1.5", "true", "null", "official", "[1]", "[[]]", "{a: 1}", "$v", '"""b"""', "[]")
DIRECTIVES = ("@first", '@slice(path: "use")', '@slice(path: "$index")', "@include(if: true)")
ODD_DIRECTIVES = ("@flatten", "@singleton", "@include(if: $v)", "@slice(path: 1)", "@unknown",
                  '@slice(path: "%resource.descendants()")')  # fmt: skip
VARIABLES = (None, {}, {"v": True}, {"v": "x"}, {"v": None}, {"v": []}, {"v": {"a": 1}}, [], 1)
SIGNS = '{}()[]$@:!"\\.#&|, a1\n\x00\ud7ff\u202e'


class Asker:
    """Random queries by the schema, some with errors."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.schema = schema()

    def one_of(self, values: tuple[str, ...], odd: tuple[str, ...]) -> str:
        """One of the values, now and then an odd one."""
        return self.random.choice(odd if self.random.random() < 0.05 else values)

    def query(self, is_system: bool) -> str:
        """One query of the system or of a Patient."""
        pick = self.random.choice
        kind = self.schema.query_type if is_system else self.schema.type_map["Patient"]
        head = pick(("", "", "", "query ", "query A($v: String) ", "query($v: Boolean = true) ", "query($v: [Value]) "))
        text = head + self.fields(kind, 0)
        if self.random.random() < 0.1:
            place = self.random.randrange(len(text) + 1)
            text = text[:place] + pick(SIGNS) + text[place + self.random.randrange(3) :]
        return text

    def fields(self, kind: object, depth: int) -> str:
        """A selection on this type."""
        assert isinstance(kind, GraphQLObjectType | GraphQLInterfaceType)
        names = list(kind.fields)
        wanted = ("Patient", "PatientList", "PatientConnection", "ObservationList", "name", "managingOrganization")
        names = [one for one in names if one in wanted or depth] or names
        parts = [self.field(kind, self.random.choice(names), depth) for _ in range(self.random.choice((1, 1, 2, 3)))]
        if self.random.random() < 0.2:
            parts.append(f"... on {self.random.choice(('Patient', 'Resource', 'HumanName', 'Nothing'))} {{ id }}")
        return f"{{ {' '.join(parts)} }}"

    def field(self, kind: GraphQLObjectType | GraphQLInterfaceType, name: str, depth: int) -> str:
        """One field with some of its arguments and directives."""
        random, definition = self.random, kind.fields[name]
        given = [
            one for one in definition.args if one in ("id", "_reference") or random.random() < 1 / len(definition.args)
        ]
        values = {"id": '"example"', "_reference": "subject"}
        texts = [f"{one}: {values.get(one) or self.one_of(LITERALS, ODD)}" for one in given[:3]]
        text = (f"a{random.randrange(3)}: " if random.random() < 0.2 else "") + name
        text += f"({', '.join(texts)})" if texts else ""
        text += f" {self.one_of(DIRECTIVES, ODD_DIRECTIVES)}" if random.random() < 0.2 else ""
        inner = get_named_type(definition.type)
        is_object = isinstance(inner, GraphQLObjectType | GraphQLInterfaceType)
        return f"{text} {self.fields(inner, depth + 1) if depth < 5 else '{ id }'}" if is_object else text


class FuzzTests(OnMemory):
    """On the store in memory."""

    async def test_every_query_has_an_answer(self) -> None:
        """200 with data, or an OperationOutcome."""
        await self.world.send("PUT", "Patient/example", PATIENT)
        asker, answered = Asker(20), 0
        for number in range(RUNS):
            path = asker.random.choice(
                ("$graphql", "Patient/example/$graphql", "Patient/example/$graphql", "Patient/none/$graphql")
            )
            text = asker.query(path == "$graphql")
            body = json.dumps(
                {
                    "query": text,
                    "variables": asker.random.choice(VARIABLES) if asker.random.random() < 0.2 else {"v": True},
                }
            ).encode()
            answer = await self.world.send("POST", path, body, content_type="application/json")
            found = json.loads(answer.body)
            self.assertIn(answer.status, (200, 400, 404), f"{number}: {text}")
            self.assertTrue("data" in found or found["resourceType"] == "OperationOutcome", f"{number}: {text}")
            answered += answer.status == 200
        self.assertGreater(answered, RUNS // 40)

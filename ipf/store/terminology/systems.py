"""`ports.CodeSystems` on PostgreSQL: lookups in the imported code systems.

Ids of concepts that a rule names are looked up first and written into the statement, so that PostgreSQL knows from its
statistics whether a concept has five descendants or all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.ports.fhir.terminology import ALL, CodeSystems, Designation, Facts, ImportedSystem, Listed, Rule
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.prepared import DynamicStatement, Parameters
from ipf.store.postgres.quoting import Statement, joined
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.terminology.rule_sql import RuleSql, named_codes
from ipf.store.terminology.selection import FEW, WALKED, Selection

IMPORTED = Statement(
    "terminology_imported",
    "",
    """
SELECT id, url, version, name, is_current, is_case_sensitive, concepts, properties, languages
FROM code_systems WHERE is_loaded ORDER BY url, id""",
)
# Without a concept: one row, which tells that the system is still there.
FACTS = Statement(
    "terminology_facts",
    "integer, text",
    r"""
SELECT c.code, c.display, c.is_active, c.is_abstract, c.definition,
    (SELECT string_agg(k.code, E'\x1f') FROM code_system_parents e JOIN code_system_concepts k
     ON k.system_id = $1 AND k.id = e.parent WHERE e.system_id = $1 AND e.child = c.id),
    (SELECT string_agg(k.code, E'\x1f') FROM code_system_ancestors a JOIN code_system_concepts k
     ON k.system_id = $1 AND k.id = a.ancestor WHERE a.system_id = $1 AND a.descendant = c.id),
    (SELECT string_agg(p.name || E'\x1f' || p.value, E'\x1e') FROM code_system_properties p
     WHERE p.system_id = $1 AND p.concept_id = c.id)
FROM code_systems s LEFT JOIN code_system_concepts c
    ON c.system_id = $1 AND c.code = ANY(string_to_array($2, E'\x1f'))
WHERE s.id = $1 AND s.is_loaded""",
)
IDS = Statement(
    "terminology_ids",
    "integer, text",
    r"""
SELECT c.code, c.id FROM code_systems s LEFT JOIN code_system_concepts c
    ON c.system_id = $1 AND c.code = ANY(string_to_array($2, E'\x1f'))
WHERE s.id = $1 AND s.is_loaded""",
)
DESIGNATIONS = Statement(
    "terminology_designations",
    "integer, text",
    r"""
SELECT c.code, d.language, d.value, d.use_system, d.use_code, d.use_display
FROM code_system_concepts c JOIN code_system_designations d ON d.system_id = $1 AND d.concept_id = c.id
WHERE c.system_id = $1 AND c.code = ANY(string_to_array($2, E'\x1f'))""",
)
CHILDREN = Statement(
    "terminology_children",
    "integer, text, integer",
    """
SELECT k.code FROM (
    SELECT e.child FROM code_system_parents e
    WHERE e.system_id = $1
        AND e.parent = (SELECT c.id FROM code_system_concepts c WHERE c.system_id = $1 AND c.code = $2)
    LIMIT $3) e
JOIN code_system_concepts k ON k.system_id = $1 AND k.id = e.child""",
)
STATEMENTS = (IMPORTED, FACTS, IDS, DESIGNATIONS, CHILDREN)

_LISTED = "c.code, c.display, c.is_active, c.is_abstract, coalesce(c.definition, '')"

# The different values of a parameter.  Each look into the index reads the next 100 entries.
_USED = """
WITH RECURSIVE used (vals) AS (
    SELECT ARRAY['' COLLATE "C"]
    UNION ALL
    SELECT (SELECT array_agg(DISTINCT n.val) FROM (
        SELECT t.val FROM index_text t
        WHERE t.partition_id = {partition} AND t.param = {param} AND t.val > u.vals[cardinality(u.vals)]
        ORDER BY t.val LIMIT 100) n) FROM used u WHERE u.vals IS NOT NULL)
SELECT DISTINCT c.code FROM (SELECT v.val FROM used u, unnest(u.vals) v (val) LIMIT {most}) u JOIN {concepts} c
    ON c.code = split_part(u.val, E'\\t', 1)
WHERE split_part(u.val, E'\\t', 2) IN ({url}, '') AND ({condition}) LIMIT {limit}"""
MOST_USED = 200_000
"""Different values of a search parameter that are looked at: about a second."""


class PostgresCodeSystems:
    """`ports.CodeSystems` on a Database that was opened with STATEMENTS.  `symbols`: of the same Database."""

    def __init__(self, database: Database, symbols: SymbolTable | None = None) -> None:
        self._database = database
        self._symbols = symbols or SymbolTable(database)

    async def imported(self) -> Sequence[ImportedSystem]:
        """See `ports.CodeSystems.imported`."""
        return [_system(row) for row in await self._database.many(IMPORTED.call())]

    async def facts(self, system: ImportedSystem, codes: Collection[str]) -> Mapping[str, Facts]:
        """See `ports.CodeSystems.facts`."""
        rows = await self._database.many(FACTS.call(system.id, joined(sorted(codes))))
        return {row[0]: _facts(row) for row in _present(rows, system)}

    async def page(
        self, system: ImportedSystem, rule: Rule, words: Sequence[str], offset: int, limit: int
    ) -> tuple[Sequence[Listed], int | None]:
        """See `ports.CodeSystems.page`."""
        selection = Selection(system, await self._ids(system, rule), rule, words)
        page = f"ORDER BY c.id OFFSET {int(offset)} LIMIT {int(limit)}"
        driver = await self._driver(selection)
        if driver is not None:
            rows = await self._run(selection.driven(_LISTED if words else f"{_LISTED}, count(*) OVER ()", driver, page))
            if words and rows and len(rows) == limit:
                return _listed(rows), None
            return await self._page(rows, offset, limit, selection.driven("count(*)", driver, ""))
        if words:
            return await self._page_by_words(selection, page, offset, limit)
        rows = await self._run(selection.walked(_LISTED, page))
        if rule == ALL or len(rows) == limit:
            return _listed(rows), system.concepts if rule == ALL else None
        return await self._page(rows, offset, limit, selection.walked("count(*)", ""))

    async def _page_by_words(
        self, selection: Selection, page: str, offset: int, limit: int
    ) -> tuple[Sequence[Listed], int | None]:
        rows = await self._run(selection.walked(_LISTED, page, WALKED)) if limit else []
        if rows and len(rows) == limit:
            return _listed(rows), None
        if limit:
            rows = await self._run(selection.by_words(_LISTED, offset, limit))
            if rows and rows[0][-1] >= selection.most_counted(offset, limit):
                return _listed(rows), None
        return await self._page(rows, offset, limit, selection.count_by_words())

    async def _page(
        self, rows: Sequence[Row], offset: int, limit: int, counting: DynamicStatement
    ) -> tuple[Sequence[Listed], int]:
        """A page with the total: of the page itself when it is the last one, of its last column, or counted."""
        if len(rows) < limit and (rows or not offset):
            return _listed(rows), offset + len(rows)
        if rows:
            return _listed(rows), int(rows[0][-1])
        return [], await self._count(counting)

    async def _driver(self, selection: Selection) -> int | None:
        """The part of a selection with the fewest concepts, if these are few."""
        sizes = selection.sizes()
        if sizes is None:
            return None
        (counts,) = await self._run(sizes)
        size, driver = min((size, number) for number, size in enumerate(counts))
        return driver if size <= FEW else None

    async def _count(self, counting: DynamicStatement) -> int:
        ((found,),) = await self._run(counting)
        return int(found)

    async def values(self, system: ImportedSystem, name: str, limit: int) -> Sequence[str]:
        """See `ports.CodeSystems.values`."""
        parameters = Parameters()
        table = RuleSql(system.id, {}, parameters).table
        if name in ("code", "display"):
            sql = f"SELECT c.{name} FROM {table('concepts')} c LIMIT {int(limit)}"
        else:
            having = f"p.name = {parameters.add(name)}"
            sql = f"SELECT DISTINCT p.value FROM {table('properties')} p WHERE {having} LIMIT {int(limit)}"
        return [value for (value,) in await self._run(DynamicStatement(sql, parameters))]

    async def designations(self, system: ImportedSystem, codes: Collection[str]) -> Mapping[str, Sequence[Designation]]:
        """See `ports.CodeSystems.designations`."""
        found: dict[str, list[Designation]] = {}
        for code, language, value, *use in await self._database.many(
            DESIGNATIONS.call(system.id, joined(sorted(codes)))
        ):
            found.setdefault(code, []).append(Designation(language, value, (use[0], use[1], use[2])))
        return found

    async def children(self, system: ImportedSystem, code: str, limit: int) -> Sequence[str]:
        """See `ports.CodeSystems.children`."""
        return sorted(child for (child,) in await self._database.many(CHILDREN.call(system.id, code, limit)))

    async def used(
        self, tenant: str, resource_type: str, parameters: Sequence[str], system: ImportedSystem, rule: Rule, limit: int
    ) -> frozenset[str]:
        """See `ports.CodeSystems.used`."""
        await self._symbols.load((tenant,), {(resource_type, code) for code in parameters})
        ids = await self._ids(system, rule)
        found: set[str] = set()
        for code in parameters:
            added = Parameters()
            condition = RuleSql(system.id, ids, added)
            sql = _USED.format(
                partition=added.add(self._symbols.partition(tenant), "smallint"),
                param=added.add(self._symbols.parameter(resource_type, code), "smallint"),
                most=MOST_USED,
                concepts=condition.table("concepts"),
                url=added.add(system.url),
                condition=condition.condition(rule),
                limit=added.add(limit, "integer"),
            )
            scope = self._database.for_tenant(tenant)
            found.update(code for (code,) in await scope.run_dynamic(DynamicStatement(sql, added)))
        return frozenset(found)

    async def _ids(self, system: ImportedSystem, rule: Rule) -> dict[str, int]:
        """The ids of the concepts that a rule names as an end of a relation."""
        rows = await self._database.many(IDS.call(system.id, joined(sorted(named_codes(rule)))))
        return {code: int(number) for code, number in _present(rows, system)}

    async def _run(self, statement: DynamicStatement) -> list[Row]:
        return await self._database.run_dynamic(statement)


def _listed(rows: Sequence[Row]) -> list[Listed]:
    return [Listed(*row[:5]) for row in rows]


def _present(rows: Sequence[Row], system: ImportedSystem) -> list[Row]:
    """The rows with a concept.  Problem when the system is gone."""
    if not rows:
        text = f"the code system {system.url[:200]} is being replaced by another import; repeat the request"
        raise Problem(Category.UNAVAILABLE, text)
    return [row for row in rows if row[0] is not None]


def _system(row: Row) -> ImportedSystem:
    number, url, version, name, is_current, is_case_sensitive, concepts, properties, languages = row
    return ImportedSystem(
        number, url, version, name, is_current, is_case_sensitive, concepts,
        loads(properties), tuple(languages.split()),
    )  # fmt: skip


def _facts(row: Row) -> Facts:
    code, display, is_active, is_abstract, definition, parents, ancestors, properties = row
    pairs = (tuple(one.split("\x1f", 1)) for one in (properties or "").split("\x1e") if one)
    return Facts(
        code, display, is_active, is_abstract, definition or "",
        frozenset((parents or "").split("\x1f")) - {""},
        frozenset((ancestors or code).split("\x1f")),
        frozenset((name, value) for name, value in pairs),
    )  # fmt: skip


_: type[CodeSystems] = PostgresCodeSystems

"""The catalog of a database as lines of text, so that two ways to make a schema can be compared.

Covered: relations with options, columns, constraints, indexes, views, sequences, types, functions, triggers, policies,
partitions, grants.  NOT NULL is with the columns, since only newer servers name it.  Bounds of ranges and partitions of
months are left out: they depend on time and rows.
"""

from __future__ import annotations

from typing import Any

_OURS = "n.nspname = 'public'"
_LASTING = rf"{_OURS} AND c.relname !~ 'audit_records_y\d'"

QUERIES = {
    "relation": f"""
        SELECT c.relname, c.relkind, c.relpersistence, c.relreplident, c.relrowsecurity,
            (SELECT string_agg(o, ' ' ORDER BY o) FROM unnest(c.reloptions) o),
            pg_get_partkeydef(c.oid), c.relacl::text
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {_LASTING}""",
    "column": f"""
        SELECT c.relname, row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum), a.attname,
            format_type(a.atttypid, a.atttypmod), l.collname, a.attnotnull, a.attidentity, a.attgenerated,
            a.attstorage, a.attstattarget, a.attoptions::text, pg_get_expr(d.adbin, d.adrelid), a.attacl::text
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        LEFT JOIN pg_collation l ON l.oid = a.attcollation
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE {_LASTING} AND c.relkind IN ('r', 'p', 'v') AND a.attnum > 0 AND NOT a.attisdropped""",
    "constraint": f"""
        SELECT c.relname, o.conname, o.convalidated, pg_get_constraintdef(o.oid) FROM pg_constraint o
        JOIN pg_class c ON c.oid = o.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE {_LASTING} AND o.contype <> 'n'""",
    "index": f"""
        SELECT t.relname, pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisprimary, i.indisunique FROM pg_index i
        JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {_LASTING}""",
    "view": f"""
        SELECT c.relname, pg_get_viewdef(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE {_OURS} AND c.relkind = 'v'""",
    "sequence": """
        SELECT sequencename, data_type::text, start_value, min_value, max_value, increment_by, cycle, cache_size
        FROM pg_sequences WHERE schemaname = 'public'""",
    "type": f"""
        SELECT t.typname, t.typtype, (SELECT string_agg(enumlabel, ' ' ORDER BY enumsortorder) FROM pg_enum
            WHERE enumtypid = t.oid)
        FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE {_OURS} AND t.typtype <> 'c'
            AND t.typcategory <> 'A'""",
    "function": f"""
        SELECT p.proname, pg_get_functiondef(p.oid), p.proacl::text FROM pg_proc p
        JOIN pg_namespace n ON n.oid = p.pronamespace WHERE {_OURS}""",
    "trigger": f"""
        SELECT pg_get_triggerdef(g.oid), g.tgenabled FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {_LASTING} AND NOT g.tgisinternal""",
    "policy": f"""
        SELECT c.relname, p.polname, p.polcmd, p.polpermissive, p.polroles::text, pg_get_expr(p.polqual, p.polrelid),
            pg_get_expr(p.polwithcheck, p.polrelid)
        FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE {_LASTING}""",
    "partition": f"""
        SELECT i.inhparent::regclass::text, c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {_LASTING} AND c.relkind IN ('r', 'p')""",
}


def lines(kind: str, rows: list[tuple[Any, ...]]) -> list[str]:
    """The rows of one of `QUERIES` as text, in order."""
    return sorted(f"{kind}: {' | '.join(map(str, row))}" for row in rows)

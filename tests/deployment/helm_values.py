"""Writes what the Helm chart knows about settings: values, their schema, and the contract's keys in a template.

What arrives: the tables of settings (`ipf.config`), and the first part of `etc/helm/ipf/values.yaml`, which people
write.  What leaves: the second part of that file, `values.schema.json` and `templates/_settings.tpl`.  No variable, key
or default can differ from the table: `tests/deployment/test_helm_values.py` compares.

A variable has one home: the contract's key (`CONTRACT`), a value of the first part (`OF_THE_CHART`), or its own name
under `settings`, `consoleSettings` or `secrets`.  Source: interface specification "Limits", "Authentication", "FHIR
AuditEvent resources".

usage: bin/helm-values
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from ipf.config import roles
from ipf.config.console import ConsoleSettings, console_variables
from ipf.config.parsers import boolean
from ipf.config.settings import Settings, variables

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "etc/helm/ipf"
MARK = "# ---- Written by bin/helm-values from the table of settings; change nothing below this line. ----\n"

_RETRY, _AUDIT = "interfaceEngine.worker.retry.", "featureToggles.audit."
CONTRACT = {
    "IPF_MAX_ATTEMPTS": _RETRY + "maxAttempts",
    "IPF_BACKOFF_BASE_MS": _RETRY + "backoffBaseMs",
    "IPF_BACKOFF_FACTOR": _RETRY + "backoffFactor",
    "IPF_BACKOFF_MAX_MS": _RETRY + "backoffMaxMs",
    "IPF_DLQ_LOG_LEVEL": _RETRY + "dlqLogLevel",
    "SUBSCRIPTION_SERVICE_AUDIT_ENABLED": _AUDIT + "enabled",
    "SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_READS": _AUDIT + "captureReads",
    "SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_SEARCH": _AUDIT + "captureSearch",
    "SUBSCRIPTION_SERVICE_AUDIT_RETENTION_DAYS": _AUDIT + "retentionDays",
}
"""The contract's keys.  `interfaceEngine.admin.authToken` is the only one that is a secret."""
OF_THE_CHART = {
    "IPF_DATA_DIR": "engine.dataSize",
    "IPF_HTTP_LISTEN": "http",
    "IPF_FHIR_LISTEN": "fhir.port",
    "IPF_MLLP_LISTEN": "mllp.listeners",
    "IPF_HL7_HTTP_LISTEN": "hl7Http.listeners",
    "IPF_METRICS_LISTEN": "metrics.port",
    "IPF_UI_LISTEN": "console.port",
    "IPF_UI_ENGINE_URL": "http",
    "IPF_UI_FHIR_URL": "fhir.port",
}
"""Variables that templates make out of other values."""
SHARED = frozenset(("IPF_LOG_FORMAT",))
"""Variables of the engine, below `settings`, that the console has too, with the same value."""
COMPUTED = {"IPF_BASE_URL": "unset: the Service of HTTP clients", "IPF_WORKER_PROCESSES": "unset: as ipf chooses"}
"""Variables whose default is not a constant of the table, and what holds instead."""

_DECIMAL = r"^[0-9]+(\.[0-9]+)?$"
"""`helm --set factor=2.5` gives a text: it reads whole numbers only."""
_TEXT, _OBJECT = {"type": "string"}, {"type": "object"}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_LISTENERS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name", "port"],
        "additionalProperties": False,
        "properties": {
            "name": {
                "type": "string",
                "pattern": "^[a-z](-?[a-z0-9])*$",
                "maxLength": 15,
                "not": {"enum": ["http", "fhir", "metrics"]},
            },
            "port": _PORT,
            "tls": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"secretName": _TEXT, "clientCaSecretName": _TEXT},
            },
        },
    },
}
_SERVICE = {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]}
STRICTER = {
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "engine.strategy": _OBJECT,
    "engine.resources": _OBJECT,
    "console.resources": _OBJECT,
    "mllp.listeners": _LISTENERS | {"minItems": 1},
    "hl7Http.listeners": _LISTENERS,
    "http.port": _PORT,
    "console.port": _PORT,
    "fhir.port": _PORT | {"minimum": 0},
    "metrics.port": _PORT | {"minimum": 0},
    "services.senders.type": _SERVICE,
    "services.http.type": _SERVICE,
    "services.console.type": _SERVICE,
    "services.senders.externalTrafficPolicy": {"enum": ["Local", "Cluster"]},
    "podDisruptionBudget.maxUnavailable": {"type": ["integer", "string"]},
}
"""Keys whose schema says more, or less, than their default."""


def homes() -> dict[str, str]:
    """Each variable, and the key of the values that is its home."""
    found = {name: f"settings.{name}" for name in variables()}
    found |= {name: f"consoleSettings.{name}" for name in console_variables() if name not in SHARED}
    found |= {name: f"secrets.{name}" for name, row in variables().items() if row.secret}
    return found | CONTRACT | OF_THE_CHART | {"IPF_ADMIN_AUTH_TOKEN": "interfaceEngine.admin.authToken"}


def default_of(value: Any) -> Any:
    """A default as a value of YAML: text, number, boolean, or None for a variable that is unset."""
    if value == roles.ALL:
        return "all"
    if isinstance(value, (tuple, frozenset)):
        return ",".join(sorted(value) if isinstance(value, frozenset) else value) or None
    return value


def defaults(declared: type[Any]) -> dict[str, Any]:
    """Name and default of each variable of a table that has its home below `settings` or in the contract."""
    rows = {one.metadata["variable"].name: one.default for one in fields(declared)}
    return {
        name: None if name in COMPUTED else default_of(value)
        for name, value in rows.items()
        if name not in OF_THE_CHART
        and not (name in SHARED and declared is ConsoleSettings)
        and not (console_variables() | variables())[name].secret
    }


def _comment(name: str) -> str:
    meaning = (console_variables() | variables())[name].meaning
    return f"{meaning} ({COMPUTED[name]})" if name in COMPUTED else meaning


def _rows(declared: type[Any]) -> str:
    return "".join(
        f"  # {_comment(name)}\n  {name}: {json.dumps(value)}\n"
        for name, value in defaults(declared).items()
        if name not in CONTRACT
    )


def _contract_rows(prefix: str, indent: str) -> str:
    of_table = defaults(Settings)
    return "".join(
        f"{indent}# {name}: {_comment(name)}\n{indent}{key.removeprefix(prefix)}: {json.dumps(of_table[name])}\n"
        for name, key in CONTRACT.items()
        if key.startswith(prefix)
    )


def second_part() -> str:
    """The second part of values.yaml."""
    existing = 'existingSecret: {name: "", key: ""}'
    secrets = "".join(
        f'  # {row.meaning}\n  {name}: {{value: "", {existing}}}\n'
        for name, row in variables().items()
        if row.secret and name != "IPF_ADMIN_AUTH_TOKEN"
    )
    return (
        f"{MARK}\ninterfaceEngine:\n  admin:\n    # IPF_ADMIN_AUTH_TOKEN: {_comment('IPF_ADMIN_AUTH_TOKEN')}\n"
        f'    authToken: ""\n    {existing}\n  worker:\n    retry:\n{_contract_rows(_RETRY, " " * 6)}'
        f"featureToggles:\n  audit:\n{_contract_rows(_AUDIT, ' ' * 4)}\n"
        "# Secrets of the engine: a value, which the Secret of the release keeps, or an existing Secret of yours; its\n"
        f"# key is the name of the variable unless you name one.\nsecrets:\n{secrets}\n"
        "# Variables of the engine by their names (etc/ipf.env explains them); null: unset.\n"
        f"settings:\n{_rows(Settings)}\n"
        "# Variables of the console by their names (etc/ipf-ui.env explains them); null: unset.\n"
        f"consoleSettings:\n{_rows(ConsoleSettings)}"
    )


def schema_of(value: Any, path: str, types: dict[str, type]) -> dict[str, Any]:
    """The JSON Schema of a key, out of its default."""
    if path in STRICTER:
        return STRICTER[path]
    if isinstance(value, dict) and value:
        prefix = f"{path}." if path else ""
        properties = {key: schema_of(one, f"{prefix}{key}", types) for key, one in value.items()}
        return {"type": "object", "additionalProperties": False, "properties": properties}
    if isinstance(value, dict):
        return _OBJECT
    if isinstance(value, list):
        return {"type": "array"}
    kind = types.get(path.rpartition(".")[2]) or types.get(path) or type(value)
    names = {bool: ["boolean"], int: ["integer"], float: ["number", "string"], str: ["string"]}[kind]
    if path.startswith(("settings.", "consoleSettings.")):
        names = [*names, "null"]
    rules: dict[str, Any] = {"type": names if len(names) > 1 else names[0]}
    if kind in (int, float):
        rules["minimum"] = 0
    return rules | ({"pattern": _DECIMAL} if kind is float else {})


def _role_groups(engine: dict[str, Any]) -> dict[str, Any]:
    """The schema of `roleGroups`: keys of `engine`, roles, settings.  The console has a Deployment of its own."""
    several = {"type": "array", "items": {"enum": list(roles.ALL)}, "minItems": 1, "uniqueItems": True}
    group = {
        "type": "object",
        "required": ["roles"],
        "additionalProperties": False,
        "properties": engine["properties"] | {"roles": several, "settings": {"$ref": "#/properties/settings"}},
    }
    names = {"pattern": "^[a-z](-?[a-z0-9])*$", "maxLength": 12, "not": {"const": "console"}}
    return {"type": "object", "propertyNames": names, "additionalProperties": group}


def schema() -> dict[str, Any]:
    """The schema of all values."""
    rows = [*fields(Settings), *fields(ConsoleSettings)]
    known = {one.metadata["variable"].name: one.default for one in rows}
    types = {name: type(value) if isinstance(value, (bool, int, float)) else str for name, value in known.items()}
    types |= {one.metadata["variable"].name: bool for one in rows if one.metadata["variable"].parse is boolean}
    types |= {key: types[name] for name, key in CONTRACT.items()}
    found = schema_of(yaml.safe_load(first_part() + second_part()), "", types)
    found["properties"]["roleGroups"] = _role_groups(found["properties"]["engine"])
    found["properties"]["global"] = _OBJECT  # Helm's own
    return {"$schema": "http://json-schema.org/draft-07/schema#"} | found


def first_part() -> str:
    """The part of values.yaml that people write."""
    return (CHART / "values.yaml").read_text().partition(MARK)[0]


def contract_template() -> str:
    """The template with the contract's keys, and the roles."""
    rows = "".join(f"{name}: {{{{ toJson .Values.{key} }}}}\n" for name, key in CONTRACT.items())
    return (
        "{{- /* Written by bin/helm-values: the variables that keys of the contract set. */ -}}\n"
        f'{{{{- define "ipf.contract" -}}}}\n{rows}{{{{- end }}}}\n\n'
        "{{- /* The roles of the default. */ -}}\n"
        f'{{{{- define "ipf.roles" -}}}}\n{json.dumps(roles.ALL)}\n{{{{- end }}}}\n'
    )


def files() -> dict[Path, str]:
    """Path and text of each file that this script writes."""
    return {
        CHART / "values.yaml": first_part() + second_part(),
        CHART / "values.schema.json": json.dumps(schema(), indent=1) + "\n",
        CHART / "templates/_settings.tpl": contract_template(),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)

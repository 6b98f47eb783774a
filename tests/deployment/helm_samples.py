"""Values that the tests of the Helm chart render, and what they look for in objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.deployment.helm import DATABASES, NAME

CONSOLE = f"{NAME}-console"
GROUPS: dict[str, Any] = {
    "receive": {
        "roles": ["receive"],
        "replicas": 3,
        "resources": {"requests": {"cpu": "500m"}},
        "settings": {"IPF_WORKER_PROCESSES": 0, "IPF_LOG_LEVEL": "WARN"},
    },
    "work": {"roles": ["convert", "deliver", "poll"], "replicas": 2, "settings": {"IPF_WORKER_PROCESSES": 3}},
    "serve": {"roles": ["fhir", "mapping", "admin"], "nodeSelector": {"disk": "hdd"}},
}

LISTENERS = {
    "mllp": {
        "listeners": [
            {"name": "lab", "port": 2576, "tls": {"secretName": "lab-tls", "clientCaSecretName": "lab-senders"}},
            {"name": "no", "port": 2577},
        ]
    },
    "hl7Http": {"listeners": [{"name": "portal", "port": 2580, "tls": {"secretName": "portal-tls"}}]},
    "http": {"port": 8443, "tls": {"secretName": "http-tls"}},
    "console": {"port": 3443, "tls": {"secretName": "console-tls"}, "replicas": 2},
}
EVERYTHING: dict[str, Any] = LISTENERS | {
    "listenAddress": "::",
    "image": {"repository": "registry.example/ipf", "tag": "1.2.3", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccount": {"annotations": {"a": "b"}},
    "engine": {
        "replicas": 3,
        "profilesClaim": "profiles",
        "volumes": [{"name": "maps", "configMap": {"name": "maps"}}],
        "volumeMounts": [{"name": "maps", "mountPath": "/etc/ipf/maps"}],
        "podAnnotations": {"c": "d"},
        "podLabels": {"e": "f"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "hl7", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
    },
    "fhir": {"port": 8444, "tls": {"secretName": "fhir-tls"}},
    "metrics": {"port": 9464, "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "services": {
        "senders": {"type": "LoadBalancer", "annotations": {"g": "h"}, "loadBalancerSourceRanges": ["10.0.0.0/8"]},
        "http": {"type": "NodePort", "annotations": {"i": "j"}},
        "console": {"annotations": {"k": "l"}},
    },
    "trustedAuthorities": {"configMapName": "authorities"},
    "networkPolicy": {
        "enabled": True,
        "senders": [{"ipBlock": {"cidr": "10.1.0.0/16"}}],
        "http": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "apps"}}}],
        "console": [{"podSelector": {}}],
        "metrics": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}],
    },
    "secrets": DATABASES | {"IPF_METRICS_TOKEN": {"existingSecret": {"name": "scrape", "key": "token"}}},
    "interfaceEngine": {"admin": {"authToken": "t0ken"}},
}


def nested(path: str, value: Any) -> dict[str, Any]:
    """Values with one key set."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)


def merged(*parts: dict[str, Any]) -> dict[str, Any]:
    """Values of all parts."""
    found: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, dict) and isinstance(found.get(key), dict)
            found[key] = merged(found[key], value) if both else value
    return found


def strings(value: Any) -> Iterator[str]:
    """Every text in an object."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from (str(key), *strings(one))
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)
    else:
        yield str(value)


def chosen(pods: list[dict[str, Any]], labels: dict[str, str]) -> list[dict[str, Any]]:
    """The pods that a selector selects."""
    return [one for one in pods if labels.items() <= one["metadata"]["labels"].items()]

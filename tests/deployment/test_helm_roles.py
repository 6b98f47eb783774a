"""The Helm chart with role groups: Deployments with roles, resources and settings of their own."""

from __future__ import annotations

import re
from typing import Any

from ipf.config import roles
from ipf.config.environment import read
from tests.deployment.helm import DATABASES, NAME, HelmError, HelmTestCase, Rendered, helm, with_databases
from tests.deployment.helm_samples import EVERYTHING, GROUPS, chosen, merged
from tests.deployment.helm_values import CHART

GROUP = "deployment"
FAMILY = "helm"

NAMES = {f"{NAME}-{group}" for group in GROUPS}


def rendered(**groups: Any) -> Rendered:
    """A release with these groups beside the sample ones."""
    return Rendered({"roleGroups": merged(GROUPS, groups)})


def service_pods(release: Rendered, name: str) -> set[str]:
    """The Deployments whose pods a Service selects."""
    selector = release.one("Service", name)["spec"]["selector"]
    found = set()
    for one in release.objects:
        if one["kind"] == "Deployment" and chosen([one["spec"]["template"]], selector):
            found.add(one["metadata"]["name"])
    return found


class HelmRoleGroupTests(HelmTestCase):
    def test_each_group_is_a_deployment_with_its_roles_and_settings(self) -> None:
        release = rendered()
        deployments = {one["metadata"]["name"] for one in release.objects if one["kind"] == "Deployment"}
        self.assertEqual(deployments, NAMES | {f"{NAME}-console"})
        for group in GROUPS:
            found = release.environment(f"{NAME}-{group}") | {name: one["value"] for name, one in DATABASES.items()}
            settings, warnings = read({name: value for name, value in found.items() if not name.endswith("_URL_FILE")})
            self.assertEqual((set(settings.running), warnings), (set(GROUPS[group]["roles"]), []))
        receive, work, serve = (release.environment(f"{NAME}-{group}") for group in GROUPS)
        self.assertEqual((receive["IPF_ROLES"], work["IPF_ROLES"]), ("receive", "convert,deliver,poll"))
        self.assertEqual(serve["IPF_ROLES"], "fhir,mapping,admin")
        self.assertEqual((receive["IPF_WORKER_PROCESSES"], work["IPF_WORKER_PROCESSES"]), ("0", "3"))
        self.assertNotIn("IPF_WORKER_PROCESSES", serve)
        self.assertEqual((receive["IPF_LOG_LEVEL"], work["IPF_LOG_LEVEL"]), ("WARN", "INFO"))
        self.assertEqual({one["IPF_MAX_ATTEMPTS"] for one in (receive, work, serve)}, {"5"})

    def test_what_a_group_does_not_name_is_that_of_the_engine(self) -> None:
        release = Rendered({"engine": {"replicas": 4, "tolerations": [{"key": "hl7"}]}, "roleGroups": GROUPS})
        replicas = {group: release.one("Deployment", f"{NAME}-{group}")["spec"]["replicas"] for group in GROUPS}
        self.assertEqual(replicas, {"receive": 3, "work": 2, "serve": 4})
        resources = release.container(f"{NAME}-receive")["resources"]
        self.assertEqual(resources["requests"], {"cpu": "500m", "memory": "1Gi"})
        self.assertEqual(resources["limits"], {"memory": "2Gi"})
        self.assertEqual(release.container(f"{NAME}-work")["resources"]["requests"]["cpu"], "1")
        self.assertEqual(release.pod(f"{NAME}-serve")["nodeSelector"], {"disk": "hdd"})
        self.assertNotIn("nodeSelector", release.pod(f"{NAME}-work"))
        for group in GROUPS:
            self.assertEqual(release.pod(f"{NAME}-{group}")["tolerations"], [{"key": "hl7"}])

    def test_services_reach_the_pods_that_have_the_role(self) -> None:
        front, back = f"{NAME}-serve", f"{NAME}-front"
        release = Rendered({"roleGroups": GROUPS, "metrics": {"serviceMonitor": {"enabled": True}}})
        self.assertEqual(service_pods(release, f"{NAME}-senders"), {f"{NAME}-receive"})
        self.assertEqual(service_pods(release, f"{NAME}-metrics"), NAMES)
        for name in (NAME, f"{NAME}-fhir", f"{NAME}-mapping"):
            self.assertEqual(service_pods(release, name), {front})
        split = rendered(serve={"roles": ["admin"]}, front={"roles": ["fhir", "receive"]})
        self.assertEqual(service_pods(split, NAME), {front})
        self.assertEqual(service_pods(split, f"{NAME}-fhir"), {back})
        self.assertEqual(service_pods(split, f"{NAME}-senders"), {f"{NAME}-receive", back})
        self.assertNotIn(f"{NAME}-mapping", {one["metadata"]["name"] for one in split.objects})

    def test_addresses_are_those_of_the_services(self) -> None:
        release = Rendered({"roleGroups": GROUPS, "settings": {"IPF_HOSTS": "fhir.example"}})
        found = release.environment(f"{NAME}-serve")
        self.assertEqual(found["IPF_BASE_URL"], f"http://{NAME}-fhir.hospital.svc:8090/fhir")
        self.assertEqual(found["IPFCTL_URL"], f"http://{NAME}.hospital.svc:8090")
        names = [f"{name}{end}" for name in (NAME, f"{NAME}-fhir", f"{NAME}-mapping") for end in (".hospital.svc", "")]
        self.assertEqual(found["IPF_HOSTS"].split(), ["fhir.example", *names])
        console = release.environment(f"{NAME}-console")
        self.assertEqual(console["IPF_UI_ENGINE_URL"], f"http://{NAME}.hospital.svc:8090")

    def test_fhir_clients_can_have_a_port_of_their_own(self) -> None:
        values = {"fhir": {"port": 8091, "tls": {"secretName": "fhir-tls"}}}
        alone, groups = Rendered(values), Rendered(values | {"roleGroups": GROUPS})
        for release, name in ((alone, NAME), (groups, f"{NAME}-serve")):
            (port,) = release.one("Service", f"{NAME}-fhir")["spec"]["ports"]
            self.assertEqual(port, {"name": "fhir", "port": 8091, "targetPort": "fhir"})
            self.assertEqual(service_pods(release, f"{NAME}-fhir"), {name})
            found, console = release.environment(name), release.environment(f"{NAME}-console")
            self.assertEqual(found["IPF_BASE_URL"], f"https://{NAME}-fhir.hospital.svc:8091/fhir")
            self.assertEqual(console["IPF_UI_FHIR_URL"], f"https://{NAME}-fhir.hospital.svc:8091")
            self.assertEqual(console["IPF_UI_ENGINE_URL"], f"http://{NAME}.hospital.svc:8090")
            self.assertIn("tls-fhir", {one["name"] for one in release.pod(name)["volumes"]})
        (port,) = groups.one("Service", f"{NAME}-mapping")["spec"]["ports"]
        self.assertEqual(port["port"], 8091)
        self.assertNotIn("IPF_UI_FHIR_URL", Rendered({}).environment(f"{NAME}-console"))

    def test_only_receivers_have_the_ports_and_keys_of_senders(self) -> None:
        release = Rendered(EVERYTHING | {"roleGroups": GROUPS})
        for group in GROUPS:
            ports = {one["name"] for one in release.container(f"{NAME}-{group}")["ports"]}
            volumes = {one["name"] for one in release.pod(f"{NAME}-{group}")["volumes"]}
            if group == "receive":
                self.assertLessEqual({"lab", "no", "portal"}, ports)
                self.assertLessEqual({"tls-lab", "tls-portal"}, volumes)
            else:
                own = {"fhir"} if group == "serve" else set()
                self.assertEqual(ports, {"http", "metrics"} | own)
                tls = {one.removeprefix("tls-") for one in volumes if one.startswith("tls-")}
                self.assertEqual(tls, {"http"} | own)

    def test_each_group_has_a_disruption_budget(self) -> None:
        budgets = {one["metadata"]["name"] for one in rendered().objects if one["kind"] == "PodDisruptionBudget"}
        self.assertEqual(budgets, NAMES)

    def test_wrong_groups_are_refused(self) -> None:
        for groups, text in (
            ({"serve": {"roles": ["fhirr"]}}, "/roleGroups/serve/roles/0"),
            ({"serve": {"roles": []}}, "/roleGroups/serve/roles"),
            ({"serve": {"replicas": 2}}, "/roleGroups/serve"),
            ({"serve": {"roles": ["fhir"], "replica": 2}}, "/roleGroups/serve"),
            ({"serve": {"roles": ["fhir"], "settings": {"IPF_WORKER_PROCESES": 1}}}, "IPF_WORKER_PROCESES"),
            ({"serve": {"roles": ["fhir"], "settings": {"IPF_DB_URL": "x"}}}, "IPF_DB_URL"),
            ({"console": {"roles": ["fhir"]}}, "invalid propertyName 'console'"),
            ({"Serve": {"roles": ["fhir"]}}, "invalid propertyName 'Serve'"),
        ):
            with self.assertRaisesRegex(HelmError, re.escape(text)):
                Rendered({"roleGroups": groups})

    def test_the_notes_name_roles_that_nobody_has(self) -> None:
        def missing(groups: dict[str, Any]) -> list[str]:
            values = with_databases({"roleGroups": groups})
            text = helm("install", NAME, str(CHART), "--dry-run=client", values=values)
            return re.findall(r"no group of roleGroups runs (\w+)\.", text)

        self.assertEqual(missing(GROUPS), [])
        self.assertEqual(missing({}), [])
        self.assertEqual(missing({"receive": GROUPS["receive"]}), [role for role in roles.ALL if role != "receive"])

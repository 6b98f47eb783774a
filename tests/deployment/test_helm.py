"""The Helm chart, rendered by helm: valid objects of Kubernetes, which fit each other."""

from __future__ import annotations

import kubernetes_validate

from tests.deployment.helm import NAME, HelmTestCase, Rendered, helm, with_databases
from tests.deployment.helm_samples import CONSOLE, EVERYTHING, GROUPS, LISTENERS, chosen, merged
from tests.deployment.helm_values import CHART

GROUP = "deployment"
FAMILY = "helm"

VERSIONS = ("1.25", "1.29", "1.33", "1.37")
NOT_OF_KUBERNETES = {"ServiceMonitor"}


class HelmTests(HelmTestCase):
    def test_lint(self) -> None:
        for values in ({}, EVERYTHING):
            helm("lint", "--strict", "--quiet", str(CHART), values=with_databases(values))

    def test_objects_are_valid_in_each_version_of_kubernetes(self) -> None:
        for values in (
            {},
            EVERYTHING,
            EVERYTHING | {"roleGroups": GROUPS},
            {"console": {"enabled": False}, "podDisruptionBudget": {"enabled": False}},
        ):
            rendered = Rendered(values)
            self.assertLessEqual({"Deployment", "Service", "ConfigMap", "Secret", "ServiceAccount"}, rendered.kinds())
            for one in rendered.objects:
                if one["kind"] not in NOT_OF_KUBERNETES:
                    for version in VERSIONS:
                        kubernetes_validate.validate(one, version, strict=True)

    def test_the_schemas_refuse_an_unknown_field(self) -> None:
        deployment = Rendered({}).one("Deployment")
        deployment["spec"]["template"]["spec"]["containers"][0]["reddinessProbe"] = {}
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)

    def test_names_selectors_and_ports_fit(self) -> None:
        for values in ({}, EVERYTHING, EVERYTHING | {"roleGroups": GROUPS}):
            rendered = Rendered(values)
            names = [(one["kind"], one["metadata"]["name"]) for one in rendered.objects]
            self.assertEqual(len(names), len(set(names)))
            pods = [one["spec"]["template"] for one in rendered.objects if one["kind"] == "Deployment"]
            for one in rendered.objects:
                if one["kind"] == "Service":
                    selected = chosen(pods, one["spec"]["selector"])
                    self.assertGreater(len(selected), 0, one["metadata"]["name"])
                    for pod in selected:
                        open_ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
                        self.assertLessEqual({port["targetPort"] for port in one["spec"]["ports"]}, open_ports)
                if one["kind"] in ("PodDisruptionBudget", "Deployment"):
                    self.assertEqual(len(chosen(pods, one["spec"]["selector"]["matchLabels"])), 1)
                if one["kind"] == "NetworkPolicy":
                    self.assertGreater(len(chosen(pods, one["spec"]["podSelector"]["matchLabels"])), 0)
            for pod in pods:
                volumes = {one["name"] for one in pod["spec"]["volumes"]}
                mounts = [one["name"] for one in pod["spec"]["containers"][0]["volumeMounts"]]
                self.assertEqual(volumes, set(mounts))

    def test_pods_have_no_privileges_and_a_read_only_root(self) -> None:
        rendered = Rendered({})
        for name, program_name in ((NAME, "ipf"), (CONSOLE, "ipf-ui")):
            pod, container = rendered.pod(name), rendered.container(name)
            self.assertEqual(pod["securityContext"]["runAsUser"], 10001)
            self.assertTrue(pod["securityContext"]["runAsNonRoot"])
            self.assertFalse(pod["automountServiceAccountToken"])
            self.assertFalse(pod["enableServiceLinks"])  # their names would be variables named IPF_...
            security = container["securityContext"]
            self.assertEqual((security["readOnlyRootFilesystem"], security["capabilities"]), (True, {"drop": ["ALL"]}))
            self.assertFalse(security["allowPrivilegeEscalation"])
            self.assertEqual(container["args"], [program_name])
            volumes = {one["name"]: one for one in pod["volumes"]}
            self.assertEqual(volumes["tmp"]["emptyDir"]["medium"], "Memory")
            mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
            self.assertEqual((mounts["/tmp"], mounts["/var/lib/ipf"]), ("tmp", "data"))

    def test_probes(self) -> None:
        for values, scheme in (({}, "HTTP"), (LISTENERS, "HTTPS")):
            container = Rendered(values).container()
            ports = {one["name"] for one in container["ports"]}
            for probe, path in (("startup", "liveness"), ("liveness", "liveness"), ("readiness", "readiness")):
                get = container[f"{probe}Probe"]["httpGet"]
                self.assertEqual((get["path"], get["scheme"]), (f"/actuator/health/{path}", scheme))
                self.assertIn(get["port"], ports)


class HelmNetworkTests(HelmTestCase):
    def test_who_may_connect(self) -> None:
        closed = Rendered({"networkPolicy": {"enabled": True}})
        (rule,) = closed.one("NetworkPolicy")["spec"]["ingress"]
        self.assertEqual([list(one) for one in rule["from"]], [["podSelector"]])
        self.assertEqual(rule["ports"], [{"port": 8090}])
        self.assertEqual(closed.one("NetworkPolicy", CONSOLE)["spec"]["ingress"], [])
        policy = EVERYTHING["networkPolicy"]
        http, senders, metrics = Rendered(EVERYTHING).one("NetworkPolicy")["spec"]["ingress"]
        self.assertEqual((http["from"][1:], http["ports"]), (policy["http"], [{"port": 8443}, {"port": 8444}]))
        self.assertEqual(senders["from"], policy["senders"])
        self.assertEqual([one["port"] for one in senders["ports"]], [2576, 2577, 2580])
        self.assertEqual((metrics["from"], metrics["ports"]), (policy["metrics"], [{"port": 9464}]))

    def test_the_service_monitor(self) -> None:
        """No schema of Kubernetes has it.  Source: API reference of the Prometheus Operator, `ServiceMonitorSpec`."""
        self.assertNotIn("ServiceMonitor", Rendered({}).kinds())
        enabled = {"metrics": {"serviceMonitor": {"enabled": True}}}
        for values, scheme in (({}, None), (LISTENERS, "https"), (EVERYTHING, None)):
            rendered = Rendered(merged(values, enabled))
            monitor = rendered.one("ServiceMonitor")
            self.assertEqual(monitor["apiVersion"], "monitoring.coreos.com/v1")
            wanted = monitor["spec"]["selector"]["matchLabels"].items()
            services = [one for one in rendered.objects if one["kind"] == "Service"]
            (service,) = [one for one in services if wanted <= one["metadata"]["labels"].items()]
            (endpoint,) = monitor["spec"]["endpoints"]
            self.assertIn(endpoint["port"], {one["name"] for one in service["spec"]["ports"]})
            self.assertEqual(endpoint.get("scheme"), scheme)
            self.assertEqual(endpoint["path"], "/actuator/prometheus")
            label = monitor["spec"]["jobLabel"]
            self.assertEqual(service["metadata"]["labels"][label], "ipf")  # the job that alerts and dashboards name
        self.assertEqual(endpoint["authorization"], {"credentials": {"name": "scrape", "key": "token"}})
        self.assertEqual(monitor["metadata"]["labels"]["release"], "prometheus")

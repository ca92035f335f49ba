"""The manifests for Kubernetes and Compose: schemas, sound configurations, and what their comments promise."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fastwire_daemon.config import Config, parse_config
from fastwire_daemon.config.values.text import parse_duration
from tests.brokers.maven import BrokerUnavailableError
from tests.stores.programs import go_program
from tests.support.source_tree import ROOT

FOLDER = ROOT / "conf" / "kubernetes"
FILES = sorted(path.name for path in FOLDER.glob("*.yaml"))
WORKLOADS = ("Deployment", "StatefulSet")


def documents(name: str) -> dict[str, dict[str, Any]]:
    """The objects of a file, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((FOLDER / name).read_text())}


def workload(name: str) -> dict[str, Any]:
    [found] = [each for kind, each in documents(name).items() if kind in WORKLOADS]
    return found


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = workload(name)["spec"]["template"]["spec"]
    return spec


def containers(name: str) -> Iterator[dict[str, Any]]:
    yield from pod(name)["initContainers"]
    yield from pod(name)["containers"]


def configuration(name: str) -> Config:
    return parse_config(documents(name)["ConfigMap"]["data"]["config.toml"], {"HOSTNAME": "pod-0"})


def test_there_is_one_for_folders_and_one_for_stores() -> None:
    assert FILES == ["folder.yaml", "store.yaml"]


@pytest.mark.parametrize("version", ["1.31", "newest"])
@pytest.mark.parametrize("name", FILES)
def test_every_object_is_what_the_server_expects(name: str, version: str) -> None:
    """No unknown field, no wrong type; the schemas come with the package."""
    kubernetes = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate, an extra of dev")
    wanted = kubernetes.latest_version() if version == "newest" else version
    for each in documents(name).values():
        kubernetes.validate(each, wanted, strict=True)


def test_the_schemas_refuse_what_is_wrong() -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate, an extra of dev")
    wrong = workload("store.yaml")
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes.ValidationError, match="livenessProb"):
        kubernetes.validate(wrong, kubernetes.latest_version(), strict=True)


@pytest.mark.parametrize("name", FILES)
def test_the_configuration_is_sound_and_fits_the_pod(name: str) -> None:
    config = configuration(name)
    assert pod(name)["terminationGracePeriodSeconds"] >= config.daemon.drain_timeout + 10
    assert config.daemon.http is not None
    assert (config.daemon.http.host, config.daemon.http.port) == ("0.0.0.0", 8650)
    assert config.daemon.reload == "change"
    [(_, pipeline)] = config.pipelines.items()
    [daemon] = pod(name)["containers"]
    assert daemon["ports"] == [{"name": "http", "containerPort": 8650}]
    mounts = {each["mountPath"]: each for each in daemon["volumeMounts"]}
    if isinstance(pipeline.sink.path, Path):
        assert pipeline.sink.path.is_relative_to("/data") and "readOnly" not in mounts["/data"]
    for secret in re.findall(r'"(/run/[^"]+)"', documents(name)["ConfigMap"]["data"]["config.toml"]):
        assert str(Path(secret).parent) in mounts


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_a_secret_or_root(name: str) -> None:
    assert "Secret" not in documents(name)
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "Containerfile").read_text(), re.M)
    assert user is not None
    context = pod(name)["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == tuple(map(int, user.groups()))
    assert context["runAsNonRoot"] and context["fsGroup"] == context["runAsGroup"]
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod(name)["automountServiceAccountToken"] is False
    for each in containers(name):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize("name", FILES)
def test_the_probes_ask_for_what_is_served(name: str) -> None:
    [daemon] = pod(name)["containers"]
    asked = {kind: daemon[kind]["httpGet"]["path"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}


@pytest.mark.parametrize("name", FILES)
def test_a_change_of_the_map_reaches_the_pod(name: str) -> None:
    """A mount of one file by subPath is never replaced."""
    for each in containers(name):
        [config] = [mount for mount in each["volumeMounts"] if mount["mountPath"] == "/etc/fastwire"]
        assert "subPath" not in config and config["readOnly"]
        assert each["args"][1] == "/etc/fastwire/config.toml"


@pytest.mark.parametrize("name", FILES)
def test_selectors_find_the_pods(name: str) -> None:
    labels = workload(name)["spec"]["template"]["metadata"]["labels"]
    found = documents(name)
    assert workload(name)["spec"]["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert {each["metadata"]["name"] for each in found.values()} == {labels["app.kubernetes.io/instance"]}


def test_the_autoscaler_asks_for_a_metric_of_ours() -> None:
    scaler = documents("store.yaml")["HorizontalPodAutoscaler"]["spec"]
    target = workload("store.yaml")
    assert scaler["scaleTargetRef"] == {
        "apiVersion": target["apiVersion"],
        "kind": target["kind"],
        "name": target["metadata"]["name"],
    }
    assert "replicas" not in target["spec"]
    [metric] = scaler["metrics"]
    assert f"`{metric['pods']['metric']['name']}`" in (ROOT / "docs" / "monitoring.md").read_text()


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "conf" / "compose.yaml").read_text())
    return found


def test_the_try_with_compose_is_sound(tmp_path: Path) -> None:
    services, configs = compose()["services"], compose()["configs"]
    schema = tmp_path / "order.avsc"
    schema.write_text(configs["schema"]["content"])
    config = parse_config(configs["pipeline"]["content"].replace("/etc/fastwire/order.avsc", str(schema)), {})
    [pipeline] = config.pipelines.values()
    assert pipeline.sink.path == Path("/data/orders")
    assert parse_duration(services["fastwire"]["stop_grace_period"]) >= config.daemon.drain_timeout + 10
    assert {each["source"] for each in services["fastwire"]["configs"]} == set(configs)
    assert json.loads(schema.read_text())["fields"][0]["name"] == "order"
    assert services["feed"]["command"][0].endswith(" produce kafka://kafka:9092 orders")


@pytest.mark.store
def test_compose_reads_the_file() -> None:
    if shutil.which("go") is None:
        pytest.skip("needs Go: apt-get install golang")
    try:
        program = go_program("github.com/compose-spec/compose-go/v2/cmd", "v2.16.2")
    except BrokerUnavailableError as exc:
        pytest.skip(str(exc))
    done = subprocess.run(
        (program, "compose.yaml"), cwd=ROOT / "conf", capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == {"kafka", "feed", "fastwire"}

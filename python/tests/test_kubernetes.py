"""The manifests of docs/kubernetes fit Kubernetes, and ask for no more than they need."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
kubernetes_validate = pytest.importorskip("kubernetes_validate")

BASE = Path(__file__).parents[2] / "docs" / "kubernetes"
# The oldest that knows `appArmorProfile`, and one that is new.
VERSIONS = ("1.30", "1.37")


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def resources() -> list[dict[str, Any]]:
    """What the kustomization names."""
    base = documents((BASE / "kustomization.yaml").read_text())[0]
    return [found for name in base["resources"] for found in documents((BASE / name).read_text())]


def daemon_set() -> dict[str, Any]:
    return next(found for found in resources() if found["kind"] == "DaemonSet")


def test_all_files_are_of_the_base() -> None:
    base = documents((BASE / "kustomization.yaml").read_text())[0]
    files = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(base["resources"])
    kinds = sorted(found["kind"] for found in resources())
    assert kinds == ["DaemonSet", "Namespace", "ServiceAccount"]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_resource_fits_its_schema(version: str) -> None:
    for resource in resources():
        kubernetes_validate.validate(resource, version, strict=True)


def test_a_resource_that_does_not_fit_is_refused() -> None:
    broken = json.loads(json.dumps(daemon_set()))
    broken["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


def test_names_that_resources_give_each_other_exist() -> None:
    base = documents((BASE / "kustomization.yaml").read_text())[0]
    pod = daemon_set()["spec"]["template"]
    accounts = {
        found["metadata"]["name"] for found in resources() if found["kind"] == "ServiceAccount"
    }
    assert pod["spec"]["serviceAccountName"] in accounts
    assert base["namespace"] in {
        found["metadata"]["name"] for found in resources() if found["kind"] == "Namespace"
    }
    made = {
        (generated["name"], literal.split("=")[0])
        for generated in base["configMapGenerator"]
        for literal in generated["literals"]
    }
    images = {image["name"] for image in base["images"]}
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    for container in pod["spec"]["containers"]:
        known = {variable["name"] for variable in container["env"]}
        for variable in container["env"]:
            reference = variable["valueFrom"].get("configMapKeyRef")
            assert reference is None or (reference["name"], reference["key"]) in made
        used = {word for word in known if any(f"$({word})" in arg for arg in container["args"])}
        assert used == known
        assert container["image"] in images
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    labels = daemon_set()["spec"]["selector"]["matchLabels"]
    assert labels.items() <= pod["metadata"]["labels"].items()


def test_no_container_is_privileged_and_only_recordings_are_written() -> None:
    pod = daemon_set()["spec"]["template"]["spec"]
    assert pod["hostPID"] is True
    assert pod["automountServiceAccountToken"] is False
    record, push = pod["containers"]
    for container in (record, push):
        security = container["securityContext"]
        assert security["privileged"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"]["drop"] == ["ALL"]
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
    assert "add" not in push["securityContext"]["capabilities"]
    assert push["securityContext"]["allowPrivilegeEscalation"] is False
    assert push["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    written = {mount["name"] for mount in record["volumeMounts"] if not mount.get("readOnly")}
    assert written == {"recordings", "run"}
    assert [mount["name"] for mount in push["volumeMounts"]] == ["recordings"]
    paths = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
    # What names pods is where the recorder looks for it.
    source = (BASE.parents[1] / "crates/collect/src/pods.rs").read_text()
    (logs,) = re.findall(r'const LOGS: &str = "(.*)";', source)
    folders = re.findall(r'const (?:PODS|CONTAINERS): &str = "(.*)";', source)
    assert len(folders) == 2
    for folder in folders:
        (mount,) = (m for m in record["volumeMounts"] if m["mountPath"] == f"{logs}/{folder}")
        assert mount["readOnly"] is True and paths[mount["name"]] == mount["mountPath"]


def built(directory: Path) -> list[dict[str, Any]]:
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl")
    command = ["kubectl", "kustomize", str(directory)]
    return documents(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_the_overlay_of_the_page_changes_what_it_says(tmp_path: Path) -> None:
    page = (BASE.parent / "hosts.md").read_text()
    (overlay,) = re.findall(r"^```yaml\n(resources:.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "kustomization.yaml").write_text(overlay)
    (tmp_path / "memtrace").mkdir()
    shutil.copytree(BASE, tmp_path / "memtrace" / "docs" / "kubernetes")
    found = {one["kind"]: one for one in built(tmp_path)}
    assert found["ConfigMap"]["data"] == {"ROOT": "s3://mine/memory", "RUN": "prod"}
    for container in found["DaemonSet"]["spec"]["template"]["spec"]["containers"]:
        assert container["image"] == "registry.example/memtrace:0.1.0"


def test_kubectl_builds_the_base() -> None:
    found = built(BASE)
    assert sorted(one["kind"] for one in found) == [
        "ConfigMap",
        "DaemonSet",
        "Namespace",
        "ServiceAccount",
    ]
    for one in found:
        kubernetes_validate.validate(one, VERSIONS[-1], strict=True)
    config = next(one for one in found if one["kind"] == "ConfigMap")["metadata"]["name"]
    pod = next(one for one in found if one["kind"] == "DaemonSet")["spec"]["template"]["spec"]
    for container in pod["containers"]:
        assert container["image"].endswith("memtrace:0.1.0")
        for variable in container["env"]:
            reference = variable["valueFrom"].get("configMapKeyRef")
            assert reference is None or reference["name"] == config

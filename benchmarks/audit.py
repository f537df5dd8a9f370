"""Measure `gpuward audit` on a simulated cluster: `python -m benchmarks.audit`.

An API server in another process lists nodes, Jobs and pods, and makes the objects of each page when
it is asked for it. The audit is a process of its own, whose time and memory are printed. It waits
while the server makes a page, so the whole takes as long as both together.

`--pods 15000`, for example, chooses how many; `--nodes` too.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.testkit.cluster_commands.paged_server import Listed, paged_server

PODS, NODES = 150_000, 5_000
_PODS_OF_A_JOB = 10
_GPU_JOBS, _BYPASSES = 5, 100  # one Job of so many requests a GPU, one has a bypass
_NAMESPACES = 500

_Json = dict[str, Any]


def main() -> int:
    """Run the measurement, print it, and return 0."""
    parser = argparse.ArgumentParser(description="Measure the audit of a simulated cluster.")
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--nodes", type=int, default=NODES)
    options = parser.parse_args()
    context = get_context("spawn")
    here, there = context.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (there, folder, options.pods, options.nodes)
        server = context.Process(target=_serve, args=arguments, daemon=True)
        server.start()
        command = [sys.executable, "-m", "gpuward", "audit", "--isolated", "--output=statistics"]
        command += ["--notes", "--kubeconfig", here.recv()]
        started = time.perf_counter()
        subprocess.run(command, check=False)
        wall = time.perf_counter() - started
        used = resource.getrusage(resource.RUSAGE_CHILDREN)  # not yet of the server
        here.send(None)
        server.join()
    both = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    other = both.ru_utime + both.ru_stime - cpu
    size = f"{options.nodes:,} nodes, {options.pods:,} pods"
    print(f"{size}: {cpu:.0f} s of CPU, {memory:.0f} MB")
    print(f"{wall:.0f} s in all, in which the simulated API server took {other:.0f} s of CPU")
    return 0


def _serve(pipe: Connection, folder: str, pods: int, nodes: int) -> None:
    listed = {
        "/api/v1/nodes": Listed(nodes, _node, "Node"),
        "/api/v1/namespaces": Listed(_NAMESPACES, _namespace, "Namespace"),
        "/apis/batch/v1/jobs": Listed(pods // _PODS_OF_A_JOB, _job, "Job"),
        "/api/v1/pods": Listed(pods, lambda number: _pod(number, nodes)),
    }
    with paged_server(listed) as served:
        pipe.send(served.kubeconfig(Path(folder)))
        pipe.recv()


def _namespace(number: int) -> _Json:
    return {"metadata": {"name": f"team-{number}"}}


def _node(number: int) -> _Json:
    capacity = {"cpu": "96", "memory": "768Gi", "nvidia.com/gpu": "8"}
    return {"metadata": _metadata(f"node-{number}", ""), "status": {"capacity": capacity}}


def _job(number: int) -> _Json:
    metadata = _metadata(f"job-{number:06}", f"team-{number % _NAMESPACES}")
    return {"metadata": metadata, "spec": {"template": {"spec": _spec(number)}}}


def _pod(number: int, nodes: int) -> _Json:
    job = number // _PODS_OF_A_JOB
    metadata = _metadata(f"job-{job:06}-{number % _PODS_OF_A_JOB}", f"team-{job % _NAMESPACES}")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{job:06}", "controller": True}
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    return {
        "metadata": metadata | {"uid": f"uid-{number}", "ownerReferences": [owner]},
        "spec": _spec(job) | {"nodeName": f"node-{number % nodes}"},
        "status": {"phase": "Running", "conditions": conditions},
    }


def _metadata(name: str, namespace: str) -> _Json:
    """With the fields that API servers write, which are half of a pod."""
    fields: _Json = {f"f:field-{number}": {".": {}, "f:name": {}} for number in range(80)}
    managed = {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": fields}}
    found: _Json = {"name": name, "labels": {"app": name}, "managedFields": [managed]}
    return found | ({"namespace": namespace} if namespace else {})


def _spec(job: int) -> _Json:
    variables = [{"name": f"SETTING_{n}", "value": f"value of {n}"} for n in range(20)]
    limits = {"cpu": "1", "memory": "1Gi"}
    if job % _GPU_JOBS == 0:
        limits["nvidia.com/gpu"] = "1"
    if job % _BYPASSES == 1:
        variables.append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})
    resources = {"limits": limits, "requests": limits}
    container = {"name": "main", "image": "example/x:1", "env": variables, "resources": resources}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    mounts = [{"name": f"volume-{n}", "mountPath": f"/data/{n}"} for n in range(5)]
    volumes = [{"name": f"volume-{n}", "emptyDir": {}} for n in range(5)]
    containers = [container | {"volumeMounts": mounts}]
    return {"containers": containers, "volumes": volumes, "tolerations": tolerations}


if __name__ == "__main__":
    sys.exit(main())

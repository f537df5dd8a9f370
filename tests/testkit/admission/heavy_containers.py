"""Pods whose containers have many of what some part of gpuward reads."""

from __future__ import annotations

from collections.abc import Mapping

from tests.testkit.admission.heavy_parts import (
    BYPASS,
    CUDA,
    SHARE,
    Make,
    commands,
    each,
    env,
    heavy_pod,
    holder,
    host,
    keys,
)
from tests.testkit.admission.reviews import container, variable

HEAVY_CONTAINERS: Mapping[str, tuple[int, Make]] = {
    "one path through processes": (
        0,
        lambda n, t: heavy_pod(volumes=[host("/proc/1/root" * n + t)]),
    ),
    "one path through threads": (
        0,
        lambda n, t: heavy_pod(volumes=[host("/proc/1/task/1/root" * n + t)]),
    ),
    "mounts of one path": (
        40,
        lambda n, t: heavy_pod(
            {**BYPASS, "volumeMounts": each(n, lambda i: {"name": "host", "mountPath": f"/{i}"})},
            volumes=[host(f"/dev/nvidia-{t * min(n, 4)}")],
        ),
    ),
    "mounts with sub paths": (
        60,
        lambda n, t: heavy_pod(
            {**BYPASS, "volumeMounts": each(n, lambda i: {"name": "host", "subPath": f"{t}/{i}"})},
            volumes=[host("/dev")],
        ),
    ),
    "mounts with expanded sub paths": (
        60,
        lambda n, t: heavy_pod(
            {
                **BYPASS,
                "env": [env("A", t)],
                "volumeMounts": each(n, lambda i: {"name": "host", "subPathExpr": "$(A)" * 50 + i}),
            },
            volumes=[host("/dev")],
        ),
    ),
    "pipes of MPS": (
        100,
        lambda n, t: heavy_pod(
            {
                **BYPASS,
                "env": [env("CUDA_MPS_PIPE_DIRECTORY", f"/{t}")],
                "volumeMounts": each(n, lambda i: {"name": i, "mountPath": f"/{t}/.."}),
            },
            volumes=each(n, lambda i: host("/run/nvidia/mps", i)),
        ),
    ),
    "device lists": (
        90,
        lambda n, t: heavy_pod(
            {
                **BYPASS,
                "volumeMounts": each(
                    n,
                    lambda i: {
                        "name": "host",
                        "mountPath": f"/var/run/nvidia-container-devices/{t}{i}",
                    },
                ),
            },
            volumes=[host("/dev/null")],
        ),
    ),
    "volumes": (
        100,
        lambda n, t: heavy_pod(
            holder(volumeMounts=each(n, lambda i: {"name": i + t, "mountPath": f"/{i}"})),
            volumes=each(n, lambda i: host("/dev/nvidia0", i + t)),
        ),
    ),
    "a long name, containers": (
        60,
        lambda n, t: heavy_pod(
            *each(n, lambda i: {"name": f"c{i}", "image": CUDA}),
            metadata={"name": "", "generateName": t * min(n, 1000)},
        ),
    ),
    "containers with long names": (
        60,
        lambda n, t: heavy_pod(*each(n, lambda i: {"name": t + i, "image": CUDA})),
    ),
    "privileged containers": (
        120,
        lambda n, t: heavy_pod(
            holder(),
            *each(
                n,
                lambda i: {
                    "name": t + i,
                    "securityContext": {"privileged": True, "capabilities": {"add": ["ALL"]}},
                },
            ),
        ),
    ),
    "capabilities": (
        12,
        lambda n, t: heavy_pod(
            holder(securityContext={"capabilities": {"add": ["SYS_ADMIN", t] * n}})
        ),
    ),
    "numbered limits of a share": (
        55,
        lambda n, t: heavy_pod(
            holder(
                resources={"limits": SHARE},
                env=each(n, lambda i: env(f"CUDA_DEVICE_MEMORY_LIMIT_{i}", t)),
            )
        ),
    ),
    "parts of cards": (
        45,
        lambda n, t: heavy_pod(
            holder(resources={"limits": keys(n, f"cambricon.com/mlu{t}#.smlu.vmemory", "1")}),
            metadata={"labels": {"hami.io/webhook": "ignore"}},
        ),
    ),
    "prefixes beside a share": (
        65,
        lambda n, t: heavy_pod(
            holder(
                resources={"limits": SHARE},
                envFrom=each(n, lambda i: {"prefix": f"CGPU_{t}{i}", "secretRef": {"name": "x"}}),
            )
        ),
    ),
    "entries of one variable": (
        50,
        lambda n, t: heavy_pod(holder(env=[env("NVIDIA_VISIBLE_DEVICES", t)] * n)),
    ),
    "entries of one variable between others": (
        90,
        lambda n, t: heavy_pod(holder(env=[env("NVIDIA_VISIBLE_DEVICES", "all"), env("V", t)] * n)),
    ),
    "a value of commas": (0, lambda n, t: heavy_pod(container("taker", **variable("," * n + t)))),
    "a value of devices": (0, lambda n, t: heavy_pod(container("taker", **variable("0," * n + t)))),
    "a value of blanks": (0, lambda n, t: heavy_pod(container("taker", **variable(" " * n + t)))),
    "alternative variables": (
        40,
        lambda n, t: heavy_pod(container(env=each(n, lambda i: env(f"DOCKER_RESOURCE_GPU{t}{i}")))),
    ),
    "commands that start containers": (
        1_600,
        lambda n, t: heavy_pod(
            *each(n, lambda i: commands(i, "docker run " + "-e A=b " * 225 + t)),
            volumes=[host("/srv")],
        ),
    ),
    "a loader path": (0, lambda n, t: heavy_pod(holder(env=[env("LD_PRELOAD", "a:" * n + t)]))),
    "prefixes": (
        65,
        lambda n, t: heavy_pod(
            holder(envFrom=each(n, lambda i: {"prefix": "NVIDIA_", "secretRef": {"name": t + i}}))
        ),
    ),
}
"""As `heavy_manifests.HEAVY`, for fields of containers and for volumes."""

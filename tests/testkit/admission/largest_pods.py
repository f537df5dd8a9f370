"""The largest pods that exported policies evaluate, by what they have the most of."""

from __future__ import annotations

from typing import Any

from rules.in_process.bounds import MAX_COUNTS


def many(number: int, **fields: Any) -> list[dict[str, Any]]:
    """Objects with these fields, in whose texts `{}` is the number of the object."""
    return [
        {key: value.format(n) if isinstance(value, str) else value for key, value in fields.items()}
        for n in range(number)
    ]


def _with_shares(path: str, **fields: Any) -> dict[str, Any]:
    """A pod of ten containers with a share of a card, these fields, and many mounts at `path`."""
    mounts = many(MAX_COUNTS["mounts"] // 10, name="v", mountPath=path)
    resources = {"limits": {"huawei.com/Ascend910B-memory": "1"}}
    container = {"image": "x", "resources": resources, "volumeMounts": mounts, **fields}
    return {
        "automountServiceAccountToken": False,
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        "containers": [{"name": f"c{n}", **container} for n in range(10)],
    }


# The API server adds a volume with the token of the account, and a mount of it to each container.
LARGEST: dict[str, dict[str, Any]] = {
    "variables": {
        "containers": [
            {
                "name": "a",
                "image": "x",
                "env": many(MAX_COUNTS["variables"], name="V{}_" + "x" * 240),
            }
        ]
    },
    "variables of the loader": {
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": f"c{n}",
                "image": "x",
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
                "env": [
                    {"name": name, "value": "/a:" * 166}
                    for name in ("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH")
                ],
            }
            for n in range(MAX_COUNTS["containers"])
        ],
    },
    "containers": {
        "containers": [
            {"name": f"c{n}", "image": "nvcr.io/nvidia/" + "x" * 200, "env": many(6, name="V{}")}
            for n in range(MAX_COUNTS["containers"])
        ]
    },
    "images": {
        "containers": [
            {
                "name": f"c{n}",
                "image": "npu-s.".ljust(
                    MAX_COUNTS["characters in images"] // MAX_COUNTS["containers"], "x"
                ),
                "securityContext": {"privileged": True},
            }
            for n in range(MAX_COUNTS["containers"])
        ]
    },
    "GPU variables": {
        "containers": [
            {
                "name": "a",
                "image": "x",
                "env": many(
                    MAX_COUNTS["GPU variables"],
                    name="HABANA_VISIBLE_DEVICES_{}",
                    value="," * (MAX_COUNTS["characters in values of GPU variables"] // 100),
                ),
            }
        ]
    },
    "entries of envFrom": {
        "containers": [
            {
                "name": "a",
                "image": "x",
                "envFrom": many(
                    MAX_COUNTS["entries of envFrom"], prefix="N", configMapRef={"name": "x" * 200}
                ),
            }
        ]
    },
    "mounts of paths of the node": {
        "volumes": many(
            MAX_COUNTS["mounts of paths of the node"],
            name="v{}",
            hostPath={"path": "/dev/dri/" + "x" * 480},
        ),
        "containers": [
            {
                "name": "a",
                "image": "x",
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
                "volumeMounts": many(
                    MAX_COUNTS["mounts of paths of the node"], name="v{}", mountPath="/m{}"
                ),
            }
        ],
    },
    "mounts": {
        "volumes": many(
            MAX_COUNTS["volumes"] - 1, name="v{}", persistentVolumeClaim={"claimName": "data"}
        ),
        "containers": [
            {
                "name": f"c{n}",
                "image": "x",
                "volumeMounts": many(
                    MAX_COUNTS["mounts"] // 10 - 1,
                    name="v{}",
                    mountPath="/mnt/" + "a/../" * 100 + "{}",
                ),
            }
            for n in range(10)
        ],
    },
    "mounts at paths of lists of devices": {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        "containers": [
            {
                "name": "a",
                "image": "x",
                "volumeMounts": many(
                    MAX_COUNTS["mounts at paths of lists of devices"],
                    name="v",
                    mountPath="/var/run/nvidia-container-devices/" + "a/../" * 32 + "{}",
                ),
            }
        ],
    },
    "resources": {
        "containers": [
            {
                "name": f"c{n}",
                "image": "x",
                "resources": {"limits": {f"huawei.com/Ascend{'x' * 40}{i}": "1" for i in range(2)}},
            }
            for n in range(MAX_COUNTS["resources"] // 2)
        ]
    },
    "shares": {
        "metadata": {
            "annotations": {
                f"hami.io/{n}-allocated": "a" * 400 for n in range(MAX_COUNTS["annotations"])
            },
            "labels": {"hami.io/webhook": "ignore", "aliyun.com/gpu-count": "3"},
        },
        "containers": [
            {
                "name": f"c{n}",
                "image": "rocm/" + "x-" * 100,
                "resources": {
                    "limits": {"aliyun.com/gpu-mem": "17179869185", "nvidia.com/gpumem": "7"}
                },
                "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0," * 500}],
            }
            for n in range(MAX_COUNTS["containers"])
        ],
    },
    "mounts of shares": _with_shares("/mnt/" + "a/" * 95 + "{}"),
    "shares of one container": {
        "containers": [
            {
                "name": "a",
                "image": "x",
                "resources": {
                    "limits": {
                        f"cambricon.com/mlu{n}{kind}": "1"
                        for n in range(MAX_COUNTS["resources"] // 2 - 1)
                        for kind in (".smlu.vmemory", "")
                    }
                },
            }
        ],
        "metadata": {"labels": {"hami.io/webhook": "ignore"}},
    },
    "variables and mounts of a share": _with_shares(
        "/mnt/" + "a/../" * 11 + "{}",
        env=many(
            MAX_COUNTS["GPU variables"] // 10,
            name="CUDA_DEVICE_MEMORY_LIMIT_{}",
            value="," * (MAX_COUNTS["characters in values of GPU variables"] // 100),
        ),
    ),
    "node labels": {
        "nodeSelector": {
            f"nvidia.com/gpu.deploy.{n}": "x" * 60 for n in range(MAX_COUNTS["node labels"])
        }
    },
    "tolerations": {
        # The API server adds two.
        "tolerations": many(
            MAX_COUNTS["tolerations"] - 2, key="nvidia.com/" + "x" * 40 + "{}", operator="Exists"
        ),
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "preference": {
                            "matchExpressions": many(
                                MAX_COUNTS["expressions of them"]
                                // MAX_COUNTS["terms of node affinity"],
                                key="nvidia.com/gpu.deploy.{}",
                                operator="DoesNotExist",
                            )
                        },
                    }
                ]
                * MAX_COUNTS["terms of node affinity"]
            }
        },
        "containers": [
            {
                "name": "a",
                "image": "x",
                "securityContext": {"privileged": True},
                "env": [
                    *many(MAX_COUNTS["GPU variables"], name="CUDA_VISIBLE_DEVICES", value=""),
                    *many(
                        MAX_COUNTS["variables"] - MAX_COUNTS["GPU variables"],
                        name="CUDA_{}" + "x" * 200,
                    ),
                ],
            }
        ],
    },
    "annotations": {
        "metadata": {
            "annotations": {f"cdi.k8s.io/a{n}": "é" * 400 for n in range(MAX_COUNTS["annotations"])}
        }
    },
}

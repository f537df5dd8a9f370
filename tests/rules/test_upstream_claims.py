"""The rule about parameters of claims, with the cases of NVIDIA's DRA driver.

The table is that of `cmd/webhook/main_test.go` of kubernetes-sigs/dra-driver-nvidia-gpu, commit
ab13312, written anew. Left out are its rows about HTTP, and those in which a feature gate of the
driver is off: a manifest does not show that.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from policies.loading import default_policy
from rules.engine.fixing import check
from rules.profile.context import Context

RULES = default_policy().rule_set()
CONTEXT = Context(today=dt.date(2030, 6, 15))
VALID = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Default"}}
BAD_INTERVAL = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Invalid Interval"}}
BAD_SHARE = {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": -1}}
SLICES, MPS = {"strategy": "TimeSlicing"}, {"strategy": "MPS"}


def config(sharing: Any, *requests: str) -> dict[str, Any]:
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
    parameters |= {"sharing": sharing} if sharing else {}
    opaque = {"driver": "gpu.nvidia.com", "parameters": parameters}
    return {"opaque": opaque, **({"requests": list(requests)} if requests else {})}


def request(name: str, *, admin: bool = False) -> dict[str, Any]:
    return {"name": name, "deviceClassName": "gpu.nvidia.com", "adminAccess": admin}


def with_alternative(name: str, alternative: str) -> dict[str, Any]:
    return {"name": name, "firstAvailable": [request(alternative)]}


# The requests, the configurations, and in how many of them there is a fault.
TABLE: list[tuple[list[dict[str, Any]], list[dict[str, Any]], int]] = [
    ([], [config(VALID)], 0),
    ([], [config(BAD_INTERVAL), config(BAD_SHARE)], 2),
    ([], [config(BAD_INTERVAL)], 1),
    ([], [config(BAD_SHARE)], 1),
    ([request("monitor", admin=True)], [config(SLICES, "monitor")], 1),
    ([request("workload"), request("monitor", admin=True)], [config(MPS)], 0),
    ([request("workload"), request("monitor", admin=True)], [config(SLICES, "workload")], 0),
    ([request("monitor", admin=True)], [config(None)], 0),
    (
        [with_alternative("workload", "big"), request("monitor", admin=True)],
        [config(SLICES, "workload/big")],
        0,
    ),
]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2", "v1"])
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
@pytest.mark.parametrize(("requests", "configs", "faults"), TABLE)
def test_what_the_driver_refuses_is_found(
    requests: list[dict[str, Any]],
    configs: list[dict[str, Any]],
    faults: int,
    kind: str,
    version: str,
) -> None:
    spec = {"devices": {"requests": requests, "config": configs}}
    manifest = {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": "sample", "namespace": "ml"},
        "spec": spec if kind == "ResourceClaim" else {"spec": spec},
    }
    findings = check(manifest, RULES, CONTEXT).findings
    # The feature gates are on there.
    certain = [f.rule for f in findings if "feature gate" not in f.message]
    assert certain.count("invalid-claim-parameters") == faults

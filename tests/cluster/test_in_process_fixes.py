"""The exported fixes change pods as the rules do, on a real API server, in any order."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import yaml

from policies.loading import default_policy, load_policy
from rules.engine.fixing import FixResult, fix
from rules.engine.rule_set import RuleSet
from rules.in_process.bounds import MAX_COUNTS
from rules.in_process.mutation import MAX_WORDS
from rules.placement.node_affinity import PREFERRED_AFFINITY, REQUIRED_AFFINITY
from tests.testkit.admission.in_process import Exports, context_for, new_pod, own_exports, prepared
from tests.testkit.admission.largest_pods import LARGEST, many
from tests.testkit.admission.lint_admission_parity import pod_of, pods
from tests.testkit.admission.placed_pods import placed_pods
from tests.testkit.cases import cases
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.dry_runs import REFUSED
from webhook.in_process.fixes import fix_objects
from webhook.in_process.objects import (
    SPEC_DIGEST_ANNOTATION,
    ExportOptions,
    policy_objects,
    spec_digest_of,
)
from webhook.in_process.statements import fixing_rules, reason_against_fix

POLICY = default_policy()
FORBIDDEN = 403
OPTIONS = ExportOptions()
RULES = POLICY.rule_set()
FIXABLE = [active.rule.name for active in RULES.rules if not reason_against_fix(active.rule)]
# By the built-in policy.
FIXING = [rule.name for rule in fixing_rules(RULES)]


@pytest.fixture(scope="module")
def exports(
    control_plane_programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Exports]:
    with own_exports(control_plane_programs, tmp_path_factory.mktemp("exports")) as made:
        yield made


@pytest.fixture(scope="module")
def api_server(exports: Exports) -> Cluster:
    return exports.plane


@pytest.fixture(scope="module")
def fixing(exports: Exports) -> str:
    """A namespace in which pods are fixed by the built-in policy."""
    return exports.add(POLICY, OPTIONS, fix_objects)


@pytest.fixture(scope="module")
def plain(api_server: Cluster) -> str:
    """A namespace in which they are not."""
    return api_server.namespace()


def test_what_api_servers_store_is_as_it_was_written(exports: Exports, fixing: str) -> None:
    stored = exports.stored(fixing)
    assert len({item["kind"] for item in stored}) == 2
    for item in stored:
        assert item["metadata"]["annotations"][SPEC_DIGEST_ANNOTATION] == spec_digest_of(item)


def _result(answer: Response) -> Any:
    """Return what a pod becomes, but for what differs between requests; None if it is refused."""
    if answer.status >= REFUSED:
        return None
    spec = answer.body["spec"]
    by_text = lambda each: json.dumps(each, sort_keys=True)  # noqa: E731
    return {**spec, "tolerations": sorted(spec.get("tolerations", []), key=by_text)}


def _moved(pod: Any, namespace: str) -> Any:
    return {**pod, "metadata": {**pod["metadata"], "namespace": namespace}}


def _fix(pod: Any, rules: RuleSet) -> FixResult:
    return fix(pod, rules, context_for(pod))


class Comparison(NamedTuple):
    """The pods that the policy changes otherwise than the rules, and what the rules have fixed.

    `fixed` are the numbers of pods by rule; pods that the API server refuses do not count.
    """

    differences: dict[str, tuple[Any, Any]]
    fixed: Counter[str]


def _compare(
    exports: Exports, given: Mapping[str, Any], rules: RuleSet, fixing: str, plain: str
) -> Comparison:
    own = rules.restricted_to(rule.name for rule in fixing_rules(rules))
    fixes = {name: _fix(_moved(pod, fixing), own) for name, pod in given.items()}
    by_policy = exports.submit((name, _moved(pod, fixing)) for name, pod in given.items())
    by_rules = exports.submit((name, _moved(fixes[name].manifest, plain)) for name in given)
    results = {name: (_result(by_rules[name]), _result(by_policy[name])) for name in given}
    return Comparison(
        {name: pair for name, pair in results.items() if pair[0] != pair[1]},
        Counter(
            rule
            for name, (expected, _) in results.items()
            if expected is not None
            for rule in {finding.rule for finding in fixes[name].fixed}
        ),
    )


# API servers drop these fields before a policy sees the pod.
_UNKNOWN_FIELDS = "misplaced-gpu/unknown-fields"


def _pods_of_cases(namespace: str) -> dict[str, Any]:
    given = pods(
        (case.name, case.manifest)
        for case in cases()
        if "policy" not in case.circumstances and case.name != _UNKNOWN_FIELDS
    )
    made = {}
    for number, (name, manifest) in enumerate(given.items()):
        pod = prepared(pod_of(manifest), namespace, f"case-{number}")
        pod["spec"]["automountServiceAccountToken"] = False  # its volume has a random name
        made[name] = pod
    return made


def test_every_case_is_fixed_as_by_the_rules(exports: Exports, fixing: str, plain: str) -> None:
    compared = _compare(exports, _pods_of_cases(fixing), POLICY.rule_set(), fixing, plain)
    assert compared.differences == {}
    expected = {rule.name for rule in fixing_rules(POLICY.rule_set())}
    assert compared.fixed.keys() == expected
    assert min(compared.fixed.values()) >= 3


def test_random_pods_are_fixed_as_by_the_rules(exports: Exports, fixing: str, plain: str) -> None:
    given = placed_pods(fixing, 1_500)
    compared = _compare(exports, given, POLICY.rule_set(), fixing, plain)
    assert compared.differences == {}
    assert min(compared.fixed[rule] for rule in FIXING) >= 3, compared.fixed


POLICIES: dict[str, dict[str, Any]] = {
    "every fix": {"rules": {rule: {"fix": True} for rule in FIXABLE}},
    # Whose match condition tests nothing of ordinary GPU pods.
    "requests alone": {
        "rules": {rule: {"fix": False} for rule in FIXABLE if rule != "request-only"}
    },
    "every container": {"voidEveryContainer": True},
    "HAMi": {"profiles": ["hami"]},
    "KAI": {"profiles": ["kai"]},
    "Volcano": {"profiles": ["volcano"]},
    "AMD on AKS": {"profiles": ["amd", "aks"]},
    "GKE": {"profiles": ["gke"]},
    "ACK": {"profiles": ["ack-registered"]},
    "labels that are required": {
        "profiles": [
            {
                "name": "ours",
                "extends": ["nvidia"],
                "affinities": [
                    {
                        "resources": ["nvidia.com/gpu", "nvidia.com/mig-*"],
                        "key": "example.com/pool",
                        "values": ["a", "b"],
                        "required": True,
                    },
                    {"resources": ["nvidia.com/gpu"], "key": "example.com/fast", "values": []},
                ],
                "taints": [
                    {"resources": ["nvidia.com/gpu"], "key": "example.com/gpus", "value": "yes"}
                ],
            }
        ]
    },
    "pods without a GPU": {
        "rules": {
            "gpu-node-without-request": {
                "action": "deny",
                "options": {
                    "nodes": ["nvidia.com/gpu.present=true", "zone=a", "zone=b", "example.com/pool"]
                },
            }
        }
    },
    "exceptions": {
        "exceptions": [
            {
                "rules": FIXING,
                "reason": "a test",
                "match": {"namespace": "test-*", "container": ["trainer", "worker*", "main"]},
            }
        ]
    },
}


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_fixes_as_by_the_rules(exports: Exports, plain: str, name: str) -> None:
    text = {"apiVersion": "gpuward.io/v1", "kind": "Policy", **POLICIES[name]}
    policy = load_policy(yaml.safe_dump(text), "a test")
    fixing = exports.add(policy, OPTIONS, fix_objects)
    given = _pods_of_cases(fixing) | placed_pods(fixing, 100)
    compared = _compare(exports, given, policy.rule_set(), fixing, plain)
    assert compared.differences == {}
    assert sum(compared.fixed.values()) >= (10 if name == "requests alone" else 100)
    assert name != "every fix" or compared.fixed["visible-devices-none"] >= 3


def _without_server_fields(answer: Response) -> Any:
    """The pod of `answer` as a user could have written it."""
    kept = ("name", "namespace", "annotations", "labels", "ownerReferences")
    metadata = {k: v for k, v in answer.body["metadata"].items() if k in kept}
    return {**answer.body, "metadata": metadata}


def test_webhook_and_policy_make_the_same_pod_whoever_comes_first(
    exports: Exports, fixing: str, plain: str
) -> None:
    rules = POLICY.rule_set()
    given = _pods_of_cases(fixing) | placed_pods(fixing, 500)
    by_rules = {name: _moved(_fix(pod, rules).manifest, plain) for name, pod in given.items()}
    expected = exports.submit(by_rules.items())
    # The policy after the webhook.
    after = exports.submit((name, _moved(pod, fixing)) for name, pod in by_rules.items())
    assert {n for n in given if _result(expected[n]) != _result(after[n])} == set()
    # The webhook after the policy, as API servers call them.
    first = exports.submit(given.items())
    second = exports.submit(
        (name, _moved(_fix(_without_server_fields(answer), rules).manifest, plain))
        for name, answer in first.items()
        if answer.status < REFUSED
    )
    # A pod that the policy does not repair, an API server refuses before it asks the rules.
    assert {n for n in second if _result(expected[n]) != _result(second[n])} == set()
    assert sum(_result(answer) is not None for answer in second.values()) >= 1_000


_GPU = {"limits": {"nvidia.com/gpu": "1"}}
_SHOWN = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
_OTHER_VARIABLES = MAX_COUNTS["variables"] - MAX_COUNTS["GPU variables"]
# Each has the most of what a fix reads.
LARGEST_TO_FIX: dict[str, dict[str, Any]] = {
    "variables that are removed": {
        "containers": [
            {
                "name": "a",
                "image": "x",
                "resources": _GPU,
                "args": ["x" * 100] * MAX_WORDS,
                "env": [_SHOWN] * MAX_COUNTS["GPU variables"]
                + many(
                    MAX_COUNTS["variables"] - MAX_COUNTS["GPU variables"], name="V{}", value="x"
                ),
            }
        ]
    },
    "variables that are hidden": {
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        "containers": [
            {
                "name": "a",
                "image": "x",
                "resources": {"claims": [{"name": "gpu"}]},
                "env": many(_OTHER_VARIABLES, name="V{}", value="x")
                + [_SHOWN] * MAX_COUNTS["GPU variables"],
            }
        ],
    },
    "containers whose variable is removed": {
        "containers": [
            {
                "name": f"c{n}",
                "image": "x",
                "resources": _GPU,
                "env": [_SHOWN],
                "args": ["x" * 1000],
            }
            for n in range(MAX_COUNTS["GPU variables"])
        ]
    },
    "tolerations that are compared": {
        "tolerations": many(
            MAX_COUNTS["tolerations"] - 2,
            key="nvidia.com/gpu.{}." + "a-b." * 12 + "a",
            operator="Exists",
        ),
        "containers": [{"name": "a", "image": "x", "resources": _GPU}],
    },
    "terms": {
        "affinity": {
            "nodeAffinity": {
                REQUIRED_AFFINITY: {
                    "nodeSelectorTerms": [
                        {"matchExpressions": many(4, key="zone-{}", operator="Exists")}
                    ]
                    * MAX_COUNTS["terms of node affinity"]
                }
            }
        },
        "containers": [{"name": "a", "image": "x", "resources": _GPU}],
    },
}


@pytest.mark.parametrize("what", [*LARGEST, *LARGEST_TO_FIX])
def test_the_largest_pod_is_fixed_within_the_budget(
    exports: Exports, fixing: str, what: str
) -> None:
    """By a container whose fix is last."""
    fields = copy.deepcopy((LARGEST | LARGEST_TO_FIX)[what])
    cuda: dict[str, Any] = {"name": "cuda", "image": "nvcr.io/nvidia/cuda:12.4.1-base"}
    makers = ("huawei.com", "cambricon.com")
    if any(maker in json.dumps(fields) for maker in makers):
        # Beside another maker's cards, the image alone is no reason for a fix.
        fields["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
        cuda["resources"] = {"claims": [{"name": "gpu"}]}
        cuda["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    fields["containers"] = [*fields.get("containers", [])[:249], cuda]
    fields["automountServiceAccountToken"] = False
    answer = exports.submit_one(new_pod(fixing, **fields))
    assert answer.status < REFUSED, answer.body
    (last,) = (c for c in answer.body["spec"]["containers"] if c["name"] == "cuda")
    assert last.get("env") == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    others = [c for c in answer.body["spec"]["containers"] if c["name"] != "cuda"]
    assert not any(_SHOWN in container.get("env", []) for container in others)


def test_a_pod_with_the_most_of_everything_is_fixed(exports: Exports, fixing: str) -> None:
    """A failing expression would refuse the pod, and a pod without fixes would get every GPU."""
    cuda = {"image": "nvcr.io/nvidia/" + "x" * 200, "args": ["x" * 100] * MAX_WORDS}
    of_each = {"env": many(5, name="CUDA_V{}", value="x" * 30), **cuda}
    pod = new_pod(
        fixing,
        automountServiceAccountToken=False,
        containers=[{"name": f"c{n}", **of_each} for n in range(MAX_COUNTS["containers"])],
        tolerations=LARGEST_TO_FIX["tolerations that are compared"]["tolerations"],
        affinity=LARGEST_TO_FIX["terms"]["affinity"],
        metadata={"annotations": {f"example.com/a{n}": "a" for n in range(300)}},
        nodeSelector={f"example.com/{n}": "x" for n in range(MAX_COUNTS["node labels"])},
    )
    answer = exports.submit_one(pod)
    assert answer.status < REFUSED, answer.body
    for container in answer.body["spec"]["containers"]:
        assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]


CUDA = {"name": "main", "image": "nvcr.io/nvidia/cuda:12.4.1-base"}
PADDED: dict[str, dict[str, Any]] = {
    "containers": {"containers": [{**CUDA, "name": f"c{n}"} for n in range(251)]},
    "variables": {"containers": [{**CUDA, "env": many(1_501, name="V{}", value="x")}]},
    "name of a variable": {"containers": [{**CUDA, "env": many(1, name="V" * 257)}]},
    "envFrom": {
        "containers": [{**CUDA, "envFrom": many(301, configMapRef={"name": "x"})}],
    },
    "resources": {
        "containers": [
            {**CUDA, "resources": {"limits": {f"example.com/r{n}": "1" for n in range(501)}}}
        ]
    },
    "volumes": {"volumes": many(201, name="v{}", emptyDir={})},
    "mounts": {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{**CUDA, "volumeMounts": many(301, name="v", mountPath="/m{}")}],
    },
    "annotations": {"metadata": {"annotations": {f"example.com/{n}": "a" for n in range(301)}}},
    "node labels": {"nodeSelector": {f"example.com/{n}": "x" for n in range(101)}},
    "tolerations": {"tolerations": many(201, key="example.com/{}", operator="Exists")},
    "terms": {
        "affinity": {
            "nodeAffinity": {
                REQUIRED_AFFINITY: {
                    "nodeSelectorTerms": [
                        {"matchExpressions": many(1, key="zone", operator="Exists")}
                    ]
                    * 51
                }
            }
        }
    },
    "preferences": {
        "affinity": {
            "nodeAffinity": {
                PREFERRED_AFFINITY: [
                    {
                        "weight": 1,
                        "preference": {
                            "matchExpressions": many(201, key="zone{}", operator="Exists")
                        },
                    }
                ]
            }
        }
    },
}


@pytest.fixture(scope="module")
def fixing_and_refusing(exports: Exports) -> str:
    return exports.add(POLICY, OPTIONS, policy_objects, fix_objects)


@pytest.mark.parametrize("what", PADDED)
def test_a_pod_that_is_too_large_to_be_fixed_is_refused(
    exports: Exports, fixing_and_refusing: str, what: str
) -> None:
    """Else padding would give a container with a CUDA image every GPU of its node."""
    pod = new_pod(fixing_and_refusing, **{"containers": [CUDA], **copy.deepcopy(PADDED[what])})
    pod["spec"]["automountServiceAccountToken"] = False
    answer = exports.submit_one(pod)
    assert answer.status == FORBIDDEN, answer.body
    assert "[too-large]" in answer.body["message"]

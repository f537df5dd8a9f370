"""The answers of `gpuward why` about pods with persistent volumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.testkit.why_command import CAN, CANNOT, NOT_KNOWN, Asked, node, pod

ZONE = "topology.kubernetes.io/zone"


def csi_node(name: str, count: int | None = None) -> dict[str, Any]:
    """The drivers of a node, with how many volumes of the one driver it can have."""
    driver = {"name": "csi.example.com", "nodeID": name, "allocatable": {"count": count}}
    made = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}}
    return {**made, "spec": {"drivers": [driver]}}


PLAIN = (node("a", labels={ZONE: "1"}), node("b", labels={ZONE: "2"}))
NODES = (*PLAIN, csi_node("a"), csi_node("b"))
MOUNT = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]


@pytest.fixture
def why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    return Asked(tmp_path, capsys)


def claim(*, volume: str = "", name: str = "data", **spec: Any) -> dict[str, Any]:
    bound = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "ml", "annotations": bound},
        "spec": {
            "volumeName": volume,
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "10Gi"}},
            **spec,
        },
    }


def volume(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv-1"},
        "spec": {"storageClassName": "fast", **spec},
    }


def storage_class(**fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        **fields,
    }


def driver(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "csi.example.com"}
    made = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": metadata}
    return {**made, "spec": spec}


def in_zone(zone: str) -> dict[str, Any]:
    expression = {"key": ZONE, "operator": "In", "values": [zone]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def test_a_pod_runs_where_its_volume_is(why: Asked) -> None:
    bound = [*NODES, claim(volume="pv-1"), volume(nodeAffinity=in_zone("2"))]
    status, out = why(*bound, manifest=pod(volumes=MOUNT))
    assert (status, "1 node can take it: b" in out) == (CAN, True)
    status, out = why(*bound, manifest=pod(volumes=MOUNT, nodeSelector={ZONE: "1"}))
    assert status == CANNOT
    assert f"its volume pv-1 can only be used where {ZONE}=2" in out


def test_a_volume_that_is_not_known_makes_no_answer(why: Asked) -> None:
    for known in ((), (claim(volume="pv-1"),), (claim(volume="pv-1"), volume(azureDisk={}))):
        status, out = why(*NODES, *known, manifest=pod(volumes=MOUNT))
        assert status == NOT_KNOWN
        assert "Not known: where the volume" in out


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({**claim(), "status": {"phase": "Lost"}}, "the claim data has lost its volume"),
        (claim(volume="pv-1", storageClassName=""), ""),
        (claim(storageClassName=""), "the claim data has no volume yet, and does not wait"),
    ],
)
def test_a_claim_can_keep_a_pod_from_all_nodes(
    why: Asked, found: dict[str, Any], said: str
) -> None:
    status, out = why(*NODES, found, volume(), manifest=pod(volumes=MOUNT))
    assert status == (CANNOT if said else CAN)
    assert said in out


def test_a_claim_of_a_pod_that_waits_must_exist(why: Asked) -> None:
    other = claim()
    other["metadata"]["name"] = "other"
    status, out = why(*NODES, other, pod(volumes=MOUNT), name="p")
    assert status == CANNOT
    assert "the PersistentVolumeClaim data does not exist" in out


@pytest.mark.parametrize(
    ("others", "expected", "said"),
    [
        ([storage_class(), driver()], CAN, "2 nodes can take it"),
        ([storage_class(), driver(storageCapacity=True)], NOT_KNOWN, "whether there is space"),
        ([storage_class()], NOT_KNOWN, "whether there is space for a volume of the claim data"),
        ([], NOT_KNOWN, "where a volume for the claim data can be"),
        (
            [storage_class(provisioner="kubernetes.io/no-provisioner"), driver()],
            NOT_KNOWN,
            "whether a free volume of the class fast suits data",
        ),
        (
            [
                storage_class(provisioner="kubernetes.io/no-provisioner"),
                driver(),
                volume(claimRef={"name": "other"}),
            ],
            CANNOT,
            "no volume is free for its claim data, and none can be made there",
        ),
        (
            [
                storage_class(
                    allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["2"]}]}]
                ),
                driver(),
                volume(claimRef={"name": "other"}),
            ],
            CAN,
            "1 node can take it: b",
        ),
    ],
)
def test_a_volume_is_made_where_its_class_allows(
    why: Asked, others: list[dict[str, Any]], expected: int, said: str
) -> None:
    status, out = why(*NODES, claim(), *others, manifest=pod(volumes=MOUNT))
    assert status == expected
    assert said in out


def test_a_claim_for_one_pod_names_the_pod_that_has_it(why: Asked) -> None:
    single = claim(volume="pv-1", accessModes=["ReadWriteOncePod"])
    user = pod("q", nodeName="a", status={"phase": "Running"}, volumes=MOUNT)
    status, out = why(*NODES, single, volume(), user, manifest=pod(volumes=MOUNT))
    assert status == CANNOT
    assert "only one pod at a time can have its claim data, and ml/q has it" in out


def test_a_claim_that_is_made_for_a_new_pod_is_read_from_its_template(why: Asked) -> None:
    template = {"spec": {"storageClassName": "fast"}}
    volumes = [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]
    known = (*NODES, storage_class(), driver())
    assert why(*known, manifest=pod(volumes=volumes))[0] == CAN


EPHEMERAL = [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]


def made_for(uid: str, **spec: Any) -> dict[str, Any]:
    made = claim(name="p-v", **spec)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


def test_a_claim_for_an_ephemeral_volume_has_to_be_that_of_the_pod(why: Asked) -> None:
    waiting = pod("p", metadata={"uid": "1"}, volumes=EPHEMERAL)
    known = (*NODES, storage_class(), driver(), waiting)
    assert why(*known, made_for("1"), name="p")[0] == CAN
    status, out = why(*known, made_for("2"), name="p")
    assert status == CANNOT
    assert "the claim p-v was not made for it" in out
    status, out = why(*known, claim(), name="p")
    assert status == CANNOT
    assert "its claim p-v is not made from its template yet" in out


def test_the_zone_of_an_ephemeral_volume_is_not_looked_at(why: Asked) -> None:
    """As in kube-scheduler, which looks at the labels of volumes for named claims alone."""
    there = csi_volume("pv-1")
    there["metadata"]["labels"] = {ZONE: "2"}
    waiting = pod("p", metadata={"uid": "1"}, volumes=EPHEMERAL)
    known = (*NODES, *FAST, there)
    _, out = why(*known, waiting, made_for("1", volume="pv-1"), name="p")
    assert "2 nodes can take it" in out
    _, out = why(*known, pod("p", volumes=MOUNT), claim(volume="pv-1"), name="p")
    assert "1 node can take it: b" in out


# How many volumes a node can have.

FAST = (storage_class(), driver())


def user(name: str, where: str, volume_claim: str) -> dict[str, Any]:
    mounted = [{"name": "v", "persistentVolumeClaim": {"claimName": volume_claim}}]
    return pod(name, nodeName=where, status={"phase": "Running"}, volumes=mounted)


def attachment(where: str, name: str = "pv-9") -> dict[str, Any]:
    spec = {"attacher": "csi.example.com", "nodeName": where}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": f"{where}-{name}"},
        "spec": {**spec, "source": {"persistentVolumeName": name}},
    }


def csi_volume(name: str) -> dict[str, Any]:
    made = volume(csi={"driver": "csi.example.com", "volumeHandle": name})
    made["metadata"] = {"name": name}
    return made


def test_a_node_can_have_so_many_volumes(why: Asked) -> None:
    others = [claim(name="other", volume="pv-2"), csi_volume("pv-2"), user("q", "a", "other")]
    known = [*PLAIN[:1], *FAST, claim(), *others, attachment("b")]
    status, out = why(*known, csi_node("a", 1), manifest=pod(volumes=MOUNT))
    assert status == CANNOT
    assert (
        "it needs 1 volume of csi.example.com, of which 1 of at most 1 are attached to a node"
        in out
    )
    assert "wait until 1 volume of csi.example.com is detached there, as pods with them end" in out
    assert why(*known, csi_node("a", 2), manifest=pod(volumes=MOUNT))[0] == CAN
    assert why(*known, csi_node("a"), manifest=pod(volumes=MOUNT))[0] == CAN


def test_volumes_that_no_pod_has_are_attached_too(why: Asked) -> None:
    known = [*PLAIN[:1], *FAST, claim(), csi_volume("pv-9"), attachment("a"), csi_node("a", 1)]
    assert why(*known, manifest=pod(volumes=MOUNT))[0] == CANNOT


def test_a_volume_that_several_pods_have_counts_once(why: Asked) -> None:
    known = [*PLAIN[:1], *FAST, claim(volume="pv-2"), csi_volume("pv-2"), user("q", "a", "data")]
    known += [csi_node("a", 1), attachment("b")]
    assert why(*known, manifest=pod(volumes=MOUNT))[0] == CAN


def test_a_volume_that_is_released_leaves_no_room_on_a_node_over_its_limit(why: Asked) -> None:
    single = claim(volume="pv-2", accessModes=["ReadWriteOncePod"])
    others = [claim(name="other", volume="pv-9"), csi_volume("pv-9"), user("r", "a", "other")]
    known = [*PLAIN[:1], *FAST, single, csi_volume("pv-2"), user("q", "a", "data"), *others]
    known.append(attachment("a", "pv-2"))
    _, out = why(*known, csi_node("a", 2), manifest=pod(volumes=MOUNT))
    assert "wait until ml/q ends" in out
    assert "are attached to a node" not in out
    _, out = why(*known, csi_node("a", 1), manifest=pod(volumes=MOUNT))
    assert "wait until ml/q ends" in out
    assert "of which 1 of at most 1 are attached to a node" in out


def test_without_limits_or_attachments_it_is_not_known_how_many_more_fit(why: Asked) -> None:
    known = [*PLAIN, *FAST, claim()]
    status, out = why(*known, manifest=pod(volumes=MOUNT))
    assert status == NOT_KNOWN
    assert "how many volumes of csi.example.com a node can have: its CSINode says it" in out
    limited = [csi_node("a", 1), csi_node("b", 1)]
    status, out = why(*known, *limited, manifest=pod(volumes=MOUNT))
    assert status == NOT_KNOWN
    assert "how many volumes of csi.example.com are attached: VolumeAttachments say it" in out
    unread = [user("q", "a", "other"), user("r", "b", "other"), attachment("c")]
    for one in unread[:2]:
        one["metadata"]["namespace"] = "elsewhere"
    status, out = why(*known, *limited, *unread, manifest=pod(volumes=MOUNT))
    assert status == NOT_KNOWN
    assert "how many volumes of csi.example.com the pods of a have" in out


def test_a_driver_may_keep_pods_from_nodes_where_it_does_not_run(why: Asked) -> None:
    known = [storage_class(), driver(preventPodSchedulingIfMissing=True), claim()]
    without = csi_node("a")
    without["spec"]["drivers"] = []
    status, out = why(PLAIN[0], without, *known, manifest=pod(volumes=MOUNT))
    assert status == CANNOT
    assert "the driver csi.example.com of its volumes does not run there" in out
    status, out = why(*PLAIN, without, csi_node("b"), *known, manifest=pod(volumes=MOUNT))
    assert (status, "1 node can take it: b" in out) == (CAN, True)


# Which volume a claim gets.


def capacity(size: str, zone: str = "1") -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": f"capacity-{zone}", "namespace": "storage"},
        "storageClassName": "fast",
        "capacity": size,
        "nodeTopology": {"matchLabels": {ZONE: zone}},
    }


def test_space_is_counted_where_a_driver_counts_it(why: Asked) -> None:
    known = [*NODES, storage_class(), driver(storageCapacity=True), claim()]
    status, out = why(*known, capacity("5Gi"), manifest=pod(volumes=MOUNT))
    assert status == CANNOT
    assert "csi.example.com has too little space there for the volume of its claim data" in out
    status, out = why(*known, capacity("5Gi"), capacity("20Gi", "2"), manifest=pod(volumes=MOUNT))
    assert (status, "1 node can take it: b" in out) == (CAN, True)


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, True),
        ({"capacity": {"storage": "5Gi"}}, False),
        ({"volumeMode": "Block"}, False),
        ({"accessModes": ["ReadWriteMany"]}, False),
        ({"storageClassName": "slow"}, False),
        ({"claimRef": {"name": "other", "namespace": "ml"}}, False),
        ({"claimRef": {"name": "data", "namespace": "ml"}, "accessModes": []}, True),
        ({"nodeAffinity": in_zone("3")}, False),
    ],
)
def test_a_free_volume_must_suit_the_claim(why: Asked, spec: dict[str, Any], *, fits: bool) -> None:
    there = volume(capacity={"storage": "10Gi"}, accessModes=["ReadWriteOnce"])
    there["spec"] |= spec
    there["status"] = {"phase": "Available"}
    local = [storage_class(provisioner="kubernetes.io/no-provisioner"), driver()]
    asked = claim(accessModes=["ReadWriteOnce"])
    status, out = why(*NODES, *local, asked, there, manifest=pod(volumes=MOUNT))
    assert status == (CAN if fits else CANNOT)
    assert ("make a volume of the class fast for these nodes" in out) is not fits


def test_a_node_that_was_chosen_for_a_volume_is_named(why: Asked) -> None:
    chosen = claim()
    chosen["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = "gone"
    status, out = why(*NODES, *FAST, chosen, manifest=pod(volumes=MOUNT))
    assert status == CANNOT
    assert "kube-scheduler has chosen the node gone for the volume of its claim data" in out
    assert "kubectl annotate pvc data volume.kubernetes.io/selected-node-" in out


def test_a_claim_that_a_pod_names_twice_needs_no_second_volume(why: Asked) -> None:
    local = storage_class(provisioner="kubernetes.io/no-provisioner")
    free = {**volume(capacity={"storage": "10Gi"}), "status": {"phase": "Available"}}
    twice = [*MOUNT, {**MOUNT[0], "name": "w"}]
    status, out = why(*NODES, local, driver(), free, claim(), manifest=pod(volumes=twice))
    assert status == CANNOT
    assert "let one volume of the pod be of the claim data, and mount it several times" in out
    assert why(*NODES, local, driver(), free, claim(), manifest=pod(volumes=MOUNT))[0] == CAN


def test_a_volume_and_a_class_must_exist(why: Asked) -> None:
    status, out = why(*NODES, claim(volume="pv-7"), volume(), manifest=pod(volumes=MOUNT))
    assert status == CANNOT
    assert "the volume pv-7 of the claim data does not exist" in out
    other = storage_class()
    other["metadata"] = {"name": "slow"}
    assert why(*NODES, claim(), other, manifest=pod(volumes=MOUNT))[0] == CANNOT


# Disks that a pod names itself.


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        ({"iscsi": {"iqn": "x"}}, {"iscsi": {"iqn": "x"}}, CANNOT),
        ({"iscsi": {"iqn": "x"}}, {"iscsi": {"iqn": "y"}}, CAN),
        (
            {"iscsi": {"iqn": "x", "readOnly": True}},
            {"iscsi": {"iqn": "x", "readOnly": True}},
            CAN,
        ),
        (
            {"rbd": {"image": "i", "monitors": ["m", "n"]}},
            {"rbd": {"image": "i", "pool": "rbd", "monitors": ["n"]}},
            CANNOT,
        ),
        (
            {"rbd": {"image": "i", "monitors": ["m"]}},
            {"rbd": {"image": "i", "monitors": ["n"]}},
            CAN,
        ),
    ],
)
def test_a_disk_is_for_one_pod_of_a_node(
    why: Asked, own: dict[str, Any], other: dict[str, Any], expected: int
) -> None:
    there = pod("q", nodeName="a", status={"phase": "Running"}, volumes=[{"name": "d", **other}])
    status, out = why(PLAIN[0], there, manifest=pod(volumes=[{"name": "d", **own}]))
    assert status == expected
    assert ("is in use there, as by ml/q" in out) is (expected == CANNOT)


def test_a_disk_of_an_older_kind_counts_as_a_volume_of_a_driver(why: Asked) -> None:
    disk = {"name": "d", "gcePersistentDisk": {"pdName": "x"}}
    status, out = why(PLAIN[0], manifest=pod(volumes=[disk]))
    assert status == NOT_KNOWN
    assert "how many volumes of pd.csi.storage.gke.io a node can have: its CSINode says it" in out
    full = csi_node("a", 0)
    full["spec"]["drivers"][0]["name"] = "pd.csi.storage.gke.io"
    status, out = why(PLAIN[0], full, attachment("b"), manifest=pod(volumes=[disk]))
    assert status == CANNOT
    assert "it needs 1 volume of pd.csi.storage.gke.io, of which 0 of at most 0" in out


def test_a_driver_that_is_missing_does_not_hide_another_without_room(why: Asked) -> None:
    other = storage_class(provisioner="kubernetes.io/aws-ebs")
    other["metadata"] = {"name": "older"}
    must_run = driver(preventPodSchedulingIfMissing=True)
    must_run["metadata"] = {"name": "ebs.csi.aws.com"}
    claims = [claim(), claim(name="disk", storageClassName="older")]
    known = [PLAIN[0], *FAST, other, must_run, *claims, csi_node("a", 0), attachment("b")]
    mounts = [*MOUNT, {"name": "w", "persistentVolumeClaim": {"claimName": "disk"}}]
    status, out = why(*known, manifest=pod(volumes=mounts))
    assert status == CANNOT
    assert "let ebs.csi.aws.com run on these nodes" in out
    assert "that alone would not do: it needs 1 volume of csi.example.com" in out


EBS = {"name": "d", "awsElasticBlockStore": {"volumeID": "x"}}


def ebs_node(*limit: int, migrated: str = "") -> dict[str, Any]:
    made = csi_node("a", *limit)
    made["spec"]["drivers"][0]["name"] = "ebs.csi.aws.com"
    made["metadata"]["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": migrated}
    return made


def ebs_volume(name: str, source: str) -> dict[str, Any]:
    made = volume(awsElasticBlockStore={"volumeID": source})
    made["metadata"]["name"] = name
    return made


@pytest.mark.parametrize(
    ("there", "limit", "expected"),
    [
        ("vol-2", 1, CANNOT),
        ("vol-2", 2, CAN),
        ("vol-1", 1, CAN),
        ("aws://1/vol-1", 1, CAN),
        ("aws://1/else", 1, NOT_KNOWN),
        ("aws://[", 1, NOT_KNOWN),
    ],
)
def test_a_volume_of_an_older_kind_counts_for_its_driver(
    why: Asked, there: str, limit: int, expected: int
) -> None:
    """One that a pod there names itself by another form of its name is the same."""
    disk = {"name": "d", "awsElasticBlockStore": {"volumeID": there}}
    other = pod("q", nodeName="a", status={"phase": "Running"}, volumes=[disk])
    bound = [claim(volume="pv-1"), ebs_volume("pv-1", "vol-1"), storage_class(), driver()]
    known = [PLAIN[0], *bound, other, attachment("b"), ebs_node(limit)]
    status, out = why(*known, manifest=pod(volumes=MOUNT))
    assert status == expected, out


def test_of_regional_disks_the_region_tells_them_apart(why: Asked) -> None:
    """As in kube-scheduler: of one name, those of two zones of a region are one disk."""
    volumes = []
    for name, zones in (("pv-1", "us-east1-a__us-east1-b"), ("pv-2", "us-east1-b__us-east1-c")):
        made = volume(gcePersistentDisk={"pdName": "disk"})
        made["metadata"] = {"name": name, "labels": {ZONE: zones}}
        volumes.append(made)
    there = csi_node("a", 1)
    there["spec"]["drivers"][0]["name"] = "pd.csi.storage.gke.io"
    claims = [claim(volume="pv-1"), claim(volume="pv-2", name="other")]
    known = [node("a"), *claims, storage_class(), driver(), there, attachment("b")]
    mounts = [*MOUNT, {"name": "w", "persistentVolumeClaim": {"claimName": "other"}}]
    assert why(*known, *volumes, manifest=pod(volumes=mounts))[0] == CAN
    volumes[1]["metadata"]["labels"] = {ZONE: "us-east1-b"}
    assert why(*known, *volumes, manifest=pod(volumes=mounts))[0] == CANNOT
    volumes[1]["metadata"]["labels"] = {ZONE: "us-east1-b__us-west1-b"}
    status, out = why(*known, *volumes, manifest=pod(volumes=mounts))
    assert status == NOT_KNOWN
    assert "where the volume pv-2 is: kube-scheduler cannot read it" in out


def test_room_that_a_nominated_pod_has_too_does_not_hide_another_driver_without_room(
    why: Asked,
) -> None:
    """Beside that pod the disk counts once: without it, its driver has no room either."""
    disk = {"name": "d", "cinder": {"volumeID": "x"}}
    first = pod("first", priority=5, volumes=[disk])
    first["status"] = {"phase": "Pending", "nominatedNodeName": "a"}
    there, other = csi_node("a", 0), csi_node("a", 0)["spec"]["drivers"][0]
    there["spec"]["drivers"].append({**other, "name": "cinder.csi.openstack.org"})
    known = [PLAIN[0], *FAST, claim(), first, there, attachment("b")]
    status, out = why(*known, manifest=pod(volumes=[*MOUNT, disk]))
    assert status == CANNOT
    assert "it needs 1 volume of csi.example.com" in out
    assert "that alone would not do: it needs 1 volume of cinder.csi.openstack.org" in out


EBS_ZONE = "topology.ebs.csi.aws.com/zone"
BETA = "failure-domain.beta.kubernetes.io"


@pytest.mark.parametrize(
    ("labels", "migrated", "expected"),
    [
        ({ZONE: "2"}, "", CAN),
        ({ZONE: "1"}, "", CANNOT),
        ({ZONE: "2"}, "kubernetes.io/aws-ebs", CANNOT),
        ({EBS_ZONE: "2"}, "kubernetes.io/cinder,kubernetes.io/aws-ebs", CAN),
        ({EBS_ZONE: "2"}, "kubernetes.io/cinder", CANNOT),
    ],
)
def test_where_a_driver_has_taken_over_its_label_names_the_zone(
    why: Asked, labels: dict[str, str], migrated: str, expected: int
) -> None:
    there = ebs_volume("pv-1", "vol-1")
    there["spec"]["nodeAffinity"] = in_zone("2")
    known = [node("a", labels=labels), claim(volume="pv-1"), there, storage_class(), driver()]
    known.append(attachment("b"))
    status, out = why(*known, ebs_node(migrated=migrated), manifest=pod(volumes=MOUNT))
    assert status == expected
    key = EBS_ZONE if "aws" in migrated else ZONE
    assert (f"its volume pv-1 can only be used where {key}=2" in out) is (expected == CANNOT)


def test_older_labels_of_zones_and_regions_are_translated(why: Asked) -> None:
    keys = {f"{BETA}/zone": "2", f"{BETA}/region": "r"}
    expressions = [{"key": k, "operator": "In", "values": [v]} for k, v in keys.items()]
    there = ebs_volume("pv-1", "vol-1")
    terms = [{"matchExpressions": expressions}]
    there["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    known = [claim(volume="pv-1"), there, storage_class(), driver(), attachment("b")]
    known.append(ebs_node(migrated="kubernetes.io/aws-ebs"))
    labels = {EBS_ZONE: "2", "topology.kubernetes.io/region": "r"}
    asked = pod(volumes=MOUNT)
    assert why(node("a", labels=labels), *known, manifest=asked)[0] == CAN
    assert why(node("a", labels={**labels, EBS_ZONE: "1"}), *known, manifest=asked)[0] == CANNOT
    region = {"topology.kubernetes.io/region": "s"}
    assert why(node("a", labels=labels | region), *known, manifest=asked)[0] == CANNOT


def test_without_csi_nodes_only_nodes_that_both_forms_allow_are_sure(why: Asked) -> None:
    there = ebs_volume("pv-1", "vol-1")
    there["spec"]["nodeAffinity"] = in_zone("2")
    known = [claim(volume="pv-1"), there, storage_class(), driver(), attachment("b")]
    asked = pod(volumes=MOUNT)
    status, out = why(node("a", labels={ZONE: "2"}), *known, manifest=asked)
    assert status == NOT_KNOWN
    assert "where the volume pv-1 can be used: the CSINode of a says it" in out
    assert why(node("a", labels={ZONE: "1"}), *known, manifest=asked)[0] == CANNOT


@pytest.mark.parametrize("kind", ["azureFile", "vsphereVolume"])
def test_kube_scheduler_takes_two_older_kinds_as_they_are(why: Asked, kind: str) -> None:
    there = volume(**{kind: {}}, nodeAffinity=in_zone("2"))
    known = [*NODES, claim(volume="pv-1"), there, storage_class(), driver()]
    status, out = why(*known, manifest=pod(volumes=MOUNT))
    assert (status, "1 node can take it: b" in out) == (CAN, True)


def test_a_disk_that_kube_scheduler_cannot_read_is_not_known(why: Asked) -> None:
    disk = {"name": "d", "azureDisk": {"diskName": "x", "diskURI": "https://x"}}
    status, out = why(*NODES, manifest=pod(volumes=[disk]))
    assert status == NOT_KNOWN
    assert "whether a node can have its volume d: kube-scheduler cannot read it" in out


def test_a_class_of_an_older_kind_counts_for_its_driver(why: Asked) -> None:
    known = [PLAIN[0], storage_class(provisioner="kubernetes.io/aws-ebs"), driver(), claim()]
    known += [attachment("b"), claim(name="other"), user("q", "a", "other")]
    asked = pod(volumes=MOUNT)
    status, out = why(*known, ebs_node(1), manifest=asked)
    assert status == CANNOT
    assert "it needs 1 volume of ebs.csi.aws.com, of which 1 of at most 1 are attached" in out
    assert why(*known, ebs_node(2), manifest=asked)[0] == CAN
    other = pod("r", nodeName="a", volumes=[EBS])
    assert why(*known, other, ebs_node(2), manifest=asked)[0] == CANNOT
    assert why(*known, other, ebs_node(3), manifest=asked)[0] == CAN


def deployment(volume: dict[str, Any]) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": "1"}
    template = pod(limits=limits, volumes=[{"name": "v", **volume}])["spec"]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "ml"},
        "spec": {"replicas": 3, "template": {"spec": template}},
    }


RBD = {"rbd": {"image": "i", "monitors": ["m"]}}
ONE_POD = {"persistentVolumeClaim": {"claimName": "data"}}


@pytest.mark.parametrize(
    ("volume_of_pods", "modes", "status"),
    [
        (ONE_POD, ["ReadWriteOncePod"], NOT_KNOWN),
        (RBD, [], NOT_KNOWN),
        (ONE_POD, ["ReadWriteMany"], CAN),
        ({"emptyDir": {}}, [], CAN),
    ],
)
def test_volumes_of_one_pod_alone_make_the_room_for_several_not_known(
    why: Asked, volume_of_pods: dict[str, Any], modes: list[str], status: int
) -> None:
    bound = claim(volume="pv-1", accessModes=modes)
    known = (*NODES, bound, volume(accessModes=modes), storage_class(), driver())
    found, out = why(*known, manifest=deployment(volume_of_pods))
    assert found == status, out


@pytest.mark.parametrize("value", [None, ["a"], {"a": 1}])
def test_annotations_that_are_no_text_are_none(why: Asked, value: Any) -> None:
    strange = claim()
    keys = ("volume.kubernetes.io/selected-node", "volume.beta.kubernetes.io/storage-class")
    strange["metadata"]["annotations"] = dict.fromkeys(keys, value)
    status, out = why(*NODES, strange, storage_class(provisioner=value), pod(volumes=MOUNT))
    assert status in {CANNOT, NOT_KNOWN, CAN}, out

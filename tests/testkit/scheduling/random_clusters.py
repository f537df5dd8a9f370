"""Random small clusters with a pod that waits: what kube-scheduler's filters tell apart."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

GPU, NIC = "nvidia.com/gpu", "example.com/nic"
_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
_REGION, _BETA_REGION = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"
_NAMESPACES = ("ml", "web", "batch")
_TAINTS = (GPU, "team", "node.kubernetes.io/not-ready")
_FEATURES = (
    *("taints", "node affinity", "amounts", "ports", "pods", "spread", "volumes", "disks"),
    *("limits", "nominated", "ephemeral", "older", "declared"),
)
# API servers want them in this order.
_DECLARED = (
    *("AnotherFeature", "RestartAllContainersOnContainerExits"),
    *("UserNamespacesHostNetworkSupport", "VolumeBindMountOptions"),
)
_CLASSES = ("made", "zoned", "local", "at-once", "older")
_OLDER = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
_OLDER_KINDS = (
    *("awsElasticBlockStore", "azureDisk", "azureFile", "cinder", "gcePersistentDisk"),
    *("portworxVolume", "vsphereVolume"),
)
_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
_ZONES_OF_DRIVERS = (
    *("topology.cinder.csi.openstack.org/zone", "topology.ebs.csi.aws.com/zone"),
    "topology.gke.io/zone",
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Scenario(NamedTuple):
    """A pod without a node, and the cluster that it waits in."""

    pod: dict[str, Any]
    nodes: list[dict[str, Any]]
    pods: list[dict[str, Any]]
    namespaces: list[dict[str, Any]]
    claims: list[dict[str, Any]]
    volumes: list[dict[str, Any]]
    classes: list[dict[str, Any]]
    drivers: list[dict[str, Any]]
    csi_nodes: list[dict[str, Any]]
    attachments: list[dict[str, Any]]
    capacities: list[dict[str, Any]]
    nominated: list[dict[str, Any]]


def random_scenario(random: Random) -> Scenario:
    """A scenario; the same for the same state of `random`."""
    return _Scenarios(random).make()


class _Scenarios:
    """Makes scenarios. Each leaves some features out, so that others are what decides."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._features = {feature for feature in _FEATURES if self._maybe(0.5)}
        self._older_kinds = random.sample(_OLDER_KINDS, 2)

    def make(self) -> Scenario:
        names = [f"n{number}" for number in range(self._random.randint(1, 7))]
        nodes = [*map(self._node, names)]
        pods = [self._placed(f"q{n}", names) for n in range(self._random.randint(0, 10))]
        namespaces = [
            {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}}}
            for name in _NAMESPACES
            for labels in [self._some({"team": self._one("a", "b"), "tier": "1"})]
        ]
        waiting = self._waiting()
        home = waiting["metadata"]["namespace"]
        claims = [
            self._claim(f"claim-{n}", namespace) for n in range(3) for namespace in _NAMESPACES
        ]
        claims += [self._claim_made_for(one) for one in (waiting, *pods) if self._maybe(0.9)]
        return Scenario(
            waiting,
            nodes,
            pods,
            namespaces,
            claims,
            [self._volume(n, home) for n in range(5)],
            [*map(self._storage_class, _CLASSES)],
            self._drivers(),
            [self._csi_node(name) for name in names if self._maybe(0.9)],
            [self._attachment(n, names) for n in range(5) if self._has("limits", 0.5)],
            [self._capacity(n) for n in range(3)],
            [self._nominated(f"w{n}", names) for n in range(2) if self._has("nominated", 0.9)],
        )

    def _maybe(self, chance: float) -> bool:
        return self._random.random() < chance

    def _has(self, feature: str, chance: float) -> bool:
        return feature in self._features and self._maybe(chance)

    def _one(self, *values: Any) -> Any:
        return self._random.choice(values)

    def _some(self, items: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in items.items() if self._maybe(0.6)}

    def _node(self, name: str) -> dict[str, Any]:
        labels = {
            **({_HOST: name} if self._maybe(0.95) else {}),
            **({_ZONE: self._one("a", "b", "c")} if self._maybe(0.85) else {}),
            **self._some({"size": self._one("40", "80", "large"), "model": self._one("x", "y")}),
            **(self._older_places() if "older" in self._features else {}),
        }
        amounts = {
            "cpu": self._one("4", "8000m", "64"),
            "memory": self._one("16Gi", "512Gi", "32781460Ki"),
            "pods": self._one("2", "4", "110"),
            **({GPU: self._one("0", "1", "4", "8")} if self._maybe(0.8) else {}),
            **({NIC: self._one("1", "4")} if self._maybe(0.8) else {}),
        }
        if "amounts" not in self._features:
            amounts |= {"cpu": "200", "memory": "1Ti", "pods": "110", GPU: "64", NIC: "64"}
        taints = [
            self._some({"value": self._one("a", "b", "7")})
            | {"key": key, "effect": self._one("NoSchedule", "NoExecute", "PreferNoSchedule")}
            for key in _TAINTS
            if self._has("taints", 0.3)
        ]
        spec = {"taints": taints, "unschedulable": self._has("taints", 0.1)}
        status: dict[str, Any] = {"capacity": amounts, "allocatable": amounts}
        if "declared" in self._features:
            status["declaredFeatures"] = [one for one in _DECLARED if self._maybe(0.8)]
        return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}

    def _placed(self, name: str, nodes: list[str]) -> dict[str, Any]:
        pod = self._pod(name)
        spec = pod["spec"]
        spec["nodeName"] = self._one(*nodes)
        if self._has("pods", 0.4):
            spec["affinity"] = {"podAntiAffinity": {_REQUIRED: [self._affinity_term()]}}
        if self._maybe(0.1):
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return pod

    def _nominated(self, name: str, nodes: list[str]) -> dict[str, Any]:
        """A pod without a node for which kube-scheduler keeps room."""
        pod = self._placed(name, nodes)
        pod["metadata"].pop("deletionTimestamp", None)
        pod["status"] = {"nominatedNodeName": pod["spec"].pop("nodeName")}
        pod["spec"]["priority"] = self._one(0, 5)
        return pod

    def _waiting(self) -> dict[str, Any]:
        pod = self._pod("p")
        spec = pod["spec"]
        if self._maybe(0.5):
            spec["priority"] = self._one(0, 3, 5)
        if self._has("node affinity", 0.3):
            spec["nodeSelector"] = self._some({_ZONE: "a", "model": "x"})
        affinity: dict[str, Any] = {}
        if self._has("node affinity", 0.6):
            terms = [self._node_term() for _ in range(self._random.randint(1, 2))]
            affinity["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": terms}}
        for field in ("podAffinity", "podAntiAffinity"):
            if self._has("pods", 0.5):
                terms = [self._affinity_term() for _ in range(self._random.randint(1, 2))]
                affinity[field] = {_REQUIRED: terms}
        spec["affinity"] = affinity
        if self._has("declared", 0.3):
            spec |= self._some({"hostNetwork": True, "hostUsers": False})
        spec["tolerations"] = [self._toleration() for _ in range(self._random.randint(0, 3))]
        if self._has("spread", 0.9):
            count = self._random.randint(1, 2)
            spec["topologySpreadConstraints"] = [self._spread() for _ in range(count)]
        return pod

    def _pod(self, name: str) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "containers": [self._container(f"c{n}") for n in range(self._random.randint(1, 2))]
        }
        if self._maybe(0.2):
            init = self._container("i")
            spec["initContainers"] = [init | self._some({"restartPolicy": "Always"})]
        if self._has("volumes", 0.7 if name == "p" else 0.3):
            spec["volumes"] = self._volumes_of_pod()
        if self._maybe(0.1):
            spec["overhead"] = {"cpu": "500m", "memory": "128Mi"}
        if self._has("ephemeral", 0.5):
            template = {"spec": self._asked_of_volume()}
            made = {"name": "e", "ephemeral": {"volumeClaimTemplate": template}}
            spec["volumes"] = [*spec.get("volumes", []), made]
        if self._has("disks", 0.5):
            disk = {"targetPortal": "10.0.0.1", "iqn": self._one("iqn.a", "iqn.b"), "lun": 0}
            disk |= {"readOnly": self._maybe(0.5)}
            image = {"image": self._one("a", "b"), "monitors": [self._one("m", "n")]}
            image |= {"readOnly": self._maybe(0.5), **self._some({"pool": "rbd"})}
            older = self._older_source() | {"readOnly": self._maybe(0.5)}
            disks = [{"name": "d", **self._one({"iscsi": disk}, {"rbd": image}, older, older)}]
            spec["volumes"] = [*spec.get("volumes", []), *disks]
        metadata = {"name": name, "namespace": self._one(*_NAMESPACES), "labels": self._labels()}
        return {"metadata": {**metadata, "uid": name}, "spec": spec}

    def _volumes_of_pod(self) -> list[dict[str, Any]]:
        names = [f"claim-{self._random.randint(0, 2)}" for _ in range(self._random.randint(1, 2))]
        if self._maybe(0.05):
            names.append("missing")
        return [
            {"name": f"v{n}", "persistentVolumeClaim": {"claimName": name}}
            for n, name in enumerate(names)
        ]

    def _claim(self, name: str, namespace: str) -> dict[str, Any]:
        annotations: dict[str, str] = {}
        spec = self._asked_of_volume()
        if self._maybe(0.5):
            spec["volumeName"] = f"volume-{self._one(0, 1, 2, 2, 3, 4)}"
            if self._maybe(0.02):
                spec["volumeName"] = "missing"
            if self._maybe(0.95):
                annotations["pv.kubernetes.io/bind-completed"] = "yes"
        elif self._maybe(0.2):
            annotations["volume.kubernetes.io/selected-node"] = self._one("n0", "n1")
        if self._maybe(0.97):
            spec["storageClassName"] = self._one(*_CLASSES)
        metadata: dict[str, Any] = {"name": name, "namespace": namespace}
        metadata["annotations"] = annotations
        if self._maybe(0.03):
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        status = {"phase": "Lost"} if self._maybe(0.03) else {}
        return {"metadata": metadata, "spec": spec, "status": status}

    def _claim_made_for(self, pod: dict[str, Any]) -> dict[str, Any]:
        """The claim for the ephemeral volume of a pod; that of the waiting one may be another's."""
        metadata = pod["metadata"]
        claim = self._claim(f"{metadata['name']}-e", metadata["namespace"])
        if claim["spec"].get("volumeName") == "missing":  # of which nodes are asked one by one
            del claim["spec"]["volumeName"]
        is_own = "nodeName" in pod["spec"] or self._maybe(0.9)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "controller": True}
        owner["uid"] = metadata["uid"] if is_own else "another"
        claim["metadata"]["ownerReferences"] = [owner]
        return claim

    def _asked_of_volume(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"accessModes": [self._one("ReadWriteOnce", "ReadWriteMany")]}
        if self._maybe(0.15):
            spec["accessModes"] = ["ReadWriteOncePod"]
        if self._maybe(0.95):
            spec["resources"] = {"requests": {"storage": self._one("1Gi", "3Gi")}}
        if self._maybe(0.1):
            spec["selector"] = {"matchLabels": {"disk": "fast"}}
        if self._maybe(0.05):
            spec["volumeMode"] = "Block"
        return spec

    def _volume(self, number: int, namespace: str) -> dict[str, Any]:
        """A volume that has another claim, or none; no two are of one size."""
        name = f"volume-{number}"
        spec: dict[str, Any] = {
            "accessModes": [self._one("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")],
            "capacity": {"storage": f"{number + 1}Gi"},
            "storageClassName": self._one("made", "local", "zoned"),
        }
        if self._has("older", 0.6):
            spec |= self._older_source()
        elif self._maybe(0.7):
            spec["csi"] = {"driver": "csi.test", "volumeHandle": name}
        else:
            spec["nfs"] = {"server": "nfs.test", "path": f"/{name}"}
        if self._maybe(0.3):
            spec["claimRef"] = {"namespace": "elsewhere", "name": "other"}
        elif number == 1 and self._maybe(0.5):  # of two such volumes, it is chance which is taken
            own = self._some({"uid": "another"}) if self._maybe(0.3) else {}
            spec["claimRef"] = {"namespace": namespace, "name": "claim-0", **own}
        if self._maybe(0.4):
            terms = [self._node_term()]
            terms[0].pop("matchFields", None)
            if self._has("older", 0.7):
                terms = [self._older_term(), *terms][: self._random.randint(1, 2)]
            if terms[0]:
                spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        labels = self._places_of_volume() | self._some({"disk": "fast"})
        if "gcePersistentDisk" in spec:  # kube-scheduler cannot read other zones of several
            labels = {k: "x-r-a__x-r-b" if v == "a__b" else v for k, v in labels.items()}
        metadata: dict[str, Any] = {"name": name, "labels": labels}
        if self._maybe(0.05):
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        phase = "Available" if self._maybe(0.8) else "Released"
        return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}

    def _older_source(self) -> dict[str, Any]:
        """A volume of an older kind; few differ, so that several objects name the same."""
        name, kind = self._one("a", "b"), self._one(*self._older_kinds)
        sources = {
            "awsElasticBlockStore": {"volumeID": self._one("", "aws://a/") + f"vol-{name}"},
            "azureDisk": {"diskName": name, "diskURI": name, "kind": "Managed"},
            "azureFile": {"secretName": name, "shareName": name},
            "gcePersistentDisk": {"pdName": name},
            "vsphereVolume": {"volumePath": name},
        }
        return {kind: sources.get(kind, {"volumeID": name})}

    def _places_of_volume(self) -> dict[str, str]:
        zone = self._one("a", "b", "a__b")
        if not self._has("older", 0.6):
            return {_ZONE: zone} if self._maybe(0.2) else {}
        zone = zone if self._maybe(0.8) else ""
        return self._some({self._one(_ZONE, _BETA_ZONE): zone}) | self._some(
            {self._one(_REGION, _BETA_REGION): self._one("r", "s")}
        )

    def _older_term(self) -> dict[str, Any]:
        zone = {"key": self._one(_ZONE, _BETA_ZONE), "operator": self._one("In", "In", "NotIn")}
        region = {"key": self._one(_REGION, _BETA_REGION), "operator": "In", "values": ["r"]}
        found = [{**zone, "values": self._one(["a"], ["b", "c"])}, region]
        return {"matchExpressions": found[: self._random.randint(1, 2)]}

    def _older_places(self) -> dict[str, str]:
        zone = self._one("a", "b", "c", "x-r-a")
        own = {_BETA_ZONE: zone, _REGION: self._one("r", "s"), _BETA_REGION: "r"}
        return self._some(own | dict.fromkeys(_ZONES_OF_DRIVERS, zone))

    def _driver(self) -> dict[str, Any]:
        chosen = {"storageCapacity": self._maybe(0.4)}
        if self._has("limits", 0.4):
            chosen["preventPodSchedulingIfMissing"] = True
        return {"metadata": {"name": "csi.test"}, "spec": chosen}

    def _drivers(self) -> list[dict[str, Any]]:
        """Two drivers; at most one is required: of two that lack, chance says which is named."""
        driver = self._driver()
        is_free = "preventPodSchedulingIfMissing" not in driver["spec"]
        chosen = {"preventPodSchedulingIfMissing": is_free and self._has("limits", 0.8)}
        return [driver, {"metadata": {"name": self._one(*_OLDER.values())}, "spec": chosen}]

    def _csi_node(self, name: str) -> dict[str, Any]:
        drivers: list[dict[str, Any]] = [{"name": "other.test", "nodeID": name}]
        if self._maybe(0.8):
            drivers.append({"name": "csi.test", "nodeID": name})
            if self._has("limits", 0.8):
                drivers[1]["allocatable"] = {"count": self._one(0, 1, 2, 3)}
        for older in _OLDER.values():
            if self._maybe(0.6):
                drivers.append({"name": older, "nodeID": name})
                if self._has("limits", 0.8):
                    drivers[-1]["allocatable"] = {"count": self._one(0, 1, 2)}
        metadata: dict[str, Any] = {"name": name}
        if self._has("older", 0.8):
            plugins = (*_OLDER, "kubernetes.io/vsphere-volume", "kubernetes.io/azure-file")
            metadata["annotations"] = {_MIGRATED: ",".join(self._some(dict.fromkeys(plugins)))}
        return {"metadata": metadata, "spec": {"drivers": drivers}}

    def _attachment(self, number: int, nodes: list[str]) -> dict[str, Any]:
        name = f"volume-{number}" if self._maybe(0.9) else "missing"
        spec = {"attacher": "csi.test", "nodeName": self._one(*nodes)}
        spec["source"] = {"persistentVolumeName": name}
        return {"metadata": {"name": f"attachment-{number}"}, "spec": spec}

    def _capacity(self, number: int) -> dict[str, Any]:
        made: dict[str, Any] = {"metadata": {"name": f"capacity-{number}", "namespace": "storage"}}
        made["storageClassName"] = self._one("made", "zoned")
        made["capacity"] = self._one("1Gi", "10Gi")
        if self._maybe(0.3):
            made["maximumVolumeSize"] = "1Gi"
        if self._maybe(0.9):
            made["nodeTopology"] = self._one({}, {"matchLabels": {_ZONE: "a"}})
        return made

    def _storage_class(self, name: str) -> dict[str, Any]:
        mode = "Immediate" if name == "at-once" else "WaitForFirstConsumer"
        older = {"local": "kubernetes.io/no-provisioner", "older": self._one(*_OLDER)}
        provisioner = older.get(name, "csi.test")
        made: dict[str, Any] = {"metadata": {"name": name}}
        made |= {"provisioner": provisioner, "volumeBindingMode": mode}
        if name == "zoned":
            expression = {"key": _ZONE, "values": ["a", "b"]}
            made["allowedTopologies"] = [{"matchLabelExpressions": [expression]}]
        return made

    def _labels(self) -> dict[str, str]:
        return self._some({"app": self._one("x", "y"), "rev": self._one("1", "2")})

    def _container(self, name: str) -> dict[str, Any]:
        amounts = self._some(
            {"cpu": self._one("100m", "2", "30"), "memory": self._one("1Gi", "40Gi")}
        )
        limits = {GPU: self._one("1", "2", "4", "8")} if self._maybe(0.5) else {}
        if self._maybe(0.1):
            limits[NIC] = "1"
        container: dict[str, Any] = {
            "name": name,
            "resources": {"requests": {**amounts, **limits}, "limits": limits},
        }
        if self._has("declared", 0.1):
            exits = {"operator": "In", "values": [3]}
            action = self._one("Restart", "RestartAllContainers")
            container["restartPolicyRules"] = [{"action": action, "exitCodes": exits}]
        if self._has("declared", 0.1):
            mount = {"name": "v", "mountPath": "/v", "bindMountOptions": self._one([], ["noexec"])}
            container["volumeMounts"] = [mount]
        if self._has("ports", 0.5):
            container["ports"] = [
                {"containerPort": 80, "hostPort": self._one(80, 9400)}
                | self._some(
                    {
                        "hostIP": self._one("10.0.0.1", "10.0.0.2"),
                        "protocol": self._one("TCP", "UDP"),
                    }
                )
            ]
        return container

    def _selector(self) -> dict[str, Any] | None:
        if self._maybe(0.05):
            return {} if self._maybe(0.5) else None
        if self._maybe(0.6):
            return {"matchLabels": self._labels()}
        operator = self._one("In", "NotIn", "Exists", "DoesNotExist")
        values = {"values": ["x"]} if operator in {"In", "NotIn"} else {}
        return {"matchExpressions": [{"key": "app", "operator": operator, **values}]}

    def _affinity_term(self) -> dict[str, Any]:
        term: dict[str, Any] = {
            "topologyKey": self._one(_HOST, _ZONE),
            "labelSelector": self._selector(),
        }
        if self._maybe(0.3):
            term["namespaces"] = [self._one(*_NAMESPACES)]
        if self._maybe(0.3):
            term["namespaceSelector"] = self._one({}, {"matchLabels": {"team": "a"}})
        return term

    def _spread(self) -> dict[str, Any]:
        return {
            "topologyKey": self._one(_HOST, _ZONE),
            "maxSkew": self._one(1, 1, 2),
            "whenUnsatisfiable": self._one("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"),
            "labelSelector": self._selector(),
            **self._some(
                {
                    "nodeAffinityPolicy": self._one("Honor", "Ignore"),
                    "nodeTaintsPolicy": self._one("Honor", "Ignore"),
                    "matchLabelKeys": ["rev"],
                    "minDomains": self._one(1, 2, 4),
                }
            ),
        }

    def _node_term(self) -> dict[str, Any]:
        operator = self._one("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
        key = self._one(_ZONE, "size", "model")
        values = {"In": ["a", "x"], "NotIn": ["a", "80"], "Gt": ["50"], "Lt": ["50"]}.get(operator)
        term = {
            "matchExpressions": [
                {"key": key, "operator": operator, **({"values": values} if values else {})}
            ]
        }
        if self._maybe(0.25):
            name = {"key": "metadata.name", "operator": self._one("In", "In", "NotIn")}
            count = 2 if self._maybe(0.5) else 1
            term["matchFields"] = [
                {**name, "values": [self._one("n0", "n1")]} for _ in range(count)
            ]
            if self._maybe(0.5):
                del term["matchExpressions"]
        return {} if self._maybe(0.03) else term

    def _toleration(self) -> dict[str, Any]:
        operator = self._one("Exists", "Equal")
        value = {"value": self._one("a", "b", "7")} if operator == "Equal" else {}
        effect = self._some({"effect": self._one("NoSchedule", "NoExecute")})
        key = self._one(*_TAINTS, "node.kubernetes.io/unschedulable")
        return {"key": key, "operator": operator, **value, **effect}

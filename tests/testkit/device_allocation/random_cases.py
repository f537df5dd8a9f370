"""Random questions to a device allocator: a node, claims, and what is in the cluster."""

from __future__ import annotations

from random import Random
from typing import Any

DRIVER, OTHER = "gpu.example.com", "nic.example.com"
_MODELS = ("A100", "H100", "L40S")
_EFFECTS = ("NoSchedule", "NoExecute", "None")
_SELECTORS = (
    f"device.driver == '{DRIVER}'",
    f"device.driver == '{OTHER}' || device.driver == '{DRIVER}'",
    f"device.attributes['{DRIVER}'].model == 'A100'",
    f"device.attributes['{DRIVER}'].model in ['H100', 'L40S']",
    f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].model != 'H100'",
    f"has(device.attributes['{DRIVER}'].model)",
    f"'index' in device.attributes['{DRIVER}'] && device.attributes['{DRIVER}'].index < 2",
    f"device.attributes['{DRIVER}'].index >= 1",
    f"!(device.attributes['{DRIVER}'].mig)",
    f"device.attributes['{DRIVER}'].mig || device.driver == '{OTHER}'",
    f"device.attributes['{DRIVER}'].?mig.orValue(false)",
    f"device.attributes['{DRIVER}'].?index.orValue(7) == 7",
    f"device.attributes['{DRIVER}'].?index.hasValue()",
    f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0",
    f"device.capacity['{DRIVER}'].memory.isLessThan(quantity('81920Mi'))",
    f"device.capacity['{DRIVER}'].memory == quantity('80Gi')",
    f"device.capacity['{DRIVER}'].memory.asInteger() > 50000000000",
    f"device.attributes['{DRIVER}'].release.compareTo(semver('570.1.0')) >= 0",
    f"device.attributes['{DRIVER}'].release.major() == 580",
    f"device.attributes['{DRIVER}'].release == semver('570.1.0-rc.1')",
    f"device.attributes['{DRIVER}'].release == '570.1.0'",
    f"'570.1.0' == device.attributes['{DRIVER}'].release",
    f"device.attributes['{DRIVER}'].release in ['570.1.0']",
    f"device.attributes['{DRIVER}'].model.startsWith('A')",
    f"device.attributes['{DRIVER}'].model.matches('^[AH]100$')",
    f"device.attributes['{DRIVER}'].model.matches('^.100$')",
    f"device.attributes['{DRIVER}'].model.lowerAscii().contains('100')",
    f"device.attributes['{DRIVER}'].index == '1' ? true : device.driver == '{DRIVER}'",
    f"cel.bind(d, device.attributes['{DRIVER}'], d.model == 'L40S' || d.index == 0)",
    f"device.attributes['{DRIVER}'].exists(k, k == 'model')",
    f"device.attributes['{DRIVER}'].model",
    "device.allowMultipleAllocations",
    "!device.allowMultipleAllocations",
    "device.attributes['example.com'].root == 'r0'",
    "true",
)
_ATTRIBUTES = (f"{DRIVER}/model", f"{DRIVER}/index", "example.com/root", f"{DRIVER}/release")


class Cases:
    """Makes questions, each other than the last one, from a seed.

    Without `has_newer_fields`, they have no partitions and no shares, which an API server before
    1.36 does not store.
    """

    def __init__(self, seed: int, *, has_newer_fields: bool = True) -> None:
        self._is_new = has_newer_fields
        self._random = Random(seed)  # noqa: S311  # not a secret
        self._faults = 0

    def _is(self, probability: float) -> bool:
        return self._random.random() < probability

    def _is_faulty(self, probability: float) -> bool:
        return self._is(probability * self._faults)

    def question(self) -> dict[str, Any]:
        """A node, the claims of a pod, all other claims, DeviceClasses and ResourceSlices."""
        random = self._random
        # In two thirds of them nothing is missing: otherwise most claims would only find an error.
        self._faults = 0 if self._is(0.7) else 1
        slices = [
            one for number in range(random.choice((1, 1, 2, 3))) for one in self._pool(number)
        ]
        devices = [
            (spec["driver"], spec["pool"]["name"], device)
            for spec in (one["spec"] for one in slices)
            for device in spec.get("devices", ())
        ]
        random.shuffle(slices)
        return {
            "node": {
                "metadata": {"name": "n0", "labels": {"zone": random.choice("ab"), "rank": "3"}}
            },
            "claims": [self._claim(f"c{n}") for n in range(random.choice((1, 1, 1, 2)))],
            "others": self._others(devices),
            "classes": [
                {
                    "metadata": {"name": name},
                    "spec": {"selectors": self._selectors((0, 1, 1, 1, 2))},
                }
                for name in ("one", "two")
            ],
            "slices": slices,
        }

    def _selectors(self, counts: tuple[int, ...]) -> list[dict[str, Any]]:
        random = self._random
        # Half of them are plain: with each selector more, fewer devices are left.
        return [
            {"cel": {"expression": random.choice(_SELECTORS[:5] if self._is(0.5) else _SELECTORS)}}
            for _ in range(random.choice(counts))
        ]

    def _pool(self, number: int) -> list[dict[str, Any]]:
        random = self._random
        driver = random.choice((DRIVER, DRIVER, DRIVER, OTHER))
        count = random.choice((1, 1, 1, 2, 3))
        generation = random.choice((1, 1, 1, 2))
        has_counters = self._is_new and self._is(0.25)
        expected = count + has_counters + self._is_faulty(0.1)
        made = []
        serial = 0
        for part in range(count):
            spec: dict[str, Any] = {
                "driver": driver,
                "pool": {
                    "name": f"p{number}",
                    "generation": generation if not self._is_faulty(0.1) else 3 - generation,
                    "resourceSliceCount": expected + self._is_faulty(0.01),
                },
                **self._selection(),
            }
            devices = []
            for _ in range(random.choice((1, 2, 3, 4))):
                devices.append(self._device(f"d{serial}", spec, has_counters=has_counters))
                serial += not self._is_faulty(0.03)
            made.append(
                {"metadata": {"name": f"s{number}-{part}"}, "spec": {**spec, "devices": devices}}
            )
        if has_counters:
            amount = random.choice((1, 2, 3))
            counters = {"slices": {"value": str(amount)}, "memory": {"value": f"{amount * 10}Gi"}}
            pool = made[0]["spec"]["pool"]
            made.append(
                {
                    "metadata": {"name": f"s{number}-counters"},
                    "spec": {
                        "driver": driver,
                        "pool": pool,
                        **self._selection(),
                        "sharedCounters": [{"name": "card", "counters": counters}],
                    },
                }
            )
        return made

    def _selection(self) -> dict[str, Any]:
        random = self._random
        kinds = ("name",) * 8 + ("other", "all", "selector", "device")
        kind = random.choice(kinds if self._is_new else kinds[:-1])
        terms = [{"matchExpressions": [self._expression()]}]
        found: dict[str, dict[str, Any]] = {
            "name": {"nodeName": "n0"},
            "other": {"nodeName": "n1"},
            "all": {"allNodes": True},
            "selector": {"nodeSelector": {"nodeSelectorTerms": terms}},
            "device": {"perDeviceNodeSelection": True},
        }
        return found[kind]

    def _expression(self) -> dict[str, Any]:
        return self._random.choice(
            (
                {"key": "zone", "operator": "In", "values": ["a"]},
                {"key": "zone", "operator": "NotIn", "values": ["a"]},
                {"key": "rank", "operator": "Gt", "values": ["2"]},
                {"key": "none", "operator": "DoesNotExist"},
            )
        )

    def _device(self, name: str, spec: dict[str, Any], *, has_counters: bool) -> dict[str, Any]:
        random = self._random
        made: dict[str, Any] = {"name": name, "attributes": self._attributes(), "capacity": {}}
        if not self._is_faulty(0.2):
            memory = random.choice(("40Gi", "80Gi", "81920Mi", "46068Mi", "1.5G"))
            made["capacity"]["memory"] = {"value": memory}
        if self._is(0.2):
            made["taints"] = [
                {
                    "key": random.choice(("broken", "old")),
                    "value": random.choice(("", "x")),
                    "effect": random.choice(_EFFECTS[: 2 + self._is_new]),
                }
            ]
        if self._is_new and self._is(0.1):
            made["allowMultipleAllocations"] = True
        if self._is_new and self._is(0.2):
            made["capacity"].update(self._amounts_by_policy())
        if self._is(0.02):
            made["bindingConditions"] = ["ready"]
            made["bindingFailureConditions"] = ["failed"]
        if has_counters and self._is(0.9):
            amount = random.choice((1, 1, 2))
            counters = {"slices": {"value": str(amount)}}
            if self._is(0.5):
                counters["memory"] = {"value": f"{amount * 10}Gi"}
            if self._is(0.02):
                counters["none"] = {"value": "1"}
            made["consumesCounters"] = [{"counterSet": "card", "counters": counters}]
        if spec.get("perDeviceNodeSelection"):
            made.update(self._selection_of_device())
        return made

    def _amounts_by_policy(self) -> dict[str, Any]:
        random = self._random
        amounts: dict[str, Any] = {}
        ranges = (
            {"min": "5Gi"},
            {"min": "5Gi", "max": "40Gi"},
            {"min": "8Gi", "max": "40Gi", "step": "8Gi"},
            {"min": "0", "step": "3Gi"},
        )
        policies = [{"default": "8Gi", "validRange": one} for one in ranges[:3]]
        policies += [
            {"default": "0", "validRange": ranges[3]},
            {"default": "10Gi", "validValues": ["10Gi", "20Gi", "40Gi"]},
            {"default": "10Gi"},
        ]
        amounts["memory"] = {"value": "80Gi", "requestPolicy": random.choice(policies)}
        if self._is(0.5):
            cores = {
                "default": random.choice(("0", "25")),
                "validRange": {"min": "0", "max": "100"},
            }
            amounts["cores"] = {"value": "100", "requestPolicy": cores}
        return amounts

    def _attributes(self) -> dict[str, Any]:
        random = self._random
        attributes: dict[str, Any] = {}
        if not self._is_faulty(0.2):
            attributes["model"] = {"string": random.choice(_MODELS)}
        if not self._is_faulty(0.3):
            attributes["index"] = {"int": random.randrange(4)}
        if not self._is_faulty(0.4):
            attributes["mig"] = {"bool": self._is(0.5)}
        if not self._is_faulty(0.3):
            versions = ("570.1.0", "570.1.0-rc.1", "580.65.6", "570.1.0+b1")
            attributes["release"] = {"version": random.choice(versions)}
        if self._is(0.8):
            attributes["example.com/root"] = {"string": random.choice(("r0", "r1"))}
        return attributes

    def _selection_of_device(self) -> dict[str, Any]:
        while "perDeviceNodeSelection" in (found := self._selection()):
            pass
        return found

    def _claim(self, name: str) -> dict[str, Any]:
        random = self._random
        requests = [self._request(f"r{n}") for n in range(random.choice((1, 1, 2, 3)))]
        names = [request["name"] for request in requests]
        names += [
            f"{request['name']}/{one['name']}"
            for request in requests
            for one in request.get("firstAvailable", ())
        ]
        constraints = []
        for _ in range(random.choice((0, 0, 0, 1, 2))):
            kinds = ("matchAttribute", "matchAttribute", "distinctAttribute")
            kind = random.choice(kinds[: 2 + self._is_new])
            constraint: dict[str, Any] = {kind: random.choice(_ATTRIBUTES)}
            if self._is(0.5):
                constraint["requests"] = random.sample(names, min(2, len(names)))
            constraints.append(constraint)
        devices = {"requests": requests, "constraints": constraints}
        return {"metadata": {"name": name, "namespace": "d"}, "spec": {"devices": devices}}

    def _request(self, name: str) -> dict[str, Any]:
        random = self._random
        if self._is(0.2):
            found = [self._exact() for _ in range(random.choice((1, 2, 3)))]
            for number, one in enumerate(found):
                one["name"] = f"a{number}"
                one.pop("adminAccess", None)
            return {"name": name, "firstAvailable": found}
        return {"name": name, "exactly": self._exact()}

    def _exact(self) -> dict[str, Any]:
        random = self._random
        made: dict[str, Any] = {
            "deviceClassName": random.choice(
                ("one",) * 4 + ("two",) * 4 + ("none",) * self._is_faulty(0.3)
            ),
            "selectors": self._selectors((0, 0, 0, 1)),
            "allocationMode": "ExactCount",
            "count": random.choice((1, 1, 1, 2, 3)),
        }
        if self._is(0.15):
            made["allocationMode"] = "All"
            del made["count"]
        if self._is(0.005):
            made["count"] = 20
            made["allocationMode"] = "ExactCount"
        if self._is(0.1):
            made["adminAccess"] = True
        if self._is(0.2):
            made["tolerations"] = [
                random.choice(
                    (
                        {"operator": "Exists"},
                        {"key": "broken", "operator": "Exists", "effect": "NoSchedule"},
                        {"key": "broken", "operator": "Equal", "value": "x"},
                        {"key": "old"},
                    )
                )
            ]
        if self._is_new and self._is(0.15):
            asked = {"memory": random.choice(("10Gi", "40Gi", "90Gi", "1Gi", "9000Mi"))}
            if self._is(0.2):
                asked["cores"] = random.choice(("1", "60", "101"))
            made["capacity"] = {"requests": asked}
        return made

    def _others(self, devices: list[tuple[str, str, dict[str, Any]]]) -> list[dict[str, Any]]:
        random = self._random
        claims = []
        for number in range(random.choice((0, 0, 1, 2))):
            results = []
            for driver, pool, device in random.sample(
                devices, min(len(devices), random.choice((1, 1, 2)))
            ):
                result: dict[str, Any] = {
                    "request": "r",
                    "driver": driver,
                    "pool": pool,
                    "device": device["name"],
                }
                if device.get("allowMultipleAllocations"):
                    result["shareID"] = f"share-{number}"
                    if self._is(0.8):
                        result["consumedCapacity"] = {
                            "memory": random.choice(("10Gi", "40Gi", "72Gi"))
                        }
                elif self._is(0.1):
                    result["adminAccess"] = True
                results.append(result)
            claims.append(
                {
                    "metadata": {"name": f"o{number}", "namespace": "d"},
                    "spec": {},
                    "status": {"allocation": {"devices": {"results": results}}},
                }
            )
        return claims

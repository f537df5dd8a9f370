"""The device class of a resource claim is misspelt, or the name of a resource.

What it does
------------
Compares the `deviceClassName` of each request with the classes that vendors' drivers install, such
as `gpu.nvidia.com`, and with the DeviceClasses of the same run, or of the cluster. Finds names that
differ from one of them by a letter or by punctuation, names of resources of device plugins
(`nvidia.com/gpu`), and names that no class has and that people write for one (`nvidia.com`). It
says nothing about a name that resembles none, since administrators choose the names of classes, nor
about one that a DeviceClass has, nor about more requests than a claim may have (32, each with 8
alternatives).

Why it matters
--------------
Kubernetes accepts a claim whose class does not exist, and its pods stay Pending until a person
creates the class. The API server refuses names with a slash.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#deviceclass
- kubernetes-sigs/dra-driver-nvidia-gpu, `deployments/helm/dra-driver-nvidia-gpu/templates`
"""

from itertools import islice

from rules.base.json_values import as_text, display
from rules.base.text_matching import has_few_typos, has_placeholder
from rules.base.traits import CLAIM_OBJECT
from rules.gpu.devices import DEVICE_CLASS_PREFIX
from rules.inventory.inventory import DeviceClass
from rules.profile.platforms.device_attributes import VENDOR_CLASSES
from rules.rule import Action, Context, DeviceClaim, Finding, Findings, define_rule

FIELD = "deviceClassName"
# What people write for a class.
_CLASS_BY_MISTAKE = {
    **dict.fromkeys(("nvidia.com", "gpu.nvidia", "nvidia.gpu", "nvidia.gpu.com"), "gpu.nvidia.com"),
    "nvidia.com.gpu": "gpu.nvidia.com",
    **dict.fromkeys(("mig.gpu.nvidia.com", "gpu.mig.nvidia.com", "mig.nvidia"), "mig.nvidia.com"),
    **dict.fromkeys(("amd.com", "gpu.amd", "amd.com.gpu"), "gpu.amd.com"),
    **dict.fromkeys(("intel.com", "gpu.intel", "intel.com.gpu"), "gpu.intel.com"),
}
# The resource of a device plugin -> the class of the same devices.
_CLASS_BY_RESOURCE = {
    "nvidia.com/gpu": "gpu.nvidia.com",
    "amd.com/gpu": "gpu.amd.com",
    "intel.com/gpu": "gpu.intel.com",
    "gpu.intel.com/i915": "gpu.intel.com",
    "gpu.intel.com/xe": "gpu.intel.com",
    "google.com/tpu": "tpu.google.com",
}
_MAX_NAME_CHARACTERS = 63  # characters of a name that is compared
_MAX_CLASSES = 50  # classes of the cluster
_MAX_REQUESTS = 320  # as `requests` counts them: 32, the block `exactly` of each, 8 alternatives


def check(claim: DeviceClaim, context: Context) -> Findings:
    """Yield each request whose class is certainly meant to have another name."""
    own = list(context.inventory.all_in(DeviceClass, None))[:_MAX_CLASSES]
    for request in islice(claim.requests(), _MAX_REQUESTS):
        name = as_text(request.fields.get(FIELD))
        if (
            not name
            or has_placeholder(name)
            or len(name) > _MAX_NAME_CHARACTERS
            or name in VENDOR_CLASSES
        ):
            continue
        if context.inventory.find(DeviceClass, name) is not None:
            continue
        path, key = (*request.path, FIELD), f"{FIELD}.{request.name}"
        if "/" in name:
            right = _class_of_resource(name)
            yield Finding(
                path=path,
                key=key,
                message=f"the request {display(request.name)} has the class {display(name)}, which "
                "is the name of a resource: the API server refuses it",
                help=f"write {right}" if right else "write the name of a DeviceClass",
                api_refuses=True,
            )
        elif right := _meant_class(name, own):
            yield Finding(
                path=path,
                key=key,
                message=f"the request {display(request.name)} has the class {display(name)}, which "
                f"is not known but close to {right}: if no DeviceClass has this name, the pods "
                "stay Pending",
                help=f"write {right}",
                action=Action.WARN,
            )


def _class_of_resource(name: str) -> str:
    if name.startswith(DEVICE_CLASS_PREFIX):
        return name.removeprefix(DEVICE_CLASS_PREFIX)
    if name.startswith("nvidia.com/mig-"):
        return "mig.nvidia.com"
    return _CLASS_BY_RESOURCE.get(name, "")


def _meant_class(name: str, own: list[str]) -> str:
    """The class that `name` is probably meant for; empty if there is none."""
    if name in _CLASS_BY_MISTAKE:
        return _CLASS_BY_MISTAKE[name]
    for known in (*own, *VENDOR_CLASSES):
        # Names with other digits are those of other classes.
        digits = [letter for letter in name if letter.isdigit()]
        if digits != [letter for letter in known if letter.isdigit()]:
            continue
        if has_few_typos(1, name, known) or _differ_in_punctuation_only(name, known):
            return known
    return ""


def _differ_in_punctuation_only(name: str, known: str) -> bool:
    """Return whether the two differ in case and punctuation alone."""
    return [c for c in name.lower() if c.isalnum()] == [c for c in known.lower() if c.isalnum()]


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(CLAIM_OBJECT,))

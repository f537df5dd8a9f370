"""The reading of any container by gpuward is what NVIDIA's container runtime gives it.

Containers are made at random of what the toolkit reads.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.loading import load_policy
from rules.engine.fixing import check
from rules.gpu.visibility import Visibility, looks_like_legacy_image, visibility
from rules.profile.context import Context
from tests.testkit.cases import TODAY
from tests.testkit.container_runtime.executed import pods
from tests.testkit.container_runtime.node import NVIDIA, Answer, Node, Settings
from tests.testkit.container_runtime.pods import containers
from tests.testkit.container_runtime.programs import TOOLKITS

POLICY = load_policy("apiVersion: gpuward.io/v1\nkind: Policy\nprofiles: [nvidia]\n", "the test")
RULES = POLICY.rule_set()
CONTEXT = Context(today=TODAY, namespace="ml", user="jane", operation="CREATE")

WORDS = (
    "all",
    "none",
    "void",
    "",
    " ",
    "0",
    "1",
    "GPU-91d3",
    "nvidia.com/gpu=0",
    "nvidia.com/gpu=all",
)
UNKNOWN = ("ALL", "Void", "7", "GPU-0", "nvidia.com/gpu=9", "0:0", "\x1cvoid", "void\x1f")
# What Python takes for a blank, and two characters that look like one.
BLANKS = [c for c in map(chr, range(sys.maxunicode)) if c.isspace()] + ["\u200b", "\ufeff"]
REFERENCES = ("$(A)", "$(a,void,b)", "$$(A)", "$(")
lists = st.lists(st.sampled_from((*WORDS, *UNKNOWN, *REFERENCES)), max_size=3).map(",".join)
values = st.one_of(st.sampled_from(WORDS), lists)
variables = st.one_of(
    st.tuples(st.just(NVIDIA), values),
    st.tuples(st.sampled_from(("A", "a,void,b")), st.sampled_from(("all", "void", "1"))),
    st.tuples(st.just("CUDA_VERSION"), st.sampled_from(("12.4", "11.0", ""))),
    st.tuples(st.just("NVIDIA_REQUIRE_CUDA"), st.sampled_from(("cuda>=12.0", ""))),
    st.tuples(st.just("DOCKER_RESOURCE_GPU"), values),
    st.tuples(
        st.sampled_from(("NVIDIA_MOFED", "NVIDIA_NVSWITCH", "NVIDIA_GDS", "NVIDIA_GDRCOPY")),
        st.sampled_from(("enabled", "disabled")),
    ),
    st.tuples(st.just("NVIDIA_IMEX_CHANNELS"), st.sampled_from(("0", "all", ""))),
    st.tuples(st.just("NVIDIA_MIG_CONFIG_DEVICES"), st.sampled_from(("all", ""))),
)
FOLDER = "/var/run/nvidia-container-devices"
places = st.sampled_from(
    ("all", "0", "GPU-91d3", "void", "none", "cdi/nvidia.com/gpu/1", "imex/0", "../x/all", "7")
)


@st.composite
def manifests(draw: st.DrawFn) -> dict[str, Any]:
    """Pods with one container."""
    env = [{"name": name, "value": value} for name, value in draw(st.lists(variables, max_size=4))]
    container: dict[str, Any] = {"name": "main", "image": "registry.example.com/app:1", "env": env}
    mounted = draw(st.lists(places, max_size=2, unique=True))
    container["volumeMounts"] = [
        {"name": "nothing", "mountPath": f"{FOLDER}/{place}"} for place in mounted
    ]
    if draw(st.booleans()):
        container["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    if draw(st.integers(0, 3)) == 0:
        container["securityContext"] = {"capabilities": {"add": ["SYS_ADMIN"]}}
    volumes = [{"name": "nothing", "hostPath": {"path": "/dev/null"}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trainer", "namespace": "ml"},
        "spec": {"containers": [container], "volumes": volumes if mounted else []},
    }


nodes = st.builds(
    Settings,
    version=st.sampled_from(sorted(TOOLKITS)),
    mode=st.sampled_from(("cdi", "legacy")),
    env_when_unprivileged=st.booleans(),
    volume_mounts=st.booleans(),
    swarm_resource=st.sampled_from(("", "DOCKER_RESOURCE_GPU")),
)
at_random = settings(
    max_examples=50,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@at_random
@given(manifests(), nodes)
def test_no_container_gets_uncounted_devices_in_silence(
    node: Node, manifest: dict[str, Any], toolkit: Settings
) -> None:
    (pod,) = pods(manifest, POLICY.profile)
    (found,) = containers(pod, {}, {})
    answer = node.ask(found.container, toolkit)
    if answer.others or answer.gpus - found.counted:
        assert check(manifest, RULES, CONTEXT).findings, str(answer)


@at_random
@given(st.lists(variables.filter(lambda v: v[0] != "DOCKER_RESOURCE_GPU"), max_size=4), nodes)
def test_the_variables_mean_what_gpuward_reads(
    node: Node, env: list[tuple[str, str]], toolkit: Settings
) -> None:
    """Without device lists as mounts, where the variable is accepted."""
    toolkit = toolkit._replace(env_when_unprivileged=True, volume_mounts=False)
    entries = [{"name": name, "value": value} for name, value in env]
    container = {"name": "main", "image": "registry.example.com/app:1", "env": entries}
    manifest = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}
    (pod,) = pods(manifest, POLICY.profile)
    (found,) = containers(pod, {}, {})
    answer = node.ask(found.container, toolkit)
    state = visibility(found.view)
    if state is Visibility.UNSET:
        state = Visibility.GRANTED if looks_like_legacy_image(found.view) else Visibility.HIDDEN
    assert is_as_predicted(state, answer, toolkit, dict(env)), (state, answer)


@pytest.mark.parametrize("blank", BLANKS, ids=ascii)
def test_what_the_toolkit_takes_for_a_blank(node: Node, blank: str) -> None:
    env = [{"name": NVIDIA, "value": f"{blank}void{blank},all"}]
    container = {"name": "main", "image": "registry.example.com/app:1", "env": env}
    manifest = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}
    (pod,) = pods(manifest, POLICY.profile)
    (found,) = containers(pod, {}, {})
    answer = node.ask(found.container, Settings())
    assert (visibility(found.view) is Visibility.HIDDEN) == (str(answer) == "none"), answer


def is_as_predicted(
    state: Visibility, answer: Answer, toolkit: Settings, env: dict[str, str]
) -> bool:
    if state is Visibility.HIDDEN:
        return str(answer) == "none"
    if state is Visibility.DRIVER_ONLY:
        return bool(answer.error) if toolkit.mode == "cdi" else not answer.gpus
    # What is filled in may hide the devices after all; devices that do not exist, a version that is
    # none and MIG administration without its capability stop the container.
    is_filled_in = "$(" in env.get(NVIDIA, "")
    return bool(answer.error or answer.gpus or answer.others) or is_filled_in

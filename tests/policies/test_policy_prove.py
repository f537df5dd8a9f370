"""`gpuward policy prove`: what another policy lets through, or a proof that it is nothing."""

from __future__ import annotations

import datetime
import json
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lint.policy.cli import main
from lint.policy.prove import prove
from lint.policy.witnesses import first_difference, removable_paths, without
from policies.loading import default_policy, load_policy
from policies.openings import find_openings
from policies.policy import Policy, RuleSettings
from rules.catalog.index import CATALOG
from rules.engine.fixing import check
from rules.engine.rule_set import PolicyException
from rules.finding import Action
from rules.profile.context import Context
from rules.profile.profile import Profile
from tests.testkit.admission.reviews import review
from tests.testkit.paths import ROOT
from tests.testkit.policy_mistakes import POLICY_HEADER
from webhook.admission.decider import Decider

TODAY = datetime.date(2030, 6, 15)
PAIRS = 1_000
SHOWN_PAIRS = 40


def policy(text: str = "") -> Policy:
    return load_policy(POLICY_HEADER + text, "a policy")


def accept(rule: str, match: str, more: str = "") -> str:
    return f"exceptions: [{{rules: [{rule}], match: {match}, reason: ticket{more}}}]\n"


def act(**actions: str) -> str:
    lines = [f'  {rule.replace("_", "-")}: {{action: "{a}"}}\n' for rule, a in actions.items()]
    return "rules:\n" + "".join(lines)


def options(rule: str, text: str) -> str:
    return f"rules: {{{rule}: {{action: deny, options: {text}}}}}\n"


ENV, PRIVILEGED = "visible-devices-env", "privileged-gpu"
WIDER = accept(PRIVILEGED, '{namespace: ["rdma-*", lab], image: "registry.example.com/*:1"}')
# What the new policy opens: the old one, the new one, the rule, and what both do.
OPENINGS: dict[str, tuple[str, str, str, str, str]] = {
    "action": ("", act(visible_devices_env="warn"), ENV, "refused", "warned"),
    "off": ("", act(visible_devices_env="off"), ENV, "refused", "accepted"),
    "exception": ("", WIDER, PRIVILEGED, "refused", "accepted"),
    "wider pattern": (
        accept(PRIVILEGED, '{namespace: "rdma-a*"}'),
        accept(PRIVILEGED, '{namespace: "rdma-*"}'),
        *(PRIVILEGED, "refused", "accepted"),
    ),
    "longer exception": (
        accept(PRIVILEGED, "{namespace: lab}", ", expires: 2031-03-31"),
        accept(PRIVILEGED, "{namespace: lab}", ", expires: 2031-04-30"),
        *(PRIVILEGED, "refused", "accepted"),
    ),
    "exception that never ends": (
        accept(PRIVILEGED, "{namespace: lab}", ", expires: 2031-03-31"),
        accept(PRIVILEGED, "{namespace: lab}"),
        *(PRIVILEGED, "refused", "accepted"),
    ),
    "exception of a workload": (
        "",
        accept(PRIVILEGED, '{namespace: lab, kind: "Deploy*"}'),
        *(PRIVILEGED, "refused", "accepted"),
    ),
    "larger number": (
        options("absurd-count", "{max_devices: 16}"),
        options("absurd-count", "{max_devices: 32}"),
        *("absurd-count", "refused", "accepted"),
    ),
    "more repositories": (
        options("untrusted-gpu-image", '{repositories: ["registry.example.com/ml/*"]}'),
        options("untrusted-gpu-image", '{repositories: ["registry.example.com/*"]}'),
        *("untrusted-gpu-image", "refused", "accepted"),
    ),
    "more namespaces": (
        options("gpu-namespace", '{namespaces: ["ml-*"]}'),
        options("gpu-namespace", '{namespaces: ["ml-*", web]}'),
        *("gpu-namespace", "refused", "accepted"),
    ),
    "a rule that silences another": (
        act(plugin_dir_hostpath="deny", runtime_socket="off"),
        act(plugin_dir_hostpath="deny", runtime_socket="audit"),
        *("plugin-dir-hostpath", "refused", "noted"),
    ),
    "a fix": (
        "",
        "rules: {toleration-default: {fix: false}}\n",
        *("toleration-default", "fixed", "noted"),
    ),
}


@pytest.mark.parametrize("name", OPENINGS)
def test_an_opening_is_shown_by_an_object(name: str) -> None:
    old, new, rule, before, after = OPENINGS[name]
    proof = prove(policy(old), policy(new), TODAY)
    assert proof.result == "opened"
    shown = [witness for _, witness in proof.openings]
    assert [(one.rule, one.old, one.new) for one in shown] == [(rule, before, after)]
    assert proof.unknown == []
    if "expires" in old:
        assert shown[0].day == datetime.date(2031, 4, 1)


@pytest.mark.parametrize("name", OPENINGS)
def test_the_other_way_round_nothing_is_opened(name: str) -> None:
    old, new, *_ = OPENINGS[name]
    assert prove(policy(new), policy(old), TODAY).result == "proved"


def test_an_exception_for_two_images_accepts_more_than_two_exceptions() -> None:
    """A finding about both containers needs one exception that fits both."""
    match = "{namespace: lab, image: %s}"
    both = accept("host-namespaces", match % "[a, b]")
    entry = "{rules: [host-namespaces], match: {namespace: lab, image: %s}, reason: ticket}"
    each = f"exceptions: [{entry % 'a'}, {entry % 'b'}]\n"
    strict = act(host_namespaces="deny")
    proof = prove(policy(strict + each), policy(strict + both), TODAY)
    assert proof.result == "opened"
    (containers,) = [w.manifest["spec"]["containers"] for _, w in proof.openings]
    assert [container["image"] for container in containers] == ["a", "b"]
    assert prove(policy(strict + both), policy(strict + each), TODAY).result == "proved"


def test_a_large_exception_is_shown_by_two_containers() -> None:
    """Of 10,000 pairs of an image and a name two are enough, one of each old exception."""
    images, names = ([f"{letter}{number}" for number in range(100)] for letter in "in")
    entry = (
        "{rules: [host-namespaces], match: {namespace: lab, image: %s, container: %s}, reason: x}"
    )
    halves = f"exceptions: [{entry % (images[:50], names)}, {entry % (images[50:], names)}]\n"
    whole = f"exceptions: [{entry % (images, names)}]\n"
    strict = act(host_namespaces="deny")
    proof = prove(policy(strict + halves), policy(strict + whole), TODAY)
    (containers,) = [witness.manifest["spec"]["containers"] for _, witness in proof.openings]
    assert [container["image"] for container in containers] == ["i0", "i50"]
    assert prove(policy(strict + whole), policy(strict + halves), TODAY).result == "proved"


CLAIMS = "claim-of-all-devices"
# Rules about objects without containers, and what denies their findings.
_OTHER_RULES = (CLAIMS, "job-without-deadline", "quota-fraction", "gpu-daemonset")


def excepted(rules: tuple[str, ...], **facts: tuple[str, ...]) -> Policy:
    """A policy that denies what `rules` find, except where `facts` are."""
    return Policy(
        profile=default_policy().profile,
        rules={rule: RuleSettings(action=Action.DENY) for rule in rules},
        exceptions=(PolicyException(rules, "ticket", None, namespaces=("lab",), **facts),),
    )


@pytest.mark.parametrize("fact", ["images", "containers"])
@pytest.mark.parametrize(
    "rules", [*((rule,) for rule in _OTHER_RULES), (PRIVILEGED, CLAIMS)], ids=" ".join
)
def test_an_exception_for_any_container_accepts_nothing_without_containers(
    rules: tuple[str, ...], fact: str
) -> None:
    any_container, wide = excepted(rules, **{fact: ("*",)}), excepted(rules)
    assert prove(wide, any_container, TODAY).result == "proved"
    assert prove(any_container, any_container, TODAY).result == "proved"
    proof = prove(any_container, wide, TODAY)
    assert proof.result == "opened"
    assert rules[-1] in {witness.rule for _, witness in proof.openings}


def test_an_exception_for_any_container_covers_one_for_some() -> None:
    wide = excepted((PRIVILEGED,), images=("*",))
    assert prove(wide, excepted((PRIVILEGED,), containers=("main",)), TODAY).result == "proved"


def test_a_cluster_has_objects_in_no_namespace() -> None:
    everywhere = excepted(("gpu-daemonset",))
    (exception,) = everywhere.exceptions
    none, star, some = (
        everywhere._replace(exceptions=(exception._replace(namespaces=spaces),))
        for spaces in ((), ("*",), ("a*", "b*"))
    )
    assert prove(star, none, TODAY).result == "proved"
    assert prove(none, star, TODAY).result == "proved"
    assert prove(some, none, TODAY).result != "proved"


def components(*listed: str) -> Policy:
    return policy(
        f"profiles: [{{name: ours, extends: [nvidia], components: [{', '.join(listed)}]}}]\n"
    )


def narrow(*rules: str) -> str:
    return f"{{namespaces: [gpus], serviceAccounts: [agent], rules: [{', '.join(rules)}]}}"


def test_the_order_of_components_decides_which_rules_are_not_run() -> None:
    first, second = narrow(ENV), narrow(PRIVILEGED)
    one, other = components(first, second), components(second, first)
    assert prove(one, other, TODAY).result != "proved"
    assert prove(other, one, TODAY).result != "proved"
    assert prove(one, components(first, second), TODAY).result == "proved"


def test_the_order_of_components_with_different_numbers_of_rules_does_not_count() -> None:
    first, second = narrow(ENV), narrow(PRIVILEGED, "host-namespaces")
    assert prove(components(first, second), components(second, first), TODAY).result == "proved"


def test_a_rule_that_is_run_for_a_component_again_may_silence_others() -> None:
    agent = components(narrow("runtime-socket")).profile
    old, new = (
        Policy(
            profile=agent,
            rules={
                "runtime-socket": RuleSettings(action=Action.AUDIT, suppressible=suppressible),
                "plugin-dir-hostpath": RuleSettings(action=Action.DENY),
            },
        )
        for suppressible in (True, False)
    )
    assert prove(old, new, TODAY).result != "proved"


@pytest.mark.parametrize("odd", ["\uf8ff", "\ue000"])
@pytest.mark.parametrize(
    ("rule", "option"),
    [
        ("visible-devices-key", "writers"),
        ("reserved-gpushare-keys", "writers"),
        ("left-queue", "controllers"),
        ("gpu-namespace", "namespaces"),
    ],
)
def test_an_option_may_have_any_character(rule: str, option: str, odd: str) -> None:
    old, new = (policy(options(rule, f'{{{option}: ["bob", "{value}"]}}')) for value in (odd, "*"))
    assert prove(old, new, TODAY).result != "proved"
    assert prove(new, old, TODAY).result == "proved"


def test_no_rule_with_options_silences_others() -> None:
    """Otherwise an option by which it finds more would open what it silences."""
    active = [default_policy().activate(rule) for rule in CATALOG]
    assert [one.rule.name for one in active if one.options and one.rule.supersedes] == []


def test_an_exception_with_too_many_patterns_is_not_known() -> None:
    numbers = [str(number) for number in range(900)]
    many = excepted(
        (PRIVILEGED,), images=tuple(f"a/{n}:*" for n in numbers), containers=tuple(numbers)
    )
    tracemalloc.start()
    start = time.process_time()
    proof = prove(many._replace(exceptions=()), many, TODAY)
    assert time.process_time() - start < 5
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()
    assert "combinations" in " ".join(proof.unknown)


def test_a_component_of_a_profile_is_an_opening() -> None:
    agent = "{namespaces: [gpus], serviceAccounts: [agent]}"
    own = f"{{name: ours, extends: [nvidia], components: [{agent}]}}"
    proof = prove(policy(), policy(f"profiles: [{own}]\n"), TODAY)
    ((_, witness),) = proof.openings
    assert (witness.old, witness.new) == ("refused", "accepted")
    assert witness.manifest["metadata"]["namespace"] == "gpus"
    assert prove(policy(f"profiles: [{own}]\n"), policy(), TODAY).result == "proved"


def test_a_component_may_silence_other_rules_than_it_names() -> None:
    agent = "{namespaces: [gpus], serviceAccounts: [agent], rules: [zero-gpu]}"
    own = f"profiles: [{{name: ours, extends: [nvidia], components: [{agent}]}}]\n"
    strict = act(shared_claim="deny")
    assert prove(policy(strict), policy(strict + own), TODAY).result != "proved"


def test_other_profiles_are_never_proved_to_be_equal() -> None:
    proof = prove(policy("profiles: [nvidia]\n"), policy("profiles: [amd]\n"), TODAY)
    assert "the profiles differ in" in " ".join(proof.unknown)
    assert proof.result != "proved"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("workloads: deny\n", "", "workloads: deny -> warn"),
        ("workloads: fix\n", "", "workloads: fix -> warn"),
        ("onRuleError: deny\n", "", "onRuleError: deny -> allow"),
        (
            "",
            "gpuExceptions: [{rules: [privileged-gpu], namespaces: a, longestDays: 7}]\n",
            "owners of the namespaces a may make exceptions to privileged-gpu",
        ),
        (
            "gpuExceptions: [{rules: [privileged-gpu], namespaces: a, longestDays: 7}]\n",
            'gpuExceptions: [{rules: [privileged-gpu], namespaces: "a*", longestDays: 7}]\n',
            "owners of the namespaces a* may make exceptions to privileged-gpu",
        ),
    ],
)
def test_settings_that_no_object_shows_are_named(old: str, new: str, words: str) -> None:
    proof = prove(policy(old), policy(new), TODAY)
    assert proof.result == "opened"
    assert words in " ".join(proof.settings)
    assert prove(policy(new), policy(old), TODAY).result == "proved"


def test_workloads_that_are_refused_are_not_fixed() -> None:
    """So neither setting is stricter than the other in all that it does."""
    fixing, refusing = policy("workloads: fix\n"), policy("workloads: deny\n")
    containers = [{"name": "main", "image": "a", **_gpus(1, "requests")}]
    spec = {"template": {"metadata": {}, "spec": {"containers": containers}}}
    metadata = {"name": "trainer", "namespace": "lab"}
    raw = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    decisions = [
        Decider(one).mutate(review(raw, namespace="lab"), Action.DENY, TODAY)
        for one in (fixing, refusing)
    ]
    assert [(one.allowed, bool(one.operations)) for one in decisions] == [
        (True, True),
        (True, False),
    ]
    assert "no longer fixed" in " ".join(prove(fixing, refusing, TODAY).settings)
    assert "no longer refused" in " ".join(prove(refusing, fixing, TODAY).settings)


def test_what_only_the_linter_reads_is_no_part_of_the_claim() -> None:
    looser = (
        'lint: {exclude: [vendor]}\nperPath: [{paths: x, rules: {zero-gpu: {action: "off"}}}]\n'
    )
    proof = prove(policy(), policy(looser), TODAY)
    assert proof.result == "proved"
    assert len(proof.notes) == 2


def test_the_command_shows_the_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("old", ""), ("new", act(visible_devices_env="warn")), ("bad", "x: 1\n")):
        Path(f"{name}.yaml").write_text(POLICY_HEADER + text)
    assert main(["prove", "old.yaml", "new.yaml"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{ENV}: refused -> warned: action deny -> warn"
    assert "      - name: NVIDIA_VISIBLE_DEVICES" in lines
    assert main(["prove", "old.yaml", "new.yaml", "-o", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["result"] == "opened"
    assert report["openings"][0]["manifest"]["kind"] == "Pod"
    assert main(["prove", "new.yaml", "old.yaml"]) == 0
    assert capsys.readouterr().out.startswith("proved: ")
    Path("other.yaml").write_text(
        POLICY_HEADER + "rules: {missing-queue: {options: {labels: [a]}}}\n"
    )
    assert main(["prove", "other.yaml", "old.yaml"]) in {1, 3}
    assert main(["prove", "old.yaml", "bad.yaml"]) == 2


NAMESPACES = ("lab", "rdma-a", "rdma-b", "web")
IMAGES = ("registry.example.com/a:1", "registry.example.com/b:1", "busybox")
NAMES = ("main", "side")
ACCOUNTS = ("default", "tester")
_RULES = (
    *(ENV, PRIVILEGED, "device-hostpath", "runtime-socket", "plugin-dir-hostpath"),
    *("host-namespaces", "absurd-count", "request-only", "toleration-default"),
    *("visible-devices-valuefrom", "share-visible-devices", "gpu-container-hidden"),
    *(*_OTHER_RULES, "visible-devices-key"),
)
USERS = ("alice", "bob", "\uf8ff")
_WRITERS = (*USERS, "*", "al*", "\ue000*")


def _patterns(random_: random.Random, names: tuple[str, ...]) -> tuple[str, ...]:
    name = random_.choice(names)
    cut = random_.randrange(1, len(name))
    return tuple(random_.sample([name, f"{name[:cut]}*", f"*{name[cut:]}"], random_.choice([1, 2])))


def _random_exception(random_: random.Random) -> PolicyException:
    def maybe(names: tuple[str, ...]) -> tuple[str, ...]:
        chosen = [_patterns(random_, names), ("*",), (), (), ()]
        return random_.choice(chosen)

    return PolicyException(
        rules=tuple(random_.sample(_RULES, random_.choice([1, 2]))),
        reason="ticket",
        expires=random_.choice([None, None, TODAY, TODAY - datetime.timedelta(days=1)]),
        namespaces=_patterns(random_, NAMESPACES),
        service_accounts=maybe(ACCOUNTS),
        images=maybe(IMAGES),
        containers=maybe(NAMES),
    )


def _random_settings(random_: random.Random, rule: str) -> RuleSettings:
    more: dict[str, Any] = {}
    if rule == "absurd-count" and random_.random() < 0.5:
        more = {"max_devices": random_.choice([8, 16, 32])}
    if rule == "visible-devices-key":
        more = {"writers": random_.sample(_WRITERS, 2)}
    return RuleSettings(
        action=random_.choice([None, *Action]),
        fix=random_.choice([None, None, True, False]),
        options=more,
    )


def _random_profiles(random_: random.Random) -> list[tuple[Profile, Profile]]:
    """Profiles with the same components in any order, some of them left out."""
    pool = [
        f"{{namespaces: {space}, serviceAccounts: tester, creators: [{user}], rules: [{rules}]}}"
        for space in ("[lab]", '["la*", web]')
        for rules, user in ((ENV, "alice"), (PRIVILEGED, "alice"), ("", "bob"))
    ]
    pool = [one.replace(", rules: []", "").replace(" tester", " [tester]") for one in pool]
    pairs = []
    for _ in range(20):
        listed = random_.sample(pool, 3)
        order = random_.sample(listed, random_.choice([2, 3, 3, 3]))
        pairs.append((components(*listed).profile, components(*order).profile))
    return pairs


def _random_pair(
    random_: random.Random, profiles: list[tuple[Profile, Profile]]
) -> tuple[Policy, Policy]:
    """A policy, and one that differs from it in one to three places."""
    rules = {rule: _random_settings(random_, rule) for rule in random_.sample(_RULES, 6)}
    exceptions = [_random_exception(random_) for _ in range(random_.randrange(4))]
    profile = new_profile = default_policy().profile
    if random_.random() < 0.2:
        profile, new_profile = random_.choice(profiles)
    old = Policy(profile=profile, rules=rules, exceptions=tuple(exceptions))
    for _ in range(random_.randrange(1, 4)):
        change = random_.choice(["rule", "new exception", "less", "changed exception", "wider"])
        if change == "rule":
            rule = random_.choice([*_RULES, *rules])
            rules = {**rules, rule: _random_settings(random_, rule)}
        elif change == "new exception":
            exceptions = [*exceptions, _random_exception(random_)]
        elif change == "wider" and exceptions:
            first, *rest = exceptions
            wider = [
                first._replace(images=()),
                first._replace(containers=()),
                first._replace(service_accounts=()),
            ]
            exceptions = [*rest, random_.choice(wider)]
        elif exceptions:
            exceptions = exceptions[1:]
            if change == "changed exception":
                exceptions = [*exceptions, _random_exception(random_)]
    return old, Policy(profile=new_profile, rules=rules, exceptions=tuple(exceptions))


def _gpus(amount: Any, field: str = "limits") -> dict[str, Any]:
    return {"resources": {field: {"nvidia.com/gpu": amount}}}


_PARTS: tuple[dict[str, Any], ...] = (
    *({"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": v}]} for v in ("all", "VOID", "void")),
    {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]},
    {"securityContext": {"privileged": True}},
    *(_gpus(amount) for amount in (1, 12, 20, 40)),
    _gpus(1, "requests"),
    {"resources": {"limits": {"aliyun.com/gpu-mem": 4}}},
    {},
)
_FOLDERS = ("/dev", "/var/lib/kubelet/device-plugins", "/run/containerd", "/")


def _random_pod(random_: random.Random) -> dict[str, Any]:
    spec: dict[str, Any] = {"serviceAccountName": random_.choice(ACCOUNTS)}
    containers: list[dict[str, Any]] = []
    for name in NAMES[: random_.choice([1, 1, 2])]:
        one: dict[str, Any] = {"name": name, "image": random_.choice(IMAGES)}
        for part in random_.sample(_PARTS, random_.choice([1, 2])):
            one |= part
        containers.append(one)
    if random_.random() < 0.3:
        folder = {"name": "v", "hostPath": {"path": random_.choice(_FOLDERS)}}
        spec["volumes"] = [folder]
        containers[0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    if random_.random() < 0.2:
        spec["hostPID"] = True
    metadata = {"name": "p", "namespace": random_.choice(NAMESPACES)}
    spec["containers"] = containers
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Policy, Policy]]:
    random_ = random.Random(52)  # noqa: S311  # the same pairs in every run
    profiles = _random_profiles(random_)
    return [_random_pair(random_, profiles) for _ in range(PAIRS)]


def _may_open(old: Policy, new: Policy) -> bool:
    found = find_openings(old, new, TODAY)
    return bool(found.openings or found.settings or found.unknown)


@pytest.mark.slow
def test_nothing_is_proved_that_a_random_object_refutes(pairs: list[tuple[Policy, Policy]]) -> None:
    random_ = random.Random(53)  # noqa: S311  # the same pairs in every run
    pods = [_random_pod(random_) for _ in range(1_500)]
    objects = list(_other_objects())
    opened = proved = 0
    for number, (old, new) in enumerate(pairs):
        is_proved = not _may_open(old, new)
        proved += is_proved
        # Whatever may be open may also be shown by a pod; some of these are enough.
        if is_proved or number < SHOWN_PAIRS:
            others = random_.sample(objects, 12)
            refuted = any(_is_let_through(old, new, random_.sample(pods, 12)))
            refuted |= any(_opens(old, new, raw, random_.choice(USERS)) for raw in others)
            assert not (is_proved and refuted)
            opened += refuted
    # Otherwise the test says nothing.
    assert opened > SHOWN_PAIRS // 20
    assert proved > PAIRS // 20


def _is_let_through(old: Policy, new: Policy, pods: list[dict[str, Any]]) -> Iterator[bool]:
    """Yield for each pod whether the webhook refuses it with `old`, and admits it with `new`.

    Also whether `old` fixes something of it that `new` neither fixes nor refuses.
    """
    deciders = [Decider(one) for one in (old, new)]
    for pod in pods:
        request = review(pod, namespace=pod["metadata"]["namespace"])
        if not deciders[0].validate(request, Action.DENY, TODAY).allowed:
            yield deciders[1].validate(request, Action.DENY, TODAY).allowed
        before, after = (check(pod, one.rules, _context()) for one in deciders)
        yield first_difference(before, after, "fixes") is not None


def _other_objects() -> Iterator[dict[str, Any]]:
    """Small objects in which the rules find something; most of them are no pods."""
    samples = json.loads((ROOT / "lint/policy/samples.json").read_text("utf-8"))
    for rule in (*_OTHER_RULES, "visible-devices-key"):
        for sample in samples[rule]:
            for namespace in NAMESPACES:
                raw = sample["manifest"]
                yield {**raw, "metadata": {**raw["metadata"], "namespace": namespace}}


def _opens(old: Policy, new: Policy, raw: dict[str, Any], user: str) -> bool:
    """Return whether `old` refuses, or fixes, what `new` does not of an object by `user`."""
    context = Context(TODAY, raw["metadata"]["namespace"], user, "CREATE")
    before, after = (check(raw, one.rule_set(), context) for one in (old, new))
    return any(first_difference(before, after, claim) for claim in ("refuses", "fixes"))


def _context() -> Context:
    return Context(TODAY, user="alice", operation="CREATE")


@pytest.mark.slow
def test_each_object_that_is_shown_is_the_smallest(pairs: list[tuple[Policy, Policy]]) -> None:
    shown = 0
    for old, new in pairs[:SHOWN_PAIRS]:
        rule_sets = [each.rule_set() for each in (old, new)]
        for _, witness in prove(old, new, TODAY).openings:

            def differs(manifest: Any, one: Any = witness, both: Any = rule_sets) -> bool:
                space = manifest["metadata"].get("namespace")
                context = Context(one.day, space, one.user, one.operation)
                before, after = (check(manifest, each, context) for each in both)
                return first_difference(before, after, one.claim, [one.rule]) is not None

            if not witness.beside:
                shown += 1
                assert differs(witness.manifest)
                for path in removable_paths(witness.manifest):
                    assert not differs(without(witness.manifest, path)), path
    assert shown > SHOWN_PAIRS // 8


def _many(count: int, namespace: Callable[[int], str]) -> tuple[PolicyException, ...]:
    return tuple(
        PolicyException((PRIVILEGED,), "ticket", namespaces=(namespace(n),), images=(f"*-{n}-*:*",))
        for n in range(count)
    )


@pytest.mark.slow
def test_many_exceptions_are_compared_in_seconds() -> None:
    profile = default_policy().profile
    named = _many(10_000, lambda n: f"team-{n}")
    old = Policy(profile=profile, exceptions=named)
    # No exception is there as it was, and each is covered.
    narrow = tuple(one._replace(images=(f"a-{n}-*:*",)) for n, one in enumerate(named))
    start = time.process_time()
    assert prove(old, Policy(profile=profile, exceptions=narrow), TODAY).result == "proved"
    opened = prove(Policy(profile=profile, exceptions=narrow), old, TODAY)
    assert opened.result == "opened"
    assert len(opened.openings) == 10
    assert time.process_time() - start < 30


@pytest.mark.slow
def test_too_many_patterns_are_not_known_rather_than_proved() -> None:
    profile = default_policy().profile
    patterns = _many(10_000, lambda n: f"*a*{n}*")
    old = Policy(profile=profile, exceptions=patterns)
    narrow = tuple(one._replace(images=("a-*:*",)) for one in patterns)
    start = time.process_time()
    proof = prove(old, Policy(profile=profile, exceptions=narrow), TODAY)
    assert "comparisons" in " ".join(proof.unknown)
    assert proof.result in {"unknown", "opened"}
    assert time.process_time() - start < 60

"""The conclusions of `gpuward doctor` from the answers to its dry runs, and its first line.

tests/chart/test_lifecycle_guarded.py has the answers of a real API server.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cluster.api.connection import warning_texts
from cluster.api.errors import ClusterError, ForbiddenError, InternalError, UnreachableError
from cluster.doctor.checks.dry_runs import DRY_RUN, FROM_FILES
from cluster.doctor.cli import main
from cluster.doctor.rows import Row, State
from cluster.doctor.verdict import Verdict
from policies.controller_files import EXCEPTIONS_FILE, ExceptionsFile, format_exceptions
from policies.gpu_exceptions import spec_hash
from tests.testkit.cluster_commands.doctor_rows import (
    NO_METRICS,
    examined,
    in_release,
    installed,
    recorded,
)
from tests.testkit.cluster_commands.gpu_objects import Object
from tests.testkit.policy_mistakes import POLICY_HEADER
from webhook.admission.messages import FIX_MISSING_MESSAGE
from webhook.in_process.objects import DIGEST_ANNOTATION

Answer = Callable[[str, Object], tuple[Object, Sequence[str]]]
POST = "POST /api/v1/namespaces/default/pods: "
DENIES = f'{POST}403 admission webhook "deny.gpuward.io" denied the request: '
FOUND = "gpuward [visible-devices-env] container"
WITNESS = 'unknown field "gpuwardDryRun"'
BY_POLICY = (
    f'{POST}403 pods "gpuward-doctor-sample" is forbidden: ValidatingAdmissionPolicy '
    "'gpuward-bypass-deny' with binding 'gpuward-bypass-deny-in-mode-deny' denied request: "
)
UNANSWERED = (
    f'{POST}500 Internal error occurred: failed calling webhook "pods.deny.gpuward.io": '
    "failed to call webhook: Post: connection refused"
)


def policy_of_release(rules: str = "{}", more: str = "") -> Object:
    data = {"gpuward.yaml": f"{POLICY_HEADER}rules: {rules}\n{more}"}
    return in_release("ConfigMap", "gpuward-policy", data=data)


POLICY = policy_of_release()
WARNS_ONLY = "{visible-devices-env: {action: warn}, mig-admin-env: {action: warn}, "
WARNS_ONLY += "nri-cdi-annotation: {action: warn}}"
IS_OFF = WARNS_ONLY.replace("warn", '"off"')


def namespace(name: str, mode: str | None = None) -> Object:
    labels = {"kubernetes.io/metadata.name": name}
    if mode:
        labels["gpuward.io/mode"] = mode
    return {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def is_to_fix(pod: Object) -> bool:
    (container,) = pod["spec"]["containers"]
    return "nvidia.com/gpu" in container["resources"]["limits"]


def fixed(pod: Object) -> Object:
    (container,) = pod["spec"]["containers"]
    without = {key: value for key, value in container.items() if key != "env"}
    return {**pod, "spec": {**pod["spec"], "containers": [without]}}


def refuse(error: ClusterError, *, on_fix: ClusterError | None = None) -> Answer:
    """Refuses the pod; the one to fix is fixed, or `on_fix` is raised."""

    def answer(_namespace: str, pod: Object) -> tuple[Object, Sequence[str]]:
        if not is_to_fix(pod):
            raise error
        if on_fix is not None:
            raise on_fix
        return fixed(pod), [WITNESS]

    return answer


def admit(*warnings: str) -> Answer:
    return lambda _namespace, pod: (pod, warnings)


def change(_namespace: str, pod: Object) -> tuple[Object, Sequence[str]]:
    return fixed(pod), [WITNESS]


def tried(mode: str, answer: Answer, *more: Object, **options: Any) -> tuple[Verdict, list[Row]]:
    """The verdict, and the rows about dry runs, of a namespace in one mode."""
    objects = (*installed(), namespace("default", mode), *(more or (POLICY,)))
    found, rows = examined(*objects, send=answer, **options)
    return found, [row for row in rows if row.check == DRY_RUN]


@pytest.mark.parametrize(
    ("mode", "answer", "state", "message"),
    [
        pytest.param(
            *("deny", refuse(ForbiddenError(f"{DENIES}{FOUND}")), State.OK),
            "webhook deny.gpuward.io refuses a pod with NVIDIA_VISIBLE_DEVICES=all without a GPU; "
            "a pod with NVIDIA_VISIBLE_DEVICES=all beside one GPU is fixed",
            id="refused and fixed",
        ),
        pytest.param(
            *("deny", admit(WITNESS), State.WRONG),
            "a pod with NVIDIA_VISIBLE_DEVICES=all without a GPU is not refused, as it should be",
            id="admitted",
        ),
        pytest.param(
            *("deny", admit(), State.WRONG), "is not refused", id="admitted, with no warning at all"
        ),
        pytest.param(
            *("deny", admit(f"{FOUND} would be refused"), State.WRONG),
            "is not refused",
            id="only warned about",
        ),
        pytest.param(
            *("deny", refuse(InternalError(UNANSWERED)), State.WRONG),
            "is refused because gpuward gives no answer: Internal error occurred: failed calling "
            'webhook "pods.deny.gpuward.io"',
            id="nobody answers",
        ),
        pytest.param(
            *("deny", refuse(ForbiddenError(f"{DENIES}gpuward [timeout] cannot evaluate"))),
            *(State.NOT_KNOWN, "gpuward [timeout] cannot evaluate"),
            id="not evaluated in time",
        ),
        pytest.param(
            *("deny", refuse(ForbiddenError(DENIES.replace("gpuward.io", "example.com") + FOUND))),
            *(State.NOT_KNOWN, 'admission webhook "deny.example.com" denied'),
            id="refused by another webhook in gpuward's words",
        ),
        pytest.param(
            "deny",
            refuse(ForbiddenError(f'{POST}403 admission webhook "a" denied the request: {DENIES}')),
            *(State.NOT_KNOWN, 'admission webhook "a" denied'),
            id="refused by another webhook in the API server's words",
        ),
        pytest.param(
            *("deny", refuse(ForbiddenError(f"{BY_POLICY}{FOUND}")), State.NOT_KNOWN),
            "ValidatingAdmissionPolicy 'gpuward-bypass-deny'",
            id="a policy that only has gpuward's name",
        ),
        pytest.param(
            *("deny", refuse(ForbiddenError(f'{POST}403 pods "x" is forbidden: exceeded quota'))),
            *(State.NOT_KNOWN, 'pods "x" is forbidden: exceeded quota'),
            id="quota",
        ),
        pytest.param(
            *("deny", refuse(UnreachableError(f"{POST}ReadTimeoutError: timed out"))),
            *(State.NOT_KNOWN, "ReadTimeoutError: timed out"),
            id="no answer",
        ),
        pytest.param(
            *("deny", refuse(ForbiddenError(f"{POST}403 {'x' * 5000}")), State.NOT_KNOWN),
            f"{'x' * 300}…",
            id="a long message",
        ),
        pytest.param(
            *("deny", change, State.NOT_KNOWN), "somebody has changed it", id="changed by another"
        ),
        pytest.param(
            *("warn", admit(WITNESS, f"{FOUND} would be refused"), State.OK),
            "its webhook warns of a pod with NVIDIA_VISIBLE_DEVICES=all without a GPU",
            id="warned",
        ),
        pytest.param(
            *("warn", admit(WITNESS, "example [visible-devices-env] no"), State.WRONG),
            "is not warned about, as it should be",
            id="warned by another",
        ),
        pytest.param(
            *("warn", admit(WITNESS, "gpuward could not evaluate this object"), State.WRONG),
            "is not warned about, as it should be",
            id="a bug instead of a finding",
        ),
        pytest.param(
            *("warn", admit(), State.NOT_KNOWN), "a proxy may remove them", id="warnings removed"
        ),
        pytest.param(
            *("warn", refuse(InternalError(UNANSWERED)), State.WRONG),
            "because gpuward gives no answer",
            id="nobody answers, mode warn",
        ),
    ],
)
def test_what_an_answer_proves(mode: str, answer: Answer, state: State, message: str) -> None:
    _, (row,) = tried(mode, answer)
    assert (row.subject, row.state) == (f"mode {mode}, in default", state)
    assert message in row.message


@pytest.mark.parametrize(
    ("on_fix", "message"),
    [
        (f"{DENIES}{FOUND}; {FIX_MISSING_MESSAGE}", "refused instead of fixed"),
        (UNANSWERED, "is refused because gpuward gives no answer"),
    ],
)
def test_pods_that_should_be_fixed(on_fix: str, message: str) -> None:
    error = InternalError if "500" in on_fix else ForbiddenError
    answer = refuse(ForbiddenError(f"{DENIES}{FOUND}"), on_fix=error(on_fix))
    found, (refused, fix) = tried("deny", answer)
    assert (refused.state, fix.state, fix.subject) == (State.OK, State.WRONG, "fix in default")
    assert message in fix.message
    assert (found.guarded, str(found)[:13]) == (True, "guarded now: ")


def test_a_quota_of_gpus_says_nothing_about_fixes() -> None:
    quota = ForbiddenError(f'{POST}403 pods "x" is forbidden: exceeded quota: gpus')
    answer = refuse(ForbiddenError(f"{DENIES}{FOUND}"), on_fix=quota)
    _, (row,) = tried("deny", answer)
    assert row.state is State.OK
    assert row.message.endswith(
        'whether it fixes pods is not known: pods "x" is forbidden: exceeded quota: gpus'
    )


@pytest.mark.parametrize(
    ("policy", "answer", "guarded", "message"),
    [
        (policy_of_release(WARNS_ONLY), admit(WITNESS, FOUND), None, "its webhook warns of a pod"),
        (policy_of_release(WARNS_ONLY), admit(WITNESS), False, "is not warned about"),
        (policy_of_release(IS_OFF), admit(WITNESS), None, "is admitted, as the policy says"),
        (policy_of_release("7"), admit(WITNESS), None, "not known without the policy"),
        (policy_of_release("7"), refuse(ForbiddenError(DENIES + FOUND)), True, "refuses a pod"),
    ],
    ids=["warns", "does not warn", "off", "not usable", "not usable, refused"],
)
def test_the_policy_says_what_an_admitted_pod_proves(
    policy: Object, answer: Answer, guarded: object, message: str
) -> None:
    found, (row,) = tried("deny", answer, policy)
    assert found.guarded is guarded
    assert message in row.message


def test_a_rule_that_is_off_is_not_tried() -> None:
    sent: list[Object] = []

    def answer(_namespace: str, pod: Object) -> tuple[Object, Sequence[str]]:
        sent.append(pod)
        raise ForbiddenError(f"{DENIES}gpuward [mig-admin-env] container")

    policy = policy_of_release("{visible-devices-env: {action: 'off'}}")
    found, (row,) = tried("deny", answer, policy)
    assert found.guarded
    assert "NVIDIA_MIG_CONFIG_DEVICES=all" in row.message
    (pod,) = sent
    assert pod["metadata"]["name"] == "gpuward-doctor-sample"


@pytest.mark.parametrize("rule", ["visible-devices-env", "mig-admin-env"])
def test_gpu_exceptions_count_as_the_webhook_counts_them(rule: str) -> None:
    """With an exception to its rule a pod is not tried; others are."""
    now = datetime.datetime.now(datetime.UTC)
    until = now + datetime.timedelta(days=1)
    spec = {"rules": [rule], "reason": "a test", "expires": f"{until:%Y-%m-%d}"}
    metadata = {
        "name": "all",
        "namespace": "default",
        "labels": {"gpuward.io/approved": spec_hash({"spec": spec})},
        "creationTimestamp": f"{now:%Y-%m-%dT%H:%M:%SZ}",
    }
    kind = {"apiVersion": "gpuward.io/v1alpha1", "kind": "GpuException"}
    raw: Object = {**kind, "metadata": metadata, "spec": spec}
    file = format_exceptions(ExceptionsFile(now, (raw,)))
    config_map = in_release("ConfigMap", "gpuward-exceptions", data={EXCEPTIONS_FILE: file})
    limits = f"gpuExceptions: [{{rules: [{rule}], namespaces: [default], longestDays: 60}}]"
    policy = policy_of_release("{}", limits)
    _, (row,) = tried("deny", admit(WITNESS), policy, config_map)
    is_excepted = rule == "visible-devices-env"
    assert ("NVIDIA_MIG_CONFIG_DEVICES" in row.message) is is_excepted
    assert row.state is State.WRONG


def test_an_exception_to_the_default_service_account_counts() -> None:
    """API servers give it to a pod that names none."""
    rules = "visible-devices-env, mig-admin-env, nri-cdi-annotation"
    match = "{namespace: default, serviceAccount: default}"
    exception = f"{{rules: [{rules}], match: {match}, reason: a test}}"
    policy = policy_of_release("{}", f"exceptions: [{exception}]")
    _, (row,) = tried("deny", admit(WITNESS), policy)
    assert (row.state, "as the policy says" in row.message) == (State.NOT_KNOWN, True)


def test_a_pod_is_tried_where_the_policy_makes_no_exception() -> None:
    exceptions = (
        "exceptions: [{rules: [visible-devices-env, mig-admin-env, nri-cdi-annotation], "
        "match: {namespace: default}, reason: a test}]"
    )
    found, rows = examined(
        *(*installed(), namespace("default", "deny"), namespace("research", "deny")),
        policy_of_release("{}", exceptions),
        send=admit(WITNESS),
    )
    (row,) = (row for row in rows if row.check == DRY_RUN)
    assert (row.subject, row.state) == ("mode deny, in research", State.WRONG)
    assert str(found).startswith(
        "not guarded: pods that should be refused are admitted in default, research (mode deny)"
    )


def test_other_namespaces_are_tried_where_an_answer_proves_nothing() -> None:
    tried_in: list[str] = []

    def answer(name: str, _pod: Object) -> tuple[Object, Sequence[str]]:
        tried_in.append(name)
        text = f'{POST}403 pods is forbidden: User "x" cannot create resource "pods"'
        raise ForbiddenError(text)

    namespaces = [namespace(name, "deny") for name in ("d", "default", "b", "c", "a")]
    _, rows = examined(*installed(), *namespaces, POLICY, send=answer)
    (row,) = (row for row in rows if row.check == DRY_RUN)
    assert tried_in == ["default", "a", "b"]
    assert (row.subject, row.state) == ("mode deny, in default", State.NOT_KNOWN)
    assert row.remedy == (
        "grant the right to create pods there, or skip the dry runs with --no-dry-run"
    )


def test_a_namespace_that_is_deleted_is_not_tried() -> None:
    gone = namespace("default", "deny")
    gone["metadata"]["deletionTimestamp"] = "2026-11-01T00:00:00Z"
    found, rows = examined(*installed(), gone, POLICY, send=admit(WITNESS))
    assert str(found).startswith("not guarded: no namespace is sent to gpuward")
    assert not [row for row in rows if row.check == DRY_RUN]


def test_a_namespace_that_is_not_sent_though_it_was_recorded_is_tried() -> None:
    pair = installed()
    for entry in pair[1]["webhooks"]:
        if entry["name"].startswith("deny."):
            entry["namespaceSelector"] = {"matchLabels": {"never": "x"}}
    objects = (*pair, namespace("research", "deny"), recorded(), POLICY)
    found, rows = examined(*objects, send=admit(WITNESS))
    (row,) = (row for row in rows if row.check == DRY_RUN)
    assert row.message.endswith("as it should be; research: not sent to it")
    assert found.guarded is False


def test_exported_policies_guard_without_a_webhook() -> None:
    annotations = {DIGEST_ANNOTATION: "x"}
    selector = {"matchLabels": {"gpuward.io/mode": "deny"}}
    policy = {
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "gpuward-bypass-deny", "annotations": annotations},
    }
    binding = {
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "gpuward-bypass-deny-in-mode-deny", "annotations": annotations},
        "spec": {
            "policyName": "gpuward-bypass-deny",
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": selector},
        },
    }
    objects = (namespace("research", "deny"), policy, binding)
    found, rows = examined(*objects, send=refuse(ForbiddenError(f"{BY_POLICY}{FOUND}")))
    (row,) = (row for row in rows if row.check == DRY_RUN)
    assert row.message.startswith("admission policy gpuward-bypass-deny refuses a pod")
    assert found.guarded
    (row,) = (row for row in examined(*objects, send=admit(WITNESS))[1] if row.check == DRY_RUN)
    assert row.state is State.WRONG


CALLS = 'apiserver_admission_webhook_request_total{code="200",name="audit.gpuward.io"}'
FAILED_OPEN = 'apiserver_admission_webhook_fail_open_count{name="audit.gpuward.io"}'
STARTED = "process_start_time_seconds 1.7e+09\n"


@pytest.mark.parametrize(
    ("before", "now", "state", "message"),
    [
        (f"{CALLS} 1\n{STARTED}", f"{CALLS} 2\n{STARTED}", State.OK, "answers, as the API server"),
        (STARTED, f"{CALLS} 1\n{STARTED}", State.OK, "answers"),
        (STARTED, f"{FAILED_OPEN} 1\n{STARTED}", State.WRONG, "that failed"),
        (STARTED, STARTED, State.NOT_KNOWN, "counted no call of audit.gpuward.io"),
        (
            STARTED,
            f"{CALLS} 9\n{STARTED.replace('7', '8')}",
            State.NOT_KNOWN,
            "only the metrics of an API server",
        ),
        (STARTED, NO_METRICS, State.NOT_KNOWN, "only the metrics of an"),
    ],
    ids=["answered", "first answer", "failed", "not called", "two API servers", "none"],
)
def test_mode_audit_is_proven_by_what_the_api_server_counts(
    before: str, now: str, state: State, message: str
) -> None:
    answers = iter([before, now])
    found, (row,) = tried("audit", admit(WITNESS), request=lambda _path: next(answers))
    assert row.state is state
    assert message in row.message
    assert str(found).startswith("not guarded: ")
    if state is State.OK:
        first, *_ = str(found).split(";")
        assert first == "not guarded: no namespace has mode deny"


# The first line.


def in_every_mode(name: str, pod: Object) -> tuple[Object, Sequence[str]]:
    if name.startswith("deny"):
        if is_to_fix(pod):
            return fixed(pod), [WITNESS]
        raise ForbiddenError(f"{DENIES}{FOUND}")
    return pod, [WITNESS, FOUND]


NAMESPACES = (namespace("deny-1", "deny"), namespace("deny-2", "deny"), namespace("other"))
READY = {
    "kind": "EndpointSlice",
    "metadata": {
        "name": "x",
        "namespace": "gpuward-system",
        "labels": {"kubernetes.io/service-name": "gpuward"},
    },
    "endpoints": [{"conditions": {"ready": True}}],
}


def test_the_first_line_of_a_cluster_that_is_guarded() -> None:
    """From outside, addresses of Services are not known: the dry runs prove more."""
    pair = installed()
    for entry in (entry for item in pair for entry in item["webhooks"]):
        entry["clientConfig"]["caBundle"] = "eA=="
    objects = (*pair, *NAMESPACES, POLICY, READY)
    found, _ = examined(*objects, send=in_every_mode)
    text = str(found._replace(faults=()))
    assert text == (
        "guarded: pods are refused in 2 namespaces (mode deny), users are warned in 1 namespace "
        "(mode warn)"
    )


def test_what_is_wrong_beside_is_in_the_first_line() -> None:
    record = recorded("Deployment/gpuward-certs", "Lease/gpuward-certs", pair=installed())
    objects = (*installed(), *NAMESPACES, POLICY, record, READY)
    found, rows = examined(*objects, send=in_every_mode)
    assert found.guarded
    assert str(found).startswith("guarded now: pods are refused in 2 namespaces (mode deny), ")
    missing = [row.subject for row in rows if row.check == "release" and row.remedy]
    assert missing == [
        "deployment/gpuward-certs in gpuward-system",
        "lease/gpuward-certs in gpuward-system",
    ]
    assert len(found.faults) == len(
        [row for row in rows[: rows.index(found.faults[-1]) + 1] if row.state is State.WRONG]
    )
    assert found.to_document()["guarded"] is True


@pytest.mark.parametrize(
    ("objects", "options", "line"),
    [
        ((), {}, "not guarded: gpuward is not installed"),
        (
            (*installed(), namespace("a", "off"), namespace("kube-system")),
            {},
            "not guarded: no namespace is sent to gpuward",
        ),
        (
            (*installed(), namespace("a"), namespace("b")),
            {},
            "not guarded: no namespace has mode deny; users are warned in 2 namespaces (mode warn)",
        ),
        (
            (installed()[0], namespace("a", "deny")),
            {},
            "not guarded: no validating webhook of gpuward is registered",
        ),
        (
            (*installed(), *NAMESPACES),
            {"forbidden": ("validatingwebhookconfigurations",)},
            "not known whether the cluster is guarded: cannot list validatingwebhookconfigurations",
        ),
        (
            (*installed(), *NAMESPACES),
            {"forbidden": ("namespaces",)},
            "not known whether the cluster is guarded: cannot list namespaces",
        ),
        (
            (*installed(), *NAMESPACES),
            {"send": FROM_FILES, "request": None},
            "not known whether the cluster is guarded: the objects are from files, so no pod was",
        ),
    ],
)
def test_the_first_line(objects: tuple[Object, ...], options: Any, line: str) -> None:
    given = {"send": in_every_mode, **options}
    found, _ = examined(*objects, POLICY, **given)
    assert str(found).startswith(line)


def test_without_dry_runs_there_is_a_row_that_says_so() -> None:
    found, rows = examined(*installed(), *NAMESPACES, POLICY)
    (row,) = (row for row in rows if row.check == DRY_RUN)
    assert (row.state, row.remedy) == (State.NOT_KNOWN, "leave --no-dry-run out")
    assert str(found).startswith(
        "not known whether the cluster is guarded: no pod was tried (--no-dry-run)"
    )
    without_deny, _ = examined(*installed(), namespace("a"), POLICY)
    assert str(without_deny).startswith("not guarded: no namespace has mode deny; no pod was tried")


def test_files_are_no_proof(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    file = tmp_path / "cluster.json"
    items = [
        {"apiVersion": "v1", **namespace("a", "deny")},
        *({"apiVersion": "admissionregistration.k8s.io/v1", **item} for item in installed()),
    ]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    main(["-f", str(file)])
    first, empty, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("not known whether the cluster is guarded: the objects are from files")
    assert empty == ""
    main(["-f", str(file), "--color", "always"])
    assert capsys.readouterr().out.startswith("\x1b[33mnot known whether")


@pytest.mark.parametrize(
    ("header", "texts"),
    [
        ('299 - "one"', ["one"]),
        ('299 - "a \\"quoted\\" \\\\ word", 299 - "two"', ['a "quoted" \\ word', "two"]),
        ('299 - "caf\u00c3\u00a9"', ["café"]),
        ('199 - "another code"', []),
        ("nothing", []),
    ],
)
def test_warnings_of_a_response(header: str, texts: list[str]) -> None:
    assert warning_texts(header) == texts

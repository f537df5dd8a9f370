"""Mistakes in a policy file, each with its line and column and a part of the error message."""

from __future__ import annotations

POLICY_HEADER = "apiVersion: gpuward.io/v1\nkind: Policy\n"
SECURITY_RULE = "visible-devices-env"
OTHER_RULE = "absurd-count"


def exception(match: str, *, rule: str = OTHER_RULE, more: str = "") -> str:
    return f"exceptions:\n- rules: [{rule}]\n  reason: why\n  match: {match}\n{more}"


def gpu_exceptions(*keys: str, more: str = "") -> str:
    """Limits of GpuExceptions whose keys are replaced by those of the same name, in front."""
    names = [key.partition(":")[0] for key in keys]
    defaults = (f"rules: [{OTHER_RULE}]", "namespaces: a", "longestDays: 30")
    lines = [
        *keys,
        *(d for d in defaults if d.partition(":")[0] not in names),
        *filter(None, [more]),
    ]
    return "gpuExceptions:\n  - " + "\n    ".join(lines) + "\n"


MISTAKES: list[tuple[str, str, str]] = [
    ("rule: {}\n", "3:1", "unknown key 'rule'; did you mean \"rules\"?"),
    ('catalog: "0.1\\n"\n', "3:1", 'a version such as "0.1"'),
    ('contact: "x\\n"\n', "3:1", "one line of at most 200 characters"),
    ("something: {}\n", "3:1", "unknown key 'something'; there are apiVersion, kind, catalog"),
    ("delegatedExceptions: []\n", "3:1", "unknown key 'delegatedExceptions'; did you mean"),
    ("rules: {visible-device-env: {}}\n", "3:9", f'did you mean "{SECURITY_RULE}"?'),
    (f"rules: {{{SECURITY_RULE}: {{acton: deny}}}}\n", "3:31", 'did you mean "action"?'),
    (f"rules:\n  {SECURITY_RULE}:\n", "4:3", "should be an object and is empty"),
    (f"rules: [{SECURITY_RULE}]\n", "3:1", "should be an object and is ["),
    (f"rules: {{{SECURITY_RULE}: {{fix: 'yes'}}}}\n", "3:31", "should be true or false and is"),
    (f"rules: {{{SECURITY_RULE}: {{action: off}}}}\n", "3:31", "quote it"),
    (f"rules: {{{SECURITY_RULE}: {{action: error}}}}\n", "3:31", "one of deny, warn, audit, off"),
    (f"rules: {{{SECURITY_RULE}: {{action: warning}}}}\n", "3:31", 'did you mean "warn"?'),
    (f"rules: {{{OTHER_RULE}: {{options: {{max: 3}}}}}}\n", "3:34", "it has max_devices"),
    (f"rules: {{{SECURITY_RULE}: {{options: {{max: 3}}}}}}\n", "3:41", "it has none"),
    (
        f"rules: {{{OTHER_RULE}: {{options: {{max_devices: many}}}}}}\n",
        "3:34",
        'should be a whole number and is "many"',
    ),
    (f"rules: {{{OTHER_RULE}: {{options: {{max_devices: true}}}}}}\n", "3:34", "a whole number"),
    (
        "rules: {image-default-all: {options: {every_container: true}}}\n",
        "3:39",
        "has no option 'every_container'",
    ),
    (
        "rules: {untrusted-gpu-image: {action: deny}}\n",
        "3:9",
        "finds nothing until one of its options is set: repositories, require_digest",
    ),
    (
        "profiles: [ack]\nrules: {gpu-node-without-request: {action: deny}}\n",
        "4:9",
        "the profile ack names none: set options: {nodes: [LABEL=VALUE]}",
    ),
    (
        "rules: {gpu-node-without-request: {options: {nodes: [a b=c]}}}\n",
        "3:54",
        "is no label of a node: write KEY or KEY=VALUE",
    ),
    (
        "rules: {gpu-node-without-request: {options: {nodes: [a..b/pool]}}}\n",
        "3:54",
        "is no label of a node",
    ),
    (
        "rules: {gpu-node-without-request: {options: {nodes: [kubernetes.io/os]}}}\n",
        "3:54",
        "nodes without GPUs have kubernetes.io/os too: write the value that GPU nodes have",
    ),
    (
        "rules: {gpu-namespace: {action: deny}}\n",
        "3:9",
        "finds nothing until one of its options is set: namespaces, labels",
    ),
    (
        'rules: {gpu-namespace: {options: {labels: ["gpus in (yes)"]}}}\n',
        "3:35",
        'no namespace has the label "gpus in (yes)": write key, or key=value',
    ),
    *(
        (
            f'rules: {{untrusted-gpu-image: {{options: {{repositories: ["{pattern}"]}}}}}}\n',
            "3:56",
            f'"{pattern}" fits no image: write the registry and the repository',
        )
        for pattern in ("pytorch/*", "ubuntu", "ghcr.io/a:1", "GHCR.io/a/*", "")
    ),
    (
        exception("{namespace: a, image: b}", rule="quota-fraction"),
        "6:25",
        "an exception to quota-fraction cannot match by image: the rule is not about pods",
    ),
    *(
        (
            exception(f'{{namespace: a, {key}: "*"}}', rule="claim-of-all-devices"),
            "6:25",
            f"an exception to claim-of-all-devices cannot match by {key}: the rule is not about",
        )
        for key in ("image", "container")
    ),
    (
        "rules: {scheduler-name: {options: {name: ack-co-scheduler}}}\n",
        "3:36",
        "schedulers belong in a profile, such as profiles: [{name: our-cluster, extends: [nvidia],",
    ),
    ("extends: strict\n", "3:1", "this should be a list"),
    ("extends: [strickt]\n", "3:11", 'did you mean "strict"?'),
    ("extends: [./org.yaml@sha256:0]\n", "3:11", "./FILE.yaml@sha256:DIGEST"),
    ("extends: [strict, ack]\n", "3:19", "the bundle ack is for the profile ack: add profiles"),
    ("persona: strict\n", "3:1", "as in extends: [strict]"),
    ("workloads: fixed\n", "3:1", 'did you mean "fix"?'),
    ("contact: 7\n", "3:1", "should be text and is 7; quote it"),
    (f"contact: {'x' * 201}\n", "3:1", "should be one line of at most 200 characters"),
    ("contact: |\n  two\n  lines\n", "3:1", "should be one line of at most 200 characters"),
    ("docsUrl: wiki/gpus\n", "3:1", "should be an address such as https://wiki.example.com/gpus"),
    ("docsUrl: 'https://wiki.example.com/a b'\n", "3:1", "should be an address such as"),
    ("docsUrl: 'javascript:alert(1)'\n", "3:1", "should be an address such as"),
    ("nag: sometimes\n", "3:1", "should be true or false"),
    ("onRuleError: ignore\n", "3:1", "one of allow, deny"),
    ("voidEveryContainer: maybe\n", "3:1", "should be true or false"),
    ("catalog: 0.10\n", "3:1", "should be text and is 0.1; quote it"),
    ("catalogue: '0.1'\n", "3:1", "unknown key 'catalogue'; did you mean \"catalog\"?"),
    ("catalog: newest\n", "3:1", 'should be a version such as "0.1"'),
    ("profiles: []\n", "3:1", "must not be empty"),
    ("profiles: [nvidai]\n", "3:1", 'did you mean "nvidia"?'),
    ("profiles: [nvidia, gke]\n", "3:1", "both describe the resource 'nvidia.com/gpu'"),
    ("profiles: [7]\n", "3:12", "should be text and is 7"),
    ("profiles: [{name: Big}]\n", "3:13", "a name of small letters"),
    ("profiles: [{name: a, resorces: {}}]\n", "3:22", 'did you mean "resources"?'),
    ("profiles: [{name: a, taints: [{key: k}]}]\n", "3:31", "'resources' is missing"),
    ("kind: Policy\n", "3:1", "the key 'kind' is here twice"),
    (exception("{namespace: 7}"), "6:11", "should be text and is 7"),
    (exception("{namespace: [a, 7]}"), "6:26", "should be text and is 7"),
    (exception("{namespace: []}"), "6:11", "must not be empty"),
    (exception("{namespaces: a}"), "6:11", 'did you mean "namespace"?'),
    (exception("{}"), "6:3", "must not be empty"),
    (exception("{namespace: a}", rule="absurd-cont"), "4:3", f'did you mean "{OTHER_RULE}"?'),
    (exception("{namespace: a}", more="  expires: 2030-02-30"), "7:3", "is not a date"),
    (exception("{namespace: a}", more="  expires: soon"), "7:3", "a date such as 2030-12-31"),
    ("exceptions: [{rules: [x], match: {name: a}}]\n", "3:14", "'reason' is missing"),
    (gpu_exceptions("rules: [absurd-cont]"), "4:5", f'did you mean "{OTHER_RULE}"?'),
    (gpu_exceptions(more="approval: maybe"), "7:5", "one of required, none"),
    (gpu_exceptions("longest: 3"), "4:5", "unknown key 'longest'; did you mean"),
    (gpu_exceptions("longestDays: 0"), "4:5", "should be at least 1 and is 0"),
    (gpu_exceptions("longestDays: 400"), "4:5", "should be at most 366 and is 400"),
    (gpu_exceptions("longestDays: ten"), "4:5", 'should be a whole number and is "ten"'),
    (
        gpu_exceptions(f"rules: [{SECURITY_RULE}]", "namespaces: '*'", "approval: none"),
        "5:5",
        f"{SECURITY_RULE} in all namespaces without approval",
    ),
    (
        "extends: [strict]\n" + gpu_exceptions(f"rules: [{SECURITY_RULE}]"),
        "5:5",
        "has suppressible: false",
    ),
    (
        f"rules: {{{OTHER_RULE}: {{suppressible: false}}}}\n" + gpu_exceptions(),
        "5:5",
        "has suppressible: false, so its exceptions cannot be allowed",
    ),
    ("rules: {a: &a [b], b: *c}\n", "3:23", ""),
    ("rules: {\n", "4:1", ""),
    ("\tx: 1\n", "3:1", ""),
    ("extra: \x00\n", "3:8", ""),
    ("---\nkind: Policy\n", "4:1", "a second document: a policy file has one"),
]

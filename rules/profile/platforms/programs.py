"""Programs of GPU platforms, and what bulletins say about their versions.

Bulletins that are not here may concern newer versions: each list ends with the newest that was
read.
"""

from rules.profile.platforms.records import Advisory, Program, SourcePage

# NVIDIA's security bulletins about its container toolkit.

NVIDIA = "NVIDIA"
_PAGES_URL = "https://nvidia.custhelp.com/app/answers/detail/a_id"


def _bulletin(month: str, updated: str, number: int) -> SourcePage:
    title = f"Security Bulletin: NVIDIA Container Toolkit - {month}"
    return SourcePage(NVIDIA, title, updated, f"{_PAGES_URL}/{number}")


# Some do not concern nodes on which only CDI is used, or crun; the bulletins say which. Versions of
# the first four: https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/security.html,
# of the others: https://github.com/NVIDIA/product-security.
TOOLKIT_ADVISORIES = (
    Advisory(
        _bulletin("September 2024", "", 5582),
        ("CVE-2024-0132", "CVE-2024-0133"),
        fixed_version="1.16.2",
    ),
    Advisory(_bulletin("November 2024", "", 5585), ("CVE-2024-0134",), fixed_version="1.17.0"),
    Advisory(
        _bulletin("January 2025", "", 5599),
        ("CVE-2024-0135", "CVE-2024-0136", "CVE-2024-0137"),
        fixed_version="1.17.3",
    ),
    Advisory(_bulletin("February 2025", "", 5616), ("CVE-2025-23359",), fixed_version="1.17.4"),
    Advisory(
        _bulletin("July 2025", "2025-08-12", 5659),
        ("CVE-2025-23266", "CVE-2025-23267"),
        fixed_version="1.17.8",
    ),
    Advisory(
        _bulletin("June 2026", "2026-06-30", 5850), ("CVE-2026-24260",), fixed_version="1.19.1"
    ),
)


# Versions of the first four: the page on security in NVIDIA's documentation of the operator, of
# the others: https://github.com/NVIDIA/product-security. Each contains the toolkit that is fixed.
_FIXED_OPERATOR_VERSIONS = ("24.6.2", "24.9.0", "24.9.1", "24.9.2", "25.3.2", "26.3.2")
_OPERATOR_ADVISORIES = tuple(
    advisory._replace(fixed_version=fixed)
    for advisory, fixed in zip(TOOLKIT_ADVISORIES, _FIXED_OPERATOR_VERSIONS, strict=True)
)
_KAI_ADVISORY = Advisory(
    SourcePage(
        NVIDIA,
        "Security Bulletin: NVIDIA KAI Scheduler - April 2026",
        "2026-04-21",
        "https://nvidia.custhelp.com/app/answers/detail/a_id/5818",
    ),
    ("CVE-2026-24176", "CVE-2026-24177"),
    fixed_version="0.13.0",
)
_VOLCANO_ADVISORY = Advisory(
    SourcePage(
        "Volcano",
        "GHSA-hg79-fw4p-25p8",
        "2025-04-30",
        "https://github.com/volcano-sh/volcano/security/advisories/GHSA-hg79-fw4p-25p8",
    ),
    ("CVE-2025-32777",),
    fixed_version="1.11.2",
    backported_versions=("1.9.1", "1.10.2"),
)
PROGRAMS = (
    Program(
        "NVIDIA's GPU operator",
        ("gpu-operator",),
        "https://github.com/NVIDIA/gpu-operator/releases",
        _OPERATOR_ADVISORIES,
    ),
    Program(
        "the scheduler of KAI",
        ("kai-scheduler/scheduler",),
        "https://github.com/kai-scheduler/KAI-Scheduler/releases",
        (_KAI_ADVISORY,),
    ),
    Program(
        "the scheduler of Volcano",
        ("vc-scheduler",),
        "https://github.com/volcano-sh/volcano/releases",
        (_VOLCANO_ADVISORY,),
    ),
    Program("HAMi", ("projecthami/hami",), "https://github.com/Project-HAMi/HAMi/releases"),
    Program(
        "the scheduler of koordinator",
        ("koordinator-sh/koord-scheduler",),
        "https://github.com/koordinator-sh/koordinator/releases",
    ),
)
KUBE_SCHEDULER_IMAGE = "kube-scheduler"
"""The image of Kubernetes' own scheduler, which HAMi and others run beside theirs."""
SKEW_POLICY = SourcePage(
    "Kubernetes", "Version Skew Policy", url="https://kubernetes.io/releases/version-skew-policy/"
)


def program_of(image: str) -> Program | None:
    """The program whose image this is, by the last parts of the repository; None if unknown."""
    repository = image.partition("@")[0]
    head, slash, name = repository.rpartition("/")
    ending = f"/{head}{slash}{name.partition(':')[0]}"
    if ending.endswith("/rocm/gpu-operator"):
        return None  # AMD's operator has the name of NVIDIA's
    return next(
        (program for program in PROGRAMS for own in program.images if ending.endswith(f"/{own}")),
        None,
    )

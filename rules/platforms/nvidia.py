"""What NVIDIA's security bulletins say about its container toolkit.

Bulletins that are not here may concern newer versions: `TOOLKIT_ADVISORIES` ends with the newest
that was read.
"""

from __future__ import annotations

from rules.profile.platforms.records import Advisory, Source

NVIDIA = "NVIDIA"
_PAGES = "https://nvidia.custhelp.com/app/answers/detail/a_id"


def _bulletin(month: str, updated: str, number: int) -> Source:
    title = f"Security Bulletin: NVIDIA Container Toolkit - {month}"
    return Source(NVIDIA, title, updated, f"{_PAGES}/{number}")


# Some do not concern nodes on which only CDI is used, or crun; the bulletins say which. Versions of
# the first four: https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/security.html,
# of the others: https://github.com/NVIDIA/product-security.
TOOLKIT_ADVISORIES = (
    Advisory(
        _bulletin("September 2024", "", 5582), ("CVE-2024-0132", "CVE-2024-0133"), fixed="1.16.2"
    ),
    Advisory(_bulletin("November 2024", "", 5585), ("CVE-2024-0134",), fixed="1.17.0"),
    Advisory(
        _bulletin("January 2025", "", 5599),
        ("CVE-2024-0135", "CVE-2024-0136", "CVE-2024-0137"),
        fixed="1.17.3",
    ),
    Advisory(_bulletin("February 2025", "", 5616), ("CVE-2025-23359",), fixed="1.17.4"),
    Advisory(
        _bulletin("July 2025", "2025-08-12", 5659),
        ("CVE-2025-23266", "CVE-2025-23267"),
        fixed="1.17.8",
    ),
    Advisory(_bulletin("June 2026", "2026-06-30", 5850), ("CVE-2026-24260",), fixed="1.19.1"),
)

"""The programs of a rehearsal that are built from Go modules, in the control plane's cache."""

from __future__ import annotations

from pathlib import Path

from tests.testkit.control_plane.build import build_programs
from tests.testkit.control_plane.sources import Source

HERE = Path(__file__).resolve().parent
REGISTRY = Source(
    "registry",
    {"registry": "github.com/distribution/distribution/v3/cmd/registry"},
    home=HERE,
)
COSIGN = Source(
    "cosign",
    {"cosign": "github.com/sigstore/cosign/v3/cmd/cosign"},
    duration="five to ten minutes",
    home=HERE,
)
ACT = Source("act", {"act": "github.com/nektos/act"}, duration="two minutes", home=HERE)
ORAS = Source("oras", {"oras": "oras.land/oras/cmd/oras"}, duration="half a minute", home=HERE)


def program(source: Source) -> Path:
    """The only program of a source; built if necessary."""
    (name,) = source.packages
    return build_programs(source)[name]

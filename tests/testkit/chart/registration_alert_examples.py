"""Series that make alerts about the webhook configurations fire, and series that do not."""

from __future__ import annotations

from tests.testkit.chart.alert_examples import LONG, Example
from tests.testkit.chart.certificate_alert_examples import CERTS

_NAMES = {"kind": "validatingwebhookconfigurations", "name": "gpuward"}
_LABELS = ", ".join(f'{label}="{value}"' for label, value in _NAMES.items())
_VALIDATING = f"gpuward_registration_as_expected{{{CERTS}, {_LABELS}}}"
_MUTATING = _VALIDATING.replace("validating", "mutating")

REGISTRATION_EXAMPLES: dict[str, list[Example]] = {
    "GpuwardRegistrationChanged": [
        Example(
            {_VALIDATING: f"1x20 0{LONG}", _MUTATING: f"1{LONG}"},
            # An upgrade, until the controller has the new expectation.
            {_VALIDATING: f"1x20 0x3 1{LONG}", _MUTATING: f"1x20 0x3 1{LONG}"},
            _NAMES,
            {f"$labels.{label}": value for label, value in _NAMES.items()},
        )
    ],
    "GpuwardRegistrationUnchecked": [
        Example({}, {_VALIDATING: f"1x15 stale _x3 1{LONG}"}),
        # That a configuration has changed is known.
        Example({_VALIDATING: f"1x10 stale _x{2880}"}, {_VALIDATING: f"0{LONG}"}),
    ],
}

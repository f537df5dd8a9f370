"""What the log says about the certificate: each thing once, when it becomes so."""

from __future__ import annotations

from typing import Any

from certs.serving import ServingCertificate
from webhook.log import Log

SOON_SECONDS = 7 * 86400.0
_SHOWN = 16  # characters of a fingerprint; the certificate controller's log shows as many


class CertificateNews:
    """Reads `certificate` again and tells `log` what is new about it."""

    def __init__(self, certificate: ServingCertificate, log: Log) -> None:
        self._certificate = certificate
        self._log = log
        self._error: str | None = None
        self._told = ""

    def reload(self) -> bool:
        """Look at the files; whether something else is served from now on. May take a while."""
        return self._certificate.reload()

    def tell(self, *, loaded: bool) -> None:
        """Log what the last `reload()` has changed, and how the certificate ages."""
        error, self._error = self._error, self._certificate.last_error
        if loaded:
            self._told = ""
            self._write("info", "certificate loaded")
        elif error and not self._error:
            self._write("info", "certificate restored")
        if self._error and self._error != error:
            self._log.write("error", "certificate refused", error=self._error, **self._in_force())
        self._tell_age()

    def _tell_age(self) -> None:
        left = self._certificate.expiry_seconds()
        if left is None or left >= SOON_SECONDS:
            return
        level, event = (
            ("error", "certificate expired")
            if left < 0
            else ("warning", "certificate expires soon")
        )
        if event != self._told:
            self._told = event
            self._write(level, event)

    def _write(self, level: str, event: str) -> None:
        until = self._certificate.not_after
        told = {"fingerprint": self._fingerprint(), "not_after": until.isoformat() if until else ""}
        self._log.write(level, event, **told)

    def _in_force(self) -> dict[str, Any]:
        """The certificate that is served in place of a refused one, if there is any."""
        return {"in_force": self._fingerprint()} if self._certificate.ready else {}

    def _fingerprint(self) -> str:
        return (self._certificate.fingerprint or "")[:_SHOWN]

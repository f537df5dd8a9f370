"""The serving certificate, read again when its files change, with a log line for each change."""

from __future__ import annotations

from typing import Any

from certs.serving import ServingCertificate
from webhook.telemetry.log import Log

EXPIRY_WARNING_SECONDS = 7 * 86400.0
_FINGERPRINT_CHARACTERS = 16  # characters, as many as in the log of the certificate controller


class CertificateReloader:
    """Reloads `certificate` and writes each change and each warning to `log` once."""

    def __init__(self, certificate: ServingCertificate, log: Log) -> None:
        self._certificate = certificate
        self._log = log
        self._error: str | None = None
        self._last_warning = ""

    def reload(self) -> bool:
        """Read the files; whether the server serves something else from now on. May block."""
        return self._certificate.reload()

    def log_changes(self, *, loaded: bool) -> None:
        """Log what the last `reload()`, which returned `loaded`, changed, and a near expiry."""
        error, self._error = self._error, self._certificate.last_error
        if loaded:
            self._last_warning = ""
            self._write("info", "certificate loaded")
        elif error and not self._error:
            self._write("info", "certificate restored")
        if self._error and self._error != error:
            self._log.write(
                "error", "certificate refused", error=self._error, **self._active_fields()
            )
        self._log_expiry()

    def _log_expiry(self) -> None:
        seconds = self._certificate.expiry_seconds()
        if seconds is None or seconds >= EXPIRY_WARNING_SECONDS:
            return
        level, event = (
            ("error", "certificate expired")
            if seconds < 0
            else ("warning", "certificate expires soon")
        )
        if event != self._last_warning:
            self._last_warning = event
            self._write(level, event)

    def _write(self, level: str, event: str) -> None:
        not_after = self._certificate.not_after
        self._log.write(
            level,
            event,
            fingerprint=self._fingerprint(),
            not_after=not_after.isoformat() if not_after else "",
        )

    def _active_fields(self) -> dict[str, Any]:
        """The certificate that is served instead of a refused one, if there is any."""
        return {"active": self._fingerprint()} if self._certificate.is_ready else {}

    def _fingerprint(self) -> str:
        return (self._certificate.fingerprint or "")[:_FINGERPRINT_CHARACTERS]

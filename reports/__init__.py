"""The results of a run as records, and the reports about them in every format."""

FORMATS = (
    *("text", "json", "yaml", "concise", "summary", "statistics"),
    *("html", "sarif", "github", "gitlab", "junit", "markdown", "rdjson"),
)
"""The formats: each is a module of `reports.formats`."""
FORMATS_WITH_EDITS = frozenset({"sarif", "rdjson"})
"""The formats that have the edits which fix a finding; these take time to find."""

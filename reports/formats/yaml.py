"""The report for programs as YAML; `docs/json-report.md` describes the shape."""

from __future__ import annotations

import json
from io import StringIO
from typing import TextIO

import yaml

from reports.formats import ReportStyle
from reports.formats.json import write as write_json
from reports.results import Results


def write(out: TextIO, results: Results, style: ReportStyle) -> None:
    """Write what the JSON report has."""
    text = StringIO()
    write_json(text, results, style)
    # libyaml's takes a third of the time of PyYAML's own.
    yaml.dump(json.loads(text.getvalue()), out, Dumper=yaml.CSafeDumper, sort_keys=False)

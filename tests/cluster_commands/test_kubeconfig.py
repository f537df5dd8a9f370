"""Kubeconfig files whose user acts as another user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.api.connection import impersonation
from cluster.api.errors import ClusterError


def headers(folder: Path, user: dict[str, Any]) -> list[tuple[str, str]]:
    content = {
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"user": "u"}}],
    }
    file = folder / "acting.kubeconfig"
    file.write_text(json.dumps(content), encoding="utf-8")
    return [(name, value) for name, value in impersonation(str(file), "x")]


def test_headers_are_sent_as_utf_8(tmp_path: Path) -> None:
    extra = {"a/ü": ["é", "x"], "none": None}
    user = {"as": "żółć", "as-uid": "", "as-groups": ["Prüfer", "b"], "as-user-extra": extra}
    # The HTTP client encodes them so.
    sent = [(name, value.encode("latin-1").decode()) for name, value in headers(tmp_path, user)]
    assert sent == [
        ("Impersonate-User", "żółć"),
        ("Impersonate-Group", "Prüfer"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-a%2F%C3%BC", "é"),
        ("Impersonate-Extra-a%2F%C3%BC", "x"),
    ]


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"as": 5}, "as must be a text"),
        ({"as": "a\r\nX-Other: b"}, "as must be a text without control characters"),
        ({"as-uid": ["x"]}, "as-uid must be a text"),
        ({"as-groups": "devs"}, "as-groups must be a list of texts"),
        ({"as-groups": ["devs", None]}, "each of as-groups must be a text"),
        ({"as-user-extra": "x"}, "as-user-extra must be a map of lists"),
        ({"as-user-extra": ["x"]}, "as-user-extra must be a map of lists"),
        ({"as-user-extra": {"k": "v1"}}, "as-user-extra.k must be a list of texts"),
        ({"as-user-extra": {"k": [1]}}, "each of as-user-extra.k must be a text"),
    ],
)
def test_an_error_names_the_field_of_another_type(
    user: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ClusterError, match=f"the user in the kubeconfig file: {message}"):
        headers(tmp_path, user)

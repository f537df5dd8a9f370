"""Cluster DNS for a pod that runs as a process: the addresses behind its headless Service.

Python imports this module when it starts, because its folder is in PYTHONPATH. The kubelet of the
tests writes the addresses into the file that REPLICAS_FILE names.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

_resolve = socket.getaddrinfo


def _getaddrinfo(host: Any, *arguments: Any, **keywords: Any) -> Any:
    if not (isinstance(host, str) and "-replicas." in host):
        return _resolve(host, *arguments, **keywords)
    file = Path(os.environ["REPLICAS_FILE"])
    addresses = file.read_text().split() if file.exists() else []
    if not addresses:
        raise socket.gaierror(socket.EAI_NONAME, "no address")
    return [found for each in addresses for found in _resolve(each, *arguments, **keywords)]


socket.getaddrinfo = _getaddrinfo

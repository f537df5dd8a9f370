"""`gpuward audit`: evaluate what runs in a cluster by the rules, and report it."""

from typing import Literal, TypeAlias, get_args

Refuser: TypeAlias = Literal["webhook", "policies"]
"""The part that refuses in mode `deny`: the webhook, after its fixes, or exported policies."""
REFUSERS: tuple[Refuser, ...] = get_args(Refuser)

"""Something that runs in a thread until the end of a block."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self


class BackgroundThread:
    """Runs `run` in a thread from the start of a `with` block to its end.

    `run` returns when `stopping` is set. Then `check` is called, unless the block raised.
    """

    def __init__(self, name: str) -> None:
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self.run, name=name)

    def run(self) -> None:
        """Do the work of the thread."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise an error if the thread has observed a failure."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stopping.set()
        self._thread.join()
        if error is None:
            self.check()

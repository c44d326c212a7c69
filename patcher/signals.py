"""Keep SIGINT, SIGTERM and SIGHUP waiting while a transaction is at work, then let them act."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

_WAITING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """Raised by ``Deferred.check``: a signal waits, and the work so far is to be taken back."""


class Deferred:
    """While entered, signals are noted; on leaving, the first one is sent again to the handlers of before.

    Only the main thread can set handlers; elsewhere this does nothing, and signals act on the main thread.
    """

    def __init__(self) -> None:
        self._noted: list[int] = []
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Deferred:
        if threading.current_thread() is threading.main_thread():
            for number in _WAITING:
                if signal.getsignal(number) not in (None, signal.SIG_IGN):  # None: set by C code, can't be restored
                    self._before[number] = signal.signal(number, self._note)
        return self

    def check(self) -> None:
        """Raise Stopped if a signal waits."""
        if self._noted:
            raise Stopped

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._noted:
            os.kill(os.getpid(), self._noted[0])

    def _note(self, number: int, _frame: object) -> None:
        self._noted.append(number)

"""Keep SIGINT, SIGTERM and SIGHUP waiting while a transaction is at work, or let them unwind the stack."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, TracebackType

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_WAITING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def unwinding() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that what stands in a ``finally`` is done.

    Only the main thread can set handlers. A signal that is ignored (nohup) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def unwind(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    # None: a handler set by C code, which can't be put back.
    acting = [number for number in _ENDING if signal.getsignal(number) not in (None, signal.SIG_IGN)]
    before = {number: signal.signal(number, unwind) for number in acting}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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

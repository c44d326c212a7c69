"""Keep SIGINT, SIGTERM and SIGHUP waiting while a transaction is at work, or let them unwind the stack."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType, TracebackType

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_WAITING = (signal.SIGINT, *_ENDING)


def _set(
    numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]
) -> dict[signal.Signals, Any]:
    """Set a handler for the signals that act now: what was there before.

    Only the main thread can; elsewhere this does nothing. A signal that is ignored (nohup) stays ignored, and one with
    a handler set by C code (None), which can't be put back, is left.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    acting = [number for number in numbers if signal.getsignal(number) not in (None, signal.SIG_IGN)]
    return {number: signal.signal(number, handler) for number in acting}


def _put_back(before: dict[signal.Signals, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)


@contextmanager
def unwinding() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that what stands in a ``finally`` is done."""

    def unwind(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = _set(_ENDING, unwind)
    try:
        yield
    finally:
        _put_back(before)


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
        self._before = _set(_WAITING, self._note)
        return self

    def check(self) -> None:
        """Raise Stopped if a signal waits."""
        if self._noted:
            raise Stopped

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _put_back(self._before)
        if self._noted:
            os.kill(os.getpid(), self._noted[0])

    def _note(self, number: int, _frame: object) -> None:
        self._noted.append(number)

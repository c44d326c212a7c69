"""The numeric proof: a real extraction in the target environment, compared with a reference, row by row."""

from __future__ import annotations

from patcher.verify.report import Report, Row
from patcher.verify.run import verify

__all__ = ["Report", "Row", "verify"]

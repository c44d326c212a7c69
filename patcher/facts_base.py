"""The questions that rules and conformance ask of the installed packages.

Five primitive questions (symbol, signature, type_of, closure, shape) are answered by SourceFacts from source or by
RecordedFacts from a file; every other question is derived from them here, so that both answer alike.
"""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from patcher.errors import RuleError, TargetError

if TYPE_CHECKING:
    from patcher.signature import Parameter, Signature

Kind = Literal["module", "function", "class", "method", "classmethod", "staticmethod", "attribute"]
Closure = Literal["closed", "abstract", "lazy", "open"]

_PROBE = re.compile(r"(?P<callable>[\w.]+)\((?P<parameter>\w+)\)")


@dataclass(frozen=True)
class Definition:
    """Where a name is really defined, behind re-exports, aliases and base classes.

    Args:
        kind: what it is. A property or a variable is an ``attribute``.
        dotted: the name in the module (and class) that defines it.
        file: relative to the folder that holds the package: ``vllm/v1/request.py``.
        line: counted from 1.
    """

    kind: Kind
    dotted: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Facts(ABC):
    """What the packages offer, as their source says. Nothing is imported.

    Every query takes a dotted name such as ``vllm.v1.request.Request.__init__``. A name of a package that the facts
    do not cover raises TargetError, as does a file that can't be read or parsed.
    """

    @property
    @abstractmethod
    def packages(self) -> frozenset[str]:
        """The names of the top-level packages covered."""

    @abstractmethod
    def symbol(self, dotted: str) -> Definition | None:
        """Where the name is defined, or None if the source has no such name."""

    @abstractmethod
    def type_of(self, dotted: str) -> str | None:
        """The class of an attribute, or the class that a call of a function or method returns.

        Read from the annotation, or from ``self.x = Class(...)`` and ``self.x = annotated_parameter``. None where
        it is no class of the packages, or not known.
        """

    @abstractmethod
    def closure(self, dotted: str) -> Closure:
        """Can the absence of a member of this class or module be trusted?

        ``closed``: yes. ``abstract``: yes for the class itself, not for its instances, which have more members or
        another class. ``lazy``: a module that makes names on demand; the tables and names written in it were searched.
        ``open``: no (a base class out of sight, names made by running code).
        """

    @abstractmethod
    def _signature(self, dotted: str) -> Signature | None: ...

    @abstractmethod
    def _shape(self, dotted: str, pattern: str) -> bool: ...

    def signature(self, dotted: str) -> Signature | None:
        """What a call of the function, method or class takes; None if there is no such callable.

        ``C`` and ``C.__init__`` are one question.
        """
        return self._signature(dotted.removesuffix(".__init__"))

    def has_symbol(self, dotted: str) -> bool:
        """Does the name exist?"""
        return self.symbol(dotted) is not None

    def has_parameter(self, probe: str) -> bool:
        """Does ``a.b.C.__init__(x)`` exist: a callable a.b.C with a parameter named x?

        Raises:
            TargetError: the signature can't be read completely and what is read does not have it.
        """
        return self._parameter(probe) is not None

    def is_required(self, probe: str) -> bool:
        """Does the parameter exist, and must every call give it?"""
        parameter = self._parameter(probe)
        return parameter is not None and parameter.required

    def default_is(self, probe: str, expected: str) -> bool:
        """Does the parameter exist with that default? Compared as parsed code, so spacing and quotes don't matter.

        The default of a field with a default factory is the call of the factory: ``list()``.
        """
        parameter = self._parameter(probe)
        if parameter is None or parameter.default is None:
            return False
        return _same_code(parameter.default, expected)

    def has_shape(self, dotted: str, pattern: str) -> bool:
        """Does the source of that function, class or module contain the code pattern?

        False if there is no such name.
        """
        return self.symbol(dotted) is not None and self._shape(dotted, pattern)

    def _parameter(self, probe: str) -> Parameter | None:
        match = _PROBE.fullmatch(probe)
        if match is None:
            raise RuleError("a parameter probe does not read", expected="package.callable(parameter)", found=probe)
        name, wanted = match["callable"], match["parameter"]
        signature = self.signature(name)
        found = signature.get(wanted) if signature else None
        if signature is not None and signature.open and found is None:
            raise TargetError(
                f"the signature of {name} can't be read from source, so nobody can say if it has {wanted!r}",
                where=str(self.symbol(name)),
                found=str(signature),
                hint="ask for a symbol or a code shape instead",
            )
        return found


def _same_code(one: str, other: str) -> bool:
    try:
        return ast.dump(ast.parse(one, mode="eval")) == ast.dump(ast.parse(other, mode="eval"))
    except SyntaxError as error:
        raise RuleError("a default is no Python expression", expected=one, found=other) from error

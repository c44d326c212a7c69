"""Does every import of a file resolve, and every call bind, in the packages that are installed?

Nothing is imported and nothing is run. What the text does not make certain is not judged.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from patcher.conformance_calls import call_text, callee
from patcher.conformance_finding import Finding
from patcher.conformance_guards import Guards, caught_by, handled_by, leaves, tested
from patcher.conformance_names import BoundMethod, Instance, Names, Symbol
from patcher.conformance_values import Evaluator
from patcher.errors import DriftError
from patcher.facts_module import FunctionNode, last_name, relative
from patcher.signature import problems
from patcher.source import SourceProblem, check_compiles, parse_safely

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from patcher.conformance_names import ScopeNode
    from patcher.facts_base import Facts
    from patcher.signature import CallShape

__all__ = ["Finding", "check"]

_SIGNATURE_WIDTH = 400


def check(files: Mapping[str, bytes], facts: Facts) -> list[Finding]:
    """Everything in the files that the packages of the facts do not offer.

    Args:
        files: source by path from site-packages on, such as ``speculators/data_generation/custom_worker.py``.
        facts: of the installed packages. Names of other packages, and of the files themselves, are not judged.

    Returns:
        the findings, by file and line.

    Raises:
        DriftError: a file does not parse, or Python does not compile it.
        TargetError: the facts can't be read.
    """
    own = frozenset(_module_name(file) for file in files)
    findings: list[Finding] = []
    for file, source in sorted(files.items()):
        try:
            tree = parse_safely(source)
            check_compiles(source, file)
        except SourceProblem as error:
            raise DriftError("the file is not Python", where=file, found=str(error)) from error
        checker = _Checker(file, facts, Evaluator(facts, own))
        checker.run(tree)
        findings += sorted(checker.findings, key=lambda f: f.line)
    return findings


class _Checker(ast.NodeVisitor):
    """Walks one file with the scope, the guards and the caught exceptions of the place it is at."""

    def __init__(self, file: str, facts: Facts, values: Evaluator) -> None:
        self.findings: list[Finding] = []
        self._file = file
        self._package = _package(file)
        self._facts = facts
        self._values = values
        self._scope: Names
        self._guards = Guards()

    def run(self, tree: ast.Module) -> None:
        self._inside(tree, None, tree.body)

    # Scopes

    def _inside(self, node: ScopeNode, parent: Names | None, body: list[ast.stmt] | list[ast.expr]) -> None:
        before = (getattr(self, "_scope", None), self._guards)
        self._scope = Names(node, parent, self._package)
        self._block(body)
        if before[0] is not None:
            self._scope = before[0]
        self._guards = before[1]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for expression in [*node.decorator_list, *node.bases, *(k.value for k in node.keywords)]:
            self.visit(expression)
        self._inside(node, self._scope, node.body)

    def visit_FunctionDef(self, node: FunctionNode) -> None:
        for expression in [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)]:
            self.visit(expression)
        self._inside(node, self._scope, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._inside(node, self._scope, [node.body])

    # Guards

    def _block(self, body: list[ast.stmt] | list[ast.expr]) -> None:
        before = self._guards
        for statement in body:
            self.visit(statement)
            if isinstance(statement, ast.If) and leaves(statement.body):
                self._guards = self._guards.with_names(tested(statement.test, holds=False))
        self._guards = before

    def _guarded(self, test: ast.expr, body: list[ast.stmt] | list[ast.expr], *, holds: bool) -> None:
        before = self._guards
        self._guards = before.with_names(tested(test, holds=holds))
        self._block(body)
        self._guards = before

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        if last_name(node.test) != "TYPE_CHECKING":
            self._guarded(node.test, node.body, holds=True)
        self._guarded(node.test, node.orelse, holds=False)

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._guarded(node.test, [*node.body], holds=True)
        self._block(node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        self._guarded(node.test, [node.body], holds=True)
        self._guarded(node.test, [node.orelse], holds=False)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        before = self._guards
        for value in node.values:
            self.visit(value)
            self._guards = self._guards.with_names(tested(value, holds=isinstance(node.op, ast.And)))
        self._guards = before

    def visit_Try(self, node: ast.Try) -> None:
        before = self._guards
        imports_hold = all(not list(self._import_problems(n)) for n in ast.walk(ast.Module(node.body, [])))
        has_import = any(isinstance(n, ast.Import | ast.ImportFrom) for n in ast.walk(ast.Module(node.body, [])))
        self._guards = before.with_caught({name for handler in node.handlers for name in caught_by(handler)})
        self._block(node.body)
        self._guards = before
        for handler in node.handlers:
            # The fallback of an import that works never runs, so what it names need not be there.
            if not (has_import and imports_hold and "ImportError" in handled_by(handler)):
                self._block(handler.body)
        if imports_hold:
            self._block(node.orelse)
        self._block(node.finalbody)

    # Judgements

    def visit_Import(self, node: ast.Import) -> None:
        self._judge_import(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._judge_import(node)

    def _judge_import(self, node: ast.Import | ast.ImportFrom) -> None:
        if not self._guards.catches("ImportError"):
            self.findings += [f for f in self._import_problems(node) if not self._guards.names_module(f.symbol)]

    def _import_problems(self, node: ast.AST) -> Iterator[Finding]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if self._values.covers(alias.name) and self._facts.symbol(alias.name) is None:
                    yield self._finding(node, f"import {alias.name}", alias.name, "no such module")
        elif isinstance(node, ast.ImportFrom):
            module = relative(self._package, node.level, node.module)
            for alias in node.names:
                dotted = module if alias.name == "*" else f"{module}.{alias.name}"
                if self._values.covers(module) and self._values.covers(dotted) and self._facts.symbol(dotted) is None:
                    yield from self._unresolved(node, module, alias.name)

    def _unresolved(self, node: ast.ImportFrom, module: str, name: str) -> Iterator[Finding]:
        code = f"from {module} import {name}"
        if self._facts.symbol(module) is None:
            yield self._finding(node, code, f"{module}.{name}", f"no module {module}")
        elif self._facts.closure(module) != "open":
            yield self._finding(node, code, f"{module}.{name}", f"{module} has no {name!r}", at=module)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """A name read from a module or class of the packages."""
        base = self._values.value(node.value, self._scope)
        if isinstance(base, Symbol) and isinstance(node.ctx, ast.Load):
            self._judge_member(node, base.dotted, node.attr, ast.unparse(node))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function, shape = callee(node)
        base = self._values.value(function.value, self._scope) if isinstance(function, ast.Attribute) else None
        if isinstance(base, Instance) and isinstance(function, ast.Attribute):
            self._judge_member(node, base.dotted, function.attr, call_text(node))
        called = self._values.value(function, self._scope)
        if isinstance(called, Symbol | BoundMethod) and not self._guards.catches("TypeError"):
            self._judge_call(node, called.dotted, shape)
        self.generic_visit(node)

    def _judge_member(self, node: ast.Attribute | ast.Call, owner: str, name: str, code: str) -> None:
        dotted = f"{owner}.{name}"
        if name.startswith("__") or self._facts.symbol(dotted) is not None:
            return
        reached = node.func if isinstance(node, ast.Call) else node
        base = ast.unparse(reached.value) if isinstance(reached, ast.Attribute) else ""
        if self._guards.names(base, name) or self._guards.catches("AttributeError"):
            return
        trusted = ("closed",) if isinstance(node, ast.Call) else ("closed", "abstract")
        if self._facts.closure(owner) in trusted:
            self.findings.append(self._finding(node, code, dotted, f"{owner} has no {name!r}", at=owner))

    def _judge_call(self, node: ast.Call, dotted: str, shape: CallShape) -> None:
        signature = self._facts.signature(dotted)
        for problem in problems(signature, shape) if signature else []:
            self.findings.append(self._finding(node, call_text(node), dotted, problem))

    def _finding(
        self, node: ast.expr | ast.stmt, code: str, dotted: str, problem: str, at: str | None = None
    ) -> Finding:
        definition = self._facts.symbol(at or dotted)
        signature = self._facts.signature(dotted) if definition and not at else None
        installed = f"{dotted}{signature}" if signature else None
        if installed and len(installed) > _SIGNATURE_WIDTH:
            installed = installed[: _SIGNATURE_WIDTH - 4] + " ..."
        place = str(definition) if definition else None
        return Finding(self._file, node.lineno, code, dotted, problem, installed, place)


def _module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _package(file: str) -> str:
    return _module_name(file) if file.endswith("/__init__.py") else _module_name(file).rpartition(".")[0]

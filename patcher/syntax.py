"""Trees of a file: where a node hangs, what is under it, and what a name stands for."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import libcst as cst

from patcher.meaning import is_node, meaning_fields
from patcher.source import SourceProblem, parse_safely


@dataclass(frozen=True)
class Place:
    """Where a node hangs: its parent, the parent's field, and the index when that field is a sequence."""

    parent: cst.CSTNode
    field: str
    index: int | None


def parse(source: str | bytes) -> cst.Module:
    """The source as LibCST has it.

    Raises:
        SourceProblem: it does not parse, or must not be given to LibCST.
    """
    parse_safely(source)
    try:
        return cst.parse_module(source)
    except (cst.ParserSyntaxError, SyntaxError, ValueError, LookupError, RecursionError) as error:
        raise SourceProblem(str(error)) from error


class Tree:
    """A module with parent links, so that a node can be found by class and replaced by rebuilding its path only.

    ``origin`` is the module as the file has it, before any edit: what line numbers are told of.
    """

    def __init__(self, module: cst.Module, origin: cst.Module | None = None) -> None:
        self.module = module
        self.origin = origin or module
        self._places: dict[int, tuple[cst.CSTNode, str, int | None]] = {}
        self._nodes: list[cst.CSTNode] = []
        self._kinds: dict[type[cst.CSTNode], list[int]] = {}  # where in the list the nodes of a class are
        self._index(module)

    def _index(self, node: cst.CSTNode) -> None:
        stack: list[cst.CSTNode] = [node]
        while stack:
            current = stack.pop()
            self._kinds.setdefault(type(current), []).append(len(self._nodes))
            self._nodes.append(current)
            below = list(children(current))
            for child, field, position in below:
                self._places[id(child)] = (current, field, position)
            below.reverse()
            stack += [child for child, _, _ in below]

    @cached_property
    def _spans(self) -> Mapping[int, tuple[int, int]]:
        """For each node where it and what is under it stand in the list of nodes."""
        start = {id(node): number for number, node in enumerate(self._nodes)}
        sizes = [1] * len(self._nodes)
        for number in range(len(self._nodes) - 1, 0, -1):
            sizes[start[id(self._places[id(self._nodes[number])][0])]] += sizes[number]
        return {key: (number, number + sizes[number]) for key, number in start.items()}

    @property
    def nodes(self) -> Sequence[cst.CSTNode]:
        """Every node that carries meaning, in source order."""
        return self._nodes

    def place(self, node: cst.CSTNode) -> Place:
        """Where a node of this very tree hangs; KeyError for the module itself or a foreign node."""
        return Place(*self._places[id(node)])

    def statement_of(self, node: cst.CSTNode) -> cst.CSTNode:
        """The statement in a block that holds a node: what an insertion stands before or after."""
        current = node
        while not _is_statement(current):
            current = self.place(current).parent
        return current

    def indent_of(self, node: cst.CSTNode) -> str:
        """The white space that the file's blocks put in front of a statement."""
        indents: list[str] = []
        while node is not self.module:
            node = self.place(node).parent
            if isinstance(node, cst.IndentedBlock):
                indents.append(self.module.default_indent if node.indent is None else node.indent)
        return "".join(reversed(indents))

    def within(self, scope: cst.CSTNode, kinds: tuple[type[cst.CSTNode], ...]) -> Iterator[cst.CSTNode]:
        """The nodes of some kinds under a scope, itself included, in source order."""
        first, last = (0, len(self._nodes)) if scope is self.module else self._spans[id(scope)]
        wanted = [numbers for kind, numbers in self._kinds.items() if issubclass(kind, kinds)]
        return (self._nodes[number] for number in heapq.merge(*wanted) if first <= number < last)

    def rebuilt(self, parent: cst.CSTNode, field: str, value: object, **more: object) -> Tree:
        """This tree with one field of one node changed, or more of them; nodes off the path are shared."""
        node = parent.with_changes(**{field: value}, **more)
        while parent is not self.module:
            place = self.place(parent)
            held = getattr(place.parent, place.field)
            if place.index is not None:
                held = [*held[: place.index], node, *held[place.index + 1 :]]
                node, parent = place.parent.with_changes(**{place.field: held}), place.parent
            else:
                node, parent = place.parent.with_changes(**{place.field: node}), place.parent
        return Tree(cst.ensure_type(node, cst.Module), self.origin)

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Local name to dotted name, for what the file imports or defines itself; see ``imported_names``."""
        own = (node.name.value for node in _definitions(self.module.body))
        return {**{name: f".{name}" for name in own}, **imported_names(self)}


def children(node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, str, int | None]]:
    """The child nodes that carry meaning, each with its field and its index in a sequence field."""
    for name in meaning_fields(type(node)):
        value: object = getattr(node, name)
        if isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                if is_node(item):
                    yield item, name, index
        elif is_node(value):
            yield value, name, None


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and every node under it that carries meaning, in source order."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(child for child, _, _ in reversed(list(children(current))))


def _is_statement(node: cst.CSTNode) -> bool:
    return isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement))


def find_scope(module: cst.Module, qualname: str) -> cst.FunctionDef | cst.ClassDef | None:
    """The class or function of a dotted name such as ``Generator.__init__``; None where it is not."""
    return next(iter(find_scopes(module, qualname)), None)


def find_scopes(module: cst.Module, qualname: str) -> list[cst.FunctionDef | cst.ClassDef]:
    """Every class or function of that dotted name: of two, Python runs the second."""
    blocks: list[Sequence[cst.CSTNode]] = [module.body]
    found: list[cst.FunctionDef | cst.ClassDef] = []
    for name in qualname.split("."):
        found = [node for block in blocks for node in _definitions(block) if node.name.value == name]
        blocks = [cast("Sequence[cst.CSTNode]", node.body.body) for node in found]
    return found


def _definitions(body: Sequence[cst.CSTNode]) -> Iterator[cst.FunctionDef | cst.ClassDef]:
    return (node for node in body if isinstance(node, (cst.FunctionDef, cst.ClassDef)))


def imported_names(tree: Tree, *, always: bool = False) -> dict[str, str]:
    """Local name to dotted name, for every import of the file: ``import a.b`` binds ``a`` to ``a``.

    What comes from a relative import has a dotted name that starts with a dot. ``always`` leaves out what the
    module does not bind when it is imported: imports in functions, in classes and for type checkers.
    """
    bound: dict[str, str] = {}
    for node in tree.within(tree.module, (cst.Import, cst.ImportFrom)):
        if always and not _is_run(tree, node):
            continue
        if isinstance(node, cst.Import):
            for alias in node.names:
                dotted = dotted_text(alias.name)
                local = alias_name(alias)
                bound[local or dotted.split(".")[0]] = dotted if local else dotted.split(".")[0]
        elif isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
            module = "." * len(node.relative) + (dotted_text(node.module) if node.module else "")
            for alias in node.names:
                name = dotted_text(alias.name)
                bound[alias_name(alias) or name] = f"{module}.{name}"
    return bound


def _is_run(tree: Tree, node: cst.CSTNode) -> bool:
    """Does a statement run when the module is imported, as far as can be seen?"""
    while node is not tree.module:
        node = tree.place(node).parent
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            return False
        if isinstance(node, cst.If) and dotted_text(node.test).rpartition(".")[2] == "TYPE_CHECKING":
            return False
    return True


def alias_name(alias: cst.ImportAlias) -> str | None:
    """The ``y`` of ``x as y``."""
    return alias.asname.name.value if alias.asname and isinstance(alias.asname.name, cst.Name) else None


def dotted_text(node: cst.CSTNode) -> str:
    """``a.b.c`` of a name or attribute chain; empty for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        head = dotted_text(node.value)
        return f"{head}.{node.attr.value}" if head else ""
    return ""


def qualified(node: cst.CSTNode, imports: Mapping[str, str]) -> str:
    """The dotted name that an expression stands for by the file's imports; empty where it stands for none."""
    text = dotted_text(node)
    head, _, rest = text.partition(".")
    if head not in imports:
        return ""
    return f"{imports[head]}.{rest}" if rest else imports[head]


def same_name(one: str, other: str) -> bool:
    """Same package and same last name: vLLM moves a function between its modules, and it stays that function."""
    return one.rpartition(".")[2] == other.rpartition(".")[2] and one.partition(".")[0] == other.partition(".")[0]

"""What a piece of Python means, with its layout left out: walking, comparing and digesting LibCST nodes.

LibCST keeps every space and comment in the tree, in fields of their own. This module knows which fields
those are; everything above it sees meaning only.
"""

from __future__ import annotations

import hashlib
import warnings
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import cast

import libcst as cst

_LAYOUT_FIELDS = frozenset(
    {
        "colon", "comma", "dot", "end", "equal", "footer", "header", "indent", "lbrace", "lbracket",
        "leading_lines", "lines_after_decorators", "lpar", "parens", "rbrace", "rbracket", "rpar",
        "semicolon", "start", "trailing_whitespace",
    }
)  # fmt: skip


@cache
def meaning_fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """The fields of a node class that carry meaning rather than layout."""
    names = (field.name for field in fields(kind))
    layout = _LAYOUT_FIELDS - {"equal"} if kind is cst.FormattedStringExpression else _LAYOUT_FIELDS  # f"{x=}"
    return tuple(n for n in names if n not in layout and not n.startswith("whitespace"))


def is_absent(value: object) -> bool:
    """True for a field that holds nothing: None, a sentinel, an empty sequence."""
    return value is None or isinstance(value, cst.MaybeSentinel) or value in ((), [])


@dataclass(frozen=True)
class Place:
    """Where a node hangs: its parent, the parent's field, and the index when that field is a sequence."""

    parent: cst.CSTNode
    field: str
    index: int | None


class Tree:
    """A module with parent links, so that a node can be found by class and replaced by rebuilding its path only.

    ``origin`` is the module as the file has it, before any edit: what line numbers are told of.
    """

    def __init__(self, module: cst.Module, origin: cst.Module | None = None) -> None:
        self.module = module
        self.origin = origin or module
        self._places: dict[int, Place] = {}
        self._nodes: list[cst.CSTNode] = []
        self._index(module)

    def _index(self, node: cst.CSTNode) -> None:
        stack: list[cst.CSTNode] = [node]
        while stack:
            current = stack.pop()
            self._nodes.append(current)
            below = list(children(current))
            for child, field, position in below:
                self._places[id(child)] = Place(current, field, position)
            stack.extend(child for child, _, _ in reversed(below))

    @property
    def nodes(self) -> Sequence[cst.CSTNode]:
        """Every node that carries meaning, in source order."""
        return self._nodes

    def place(self, node: cst.CSTNode) -> Place:
        """Where a node of this very tree hangs; KeyError for the module itself or a foreign node."""
        return self._places[id(node)]

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

    def within(self, scope: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes under a scope, itself included, in source order."""
        return iter(self._nodes) if scope is self.module else walk(scope)

    def rebuilt(self, parent: cst.CSTNode, field: str, value: object) -> Tree:
        """This tree with one field of one node changed; nodes off the path are shared."""
        node = parent.with_changes(**{field: value})
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
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value, name, None
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                if isinstance(item, cst.CSTNode):
                    yield item, name, index


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


def imported_names(tree: Tree) -> dict[str, str]:
    """Local name to dotted name, for every import of the file: ``import a.b`` binds ``a`` to ``a``.

    What comes from a relative import has a dotted name that starts with a dot.
    """
    bound: dict[str, str] = {}
    for node in tree.nodes:
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


def digest(nodes: Sequence[cst.CSTNode]) -> str:
    """Sixteen hex digits that name the meaning of some code, whatever its layout, quotes and comments."""
    return hashlib.sha256("\n".join(_spelled(node) for node in nodes).encode()).hexdigest()[:16]


def string_value(node: object) -> str | bytes | None:
    """What a string literal, or several in a row, say; None for anything else, f-strings included.

    The indentation of a string of several lines is layout, as in a docstring.
    """
    if not isinstance(node, (cst.SimpleString, cst.ConcatenatedString)):
        return None
    with warnings.catch_warnings():  # an unknown escape is the file's affair
        warnings.simplefilter("ignore")
        value = node.evaluated_value
    return inspect.cleandoc(value) if isinstance(value, str) and "\n" in value else value


def same_name(one: str, other: str) -> bool:
    """Same package and same last name: vLLM moves a function between its modules, and it stays that function."""
    return one.rpartition(".")[2] == other.rpartition(".")[2] and one.partition(".")[0] == other.partition(".")[0]


def _spelled(value: object) -> str:
    text = string_value(value)
    if text is not None:
        return repr(text)
    if isinstance(value, cst.CSTNode):
        parts = ((name, getattr(value, name)) for name in meaning_fields(type(value)))
        inner = ",".join(f"{name}={_spelled(part)}" for name, part in parts if not is_absent(part))
        return f"{type(value).__name__}({inner})"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(_spelled(item) for item in value)}]"
    return repr(value)

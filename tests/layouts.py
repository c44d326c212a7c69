"""The same code in other layouts, for tests on real files."""

from __future__ import annotations

import random
from collections.abc import Sequence

import libcst as cst

from patcher.comma import followed_by


class Layout(cst.CSTTransformer):
    """Lays every call with arguments out anew: on one line or on many, with comments, with or without a last comma."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._count = 0
        self._formatted = 0  # inside an f-string no line may break

    def visit_FormattedString(self, node: cst.FormattedString) -> None:  # noqa: N802
        self._formatted += 1

    def leave_FormattedString(  # noqa: N802
        self,
        original_node: cst.FormattedString,
        updated_node: cst.FormattedString,
    ) -> cst.BaseExpression:
        self._formatted -= 1
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        args = updated_node.args
        if self._formatted or not args or isinstance(args[0].value, cst.GeneratorExp) or self._rng.random() < 0.3:
            return updated_node
        comma = self._rng.random() < 0.5
        laid = [followed_by(arg, self._gap(), comma=comma or arg is not args[-1]) for arg in args]
        return updated_node.with_changes(args=laid, whitespace_before_args=self._gap())

    def _gap(self) -> cst.BaseParenthesizableWhitespace:
        kind = self._rng.randrange(4)
        if kind == 0:
            return cst.SimpleWhitespace(self._rng.choice(["", " ", "  "]))
        tail = cst.TrailingWhitespace(cst.SimpleWhitespace("  "), self._comment("tail")) if kind == 1 else None
        own = [cst.EmptyLine(indent=False, comment=self._comment("own"))] if kind == 2 else []
        return cst.ParenthesizedWhitespace(
            first_line=tail or cst.TrailingWhitespace(),
            empty_lines=own,
            indent=self._rng.random() < 0.8,
            last_line=cst.SimpleWhitespace("    "),
        )

    def _comment(self, kind: str) -> cst.Comment:
        self._count += 1
        return cst.Comment(f"# {kind} {self._count}")


class Shuffle(cst.CSTTransformer):
    """Puts the keyword arguments of every call in another order."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        places = [i for i, arg in enumerate(updated_node.args) if arg.keyword is not None]
        order = self._rng.sample(places, len(places))
        args: list[cst.Arg] = list(updated_node.args)
        for place, source in zip(places, order, strict=True):
            mine, theirs = updated_node.args[place], updated_node.args[source]
            after = mine.whitespace_after_arg
            args[place] = theirs.with_changes(comma=mine.comma, whitespace_after_arg=after)
        return updated_node.with_changes(args=args)


class Alias(cst.CSTTransformer):
    """Imports some names under other ones, and uses those."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = frozenset(names)

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:  # noqa: N802
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:  # noqa: N802
        return (
            updated_node.with_changes(value=alias(original_node.value))
            if original_node.value in self._names
            else updated_node
        )

    def leave_ImportAlias(  # noqa: N802
        self, original_node: cst.ImportAlias, updated_node: cst.ImportAlias
    ) -> cst.ImportAlias:
        name = original_node.name
        if not isinstance(name, cst.Name) or name.value not in self._names:
            return original_node.with_changes(comma=updated_node.comma)
        asname = cst.AsName(cst.Name(alias(name.value)), cst.SimpleWhitespace(" "), cst.SimpleWhitespace(" "))
        return original_node.with_changes(asname=asname, comma=updated_node.comma)


def alias(name: str) -> str:
    """The local name that Alias gives."""
    return f"The{name}"


def relaid(data: bytes, rng: random.Random) -> bytes:
    """The file with its calls laid out anew."""
    return cst.parse_module(data).visit(Layout(rng)).bytes


def shuffled(data: bytes, rng: random.Random) -> bytes:
    """The file with its keyword arguments in another order."""
    return cst.parse_module(data).visit(Shuffle(rng)).bytes


def aliased(data: bytes, names: Sequence[str]) -> bytes:
    """The file with these imported names under other ones."""
    return cst.parse_module(data).visit(Alias(names)).bytes

"""Says what was expected, what is there, and where: a drift report is the tool's most read output."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from patcher.pattern import Match, compile_pattern
from patcher.source import SourceProblem
from patcher.syntax import Tree, find_scope, parse, walk

SHOWN = 3
CLOSE = 0.45  # a likeness under this is no help


@dataclass(frozen=True)
class Drift:
    """One expectation of a rule that a file does not meet.

    ``expected`` is the pattern; ``candidates`` are lines such as ``12: code`` of what comes nearest.
    """

    rule: str
    file: str
    what: str
    expected: str
    inside: str | None = None
    candidates: tuple[str, ...] = ()
    places: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f"{self.file}, in {self.inside}" if self.inside else self.file
        lines = [f"{self.rule}: {self.what}", f"  where:    {where}"]
        lines += _block("expected:", self.expected.strip("\n").splitlines())
        lines += _block("found:", [text for place in self.places for text in place.splitlines()])
        lines += _block("nearest:", [text for near in self.candidates for text in near.splitlines()])
        return "\n".join(lines)

    def of(self, rule: str) -> Drift:
        """The same trouble of a file, reported for a rule."""
        return replace(self, rule=rule)

    def nearest(self, data: bytes) -> Drift:
        """With the places of the file that come nearest to what was expected, or with where it matched."""
        if self.places or not self.expected:
            return self
        return replace(self, candidates=tuple(_candidates(data, self.expected, self.inside)))


def _block(label: str, lines: Sequence[str]) -> list[str]:
    return [f"  {label if not i else '':<9} {line}" for i, line in enumerate(lines)]


def at(
    rule: str,
    file: str,
    what: str,
    patterns: Sequence[str],
    inside: str | None,
    tree: Tree,
    places: Sequence[Match],
) -> Drift:
    """A drift with every place where something did match."""
    lines = _lines(tree.origin) if places else {}
    shown = tuple(f"{_line(lines, m.nodes)}: {_code(tree.module, m.nodes[0])}" for m in places)
    return Drift(rule, file, what, "\nor\n".join(p.strip("\n") for p in patterns), inside, places=shown)


def _line(lines: Mapping[int, int], nodes: Sequence[cst.CSTNode]) -> str:
    """The line in the file as it is: an edit keeps the nodes that it does not touch, so the first such one tells."""
    found = (lines[id(node)] for outer in nodes for node in walk(outer) if id(node) in lines)
    return str(next(found, "new"))


def _lines(module: cst.Module) -> dict[int, int]:
    from libcst.metadata import MetadataWrapper, PositionProvider  # noqa: PLC0415

    positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    return {id(node): span.start.line for node, span in positions.items()}


def _code(module: cst.Module, node: cst.CSTNode) -> str:
    text = module.code_for_node(node).strip("\n").strip()
    kept = text.splitlines()
    return "\n".join([*kept[:6], "..."] if len(kept) > 6 else kept)


def _candidates(data: bytes, expected: str, inside: str | None) -> list[str]:
    """The pieces of the file, of the pattern's own kind, whose text is most like the pattern's."""
    try:
        module = parse(data)
    except SourceProblem:
        return []
    if inside is not None and find_scope(module, inside) is None:
        return _scopes(module, inside)
    wanted = expected.split("\nor\n", maxsplit=1)[0]
    pattern = compile_pattern(wanted)
    kind = type(pattern.expression or pattern.statements[0])
    lines = _lines(module)
    scope = find_scope(module, inside) if inside else module
    scored = []
    for node in walk(scope or module):
        if type(node) is kind and id(node) in lines:
            text = _code(module, node)
            scored.append((_likeness(wanted, text), lines[id(node)], text))
    best = sorted(scored, key=lambda item: (-item[0], item[1]))[:SHOWN]
    return [f"{line}: {text}" for likeness, line, text in best if likeness >= CLOSE]


def _likeness(wanted: str, text: str) -> float:
    """How like two pieces of code are, from 0 to 1: as a whole, or in what comes before their first bracket."""
    heads = wanted.strip().partition("(")[0], text.partition("(")[0]
    whole = difflib.SequenceMatcher(None, wanted, text).ratio()
    return max(whole, 0.8 * difflib.SequenceMatcher(None, *heads).ratio())


def _scopes(module: cst.Module, inside: str) -> list[str]:
    lines = _lines(module)
    names = {n.name.value: lines.get(id(n), 0) for n in walk(module) if isinstance(n, (cst.FunctionDef, cst.ClassDef))}
    close = difflib.get_close_matches(inside.rpartition(".")[2], names, SHOWN)
    return [f"{names[name]}: {name}" for name in close]

"""How an argument list looks after an edit: old arguments keep every byte, new ones look like their neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

Space = cst.BaseParenthesizableWhitespace


@dataclass(frozen=True)
class ListLayout:
    """The layout of an argument list as it stands.

    ``separator`` is the space after a comma between two arguments; ``closing`` the space before the closing
    bracket; ``trailing_comma`` whether the last argument has one.
    """

    separator: Space
    closing: Space
    trailing_comma: bool


def layout_of(call: cst.Call) -> ListLayout:
    """Read the layout of a call that has arguments."""
    last = call.args[-1]
    trailing = isinstance(last.comma, cst.Comma)
    closing = last.comma.whitespace_after if isinstance(last.comma, cst.Comma) else last.whitespace_after_arg
    between = [a.comma.whitespace_after for a in call.args[:-1] if isinstance(a.comma, cst.Comma)]
    broken = [w for w in [call.whitespace_before_args, *between] if isinstance(w, cst.ParenthesizedWhitespace)]
    # One line stays one line; a call with any argument on its own line puts the new one on its own line too.
    separator = _plain(broken[0]) if broken else cst.SimpleWhitespace(" ")
    return ListLayout(separator, closing, trailing)


def lay_out(call: cst.Call, args: Sequence[cst.Arg]) -> cst.Call:
    """The call with these arguments: some of them its own (by identity, or by keyword with a new value), others new."""
    if not call.args or not args:
        spaced = [_bare(a, cst.SimpleWhitespace(" ")) for a in args[:-1]] + [_last_bare(a) for a in args[-1:]]
        before = call.whitespace_before_args if args else cst.SimpleWhitespace("")
        return call.with_changes(args=spaced, whitespace_before_args=before)
    layout = layout_of(call)
    final = len(call.args) - 1
    result = []
    for index, given in enumerate(args):
        origin, arg = _origin(call, given)
        is_last = index == len(args) - 1
        if origin is not None and is_last == (origin == final):
            result.append(arg)
        elif is_last:
            result.append(_as_last(arg, layout))
        else:
            result.append(_as_middle(arg, layout, was_last=origin == final))
    return call.with_changes(args=result)


def _origin(call: cst.Call, arg: cst.Arg) -> tuple[int | None, cst.Arg]:
    """Where the argument stood in the call; a new value for a keyword that is there keeps that argument's layout."""
    for index, own in enumerate(call.args):
        if own is arg:
            return index, arg
        if arg.keyword is not None and own.keyword is not None and own.keyword.value == arg.keyword.value:
            return index, own.with_changes(value=arg.value)
    return None, arg


def with_parameters(held: cst.Parameters, fix: cst.Parameters) -> cst.Parameters:
    """The parameters of a function with those that a fix adds after the run: at the end of the ordinary ones."""
    params = list(held.params)
    for fresh in fix.kwonly_params:
        last = params[-1]
        params[-1] = last.with_changes(comma=_parameter_separator(params))
        params.append(fresh.with_changes(comma=last.comma, whitespace_after_param=last.whitespace_after_param))
    return held.with_changes(params=params)


def _parameter_separator(params: Sequence[cst.Param]) -> cst.Comma:
    commas = [param.comma for param in params[:-1] if isinstance(param.comma, cst.Comma)]
    after = _plain(commas[0].whitespace_after) if commas else cst.SimpleWhitespace(" ")
    return cst.Comma(whitespace_after=after)


def _as_middle(arg: cst.Arg, layout: ListLayout, *, was_last: bool) -> cst.Arg:
    after = _with_first_line(layout.separator, layout.closing) if was_last else layout.separator
    return _bare(arg, after)


def _as_last(arg: cst.Arg, layout: ListLayout) -> cst.Arg:
    mine = arg.comma.whitespace_after if isinstance(arg.comma, cst.Comma) else cst.SimpleWhitespace("")
    closing = _with_first_line(_plain(layout.closing), mine)
    if layout.trailing_comma:
        return _bare(arg, closing)
    return arg.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=closing)


def _bare(arg: cst.Arg, after: Space) -> cst.Arg:
    return arg.with_changes(comma=cst.Comma(whitespace_after=after), whitespace_after_arg=cst.SimpleWhitespace(""))


def _last_bare(arg: cst.Arg) -> cst.Arg:
    return arg.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=cst.SimpleWhitespace(""))


def _plain(space: Space) -> Space:
    """The same line break and indentation, without the comments that belong to the argument before."""
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space
    return space.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[])


def _with_first_line(space: Space, source: Space) -> Space:
    """Keep the comment that stood at the end of the argument's own line, and the comment lines under it."""
    if not isinstance(source, cst.ParenthesizedWhitespace):
        return space
    if isinstance(space, cst.ParenthesizedWhitespace):
        return space.with_changes(first_line=source.first_line, empty_lines=source.empty_lines)
    return source if source.first_line.comment else space

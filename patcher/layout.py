"""How calls and parameter lists look after an edit: old members keep every byte, new ones look like them."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from patcher.comma import Row, Space, followed_by, gap_after, has_comma
from patcher.errors import RuleError


def lay_out(call: cst.Call, args: Sequence[cst.Arg]) -> cst.Call:
    """The call with these arguments: some of them its own (by identity, or with a new value), others new."""
    origins = [_origin(call, arg) for arg in args]
    row = Row(call.whitespace_before_args, tuple(gap_after(arg) for arg in call.args))
    laid = row.rearranged(origins)
    trailing = bool(call.args) and has_comma(call.args[-1])
    result = []
    for k, (arg, origin) in enumerate(zip(args, origins, strict=True)):
        own = arg if origin is None else _with_value(call.args[origin], arg)
        result.append(followed_by(own, laid.gaps[k], comma=trailing or k < len(args) - 1))
    before = laid.before if args else _emptied(laid.before)
    return call.with_changes(args=result, whitespace_before_args=before)


def _with_value(own: cst.Arg, arg: cst.Arg) -> cst.Arg:
    """The call's own argument with the new one's value, if it goes by the same keyword; else the new one."""
    held, wanted = (a.keyword.value if a.keyword else None for a in (own, arg))
    return own.with_changes(value=arg.value) if held == wanted and own.star == arg.star else arg


def _emptied(space: Space) -> Space:
    """What stays between brackets with nothing in them: a comment, if there is one."""
    if isinstance(space, cst.ParenthesizedWhitespace):
        comments = [line for line in space.empty_lines if line.comment]
        if comments or space.first_line.comment:
            return space
    return cst.SimpleWhitespace("")


def shares_arguments(call: cst.Call, args: Sequence[cst.Arg]) -> bool:
    """Is any of the arguments one of the call's own, or another value for one?"""
    return any(_origin(call, arg) is not None for arg in args)


def _origin(call: cst.Call, arg: cst.Arg) -> int | None:
    """Where the argument stood in the call: itself, its value, or another value for its keyword."""
    for index, own in enumerate(call.args):
        if own is arg or own.value is arg.value:
            return index
        if arg.keyword is not None and own.keyword is not None and own.keyword.value == arg.keyword.value:
            return index
    return None


def with_parameters(held: cst.Parameters, fix: cst.Parameters, before: Space) -> cst.Parameters:
    """The parameters of a function with those that a fix adds after the run: the last that a keyword may give.

    Args:
        held: the function's own.
        fix: what the fix writes: parameters, a run, and then the new ones.
        before: the space after the function's opening bracket.

    Raises:
        RuleError: the fix changes the parameters before the run.
    """
    if [p.name.value for p in fix.params] != [p.name.value for p in held.params[: len(fix.params)]] or fix.star_kwarg:
        raise RuleError("a fix can add parameters after the run only", found=cst.Module([]).code_for_node(fix))
    chain, fresh = _chain(held), fix.kwonly_params
    at = len(chain) - (1 if held.star_kwarg else 0)
    order = [*range(at), *[None] * len(fresh), *range(at, len(chain))]
    row = Row(before, tuple(gap_after(member) for member in chain)).rearranged(order)
    trailing = at < len(chain) or (at > 0 and has_comma(chain[-1]))
    added = [
        followed_by(param, row.gaps[at + k], comma=trailing or k < len(fresh) - 1) for k, param in enumerate(fresh)
    ]
    if added and at == len(chain) and at:
        held = cst.ensure_type(
            held.deep_replace(chain[-1], followed_by(chain[-1], row.gaps[at - 1], comma=True)), cst.Parameters
        )
    key = "kwonly_params" if isinstance(held.star_arg, cst.CSTNode) else "params"
    return held.with_changes(**{key: [*getattr(held, key), *added]})


def _chain(held: cst.Parameters) -> list[cst.CSTNode]:
    """All members of a parameter list in the order of the source, ``/`` and ``*`` among them."""
    slash = [held.posonly_ind] if isinstance(held.posonly_ind, cst.ParamSlash) else []
    star = [held.star_arg] if isinstance(held.star_arg, cst.CSTNode) else []
    kwarg = [held.star_kwarg] if held.star_kwarg else []
    return [*held.posonly_params, *slash, *held.params, *star, *held.kwonly_params, *kwarg]

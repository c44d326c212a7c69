"""Compare extracted hidden states with the reference, row by row. Runs in the target interpreter."""

# ruff: noqa: B905 - lengths are compared before anything is paired
from __future__ import annotations

import dataclasses

import reference


@dataclasses.dataclass(frozen=True)
class Limits:
    """The largest relative error of a right result's rows: of any, of nine in ten, and of half of them."""

    worst: float
    most: float
    median: float


# bfloat16 against float32 gives 1-3 % a row on these models; a row of another token gives about 100-140 %.
DENSE = Limits(0.06, 0.06, 0.06)
# A router may send single tokens elsewhere in bfloat16. Measured with damped experts: 9 % for the worst row.
ROUTED = Limits(0.3, 0.3, 0.06)
# Where the device's attention gives a prompt other values in a batch than alone. Measured with that damped too: 19 %.
LOOSE = Limits(0.5, 0.3, 0.2)


def compare(results, prompts, layers, states, limits):
    """What is right and wrong about one call's results.

    Args:
        results: what ``generate`` returned.
        prompts: the token ids that each result must have, already cut.
        layers: the layer ids that were asked for, in that order.
        states: the references, by prompt.
        limits: how far a right row may be off.

    Returns:
        Fields of a row of the report.
    """
    if len(results) != len(prompts):
        return {"verdict": "wrong", "note": f"{len(results)} results for {len(prompts)} prompts"}
    ids = [result["input_ids"].tolist() == prompt for result, prompt in zip(results, prompts)]
    rights = [states[reference.key(prompt)][layers] for prompt in prompts]
    got = [result["hidden_states"] for result in results]
    judged = [judge(states_, right, limits) for states_, right in zip(got, rights)]
    bad = [index for index, found in enumerate(judged) if not found["right"]]
    misshapen = [index for index in bad if judged[index]["worst"] is None]
    fields = {
        "ids_equal": all(ids),
        "shapes_equal": not misshapen,
        "wrong_results": len(bad),
        "misplaced": sum(elsewhere(got[index], rights, index, limits) for index in bad),
        "worst": largest(judged, "worst"),
        "median": largest(judged, "median"),
        "verdict": "right" if all(ids) and not bad else "wrong",
    }
    if misshapen:
        first = misshapen[0]
        fields["note"] = f"result {first} has {shape_text(got[first])}, not {shape_text(list(rights[first]))}"
    return fields


def judge(got, right, limits):
    """Worst and median row over all layers of one result, and whether that is right. None: not of the right shape."""
    if len(got) != len(right) or any(tuple(g.shape) != tuple(r.shape) for g, r in zip(got, right)):
        return {"worst": None, "median": None, "right": False}
    rows = [errors(g, r) for g, r in zip(got, right)]
    # A NaN compares false with everything, and max() may pass over it.
    if not all(bool(row.isfinite().all()) for row in rows):
        return {"worst": 9.99, "median": 9.99, "right": False}
    worst, most, median = (max(float(row.quantile(share)) for row in rows) for share in (1.0, 0.9, 0.5))
    right = worst <= limits.worst and most <= limits.most and median <= limits.median
    return {"worst": worst, "median": median, "right": right}


def errors(got, right):
    """Relative error of each row: a tensor of [rows]."""
    return (got.float() - right).norm(dim=-1) / right.norm(dim=-1).clamp_min(1e-9)


def elsewhere(got, rights, own, limits):
    """Whether this result is another prompt's: right numbers at the wrong index."""
    return any(judge(got, right, limits)["right"] for index, right in enumerate(rights) if index != own)


def largest(judged, field):
    known = [found[field] for found in judged if found[field] is not None]
    return max(known) if known else None


def shape_text(tensors):
    """The shapes of a result's layers: one if all are equal."""
    shapes = [tuple(tensor.shape) for tensor in tensors]
    return f"{len(shapes)} x {shapes[0]}" if len(set(shapes)) == 1 else str(shapes)

"""Compare extracted hidden states with the reference, row by row. Runs in the target interpreter."""

from __future__ import annotations

import reference

# bfloat16 against float32 gives 1-3 % a row on these models; a row of another token gives about 100-140 %.
TOLERANCE = 0.06
# A router may send single tokens elsewhere in bfloat16; such a row is off, but is still not another token's row.
STRAY_ROW = 1.0


def errors(got, right):
    """Relative error of each row: a tensor of [rows]."""
    return (got.float() - right).norm(dim=-1) / right.norm(dim=-1).clamp_min(1e-9)


def compare(results, prompts, layers, states, routed):
    """What is right and wrong about one call's results.

    Args:
        results: what ``generate`` returned.
        prompts: the token ids that each result must have, already cut.
        layers: the layer ids that were asked for, in that order.
        states: the references, by prompt.
        routed: whether the model routes tokens to experts (judged by the median row).

    Returns:
        Fields of a row of the report.
    """
    if len(results) != len(prompts):
        return {"verdict": "wrong", "note": f"{len(results)} results for {len(prompts)} prompts"}
    ids = [result["input_ids"].tolist() == prompt for result, prompt in zip(results, prompts)]
    rights = [states[reference.key(prompt)][layers] for prompt in prompts]
    shapes = [same_shape(result["hidden_states"], right) for result, right in zip(results, rights)]
    fields = {"ids_equal": all(ids), "shapes_equal": all(shapes), "misplaced": 0, "worst": None, "median": None}
    if not all(shapes):
        bad = shapes.index(False)
        fields["note"] = f"result {bad}: {shape_text(results[bad]['hidden_states'])}, not {list(rights[bad].shape)}"
    good = [
        judge(result["hidden_states"], right, routed) if fits else None
        for result, right, fits in zip(results, rights, shapes)
    ]
    measured = [found for found in good if found]
    if measured:
        fields["worst"] = max(found["worst"] for found in measured)
        fields["median"] = max(found["median"] for found in measured)
    fields["wrong_results"] = sum(1 for found in good if not (found and found["right"]))
    fields["misplaced"] = sum(
        1
        for index, found in enumerate(good)
        if not (found and found["right"]) and elsewhere(results[index]["hidden_states"], rights, index, routed)
    )
    fields["verdict"] = "right" if all(ids) and not fields["wrong_results"] else "wrong"
    return fields


def same_shape(got, right):
    return len(got) == len(right) and all(tuple(g.shape) == tuple(r.shape) for g, r in zip(got, right))


def shape_text(got):
    return str([tuple(value.shape) for value in got])


def judge(got, right, routed):
    """Worst and median row over all layers of one result, and whether that is right."""
    rows = [errors(g, r) for g, r in zip(got, right)]
    worst = max(float(row.max()) for row in rows)
    median = max(float(row.median()) for row in rows)
    ok = (median <= TOLERANCE and worst <= STRAY_ROW) if routed else worst <= TOLERANCE
    # A NaN compares false with everything, and max() may pass over it.
    finite = all(bool(row.isfinite().all()) for row in rows)
    return {"worst": worst, "median": median, "right": ok and finite}


def elsewhere(got, rights, own, routed):
    """Whether this result is another prompt's: right numbers at the wrong index."""
    return any(
        same_shape(got, right) and judge(got, right, routed)["right"]
        for index, right in enumerate(rights)
        if index != own
    )

"""The prompts of the check, and which generator gets which of them. Standard library only.

Everything comes from one seed, so the reference and the extraction, which run in different processes, agree.
No prompt repeats one token: with equal rows every fault of attention or order would be invisible.
"""

from __future__ import annotations

import dataclasses
import random

# Small enough that one prompt can be too long, large enough for prompts of 200 tokens.
MAX_MODEL_LEN = 256
# The generator keeps one position for the token it never generates (both releases: ``max_model_len - 1``).
LONGEST_PROMPT = MAX_MODEL_LEN - 1
# vLLM's block size is 16 for these files: lengths one below, at and one above a block are among them.
MIXED_LENGTHS = (48, 1, 17, 200, 15, 33, 2, 16, 127, 32, 100, 31)
FIRST_TOKEN = 8  # ids below are special tokens of the tiny models


@dataclasses.dataclass(frozen=True)
class Session:
    """One generator: how it is made, and the batches it is given, in order."""

    name: str
    batches: tuple[str, ...]
    layers: str = "all"  # "all", or positions such as "4,0,2" that are cut to the model's depth
    max_num_batched_tokens: int | None = None
    prefix_caching: bool = False
    twin: bool = False  # a second generator is made while the first one lives


SESSIONS = (
    Session("default", ("one", "mixed", "again", "shared", "fifty", "long", "33", "100")),
    Session("order", ("mixed",), layers="4,0,2"),
    Session("repeat", ("mixed",), layers="2,2"),
    Session("chunked", ("mixed", "again"), max_num_batched_tokens=64),
    Session("prefix-caching", ("mixed", "again"), prefix_caching=True),
    Session("twin", ("mixed",), twin=True),
)


def prompts(batch: str, vocabulary: int) -> list[list[int]]:
    """The token ids of one named batch.

    Raises:
        KeyError: no batch has that name.
    """
    return {
        "one": _one,
        "mixed": _mixed,
        "again": _mixed,
        "shared": _shared,
        "fifty": _fifty,
        "long": _long,
        "33": _thirty_three,
        "100": _hundred,
    }[batch](vocabulary)


def _draw(seed: str, length: int, vocabulary: int) -> list[int]:
    source = random.Random(seed)  # noqa: S311 - prompts, not secrets
    return [source.randrange(FIRST_TOKEN, vocabulary) for _ in range(length)]


def _one(vocabulary: int) -> list[list[int]]:
    return [_draw("one", 37, vocabulary)]


def _mixed(vocabulary: int) -> list[list[int]]:
    return [_draw(f"mixed-{length}", length, vocabulary) for length in MIXED_LENGTHS]


def _shared(vocabulary: int) -> list[list[int]]:
    """Prompts with a common beginning of three blocks, one equal to it, and two equal to each other."""
    prefix = _draw("prefix", 48, vocabulary)
    tails = [_draw(f"tail-{length}", length, vocabulary) for length in (20, 1, 33, 16)]
    return [*[prefix + tail for tail in tails], prefix, prefix + tails[0], prefix[:17]]


def _fifty(vocabulary: int) -> list[list[int]]:
    """More requests than the generator runs at once (32) and more tokens than one step takes (8192)."""
    return [_draw(f"fifty-{index}", 200, vocabulary) for index in range(50)]


def _long(vocabulary: int) -> list[list[int]]:
    return [_draw("long", MAX_MODEL_LEN + 44, vocabulary), _draw("beside-long", 19, vocabulary)]


def _thirty_three(vocabulary: int) -> list[list[int]]:
    """One request more than run at once, and few tokens: only the number of requests decides about the steps."""
    return [_draw(f"33-{index}", 1 + index % 7, vocabulary) for index in range(33)]


def _hundred(vocabulary: int) -> list[list[int]]:
    """Four rounds of requests of unequal length, which end in another order than they began."""
    return [_draw(f"100-{index}", 1 + 41 * index % 60, vocabulary) for index in range(100)]

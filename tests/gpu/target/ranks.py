"""Runs in the target: the same prompts on one rank and on several, and what each rank makes of the block hashes.

usage: ranks.py PAYLOAD MODEL SIZE, with PYTHONHASHSEED set

Prints one line of JSON between two marks: ``worst`` and ``median`` relative error of a row of the states of SIZE ranks
against one, and for every rank NONE_HASH and the hashes of a prompt's blocks.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

MARK = "===ranks==="
BATCHES = ("mixed", "fifty")


def rank_hashes(worker: Any, prompt: list[int], block_size: int, algorithm: str) -> dict[str, Any]:
    """In a worker: NONE_HASH as it finds it, as it draws it, and the prompt's block hashes with the latter."""
    keep = importlib.import_module("vllm.v1.core.kv_cache_utils")
    function = importlib.import_module("vllm.utils.hashing").get_hash_fn_by_name(algorithm)
    found = getattr(keep, "NONE_HASH", None)
    keep.init_none_hash(function)
    hashes, parent = [], None
    for start in range(0, len(prompt) - block_size + 1, block_size):
        parent = keep.hash_block_tokens(function, parent, prompt[start : start + block_size])
        hashes.append(parent.hex())
    return {"rank": worker.rank, "found": found and found.hex(), "drawn": keep.NONE_HASH.hex(), "hashes": hashes}


def extract(model: str, size: int, prompts: dict[str, list[list[int]]]) -> dict[str, Any]:
    """Run a generator on ``size`` ranks: its states by batch, and the hashes of every rank and of the generator."""
    name = "speculators.data_generation.vllm_hidden_states_generator"
    kind = importlib.import_module(name).VllmHiddenStatesGenerator
    generator = kind(
        model_path=model,
        layer_ids=[0, 2, 5],
        max_model_len=256,
        gpu_memory_utilization=0.05,
        tensor_parallel_size=size,
    )
    seen: dict[str, Any] = {}
    run = generator._run_requests

    def spy(requests: dict[str, Any]) -> Any:
        seen.update(requests)
        return run(requests)

    generator._run_requests = spy
    states = {name: [found["hidden_states"] for found in generator.generate(batch)] for name, batch in prompts.items()}
    longest = max(seen.values(), key=lambda request: request.num_prompt_tokens)
    tokens = list(longest.prompt_token_ids)
    algorithm = generator.vllm_config.cache_config.prefix_caching_hash_algo
    block_size = len(tokens) // len(longest.block_hashes)
    ranks = generator.executor.collective_rpc(rank_hashes, args=(tokens, block_size, algorithm))
    keep = importlib.import_module("vllm.v1.core.kv_cache_utils")
    own = {"none_hash": keep.NONE_HASH.hex(), "hashes": [part.hex() for part in longest.block_hashes]}
    generator.executor.shutdown()
    return {"states": states, "ranks": ranks, "own": own, "block_size": block_size}


def main() -> None:
    """Compare, and print what was found."""
    payload, model, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    sys.path.insert(0, payload)
    batches, compare = importlib.import_module("batches"), importlib.import_module("compare")
    prompts = {name: batches.prompts(name, 288) for name in BATCHES}
    one, many = extract(model, 1, prompts), extract(model, size, prompts)
    rows = [
        compare.errors(got, right.float())
        for name in BATCHES
        for gots, rights in zip(many["states"][name], one["states"][name], strict=True)
        for got, right in zip(gots, rights, strict=True)
    ]
    found = {
        "worst": max(float(row.max()) for row in rows),
        "median": max(float(row.median()) for row in rows),
        **{key: many[key] for key in ("ranks", "own", "block_size")},
        "own_of_one": one["own"],
    }
    print(f"\n{MARK}{json.dumps(found)}{MARK}", flush=True)


if __name__ == "__main__":
    main()

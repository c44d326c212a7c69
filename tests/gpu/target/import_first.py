"""Runs in the target: speculators is imported before vLLM, nothing is set, and one prompt is extracted.

usage: import_first.py MODEL
"""

from __future__ import annotations

import importlib
import sys


def main() -> None:
    """Print the shapes of the states, or end with the error."""
    name = "speculators.data_generation.vllm_hidden_states_generator"
    kind = importlib.import_module(name).VllmHiddenStatesGenerator
    generator = kind(
        model_path=sys.argv[1], layer_ids=[0, 3], max_model_len=256, gpu_memory_utilization=0.05, tensor_parallel_size=1
    )
    found = generator.generate([list(range(8, 45))])
    print("extracted", [tuple(state.shape) for state in found[0]["hidden_states"]], flush=True)
    generator.executor.shutdown()


if __name__ == "__main__":
    main()

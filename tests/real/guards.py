"""What a patched generator refuses, and how: runs in the target interpreter, prints one JSON object.

    python guards.py MODEL HYBRID_MODEL MODEL_WHOSE_TOKENIZER_IS_CODE

Each entry is the error's type and text, or "no error". Standard library and the target's own packages only.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    model, hybrid, with_code = sys.argv[1:]
    import torch
    from speculators.data_generation import vllm_hidden_states_generator as module

    kind = module.VllmHiddenStatesGenerator
    found: dict[str, object] = {"environment": start_method()}
    generator = kind(model, layer_ids=[1, 5], max_model_len=256)
    found["empty prompt"] = outcome(lambda: generator.generate([[9, 10], []]))
    found["empty tensor"] = outcome(lambda: generator.generate(torch.zeros(0, 4, dtype=torch.long)))
    found["after a refusal"] = outcome(lambda: generator.generate([[9, 10, 11]]))
    found["tensors"] = outcome(lambda: generator.generate([torch.arange(20, 60), torch.arange(8, 9)]))
    found["one layer spoiled"] = outcome(lambda: generator.executor.collective_rpc(spoil, args=(3,)))
    found["infinite states"] = outcome(lambda: generator.generate([[9, 10, 11]]))
    found["after a failure"] = outcome(lambda: generator.generate([[9, 10, 11]]))
    found["second shutdown"] = outcome(generator.__del__)
    found["failing shutdown"] = told_of_a_failing_shutdown(kind)
    found["hybrid"] = outcome(lambda: kind(hybrid, layer_ids=[0], max_model_len=256))
    found["tokenizer with code"] = outcome(lambda: kind(with_code, layer_ids=[99], max_model_len=256))
    print("GUARDS", json.dumps(found), flush=True)


def start_method() -> str | None:
    import os

    return os.environ.get("VLLM_WORKER_MULTIPROC_METHOD")


def spoil(worker, layer) -> None:
    """Make one layer of the worker's model give NaN."""
    weight = worker.model_runner.get_model().model.layers[layer].mlp.down_proj.weight
    weight.data[0, 0] = float("nan")


def told_of_a_failing_shutdown(kind) -> str:
    """What a generator's end says when its workers' end fails."""
    import logging

    class Failing:
        def shutdown(self) -> None:
            raise OSError("a queue is gone")

    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda entry: told.append(entry.getMessage())
    logging.getLogger().addHandler(handler)
    unmade = kind.__new__(kind)
    unmade.executor = Failing()
    unmade.__del__()
    return " ".join(told) or "nothing"


def outcome(call) -> str:
    """The error of a call, or that there was none."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return "no error"


if __name__ == "__main__":
    main()

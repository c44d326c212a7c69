"""What a patched generator refuses, and how: runs in the target interpreter, prints one JSON object.

    python guards.py MODEL HYBRID_MODEL MODEL_THAT_SCALES_ITS_STATES MODEL_WHOSE_TOKENIZER_IS_CODE

Each entry is the error's type and text, or "no error". Standard library and the target's own packages only.
"""

from __future__ import annotations

import json
import sys

SMALL = 0.001  # of a GiB, and a fifth of that: a few blocks


def main() -> None:
    model, hybrid, scaling, with_code = sys.argv[1:]
    import multiprocessing

    import torch
    from speculators.data_generation import vllm_hidden_states_generator as module

    kind = module.VllmHiddenStatesGenerator
    found: dict[str, object] = {"environment": start_method()}
    generator = kind(model, layer_ids=[1, 5], max_model_len=256)
    found["token outside"] = outcome(lambda: generator.generate([[9, 10], [5, 290]]))
    found["empty prompt"] = outcome(lambda: generator.generate([[9, 10], []]))
    found["empty tensor"] = outcome(lambda: generator.generate(torch.zeros(0, 4, dtype=torch.long)))
    found["label as a token"] = outcome(lambda: generator.generate([[9, 10], [-100, 10]]))
    found["after a refusal"] = outcome(lambda: generator.generate([[9, 10, 11]]))
    found["tensors"] = outcome(lambda: generator.generate([torch.arange(20, 60), torch.arange(8, 9)]))
    found["one layer spoiled"] = outcome(lambda: generator.executor.collective_rpc(spoil, args=(3,)))
    found["infinite states"] = outcome(lambda: generator.generate([[9, 10, 11]]))
    found["after a failure"] = outcome(lambda: generator.generate([[9, 10, 11]]))
    found["second shutdown"] = outcome(generator.__del__)
    found["failing shutdown"] = told_of_a_failing_shutdown(kind)
    found["no layers"] = outcome(lambda: kind(model, layer_ids=[], max_model_len=256))
    found["small cache"] = told_of_a_small_cache(kind, model)
    found["scaled states"] = outcome(lambda: kind(scaling, layer_ids=[1], max_model_len=256))
    found["workers left"] = f"{len(multiprocessing.active_children())}"
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


def warnings_of(call) -> str:
    """What a call logs as a warning."""
    import logging

    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda entry: told.append(entry.getMessage())
    logging.getLogger().addHandler(handler)
    call()
    logging.getLogger().removeHandler(handler)
    return " ".join(told) or "nothing"


def told_of_a_failing_shutdown(kind) -> str:
    """What a generator's end says when its workers' end fails."""

    class Failing:
        def shutdown(self) -> None:
            raise OSError("a queue is gone")

    unmade = kind.__new__(kind)
    unmade.executor = Failing()
    return warnings_of(unmade.__del__)


def told_of_a_small_cache(kind, model) -> str:
    """What a generator says that can't take prompts of the length that it was made for."""

    def make() -> None:
        generator = kind(model, layer_ids=[1], max_model_len=256, gpu_memory_utilization=SMALL)
        generator.__del__()

    return warnings_of(make)


def outcome(call) -> str:
    """The error of a call, or that there was none."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return "no error"


if __name__ == "__main__":
    main()

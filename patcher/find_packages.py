"""Runs inside the *target* interpreter, as ``python -c``: where would it import these packages from?

Nothing is imported but the standard library. There is no ``from __future__`` import, because that is a
real import and would be served from the current folder before the first line below has run.
"""

import sys

if sys.path[:1] == [""]:  # ``-c`` puts the current folder first; the user's program will not run from here
    del sys.path[0]

import importlib.util
import json
import os


def look(name):  # type: ignore[no-untyped-def]
    """Describe the top-level package ``name``; asking for a top-level name executes none of its code."""
    try:
        spec = importlib.util.find_spec(name)
    except Exception as error:  # noqa: BLE001 - a broken import hook of the target is a fact to report
        return {"error": f"{type(error).__name__}: {error}"}
    if spec is None:
        return {}
    return {
        "origin": spec.origin,
        "folders": [str(folder) for folder in spec.submodule_search_locations or ()],
    }


def main():  # type: ignore[no-untyped-def]
    """Print one marked line of ASCII JSON, whatever else start-up hooks print."""
    mark, names = sys.argv[1], sys.argv[2:]
    prefix = getattr(sys, "pycache_prefix", None)
    answer = {
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "executable": sys.executable,
        "prefix": sys.prefix,
        "cache_tag": sys.implementation.cache_tag,
        "pycache_prefix": os.path.abspath(prefix) if prefix else None,  # noqa: PTH100 - links are kept as spelled
        "path": [os.path.abspath(entry) for entry in sys.path],  # noqa: PTH100
        "packages": {
            name: look(name)  # type: ignore[no-untyped-call]
            for name in names
        },
    }
    sys.stdout.write(f"\n{mark}{json.dumps(answer)}{mark}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()  # type: ignore[no-untyped-call]

"""What a generator refuses on a real vLLM, and how: guards.py run in an environment, with tiny models beside it."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from patcher.verify.run import PAYLOAD, environment
from tests.helpers import kept_folder

SCRIPT = Path(__file__).with_name("guards.py")
MODELS = ("llama", "bamba", "deepseek_v2")
# A tokenizer as Kimi brings it: its class is code beside the model.
CODE = """
from transformers import PreTrainedTokenizerFast
class Tokenizer(PreTrainedTokenizerFast):
    pass
"""


def outcomes(interpreter: Path) -> dict[str, str]:
    """What guards.py found: a name and an error, or "no error"."""
    folder, variables = _models(interpreter)
    ended = subprocess.run(
        [interpreter, SCRIPT, *(folder / name for name in MODELS), folder / "with-code"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=900,
        env=variables,
        cwd=folder,
    )
    # A question that transformers asks may stand on the same line.
    _, mark, line = ended.stdout.rpartition("GUARDS ")
    if not mark:
        raise AssertionError(ended.stderr[-3000:])
    return dict(json.loads(line))


@lru_cache
def _models(interpreter: Path) -> tuple[Path, dict[str, str]]:
    """The models, made once for an environment while this process runs, and the variables of its runs."""
    folder = kept_folder(interpreter) / "refusals"
    folder.mkdir()
    variables = {**environment(interpreter, folder), "VLLM_MLA_DISABLE": "1"}  # the CPU has ordinary attention only
    for family in MODELS:
        command = [str(interpreter), str(PAYLOAD / "models.py"), "--family", family, "--out", str(folder / family)]
        subprocess.run(command, check=True, env=variables, cwd=folder)
    settings = folder / "deepseek_v2" / "config.json"
    half = {"dtype": "float16", "torch_dtype": "float16", "routed_scaling_factor": 2.5}
    settings.write_text(json.dumps({**json.loads(settings.read_text()), **half}))
    shutil.copytree(folder / MODELS[0], folder / "with-code")
    (folder / "with-code" / "tokenizer.py").write_text(CODE)
    settings = folder / "with-code" / "tokenizer_config.json"
    own = {"tokenizer_class": "Tokenizer", "auto_map": {"AutoTokenizer": [None, "tokenizer.Tokenizer"]}}
    settings.write_text(json.dumps({**json.loads(settings.read_text()), **own}))
    return folder, variables

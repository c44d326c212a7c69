"""Tiny models of the wrappers: a language model with a vision tower beside it, made for prompts of text only."""

# ruff: noqa: PLC0415, S106 - torch and vLLM are for the script; a token of a vocabulary is no password
from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import families

QWEN_WORDS = ("<|endoftext|>", "<s>", "</s>", "<unk>")
QWEN_VISION_WORDS = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")


def qwen_processor(folder, vision):
    """The tokenizer and the processors that vLLM loads with a Qwen VL, whether or not there are images."""
    from transformers import Qwen2TokenizerFast, Qwen2VLImageProcessor

    characters = _byte_characters()
    # 4 + 256 + 20 of filling + 4 for vision + 4 of filling: the ids stand in families.py.
    filling = [f"<|filling_{index}|>" for index in range(24)]
    words = [*QWEN_WORDS, *characters, *filling[:20], *QWEN_VISION_WORDS, *filling[20:]]
    (folder / "vocab.json").write_text(json.dumps({word: index for index, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = Qwen2TokenizerFast(
        vocab_file=str(folder / "vocab.json"),
        merges_file=str(folder / "merges.txt"),
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(QWEN_VISION_WORDS),
    )
    tokenizer.save_pretrained(folder)
    sizes = {key: vision[key] for key in ("patch_size", "temporal_patch_size")}
    limits = {"min_pixels": 28 * 28, "max_pixels": 56 * 56}
    Qwen2VLImageProcessor(**sizes, merge_size=vision["spatial_merge_size"], **limits).save_pretrained(folder)


def _byte_characters():
    """One printable character for each byte, as byte-level BPE has them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + index) for index in range(len(others))]


# Where a wrapper's language model lies by itself, in transformers' own form.
TEXT_FOLDER = "text"
VISION_FILE = "vision.safetensors"
# No class of its own: transformers 5 gives one without an __init__ another, which leaves the parts as dictionaries.
KIMI_CONFIGURATION = """
from vllm.transformers_utils.configs.kimi_k25 import KimiK25Config as TinyConfig
"""
# vLLM asks it for a made-up image when it starts: 4 by 4 patches, which merge to 4 tokens.
KIMI_PROCESSOR = """
import torch
from transformers.image_processing_utils import BaseImageProcessor
class TinyProcessor(BaseImageProcessor):
    num_frames_per_chunk = 4
    def media_tokens_calculator(self, media):
        return 4
    def preprocess(self, medias, **kwargs):
        count = len(medias)
        return {"pixel_values": torch.zeros(16 * count, 3, 14, 14), "grid_thws": torch.tensor([[1, 4, 4]] * count)}
"""
KIMI_MEDIA = {
    "patch_size": 14,
    "merge_kernel_size": 2,
    "temporal_merge_kernel_size": 4,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "in_patch_limit": 16,
    "in_patch_limit_each_frame": 16,
    "in_patch_limit_video": 64,
    "patch_limit_on_one_side": 8,
    "fixed_output_tokens": None,
}


def kimi(folder, config, save_text):
    """A tiny Kimi K2.5: DeepSeek-V3 as its language model, and vLLM's own vision tower.

    transformers has no such model, or one that cannot read this checkpoint. The language model is made by transformers
    and renamed, and stays beside it for the reference; the names and shapes of the rest are asked of vLLM, which loads
    the model with dummy weights for that.
    """
    from safetensors.torch import load_file, save_file

    text = folder / TEXT_FOLDER
    save_text(text, config["text_config"], {config["media_placeholder_token_id"]: "<|media_pad|>"})
    weights = {f"language_model.{k}": v for k, v in load_file(text / "model.safetensors").items()}
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (text / name).is_file():
            (text / name).replace(folder / name)
    whole = {**config, "torch_dtype": "bfloat16", "dtype": "bfloat16"}
    # Later vLLM takes transformers' own.
    if importlib.util.find_spec("vllm.transformers_utils.configs.kimi_k25"):
        whole["auto_map"] = {"AutoConfig": "tiny_configuration.TinyConfig"}
        (folder / "tiny_configuration.py").write_text(KIMI_CONFIGURATION)
    (folder / "config.json").write_text(json.dumps(whole, indent=1))
    (folder / "tiny_processor.py").write_text(KIMI_PROCESSOR)
    processor = {
        "image_processor_type": "TinyProcessor",
        "auto_map": {"AutoImageProcessor": "tiny_processor.TinyProcessor"},
        # From 0.25 vLLM takes its own processor where numba is there, which wants these.
        "media_proc_cfg": KIMI_MEDIA,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    # In a process of its own, which lets go of its memory.
    subprocess.run([sys.executable, __file__, str(folder)], check=True, stdin=subprocess.DEVNULL)
    weights.update(load_file(folder / VISION_FILE))
    (folder / VISION_FILE).unlink()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def vllm_in_this_process():
    """Let the next ``LLM`` run here, not in a process of its own: its modules can then be reached."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if not families.has_gpu() and importlib.util.find_spec("vllm.triton_utils.dispatcher"):
        # On a CPU it looks into every module that is loaded, and llvmlite, which numba loads, has an object that
        # answers to any name. Without numba vLLM takes the model's own image processor (_rebind_kernels, vLLM 0.32).
        sys.modules["numba"] = None


def vision_weights(folder):
    """Write random weights for all but the language model of a wrapper that has none yet."""
    import torch

    vllm_in_this_process()
    from safetensors.torch import save_file
    from vllm import LLM
    from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader

    shapes = {}
    load = DummyModelLoader.load_weights

    def load_and_note(loader, model, *args, **kwargs):
        # Now: a CPU build packs what it has loaded, and empties the parameters.
        for name, value in model.named_parameters():
            if not name.startswith("language_model."):
                shapes[name] = tuple(value.shape)
        return load(loader, model, *args, **kwargs)

    DummyModelLoader.load_weights = load_and_note
    # Without a size of its own vLLM measures what is free, and counts what others use of the GPU as its own.
    own = {"gpu_memory_utilization": 0.05, "kv_cache_memory_bytes": 1 << 28} if families.has_gpu() else {}
    LLM(
        model=str(folder),
        load_format="dummy",
        max_model_len=64,
        enforce_eager=True,
        trust_remote_code=True,
        skip_mm_profiling=True,
        **{"gpu_memory_utilization": 0.3, **own},
    )
    torch.manual_seed(21)
    made = {name: (torch.randn(shape) * 0.06).bfloat16() for name, shape in shapes.items()}
    save_file(made, folder / VISION_FILE)


if __name__ == "__main__":
    vision_weights(pathlib.Path(sys.argv[1]))

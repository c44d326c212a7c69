"""Tiny models with random weights, one a model family, made where they are needed. Runs in the target interpreter.

Six layers, hidden size 128, a vocabulary of 288. Weights are saved in bfloat16, which is what vLLM computes in:
the reference then differs by rounding of the activations only.
"""

# ruff: noqa: PLC0415, S106 - torch is for the script, not for --help; a token of a vocabulary is no password
from __future__ import annotations

import argparse
import json
import pathlib

import families
import shrink
import wrappers

# What may differ without a fault is made small, so that the rows can still be told from each other: a router sends
# single tokens to other experts in bfloat16, and some devices' attention is off in batches.
DAMPED = 0.1
# Near-tied routers send a token elsewhere in bfloat16 than in float32; widely spread scores do not.
ROUTER_STD = 1.5


def make(folder, config, special=None):
    """Write a model with random weights, and a tokenizer, into ``folder``. ``special``: names of tokens, by id."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if config["model_type"] == "kimi_k25":
        wrappers.kimi(folder, config, make)
        return
    _weights(folder, config)
    if config["model_type"] in families.WRAPPERS:
        wrappers.qwen_processor(folder, config["vision_config"])
    else:
        _tokenizer(folder, config["vocab_size"], special or {})


def _weights(folder, config):
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if config["model_type"] not in CONFIG_MAPPING:
        raise SystemExit(
            f"verify: transformers {transformers.__version__} has no model of the type {config['model_type']}"
        )
    torch.manual_seed(20)
    rest = {key: value for key, value in config.items() if key != "model_type"}
    built = transformers.AutoConfig.for_model(config["model_type"], **rest)
    kind = "AutoModelForImageTextToText" if "vision_config" in config else "AutoModelForCausalLM"
    model = getattr(transformers, kind).from_config(built, attn_implementation="eager")
    manner = families.manner(config["model_type"], gpu=families.has_gpu())
    _randomise(model, attention=DAMPED if manner.one_prompt_a_call else 1.0)
    model.to(torch.bfloat16).save_pretrained(folder)


def _randomise(model, attention):
    """Random values everywhere, norms near one, routers wide: an initial 0 or 1 that is left would hide a fault.

    ``attention`` scales what attention adds to the rows.
    """
    import torch

    with torch.no_grad():
        for name, value in model.named_parameters():
            if "norm" in name:
                value.add_(torch.randn_like(value) * 0.1)
            else:
                value.normal_(0.0, _spread(name, attention))


def _spread(name, attention):
    """The standard deviation of a parameter's values."""
    if name.endswith((".gate.weight", ".router.weight")):
        return ROUTER_STD
    if ".o_proj." in name:
        return families.STD * attention
    if ".experts." in name and "down_proj" in name:
        return families.STD * DAMPED
    return families.STD


def _tokenizer(folder, vocabulary, special):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    words.update({special.get(index, f"w{index}"): index for index in range(4, vocabulary)})
    raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=list(special.values()),
    )
    fast.save_pretrained(folder)


def shrunk(file):
    """A tiny configuration of a user's ``config.json``; one that cannot be made ends the script."""
    try:
        return shrink.shrink(json.loads(file.read_text(encoding="utf-8")))
    except shrink.ShrinkError as error:
        raise SystemExit(f"verify: no tiny model can be made: {error}") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--family", choices=sorted(families.NAMES))
    kind.add_argument("--config", type=pathlib.Path, help="a config.json to shrink")
    parser.add_argument("--out", required=True, help="folder of the new model")
    options = parser.parse_args()
    config = families.settings(options.family) if options.family else shrunk(options.config)
    make(options.out, families.fit_device(config, gpu=families.has_gpu()))


if __name__ == "__main__":
    main()

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

# Near-tied routers send a token elsewhere in bfloat16 than in float32; widely spread scores do not.
ROUTER_STD = 1.5


def make(folder, config):
    """Write a model with random weights and a tokenizer into ``folder``."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(20)
    kind = config["model_type"]
    built = AutoConfig.for_model(kind, **{k: v for k, v in config.items() if k != "model_type"})
    model = AutoModelForCausalLM.from_config(built, attn_implementation="eager")
    _randomise(model)
    model.to(torch.bfloat16).save_pretrained(folder)
    _tokenizer(folder, config["vocab_size"])
    return folder


def _randomise(model):
    """Random values everywhere, norms near one, routers wide: an initial 0 or 1 that is left would hide a fault."""
    import torch

    with torch.no_grad():
        for name, value in model.named_parameters():
            if "norm" in name:
                value.add_(torch.randn_like(value) * 0.1)
            elif name.endswith((".gate.weight", ".router.weight")):
                value.normal_(0.0, ROUTER_STD)
            else:
                value.normal_(0.0, families.STD)


def _tokenizer(folder, vocabulary):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    words.update({f"w{index}": index for index in range(4, vocabulary)})
    raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    fast.save_pretrained(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", choices=sorted(families.FAMILIES), default="llama")
    parser.add_argument("--out", required=True, help="folder of the new model")
    options = parser.parse_args()
    make(options.out, families.settings(options.family))
    print(json.dumps({"model": options.out, "family": options.family}))


if __name__ == "__main__":
    main()

"""The hidden states that are right, by transformers in float32 or by vLLM's own untouched forward.

Written to a file: ``{prompt key: tensor of [layers, tokens, hidden]}``. Layer ``k`` is the output of decoder layer
``k``, residual added, before the final norm: the convention of the generator in every release.
"""

# ruff: noqa: PLC0415 - the checks import this file for its names; torch and vLLM are for the script
from __future__ import annotations

import argparse
import pathlib

import batches
import wrappers


def key(prompt):
    """A prompt's name in the file of references."""
    return " ".join(map(str, prompt))


def wanted(names, vocabulary):
    """Every prompt of the named batches once, cut as the generator cuts it."""
    found = {}
    for name in names:
        for prompt in batches.prompts(name, vocabulary):
            cut = prompt[: batches.LONGEST_PROMPT]
            found[key(cut)] = cut
    return found


def by_transformers(folder, prompts):
    """Forward hooks on the decoder layers of the model in float32, one prompt a call."""
    import torch
    import transformers

    alone = pathlib.Path(folder) / wrappers.TEXT_FOLDER
    folder = alone if alone.is_dir() else folder
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    kind = "AutoModelForImageTextToText" if hasattr(config, "vision_config") else "AutoModelForCausalLM"
    loaded = getattr(transformers, kind).from_pretrained(folder, attn_implementation="eager")
    model = loaded.float().eval()
    seen = []
    for layer in decoder_layers(model):
        layer.register_forward_hook(lambda _m, _a, out: seen.append(out[0] if isinstance(out, tuple) else out))
    states = {}
    with torch.no_grad():
        for name, prompt in prompts.items():
            seen.clear()
            model(input_ids=torch.tensor([prompt]), use_cache=False)
            states[name] = torch.stack([value.reshape(len(prompt), -1) for value in seen])
    return states


def by_vllm(folder, prompts, gpu_memory_utilization, *, gpu):
    """Forward hooks in vLLM's own, untouched model: a plain ``LLM`` in this process, one prompt a call."""
    wrappers.vllm_in_this_process()
    from vllm import LLM, SamplingParams
    from vllm.config import CacheConfig

    # The size of the blocks decides which kernel runs. Until 0.17 the generator's own 16 stays, later the back end
    # chooses (rules/back-end-block-size.toml).
    back_end_chooses = hasattr(CacheConfig, "user_specified_block_size")
    own = {} if gpu or back_end_chooses else {"block_size": 16}
    llm = LLM(
        model=str(folder),
        max_model_len=batches.MAX_MODEL_LEN,
        max_num_seqs=4,
        enforce_eager=True,
        enable_prefix_caching=False,
        trust_remote_code=True,
        gpu_memory_utilization=gpu_memory_utilization,
        **own,
    )
    seen = {}
    llm.apply_model(lambda model: hook_sums(model, seen))
    states = {}
    import torch

    for name, prompt in prompts.items():
        seen.clear()
        llm.generate({"prompt_token_ids": prompt}, SamplingParams(max_tokens=1, temperature=0.0), use_tqdm=False)
        states[name] = torch.stack([seen[layer][: len(prompt)] for layer in sorted(seen)])
    return states


def hook_sums(model, seen):
    """Keep the first output of every decoder layer: hidden states plus residual, copied at once.

    vLLM's next norm adds in place, so an output that is not copied changes under the reader.
    """

    def keep(layer):
        def hook(_module, _args, output):
            if layer not in seen:
                parts = [part for part in (output if isinstance(output, tuple) else (output,)) if part is not None]
                seen[layer] = (parts[0] + parts[1] if len(parts) == 2 else parts[0]).float().cpu()

        return hook

    for index, layer in enumerate(decoder_layers(model)):
        layer.register_forward_hook(keep(index))


def decoder_layers(model):
    """The longest list of modules named ``layers`` in a model that has a token embedding beside it."""
    import torch

    found = [
        module.layers for module in model.modules() if isinstance(getattr(module, "layers", None), torch.nn.ModuleList)
    ]
    return max(found, key=len)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--vocabulary", type=int, required=True)
    parser.add_argument("--batches", required=True, help="names, with commas between them")
    parser.add_argument("--by", choices=["transformers", "vllm"], default="transformers")
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.5)
    parser.add_argument("--gpu", action="store_true", help="there is one")
    options = parser.parse_args()
    import torch

    prompts = wanted(options.batches.split(","), options.vocabulary)
    if options.by == "vllm":
        states = by_vllm(options.model, prompts, options.gpu_memory_utilization, gpu=options.gpu)
    else:
        states = by_transformers(options.model, prompts)
    torch.save(states, options.out)


if __name__ == "__main__":
    main()

"""From a user's ``config.json`` to a tiny one of the same architecture. Standard library only.

What is kept is what decides the code path: the architecture, the activation, which layers are alike, the kind of
routing, of attention and of position embedding, and every multiplier. What shrinks are the sizes.
"""

from __future__ import annotations

import copy

import families

# A model type that transformers does not know, and the one whose configuration it has.
ALIASES = {"kimi_k2": "deepseek_v3"}
DROPPED = (
    "auto_map",
    "compression_config",
    "dtype",
    "quantization_config",
    "torch_dtype",
    "transformers_version",
)
# Any of these that a configuration has gets this value.
SIZES = {
    **{k: v for k, v in families.BASE.items() if k not in {"max_position_embeddings", "tie_word_embeddings"}},
    **{k: v for k, v in families.LATENT.items() if isinstance(v, int) and not isinstance(v, bool)},
    "decoder_sparse_step": 1,
    "ffn_hidden_size": 256,
    "intermediate_size_mlp": 256,
    "mamba_d_head": 32,
    "mamba_d_state": 32,
    "mamba_n_heads": 8,
    "moe_num_shared_experts": 1,
    "num_experts": 8,
    "num_local_experts": 8,
    "num_nextn_predict_layers": 0,
    "query_pre_attn_scalar": 32,
    "shared_expert_intermediate_size": 128,
    "sliding_window": 64,
    "topk_group": 1,
}


class ShrinkError(ValueError):
    """There is no tiny model of this configuration."""


def shrink(config):
    """A tiny configuration of the same architecture.

    Raises:
        ShrinkError: it wraps a language model in a way that is not known here, or names no model type.
    """
    kind = ALIASES.get(config.get("model_type"), config.get("model_type"))
    if not kind:
        raise ShrinkError("the configuration has no model_type")
    if "text_config" in config:
        if kind not in families.WRAPPERS:
            raise ShrinkError(f"no tiny model of the wrapper {kind} is known")
        whole = families.settings(kind)
        own = _text(config["text_config"])
        whole["text_config"] = {**whole["text_config"], **own, "model_type": whole["text_config"]["model_type"]}
        return whole
    return {**_text(config), "model_type": kind}


def _text(config):
    small = {key: copy.deepcopy(value) for key, value in config.items() if key not in DROPPED}
    for key, value in SIZES.items():
        if small.get(key) is not None and not isinstance(small[key], (list, dict)):
            small[key] = value
    for key, value in small.items():
        # One entry a layer, such as layer_types.
        if isinstance(value, list) and len(value) == config.get("num_hidden_layers"):
            small[key] = value[: families.DEPTH]
    small.update({key: families.BASE[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")})
    small["num_key_value_heads"] = _key_value_heads(config)
    if small.get("n_group"):
        small["n_group"] = 2 if config["n_group"] > 1 else 1
    _shrink_rope(small)
    return small


def _key_value_heads(config):
    """One, all or some of the heads, as it was."""
    heads = config.get("num_attention_heads")
    own = config.get("num_key_value_heads") or heads
    return 1 if own == 1 else families.BASE["num_attention_heads"] if own == heads else 2


def _shrink_rope(small):
    """Sections and factors are as long as half a head."""
    rope = small.get("rope_scaling") or small.get("rope_parameters")
    if not isinstance(rope, dict):
        return
    half = families.BASE["head_dim"] // 2
    if "mrope_section" in rope:
        rope["mrope_section"] = [half - 2 * (half // 3), half // 3, half // 3]
    for factors in ("long_factor", "short_factor"):
        if factors in rope:
            rope[factors] = rope[factors][:half]

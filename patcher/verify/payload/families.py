"""The tiny model of each family, as data, and how it is checked on a CPU. Standard library only."""

from __future__ import annotations

import copy
import dataclasses
import pathlib

VOCABULARY = 288
STD = 0.06
DEPTH = 6

BASE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "initializer_range": STD,
    "bos_token_id": 1,
    "eos_token_id": 2,
    # phi3 and glm4 need one inside the vocabulary.
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
# Query and key heads of 64 and values of 32: head sizes that the CPU backend has kernels for.
LATENT = {
    "head_dim": None,
    "num_key_value_heads": 4,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "v_head_dim": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
}
# A GPU's MLA back ends take the head sizes of the real models only (vllm/v1/attention/backends/mla).
LATENT_ON_GPU = {
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}

FAMILIES = {
    "llama": ("LlamaForCausalLM", {}),
    "mistral": ("MistralForCausalLM", {"sliding_window": None}),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", {}),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM",
        {**EXPERTS, "shared_expert_intermediate_size": 128, "decoder_sparse_step": 1, "norm_topk_prob": True},
    ),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**EXPERTS, "decoder_sparse_step": 1, "norm_topk_prob": True}),
    "gpt_oss": (
        "GptOssForCausalLM",
        {"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 128, "sliding_window": 64},
    ),
    "gemma": ("GemmaForCausalLM", {"tie_word_embeddings": True}),
    "gemma2": (
        "Gemma2ForCausalLM",
        # vLLM reads "hidden_act", transformers "hidden_activation"; the published models' files have both.
        {
            "tie_word_embeddings": True,
            "query_pre_attn_scalar": 32,
            "sliding_window": 64,
            "hidden_act": "gelu_pytorch_tanh",
        },
    ),
    "gemma3_text": (
        "Gemma3ForCausalLM",
        {"tie_word_embeddings": True, "query_pre_attn_scalar": 32, "sliding_window": 64},
    ),
    # Heads of two sizes, so the layers' caches differ in size too.
    "gemma4_text": (
        "Gemma4ForCausalLM",
        {
            "tie_word_embeddings": True,
            "sliding_window": 64,
            "global_head_dim": 64,
            "num_global_key_value_heads": 2,
            "hidden_size_per_layer_input": 16,
            "vocab_size_per_layer_input": VOCABULARY,
        },
    ),
    "cohere": ("CohereForCausalLM", {"tie_word_embeddings": True}),
    "granite": (
        "GraniteForCausalLM",
        {
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.2,
            "logits_scaling": 4.0,
        },
    ),
    "olmo2": ("Olmo2ForCausalLM", {}),
    "phi3": ("Phi3ForCausalLM", {"sliding_window": None}),
    # Attention and Mamba layers by turns.
    "bamba": (
        "BambaForCausalLM",
        {
            "attn_layer_indices": [1, 4],
            "mamba_n_heads": 8,
            "mamba_d_head": 32,
            "mamba_d_state": 32,
            "mamba_n_groups": 1,
            "mamba_chunk_size": 16,
        },
    ),
    "deepseek_v2": ("DeepseekV2ForCausalLM", {**LATENT, "topk_method": "greedy", "n_group": 1, "topk_group": 1}),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        {**LATENT, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "n_group": 2, "topk_group": 1},
    ),
}

# Wrappers around a language model: their configuration holds a "text_config". Checked with text only, but vLLM builds
# all of them, so the other parts are there, and tiny.
_QWEN_TOKENS = {
    "image_token_id": 280,
    "video_token_id": 281,
    "vision_start_token_id": 282,
    "vision_end_token_id": 283,
}
_QWEN_VISION = {
    "depth": 1,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_heads": 2,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": BASE["hidden_size"],
}
WRAPPERS = {
    "qwen2_5_vl": {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "text": "qwen2",
        "text_config": {
            "model_type": "qwen2_5_vl_text",
            "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [4, 6, 6]},
        },
        "vision_config": {**_QWEN_VISION, "window_size": 112, "fullatt_block_indexes": [0]},
        **_QWEN_TOKENS,
    },
    "qwen3_vl": {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "text": "qwen3",
        "text_config": {
            "model_type": "qwen3_vl_text",
            "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [6, 5, 5]},
        },
        "vision_config": {**_QWEN_VISION, "deepstack_visual_indexes": [0], "num_position_embeddings": 64},
        **_QWEN_TOKENS,
    },
    "kimi_k25": {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "text": "deepseek_v3",
        "text_config": {"model_type": "deepseek_v3"},
        "vision_config": {
            "patch_size": 14,
            "init_pos_emb_height": 4,
            "init_pos_emb_width": 4,
            "init_pos_emb_time": 4,
            "num_attention_heads": 2,
            "num_hidden_layers": 1,
            "hidden_size": 64,
            "intermediate_size": 64,
            "mm_hidden_size": 64,
            "text_hidden_size": BASE["hidden_size"],
        },
        "media_placeholder_token_id": 280,
    },
}
NAMES = (*FAMILIES, *WRAPPERS)


@dataclasses.dataclass(frozen=True)
class Manner:
    """How a family is checked on one kind of device.

    Attributes:
        reference: ``transformers``, or ``vllm`` for vLLM's own untouched forward.
        one_prompt_a_call: batches are sent prompt by prompt.
        environment: variables that vLLM must see, in the reference and in the extraction.
    """

    reference: str = "transformers"
    one_prompt_a_call: bool = False
    environment: tuple[tuple[str, str], ...] = ()


# On the CPU backend MLA runs as ordinary attention only, and then plain vLLM, without any extraction, differs from
# transformers, and gives a prompt other values alone than in a batch. Only a GPU can tell about batches.
_LATENT_ON_CPU = Manner("vllm", one_prompt_a_call=True, environment=(("VLLM_MLA_DISABLE", "1"),))
ON_CPU = {
    "deepseek_v2": _LATENT_ON_CPU,
    "deepseek_v3": _LATENT_ON_CPU,
    "kimi_k2": _LATENT_ON_CPU,
    "kimi_k25": _LATENT_ON_CPU,
    # gpt_oss on the CPU backend differs from transformers too, but not with the batch.
    "gpt_oss": Manner("vllm"),
    # vLLM's own Gemma 4 with random weights is off transformers' too; why is not known.
    "gemma4_text": Manner("vllm"),
}


def settings(family):
    """The ``config.json`` of a family's tiny model, as a dictionary.

    Raises:
        KeyError: no family has that name.
    """
    if family in WRAPPERS:
        whole = copy.deepcopy(WRAPPERS[family])
        text = settings(whole.pop("text"))
        tied = {"tie_word_embeddings": False}
        return {**whole, **tied, "model_type": family, "text_config": {**text, **whole["text_config"]}}
    architecture, own = FAMILIES[family]
    merged = {**BASE, **own, "model_type": family, "architectures": [architecture]}
    return copy.deepcopy({key: value for key, value in merged.items() if key != "head_dim" or value})


def text_settings(config):
    """The part of a ``config.json`` that is about the language model: wrappers keep it in ``text_config``."""
    return config.get("text_config") or config


def manner(model_type, *, gpu):
    """How a model of this type is checked on a machine with or without a GPU."""
    return Manner() if gpu else ON_CPU.get(model_type, Manner())


def fit_device(config, *, gpu):
    """A tiny model's ``config.json`` with the head sizes that the device has kernels for. Changes it in place."""
    text = text_settings(config)
    if gpu and text.get("kv_lora_rank"):
        text.update(LATENT_ON_GPU)
    return config


def has_gpu():
    """Whether this machine has a GPU, asked of the kernel: asking torch would spoil every later fork."""
    return any(pathlib.Path("/dev").glob("nvidia[0-9]*")) or pathlib.Path("/dev/kfd").exists()

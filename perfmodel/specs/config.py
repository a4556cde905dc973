"""The fields of a model's configuration, checked as they are read, with a record of which were read and which not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError

MOST, MOST_LAYERS = 10**9, 10_000

#: What other files call a field.
SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "d_model", "dim", "model_dim"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers", "num_decoder_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "decoder_attention_heads"),
    "num_key_value_heads": ("n_kv_heads", "num_attention_groups", "num_kv_heads", "n_head_kv"),
    "intermediate_size": ("ffn_hidden_size", "n_inner", "ffn_dim", "block_ff_dim", "hidden_dim"),
    "max_position_embeddings": ("n_positions", "max_sequence_length", "max_seq_len", "seq_length", "n_ctx"),
    "vocab_size": ("padded_vocab_size",),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts", "ffn_num_experts", "n_experts"),
    "num_experts_per_tok": (
        "num_experts_per_token",
        "top_k_experts",
        "moe_topk",
        "moe_k",
        "moe_top_k",
        "num_selected_experts",
        "experts_per_token",
    ),
    "moe_intermediate_size": ("expert_ffn_hidden_size", "expert_intermediate_size", "moe_ffn_hidden_size"),
    "n_shared_experts": ("num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    "layer_types": ("layers_block_type",),
    "mlp_layer_types": ("ffn_layer_types",),
    "shared_intermediate_size": ("share_expert_dim", "share_expert_dims", "moe_shared_expert_intermediate_size"),
}

#: The other names of each name.
_OTHERS = {
    name: tuple(other for other in group if other != name)
    for group in ((first, *rest) for first, rest in SYNONYMS.items())
    for name in group
}

#: Fields that say nothing of sizes, by a part of their name: tokens, positions, training, how a file was made.
_SAYS_NOTHING = re.compile(
    r"^_|_(?:ids?|idx|index|tokens?|placeholder|dropout|prob|eps|epsilon|std|coef|range|factor|version|multipliers?"
    r"|scaling|cap|capping|softcapping|theta|impl|implementation|dtype|alpha|beta|gamma|limits?|scale|scalar|noise"
    r"|pdrop|names|labels|penalty|loss|act|fn|bound|clip|min|max|interleave|pooling|init|floor|fp32|kernels|scan)$"
    r"|^(?:rope|rotary|partial_rotary|initializer|output_|return_|scale_|id2label|label2id|architectures|auto_map"
    r"|transformers|torch|dtype|model_type|task_specific|problem_type|pruned|tokenizer|is_decoder|is_encoder_decoder"
    r"|tie_|pretraining_tp|prefix|bos|eos|pad|unk|forced_|begin_|bad_words|suppress|num_beam|num_return|max_length"
    r"|min_length|no_repeat|do_sample|early_stopping|temperature|top_k$|top_p|typical_p|remove_invalid|finetuning"
    r"|ignore_|router_|hidden_act|hidden_activation|activation|summary_|norm_topk|norm_type|scoring_func|topk_"
    r"|n_group$|moe_router|moe_renormalize|routed_scaling|time_step|residual|logit|mrope|swiglu|original_max|yarn"
    r"|deepstack|longrope|text_config|vision_config|audio_config|quant|kv_cache|compression_config|mtp_|use_mtp"
    r"|altup_(?!num)|image_|video_|audio_|vision_|boi|eoi|boa|eoa|mm_|projector|linear_(?:a_log|dt|allow))"
)
#: Other fields that say nothing of sizes here, because they order what others size.
_HARMLESS = re.compile(
    r"^(?:activation_sparsity_pattern|add_cross_attention|attention_softmax_in_fp32|attention_value_scale|attn_scale|"
    r"attn_temperature_tuning|block_size|chunk_size|chunk_size_feed_forward|classifier_activation|compress_rates|"
    r"cross_attention_hidden_size|decoder_bias|dim_model_base|do_layer_norm_before|dropout|embedding_fraction|"
    r"enable_moe_fp32_combine|ep_size|gate_lower_bound|hc_sinkhorn_iters|head_type|index_local_blocks|"
    r"index_share_for_mtp_iteration|index_skip_topk_offset|index_topk_freq|indexer_rope_interleave|"
    r"initial_context_length|kda_safe_gate|kv_channels|layer_norm_elementwise_affine|layerdrop|mamba_chunk_size|"
    r"mamba_norm_before_gate|max_seq_len|max_window_layers|mla_use_nope|model_max_length|moe_layer_num_skipped|"
    r"moe_shared_expert_overlap|mup_enabled|n_ctx|name|no_rope_layer_interval|no_rope_layers|num_expert_group|"
    r"num_hash_layers|num_kv_heads|num_ln_in_parallel_attn|num_logits_to_keep|num_query_groups|qk_head_dim|"
    r"qk_norm_type|query_pre_attn_scalar|rescale_prenorm_residual|scale_depth|scale_emb|seq_aux|"
    r"shared_expert_combination_strategy|short_conv_kernel_size|sliding_window_size|summary_type|"
    r"use_bidirectional_attention|use_cache|use_flash_attn|use_gemma_norm|use_grouped_topk|use_mamba_kernels|"
    r"use_parallel_residual|use_post_norm|use_qkv_bias|use_routing_bias|word_embed_proj_dim)$"
)


class Config:
    """Fields of a model, checked as they are read; ``notes`` is what the reader must know of the result.

    Parameters
    ----------
    path : Path
        The file.
    fields : mapping
        What it holds.
    where : str
        Prefix of the fields in the file, for a refusal.
    """

    def __init__(self, path: Path, fields: Mapping[str, Any], where: str = "") -> None:
        self.path = path
        self.fields = dict(fields)
        self.where = where
        self.defaults: Mapping[str, Any] = {}
        self.notes: list[str] = []
        #: Fields that were asked for, by the name that the file has.
        self.asked: dict[str, str] = {}
        #: Field of the dataclasses: how it follows from the file.
        self.derived = {
            "norms": "by model_type",
            "matrices": "by model_type",
            "count": "layers that are alike",
            "weights": "by model_type",
            "scales": "by model_type",
            "state": "by model_type",
            "tables": "by model_type",
            "own": "layers over blocks that they share",
            **dict.fromkeys(("towers", "tokens", "patches", "width", "layers"), "by the type of the encoder"),
        }
        #: Whether experts lie beside the module that is called MLP, not in it.
        self.experts_apart = False
        #: Whether the model type is unknown.
        self.is_guess = False
        #: Entries of further tables, and scales of the whole model.
        self.tables = 0.0

    def refusal(self, name: str, problem: str) -> UserError:
        """Return the one line that refuses a field.

        Parameters
        ----------
        name, problem : str
            Of the field, and what is wrong with it.

        Returns
        -------
        UserError
        """
        line = " ".join(f"{self.where}{name}: {problem}".split())
        return UserError(f"{self.path}: {line}")

    def refusal_at(self, place: str, problem: str) -> UserError:
        """Return the one line that refuses what stands at a place of the file.

        Parameters
        ----------
        place, problem : str
            Its full name, and what is wrong with it.

        Returns
        -------
        UserError
        """
        return UserError(f"{self.path}: {place}: {problem}")

    def note(self, text: str) -> None:
        """Say something of the result, once.

        Parameters
        ----------
        text : str
            What to say.
        """
        if text not in self.notes:
            self.notes.append(text)

    def named(self, name: str) -> str:
        """Return what the file calls a field.

        Parameters
        ----------
        name : str
            As the reader calls it.

        Returns
        -------
        str
        """
        names = (name, *_OTHERS.get(name, ()))
        return next((one for one in names if self.fields.get(one) is not None), name)

    def get(self, name: str) -> Any:
        """Return a field as the file has it, by any of its names, else the default of the model type.

        Parameters
        ----------
        name : str
            As the reader calls it.

        Returns
        -------
        Any
        """
        written = self.named(name)
        self.asked[name] = written
        return self.fields[written] if written in self.fields else self.defaults.get(name)

    def has(self, name: str) -> bool:
        """Whether the file gives a field, by any of its names.

        Parameters
        ----------
        name : str
            As the reader calls it.

        Returns
        -------
        bool
        """
        return self.fields.get(self.named(name)) is not None

    def count(self, name: str, default: Any = None, least: int = 1, most: int = MOST) -> float:
        """Return a field that is a whole number.

        Parameters
        ----------
        name : str
            As the reader calls it.
        default : Number, optional
            Where neither the file nor the model type says it.
        least, most : int
            Between which it lies.

        Returns
        -------
        float
        """
        value = self.get(name)
        if value is None:
            value = default
        elif self.named(name) not in self.fields:
            self.note(f"{name} is not in the file: {value:g} is the default of transformers")
        if value is None:
            raise self.refusal(name, "required field is missing; give a whole number")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not least <= value <= most or value != int(value):
            raise self.refusal(
                self.named(name), f"expected a whole number from {least} to {most:,}, found {shown(value)}"
            )
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a field that is true or false.

        Parameters
        ----------
        name : str
            As the reader calls it.
        default : bool
            Where it is not said.

        Returns
        -------
        bool
        """
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refusal(self.named(name), f"expected true or false, found {shown(value)}")
        return value

    def list_of(self, name: str, kind: type[Any]) -> list[Any] | None:
        """Return a field that is a list of one kind of thing.

        Parameters
        ----------
        name : str
            As the reader calls it.
        kind : type
            Of its entries.

        Returns
        -------
        list or None
        """
        value = self.get(name)
        if value is not None and not (isinstance(value, list) and all(type(entry) is kind for entry in value)):
            raise self.refusal(self.named(name), f"expected a list of {kind.__name__}, found {shown(value)}")
        return value

    def one_a_layer(self, name: str, kind: type[Any]) -> list[Any] | None:
        """Return a field that has one entry for each layer, those of layers that predict ahead left out.

        Parameters
        ----------
        name : str
            As the reader calls it.
        kind : type
            Of its entries.

        Returns
        -------
        list or None
        """
        values = self.list_of(name, kind)
        ahead = self.get("num_nextn_predict_layers") or 0
        if values and isinstance(ahead, int) and len(values) == self.layers + ahead:
            values = values[: self.layers]
        if values and len(values) != self.layers:
            raise self.refusal(self.named(name), f"{len(values)} entries for {self.layers} layers")
        return values or None

    def inner(self, name: str) -> Config:
        """Return a mapping within the file as a configuration of its own.

        Parameters
        ----------
        name : str
            As the reader calls it.

        Returns
        -------
        Config
        """
        found = self.get(name)
        if not isinstance(found, dict):
            raise self.refusal(self.named(name), f"expected a mapping of fields, found {shown(found)}")
        return Config(self.path, found, f"{self.where}{self.named(name)}.")

    @property
    def layers(self) -> int:
        """Number of layers."""
        return int(self.count("num_hidden_layers", most=MOST_LAYERS))

    def unread(self) -> list[str]:
        """Return the fields that may say something of sizes and that nothing asked for."""
        asked = set(self.asked.values()) | set(self.asked)
        # The same size under two names is read by one of them.
        same = {other for name in asked for other in _OTHERS.get(name, ()) if self.fields.get(other) == self.get(name)}
        asked |= same
        return sorted(
            name
            for name, value in self.fields.items()
            if name not in asked
            and value not in (None, False, [], {}, "", 0)
            and not _HARMLESS.search(name)
            and not _SAYS_NOTHING.search(name)
        )


#: Keywords of ``Layers`` for the layer of an index.
Part = dict[str, Any]
Parts = Callable[[int], Part]
#: Whether the layer of an index is special.
Which = Callable[[int], bool]


def shown(value: Any) -> str:
    """Return a value as a refusal quotes it.

    Parameters
    ----------
    value : Any
        From a JSON file.

    Returns
    -------
    str
    """
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:37]}..."

"""Commands that start an engine in a role; nothing here starts anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfmodel.errors import UserError
from perfmodel.planning.launch.flags import Flag, flags_of
from perfmodel.planning.launch.roles import Role


@dataclass(frozen=True)
class Command:
    """How one engine of a role is started.

    Attributes
    ----------
    role : Role
    words : tuple of str
        The program and its arguments.
    files : dict of str to str
        Configuration files that it reads, by name.
    config : dict of str to Any
        What they hold.
    unsaid : tuple of str
        What the engine cannot be told.
    """

    role: Role
    words: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    unsaid: tuple[str, ...] = ()


#: Precisions of the cache by the words of each engine; the model's own type follows the checkpoint.
_CACHES = {
    "vllm": {"fp8": "fp8", "bf16": "bfloat16", "fp16": "auto"},
    "sglang": {"fp8": "fp8_e4m3", "bf16": "bf16", "fp16": "auto"},
    "trtllm": {"fp8": "fp8", "fp4": "nvfp4", "bf16": "auto", "fp16": "auto"},
}
#: Precisions into which an engine turns weights while it loads them.
_ON_LOADING = {"vllm": ("fp8",), "sglang": ("fp8",), "trtllm": ()}
_PROGRAMS = {
    "vllm": ("vllm", "serve"),
    "sglang": ("python", "-m", "sglang.launch_server"),
    "trtllm": ("trtllm-serve",),
}
_KV_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}


class _Writer:
    """Gathers the arguments of one command by the flags of a release."""

    def __init__(self, engine: str, flags: Mapping[str, Flag]) -> None:
        self.engine, self.flags = engine, flags
        self.words: list[str] = []
        self.config: dict[str, Any] = {}
        self.unsaid: list[str] = []

    def write(self, name: str, value: Any) -> None:
        """Write a field; nothing where it was not said."""
        if value is None:
            return
        flag = self.flags.get(name)
        if flag is None:
            self.unsaid.append(f"{self.engine} has no flag for {name} {value}")
        elif flag.form == "key":
            *above, last = flag.flag.split(".")
            config = self.config
            for key in above:
                config = config.setdefault(key, {})
            config[last] = value
        elif flag.form == "json":
            self.words += [flag.flag, json.dumps(value, separators=(",", ":"))]
        elif flag.form == "value":
            text = f"{value:g}" if isinstance(value, float) else str(value)
            self.words += [flag.flag, text] if flag.flag else [text]
        elif value is (flag.form == "on"):
            self.words += flag.flag.split()

    def cache(self, role: Role) -> None:
        """Write the precision of the cache; what is no precision of ours is the engine's own word."""
        said = role.kv_precision
        known = _CACHES[self.engine]
        if said in known:
            said = known[said]
        elif said in ("int8", "int4", "fp4", "mxfp4"):
            self.unsaid.append(f"{self.engine} has no KV cache in {said}")
            return
        self.write("kv_precision", said)

    def weights(self, role: Role) -> None:
        """Write how weights are quantised, where the engine does so while it loads them."""
        said = role.quantization
        if said in ("int8", "int4", "fp4", "mxfp4", "fp8", "bf16", "fp16") and said not in _ON_LOADING[self.engine]:
            self.unsaid.append(f"{self.engine} does not turn weights into {said} on loading: give it such a checkpoint")
            return
        self.write("quantization", said)


def _vllm(writer: _Writer, role: Role) -> None:
    # A group of data-parallel engines that share experts is one launch; replicas that share nothing are several.
    ranks = role.tp * role.attention_dp * role.dp
    spread = role.ep > 1 or role.attention_dp > 1
    if spread and role.ep not in (1, ranks):
        writer.unsaid.append(f"vllm spreads experts over all {ranks} ranks, EP {role.ep} cannot be said")
    writer.write("tp", role.tp)
    writer.write("pp", role.pp)
    if role.attention_dp * role.dp > 1:
        writer.write("dp", role.attention_dp * role.dp)
    writer.write("spread_experts", spread)
    draft = role.drafting
    if draft is not None:
        config: dict[str, Any] = {"method": draft.method, "num_speculative_tokens": draft.tokens}
        if draft.model:
            config["model"] = draft.model
        if draft.method == "eagle3" and not draft.model:
            writer.unsaid.append("EAGLE needs its draft model: add it to --speculative-config")
        if draft.method == "ngram":
            config |= {"prompt_lookup_max": draft.tokens}
        writer.write("speculation", config)
    if role.name:
        writer.write("role", {"kv_connector": "NixlConnector", "kv_role": _KV_ROLES[role.name]})
    _common(writer, role, 1)


def _sglang(writer: _Writer, role: Role) -> None:
    # Groups that hold attention whole lie inside what SGLang calls TP.
    writer.write("tp", role.tp * role.attention_dp)
    writer.write("pp", role.pp)
    if role.attention_dp > 1:
        writer.write("attention_dp", role.attention_dp)
        if "shares_attention" in writer.flags:
            writer.write("shares_attention", True)
    if role.dp > 1:
        writer.write("dp", role.dp)
    writer.write("ep", role.ep)
    if (draft := role.drafting) is not None:
        words = {"eagle3": "EAGLE3", "eagle": "EAGLE", "mtp": "NEXTN", "ngram": "NGRAM", "draft_model": "STANDALONE"}
        writer.write("draft_algorithm", words.get(draft.method, draft.method))
        writer.write("draft_model", draft.model or None)
        if draft.method != "ngram":
            writer.write("draft_steps", draft.tokens)
            writer.write("draft_topk", 1)
        writer.write("draft_tokens", draft.tokens + 1)
        if draft.method == "eagle3" and not draft.model:
            writer.unsaid.append("EAGLE needs its draft model: add --speculative-draft-model-path")
    writer.write("role", role.name or None)
    _common(writer, role, role.attention_dp)


def _trtllm(writer: _Writer, role: Role) -> None:
    if role.attention_dp > 1 and role.tp > 1:
        writer.unsaid.append(
            f"trtllm gives each of its {role.tp * role.attention_dp} ranks all of attention: groups of {role.tp} "
            "cannot be said"
        )
    writer.write("tp", role.tp * role.attention_dp)
    writer.write("pp", role.pp)
    if role.ep > 1:
        writer.write("ep", role.ep)
    if role.attention_dp > 1:
        writer.write("shares_attention", True)
    if (draft := role.drafting) is not None:
        kinds = {"eagle3": "Eagle3", "mtp": "MTP", "ngram": "NGram", "draft_model": "Draft_Target"}
        config: dict[str, Any] = {"decoding_type": kinds[draft.method], "max_draft_len": draft.tokens}
        if draft.model:
            config["speculative_model"] = draft.model
        elif draft.method == "eagle3":
            writer.unsaid.append("EAGLE needs its draft model: add speculative_model to the file")
        writer.write("speculation", config)
    # Prompts are computed in chunks here, which the engine does only when told.
    writer.write("chunked_prefill", True)
    if role.name:
        # What DEFAULT stands for changed between releases.
        writer.write("role", "NIXL")
    _common(writer, role, 1)


def _common(writer: _Writer, role: Role, groups: int) -> None:
    """Write what all engines have; ``groups`` are those that the engine counts together."""
    writer.write("sequences", None if role.sequences is None else role.sequences * groups)
    writer.write("batched_tokens", None if role.batched_tokens is None else role.batched_tokens * groups)
    writer.write("context", role.context)
    writer.write("memory_share", role.memory_share)
    writer.cache(role)
    writer.weights(role)
    if role.prefix_caching is not None:
        flag = writer.flags["prefix_caching"]
        if flag.form != "key" or not role.prefix_caching:
            writer.write("prefix_caching", role.prefix_caching)
    if role.graphs is False:
        if writer.flags["graphs"].form == "key":
            writer.config |= {writer.flags["graphs"].flag: None}
        else:
            writer.write("graphs", False)


_WRITERS: dict[str, Callable[[_Writer, Role], None]] = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}


def command(engine: str, release: str, role: Role) -> tuple[Command, list[str]]:
    """Return the command of a role, and what is said of the release.

    Parameters
    ----------
    engine : str
        vllm, sglang or trtllm.
    release : str
        Empty for the newest whose flags were read.
    role : Role

    Returns
    -------
    tuple of Command and list of str
    """
    if engine not in _WRITERS:
        raise UserError(f"launch: there are no flags of {engine}; expected one of {', '.join(_WRITERS)}")
    flags, notes = flags_of(engine, release)
    writer = _Writer(engine, flags)
    writer.write("model", role.model)
    _WRITERS[engine](writer, role)
    for name, value in role.others.items():
        writer.words += _as_flag(name, value)
    files = {}
    if writer.config:
        name = f"{role.name or 'engine'}.yaml"
        files[name] = as_yaml(writer.config)
        writer.write("config", name)
    return Command(role, (*_PROGRAMS[engine], *writer.words), files, writer.config, tuple(writer.unsaid)), notes


def _as_flag(name: str, value: Any) -> list[str]:
    """Return an argument that no plan has, as vLLM and SGLang make flags of names."""
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        return [flag]
    if value is False:
        return [f"--no-{flag[2:]}"]
    if isinstance(value, list):
        return [flag, *map(str, value)]
    return [flag, json.dumps(value, separators=(",", ":")) if isinstance(value, dict) else str(value)]


def as_yaml(content: Any) -> str:
    """Return an object as YAML, its keys in their order."""
    import io

    from ruamel.yaml import YAML
    from ruamel.yaml.representer import SafeRepresenter

    class Written(SafeRepresenter):
        def ignore_aliases(self, data: Any) -> bool:
            return True  # what stands twice is written twice

    writer, out = YAML(typ="safe", pure=True), io.StringIO()
    writer.Representer = Written
    for name, value in {"default_flow_style": False, "sort_base_mapping_type_on_output": False, "width": 4096}.items():
        setattr(writer, name, value)
    writer.dump(content, out)
    return out.getvalue()

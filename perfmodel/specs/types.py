"""The frozen dataclasses that the models of the world work on.

Each quantity is a :class:`~perfmodel.numerics.Number` and carries its unit in its annotation; the file schemas, the
traced inputs and ``--set`` are all made from these annotations.  Where each value came from stands beside it in
``provenance``, keyed by path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from perfmodel.numerics import NAN, Number
from perfmodel.specs.ranges import Range

#: How numbers are stored.  Words that the code works out, as these and tensor classes, are checked where they enter and
#: are plain text to a type checker.
Precision = Annotated[str, Literal["bf16", "fp16", "fp8", "int8", "fp4", "mxfp4", "int4"]]
PRECISIONS: tuple[str, ...] = get_args(get_args(Precision)[1])

#: Engines that a system may name; ``native`` is what machines that are no GPUs run.
ENGINES = ("vllm", "trtllm", "sglang", "native")

#: Bytes an element, block scales included: NVFP4 has an FP8 scale for 16, MXFP4 for 32, INT4 an FP16 scale for 128.
PRECISION_BYTES = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
    "int4": 0.5 + 2 / 128,
}

#: An amount that may be fractional or absent.
Count = Annotated[Number, Range("1", most=1e15)]
Whole = Annotated[Number, Range("1", 1.0, 1e12, whole=True)]
#: A whole number of what may be absent.
WholeOrNone = Annotated[Number, Range("1", 0.0, 1e15, whole=True)]
#: Layers, and heads of one: the plans and splits of so many are gone through.
Few = Annotated[Number, Range("1", 1.0, 1e4, whole=True)]
#: Chips or replicas beside each other.
Degree = Annotated[Number, Range("1", 1.0, 1e6, whole=True)]
#: What there is at least one of, in the mean.
AtLeastOne = Annotated[Number, Range("1", 1.0, 1e9)]
Bytes = Annotated[Number, Range("B")]
Capacity = Annotated[Number, Range("B", 1.0, 1e16)]
Bandwidth = Annotated[Number, Range("B/s", 1.0)]
Rate = Annotated[Number, Range("FLOP/s", 1.0)]
Seconds = Annotated[Number, Range("s", most=1e12)]
Lifetime = Annotated[Number, Range("s", 1.0, 1e12)]
Share = Annotated[Number, Range("1", 0.0, 1.0)]
ShareBelowOne = Annotated[Number, Range("1", 0.0, 1.0, below=True)]
#: What is divided by: an efficiency, or a share that something is left of.
PositiveShare = Annotated[Number, Range("1", 0.0, 1.0, above=True)]
Hits = Annotated[Number, Range("1", 0.0, 1.0, below=True, why="the last token of a prompt is never cached")]
#: A number on its own that is no share: a ratio, an exponent, a spread of logarithms.
Ratio = Annotated[Number, Range("1", most=1e3)]
PositiveRatio = Annotated[Number, Range("1", 0.0, 1e3, above=True)]
Watts = Annotated[Number, Range("W", 0.0, 1e9, above=True)]
Dollars = Annotated[Number, Range("USD", most=1e15)]
SquareMillimetres = Annotated[Number, Range("mm2", 0.0, 1e6, above=True)]
#: Power at the utility: cooling, network and losses are in it, so no PUE is put on top.
AllInWatts = Annotated[Number, Range("W all-in", 0.0, 1e9, above=True)]
PriceLevel = Annotated[Number, Range("1", 0.0, 100.0, above=True)]
DollarsASecond = Annotated[Number, Range("USD/s", most=1e9)]
DollarsAJoule = Annotated[Number, Range("USD/J", most=1.0)]
DollarsAWattMonth = Annotated[Number, Range("USD/W-month", most=1e6)]
DollarsAWatt = Annotated[Number, Range("USD/W", most=1e6)]
DollarsAByte = Annotated[Number, Range("USD/B", most=1.0)]
Kilograms = Annotated[Number, Range("kg", most=1e9)]
LitresAJoule = Annotated[Number, Range("L/J", most=1.0)]
KilogramsAJoule = Annotated[Number, Range("kg/J", most=1.0)]
PerSquareMillimetre = Annotated[Number, Range("1/mm2", most=1.0)]
Pue = Annotated[Number, Range("1", 1.0, 10.0, why="a PUE is power at the utility over that of the machines")]

#: A value that nobody has published; its reason is in the provenance.
UNPUBLISHED: Any = NAN


@dataclass(frozen=True)
class Provenance:
    """Where a number came from.

    ``kind`` is one of datasheet, paper, measured, derived, estimate, given; ``low`` and ``high`` belong to estimates,
    ``date`` to what changes from quarter to quarter.
    """

    source: str
    kind: str
    file: str = ""
    note: str = ""
    low: float = NAN
    high: float = NAN
    date: str = ""


# --- models ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sliding:
    """Attention that looks back a window only; ``chunked`` starts afresh every window instead of sliding."""

    window: Whole
    chunked: bool = False


@dataclass(frozen=True)
class Indexer:
    """Sparse attention: small heads score the whole context, the layer attends to the best ``top_k`` tokens.

    ``shared`` takes the choice of an earlier layer: no weights, no scores and no keys of its own.
    """

    heads: Whole
    head_dim: Whole
    top_k: Whole
    shared: bool = False


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention of one layer.

    ``gated`` doubles the query projection, ``head_gate`` adds one gate a head, ``sinks`` one weight a head.
    ``value_dim`` is the width of a value where it is not that of a key.  ``keys_are_values`` has one projection for
    both, which are cached apart all the same.  ``shares_cache`` reads the cache of an earlier layer and has neither
    projection.  ``cross`` attends to so many tokens of an image instead of the sequence, and its cache does not grow.
    ``indexer`` chooses blocks of the cache.
    """

    heads: Few
    kv_heads: Few
    head_dim: Whole
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    qk_norm_full: bool = False
    gated: bool = False
    sinks: bool = False
    sliding: Sliding | None = None
    value_dim: Whole | None = None
    head_gate: bool = False
    keys_are_values: bool = False
    shares_cache: bool = False
    causal: bool = True
    cross: Count | None = None
    indexer: Indexer | None = None


@dataclass(frozen=True)
class CompressedAttention:
    """Attention of one layer over a window of latents, and over one entry for every ``ratio`` tokens (DeepSeek-V4).

    One latent of ``head_dim`` is key and value of all heads.  ``indexer`` chooses among the compressed entries; without
    one all of them are attended to.  The output goes through ``output_groups`` of rank ``output_rank``.
    """

    heads: Whole
    head_dim: Whole
    rope_dim: Whole
    q_lora_rank: Whole
    output_groups: Whole
    output_rank: Whole
    window: Whole
    ratio: Whole | None = None
    indexer: Indexer | None = None


@dataclass(frozen=True)
class Mla:
    """Multi-head latent attention of one layer; ``gate`` is the width of a gate on its output."""

    heads: Few
    q_lora_rank: WholeOrNone
    kv_lora_rank: Whole
    qk_nope_head_dim: Whole
    qk_rope_head_dim: Whole
    v_head_dim: Whole
    direct_query: bool = False
    indexer: Indexer | None = None
    gate: Whole | None = None


@dataclass(frozen=True)
class LinearAttention:
    """Gated delta rule of one layer: a state of constant size instead of a cache."""

    key_heads: Whole
    value_heads: Whole
    key_head_dim: Whole
    value_head_dim: Whole
    conv_kernel: Whole


@dataclass(frozen=True)
class Mamba2:
    """State-space mixer of one layer, second generation."""

    heads: Whole
    head_dim: Whole
    groups: Whole
    state: Whole
    conv_kernel: Whole


@dataclass(frozen=True)
class Mamba1:
    """State-space mixer of one layer, first generation, with the normalisations of Jamba."""

    inner: Whole
    state: Whole
    dt_rank: Whole
    conv_kernel: Whole


@dataclass(frozen=True)
class Recurrent:
    """Any other mixer of one layer that keeps a state of constant size: a short convolution, lightning attention, KDA.

    ``weights`` meet every token; the ``state`` of a sequence has so many elements, and splits by ``heads``.
    """

    weights: Count
    state: Count
    heads: Whole


@dataclass(frozen=True)
class Mlp:
    """Feed-forward block of one layer; 3 matrices where it is gated."""

    intermediate: Whole
    matrices: Whole = 3.0


@dataclass(frozen=True)
class Moe:
    """Mixture of experts of one layer; ``shared`` is the width of the experts that every token meets.

    Where there is a ``latent`` width, tokens are projected to it before the experts and back behind them.  Of
    ``zero_experts``, which compute nothing, a router picks as of the others.
    ``node_limit`` is the most nodes on which the router looks for the experts of a token; where it is not given, any.
    """

    experts: Whole
    top_k: Whole
    intermediate: Whole
    shared: WholeOrNone = 0.0
    matrices: Whole = 3.0
    router_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False
    latent: Whole | None = None
    zero_experts: Whole | None = None
    node_limit: Whole | None = None


@dataclass(frozen=True)
class Beside:
    """What a layer has beside mixer and block, in 16 bits: ``weights`` that multiply every token, and ``scales``."""

    weights: Count = 0.0
    scales: Count = 0.0


#: Classes of tensors that a checkpoint can leave unquantised.
TensorClass = Annotated[str, Literal["attention", "mlp", "experts", "router", "embedding", "head"]]
TENSOR_CLASSES: tuple[str, ...] = get_args(get_args(TensorClass)[1])


@dataclass(frozen=True)
class Layers:
    """A run of equal layers: at most one mixer and at most one feed-forward block each.

    The classes in ``unquantised`` stay in BF16 in these layers, besides those of the model.  ``own`` is the share of
    the layers that have weights of their own; the others run those again.
    """

    count: Few
    norms: WholeOrNone = 2.0
    attention: Attention | None = None
    mla: Mla | None = None
    linear: LinearAttention | None = None
    mamba2: Mamba2 | None = None
    mamba1: Mamba1 | None = None
    mlp: Mlp | None = None
    moe: Moe | None = None
    unquantised: tuple[TensorClass, ...] = ()
    compressed: CompressedAttention | None = None
    recurrent: Recurrent | None = None
    beside: Beside | None = None
    own: Share | None = None


#: What a model is for: ``generate`` tokens, ``pool`` one pass into a vector or a score, or ``draft`` for another model.
Task = Annotated[str, Literal["generate", "pool", "draft"]]
#: Precision of the cache that a checkpoint declares; none where it is empty.
KvCache = Annotated[str, Literal["", "bf16", "fp16", "fp8", "int8", "fp4", "mxfp4", "int4"]]


@dataclass(frozen=True)
class Vision:
    """The tower that encodes an image: its tokens in the prompt, its patches, and what runs on each patch.

    ``weights`` multiply every patch; attention of ``width`` runs among the patches of an image in ``layers``.  The
    tokens of the ``images`` of a request are part of its prompt.
    """

    tokens: Count
    patches: Count
    weights: Count
    width: Count
    layers: Count
    images: WholeOrNone = 0.0


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters over a model, in 16 bits: weights of one on every chip, and those that tensor ranks share.

    So many different ``adapters`` are held at once, and each sequence has one of them.
    """

    replicated: Count
    sharded: Count
    adapters: Whole = 1.0


@dataclass(frozen=True)
class Model:
    """An architecture.

    Attributes
    ----------
    name, hf_id : str
        Its names here and on Hugging Face.
    precision : str
        In which the checkpoint stores its weights.
    hidden, vocab : Number
        Width of the residual stream; entries of the vocabulary [1].
    tied_embeddings : bool
        Whether the head shares the weights of the embedding.
    max_context : Number
        Tokens of a sequence that it was made for [1].
    layers : tuple of Layers
        Runs of equal layers, from the first to the last.
    unquantised : tuple of str
        Classes of tensors that stay in BF16 whatever the precision.
    towers : Number
        Weights that engines load beside the text model: encoders of images and sound, and their projectors [1].
    task : str
        What it is for.
    kv_cache : str
        Precision of the cache that the checkpoint declares; empty where it says nothing.
    stored : dict of str to str
        Precision of the classes of tensors that the checkpoint stores in another than ``precision``.
    element_bytes : dict of str to Number
        Bytes of a stored weight by class of tensors, scales included, where they are not those of the precision [B].
    tables : Number
        Entries of further tables that are looked up and never multiplied: positions, inputs of each layer [1].
    head_vocab : Number
        Words of a head that is smaller than the vocabulary: that of a draft [1].
    vision : Vision
        How an image is encoded.
    lora : Lora
        Adapters that run over it.
    aliases : tuple of str
        Other names that it answers to.
    provenance : dict of str to Provenance
        Where each number comes from, by path.
    """

    name: str
    hf_id: str
    precision: Precision
    hidden: Whole
    vocab: Whole
    tied_embeddings: bool
    max_context: Whole
    layers: tuple[Layers, ...]
    unquantised: tuple[TensorClass, ...] = ("router", "embedding", "head")
    towers: WholeOrNone = 0.0
    task: Task = "generate"
    kv_cache: KvCache = ""
    stored: Mapping[str, Precision] = field(default_factory=dict)
    element_bytes: Mapping[str, Bytes] = field(default_factory=dict)
    tables: Count | None = None
    head_vocab: Whole | None = None
    vision: Vision | None = None
    lora: Lora | None = None
    aliases: tuple[str, ...] = ()
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        return f"<Model {self.name}: {self.hf_id}, {self.precision}>"


# --- traffic -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Traffic:
    """What the users ask for.

    Under a rate of arrivals, lengths are a distribution: the table that ``lengths`` names, scaled to the means, a trace
    ``FILE.csv`` as it is, ``fixed``, else lognormal ones with the squared coefficients of variation given; theirs
    default to those of the chat trace.

    Attributes
    ----------
    name : str
    prompt, output : Number
        Mean tokens of a prompt and of an answer [1].
    concurrency : Number
        Requests in flight, all replicas together [1].
    rounds : Number
        Prompts over the concurrency: a benchmark that sends all its clients at once starts with a burst, which is one
        round of them [1].
    length_jitter : Number
        Share by which lengths spread evenly down from the nominal ones [1].
    prefill_first : bool
        Whether prompts that wait are prefilled before anybody decodes; with fixed lengths the clients then stay in
        lock-step, and every round is a burst.
    held_steps : Number
        Decode steps for which a request is held beside the one under way: half of what lies between two looks at the
        queue (SGLang's ``--scheduler-recv-interval``), and the tokens that an engine gathers before it sends the first
        ones (TensorRT-LLM's ``stream_interval``) [1].
    lengths : str
        Name of a bundled table of lengths, ``fixed``, ``lognormal``, or a trace.
    prompt_scv, output_scv, arrival_scv : Number
        Squared coefficients of variation of lengths and of the times between arrivals [1].
    prefix_hits : Number
        Share of prompt tokens found in a cache [1].
    think_time : Number
        Time of a session between two requests [s].
    aliases : tuple of str
        Other names that it answers to.
    provenance : dict of str to Provenance
        Where each number comes from, by path.
    """

    name: str
    prompt: AtLeastOne
    output: AtLeastOne
    concurrency: AtLeastOne = 1.0
    rounds: AtLeastOne = 1e6
    length_jitter: ShareBelowOne = 0.0
    prefill_first: bool = False
    held_steps: Ratio = 0.0
    lengths: str = ""
    prompt_scv: Ratio = 0.92
    output_scv: Ratio = 0.6
    arrival_scv: Ratio = 1.0
    prefix_hits: Hits = 0.0
    think_time: Seconds = 0.0
    aliases: tuple[str, ...] = ()
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        given = [f"{part:,.0f}" if isinstance(part, float) else "several" for part in (self.prompt, self.output)]
        return f"<Traffic {self.name}: {given[0]} tokens in, {given[1]} out>"


# --- systems -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tier:
    """A level of memory of one chip: capacity on the label, bandwidth, and what the driver shows.

    ``visible`` is over the capacity; it passes 1 where the label says GB and means GiB.
    """

    capacity: Capacity
    bandwidth: Bandwidth
    visible: PositiveRatio = UNPUBLISHED


@dataclass(frozen=True)
class Memory:
    """Memory tiers of one chip."""

    hbm: Tier | None = None
    sram: Tier | None = None
    ddr: Tier | None = None


#: How chips are joined: all to all through a switch, pairwise, on a bus (``pcie`` where they reach each other's memory,
#: ``pcie_host`` where every byte goes through the memory of the host), or in one of the meshes.
Topology = Literal["switch", "mesh", "peer", "pcie", "pcie_host", "torus2d", "torus3d", "quadfour", "wafer"]


@dataclass(frozen=True)
class Link:
    """Links between the chips that share a model; bandwidth is that of one chip, one direction.

    Where it is not given, it is that of all ``ports``.
    """

    topology: Topology
    bandwidth_per_direction: Bandwidth = UNPUBLISHED
    hop_latency: Seconds = UNPUBLISHED
    ports: Whole = UNPUBLISHED
    port_bandwidth_per_direction: Bandwidth = UNPUBLISHED


@dataclass(frozen=True)
class Network:
    """Links between nodes; bandwidth is that of one chip, one direction."""

    topology: Topology
    bandwidth_per_direction: Bandwidth = UNPUBLISHED


@dataclass(frozen=True)
class Die:
    """Silicon of one package; ``wafer`` and ``package`` name its prices in ``hardware_specs/materials.yaml``.

    ``stacks`` of memory are bonded beside the dies.
    """

    process: str
    area: SquareMillimetres = UNPUBLISHED
    dies_per_package: Annotated[Number, Range("1", 1.0, 1e3, whole=True)] = 1.0
    wafer: str = ""
    package: str = ""
    stacks: WholeOrNone = UNPUBLISHED


@dataclass(frozen=True)
class Power:
    """Nameplate power, of a chip and of a chip with its share of the node; ``cap`` is a limit as a share of the TDP.

    ``all_in_per_chip`` is a figure at the utility, which no PUE multiplies.
    """

    chip_tdp: Watts = UNPUBLISHED
    system_per_chip: Watts = UNPUBLISHED
    cap: PositiveShare = 1.0
    all_in_per_chip: AllInWatts = UNPUBLISHED


@dataclass(frozen=True)
class Node:
    """What stands around the chips: ``parts`` names lines of ``hardware_specs/materials.yaml``; ``ddr`` of the host."""

    parts: str = ""
    ddr: Bytes = UNPUBLISHED


@dataclass(frozen=True)
class Price:
    """What a system costs to buy, with how many chips it is sold, and one chip of it to rent.

    ``chips`` are those of a node where the file does not say; a node that is laid out otherwise costs a chip as much.

    Attributes
    ----------
    of : str
        Entry of the release of prices that fills what the file leaves open.
    basis : str
        Of the purchase: volume, listing or retail; quote where it was given.
    market : str
        Of the rent: contract, neocloud or hyperscaler; quote where it was given.
    date, rent_date : str
        When it was the price, in dollars of that year.
    """

    system: Dollars = UNPUBLISHED
    chips: Degree = UNPUBLISHED
    rent_per_chip: DollarsASecond = UNPUBLISHED
    of: str = ""
    basis: str = ""
    date: str = ""
    market: str = ""
    rent_date: str = ""


@dataclass(frozen=True)
class Carbon:
    """What making a chip with its share of the node has emitted."""

    embodied_per_chip: Kilograms = UNPUBLISHED


@dataclass(frozen=True)
class Plan:
    """A way to lay a model over the chips; ``pp`` is a number, ``fewest`` stages that fit, or ``layers``, one each."""

    name: str
    tp: Whole
    pp: str = "1"


@dataclass(frozen=True)
class Efficiency:
    """What an engine reaches on a chip; each kind of machine has a dataclass with fields of its own."""

    def at_rates(self, rates: Iterable[str]) -> Efficiency:
        """Return what is reached at the rates that a system has.

        Parameters
        ----------
        rates : iterable of str
            Their names.

        Returns
        -------
        Efficiency
        """
        return self

    def even_experts(self, experts: Any) -> Any:
        """Return how many evenly picked experts would be met as often as the real, unevenly picked ones.

        Parameters
        ----------
        experts : Number
            Of a layer [1].

        Returns
        -------
        Number
            Experts [1].
        """
        return experts

    def expert_rows(self) -> Any:
        """Return the rows of a tile of grouped matrix products; 0 where experts run token by token."""
        return 0.0


@dataclass(frozen=True)
class OnCards:
    """What an engine takes on some cards in place of its own numbers.

    It holds on cards that show ``memory`` and more, of ``chips`` but not of ``except_chips``, with ``links`` of these
    topologies; an empty list stands for all.
    """

    memory: Bytes = 0.0
    chips: tuple[str, ...] = ()
    except_chips: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    memory_utilisation: PositiveShare = UNPUBLISHED
    batched_tokens: AtLeastOne = UNPUBLISHED
    sequences: AtLeastOne = UNPUBLISHED
    group_sequences: AtLeastOne = UNPUBLISHED
    context_memory: Bytes = UNPUBLISHED
    communication_memory: Bytes = UNPUBLISHED
    max_sequences: Whole = UNPUBLISHED
    expert_hidden: Whole = UNPUBLISHED
    expert_width: Whole = UNPUBLISHED


@dataclass(frozen=True)
class Engine:
    """What a release of an engine keeps of a GPU's memory, and the blocks of its cache.

    ``memory_utilisation`` is the engine's own share: ``gpu_memory_utilization``, ``free_gpu_memory_fraction`` or
    ``mem_fraction_static``.  What an engine logs can be given in place of what is worked out: ``weights``,
    ``activation_peak`` and ``kv_pool`` of a chip.  ``group_sequences`` takes the place of ``sequences`` from TP 4 on.
    ``expert_hidden`` and ``expert_width`` are the multiples to which experts in MXFP4 are filled up.  ``on_cards``
    says what differs by card; loading an engine for a system settles it, the last that holds counting.
    """

    name: str
    memory_utilisation: PositiveShare
    batched_tokens: AtLeastOne
    sequences: AtLeastOne
    logit_copies: Count
    hidden_streams: Count
    context_memory: Bytes
    communication_memory: Bytes
    cuda_graphs: Bytes
    block_tokens: Whole
    max_sequences: Whole
    release: str = ""
    group_sequences: AtLeastOne = UNPUBLISHED
    expert_workspaces: Count = 1.0
    expert_hidden: Whole = 1.0
    expert_width: Whole = 1.0
    on_cards: Mapping[str, OnCards] = field(default_factory=dict)
    weights: Bytes = UNPUBLISHED
    activation_peak: Bytes = UNPUBLISHED
    kv_pool: Bytes = UNPUBLISHED


@dataclass(frozen=True)
class PowerShape:
    """How the power of a machine follows its work; the forms are in :mod:`perfmodel.machines.power`."""


@dataclass(frozen=True)
class System:
    """A machine that can be bought, with the parts that the models need.

    Attributes
    ----------
    name, title : str
        Its name here, and as its maker has it.
    kind : str
        How it runs a step: the name of one of :mod:`perfmodel.specs.kinds`.
    chip : str
        Name of its chip, by which efficiencies are found.
    chips_per_node : Number
        Chips of a node [1].
    rates : dict of str to Number
        Dense arithmetic of a chip by precision [FLOP/s].
    computes_as : dict of str to str
        The rate that each storage precision computes at.
    memory : Memory
        Tiers of a chip.
    link : Link
        Between the chips of a node.
    network : Network
        Between nodes.
    die : Die
    power : Power
    price : Price
    plans : tuple of Plan
        Layouts that it is offered in.
    default_plan, default_engine : str
        What is taken where nothing is asked for.
    quantised : str
        ``all`` where every tensor takes the precision asked for, ``linear`` where some stay as the checkpoint has them.
    sold_by : str
        What can be bought: a ``node``, or a ``chip`` where it is a card.
    kin : str
        Chip whose efficiencies stand for those of this one where it has none; empty for none.
    pads_heads : bool
        Whether engines fill heads up to a multiple of the ranks, so that any number of ranks can hold a model.
    tile : Number
        Elements to which sharded widths are filled up [1].
    cores : Number
        Cores of a chip over which an engine shards; each has its share of the chip's memory [1].
    carbon : Carbon
    node : Node
    efficiency : Efficiency or None
        What an engine reaches on it.
    engine : Engine or None
        How an engine budgets its memory, where it has a budget of its own.
    power_shape : PowerShape or None
        How power follows the work.
    aliases : tuple of str
        Other names that it answers to.
    provenance : dict of str to Provenance
        Where each number comes from, by path.
    """

    name: str
    title: str
    kind: str
    chip: str
    chips_per_node: Whole
    rates: Mapping[str, Rate]
    computes_as: Mapping[str, str]
    memory: Memory
    link: Link
    network: Network
    die: Die
    power: Power
    price: Price
    plans: tuple[Plan, ...]
    default_plan: str
    default_engine: str
    quantised: Literal["linear", "all"] = "linear"
    sold_by: Literal["node", "chip"] = "node"
    kin: str = ""
    pads_heads: bool = False
    tile: Whole = 1.0
    cores: Degree = 1.0
    carbon: Carbon = field(default_factory=Carbon)
    node: Node = field(default_factory=Node)
    efficiency: Efficiency | None = None
    engine: Engine | None = None
    power_shape: PowerShape | None = None
    aliases: tuple[str, ...] = ()
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        return f"<System {self.name}: {self.title}>"


Routing = Literal["least-loaded", "round-robin", "random", "prefix"]


@dataclass(frozen=True)
class Deployment:
    """How the model is laid over the system.

    ``dp`` counts replicas that share nothing.  A replica has ``attention_dp`` groups of ``tp`` ranks, each with all of
    the attention and requests of its own; the groups share the experts, of which each of ``ep`` ranks holds some.

    ``routing`` is how requests that arrive are dealt to replicas.
    """

    plan: str
    engine: str
    precision: Precision
    kv_precision: Precision
    tp: Degree
    pp: Degree = 1.0
    ep: Degree = 1.0
    dp: Degree = 1.0
    routing: Routing = "least-loaded"
    attention_dp: Degree = 1.0

    @property
    def groups(self) -> Any:
        """Groups of ranks that hold requests of their own, of all replicas together."""
        return self.dp * self.attention_dp


# --- money -------------------------------------------------------------------------------------------------------

Ownership = Literal["colocated", "owned", "rented"]
Basis = Literal["volume", "listing", "retail"]
Market = Literal["contract", "neocloud", "hyperscaler"]


@dataclass(frozen=True)
class Economics:
    """What a machine costs beyond its price: money, power, building and people.

    ``ownership`` is ``colocated`` (own machines in rented space), ``owned`` (building too) or ``rented`` (chips by the
    hour).  Shares ``a year`` are of the price of the machine with network and storage.

    Attributes
    ----------
    utilisation : Number
        Share of the day's capacity that serves tokens.
    network, storage, spares : Number
        On top of the machine's price, as shares of it.
    maintenance, staff : Number
        A year, as shares of the price.
    basis, market : str
        Of the prices that are taken from the release: what is bought as, and where chips are rented.
    price_level : Number
        What this buyer pays over the price of that basis; one for all machines.
    water : Number
        Litres a joule of the machines.
    provisioned : Number
        Power that is rented or built for, as a share of the nameplate.
    """

    name: str
    ownership: Ownership
    electricity: DollarsAJoule
    pue: Pue
    provisioned: Share
    colocation: DollarsAWattMonth
    building: DollarsAWatt
    building_life: Lifetime
    network: Share
    storage: Share
    spares: Share
    maintenance: Share
    staff: Share
    cost_of_capital: Share
    life: Lifetime
    residual: Share
    utilisation: PositiveShare
    grid_carbon: KilogramsAJoule
    basis: Basis = "listing"
    market: Market = "contract"
    price_level: PriceLevel = 1.0
    water: LitresAJoule = UNPUBLISHED
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Regions:
    """What differs from place to place, by region, as :class:`Economics` has it."""

    name: str
    electricity: Mapping[str, DollarsAJoule]
    colocation: Mapping[str, DollarsAWattMonth]
    grid_carbon: Mapping[str, KilogramsAJoule]
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Prices:
    """A dated release of what systems cost: to buy by basis, and to rent by market.

    Attributes
    ----------
    purchase : mapping
        By entry and basis, of a whole system.
    rent : mapping
        By entry and market, of one chip.
    over_listing : mapping
        Price on a basis over that of a listing.
    """

    name: str
    currency: str
    over_listing: Mapping[str, Ratio]
    purchase: Mapping[str, Mapping[str, Dollars]]
    rent: Mapping[str, Mapping[str, DollarsASecond]]
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False)


YieldModel = Literal["poisson", "murphy", "seeds", "negative_binomial"]


@dataclass(frozen=True)
class Reliability:
    """How often chips fail and how long it takes until they serve again.

    Attributes
    ----------
    chip_mtbf : Number
        Between failures of a GPU with its share of node, network and software; of other chips none is published.
    repair : Number
        Until a broken chip is there again.
    detection, restart, reload_bandwidth : Number
        Until a failure is seen, until an engine runs again, and how fast a chip reads its weights.
    rotation : Number
        Until the partitions of an SRAM pipeline have moved past a failed node.
    """

    name: str
    chip_mtbf: Lifetime
    repair: Seconds
    detection: Seconds
    restart: Seconds
    reload_bandwidth: Bandwidth
    rotation: Seconds
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Materials:
    """What parts cost to make, by process, package, kind of node and year; ``yield_model`` says which law."""

    yield_model: YieldModel
    wafer: Mapping[str, Dollars]
    defects: Mapping[str, PerSquareMillimetre]
    cluster: Count
    wafer_diameter: Count
    scribe: Count
    edge: Count
    harvest: Share
    hbm: Mapping[str, DollarsAByte]
    ddr: Mapping[str, DollarsAByte]
    package: Mapping[str, Dollars]
    bond: Mapping[str, Share]
    test: Mapping[str, Dollars]
    node: Mapping[str, Mapping[str, Dollars]]
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Speculation:
    """Speculative decoding: ``k`` tokens are drafted, and one pass of the target verifies them.

    One of three measures says how many are accepted: ``alpha``, alike at every position; ``accept``, position by
    position, the last one going on; or ``ar``, tokens of a step over k + 1.

    Attributes
    ----------
    name : str
        What drafts: a model, or a word for a method.
    model : Model or None
        The draft; ``None`` where drafting costs nothing, as looking up n-grams does.
    precision : str
        Storage of the draft's weights.
    max_tp : Number
        Tensor ranks into which a GPU can split the draft.
    shares_ends : bool
        Whether embedding and head are the target's own, so that they are held once.
    k : Number
    host_time : Number
        Time a step to accept, reject and start over, beyond the host time of each pass.
    alpha, ar : Number or None
    accept : mapping
        Chance of each position, from "1", when those before it were accepted.
    """

    name: str
    model: Model | None
    precision: str
    max_tp: Whole
    shares_ends: bool
    k: Annotated[Number, Range("1", 1.0, 1e3, whole=True)]
    host_time: Seconds = 0.0
    alpha: Share | None = None
    ar: Share | None = None
    accept: Mapping[str, Share] = field(default_factory=dict)
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Scenario:
    """One question: a model on a system, laid out, under a traffic, with or without speculation, paid for in a way."""

    system: System
    model: Model
    deployment: Deployment
    traffic: Traffic
    speculation: Speculation | None = None
    economics: Economics | None = None
    #: Paths that the question changed, each with what stood there before.
    changed: tuple[tuple[str, Any], ...] = field(default=(), compare=False)
    assumed: tuple[str, ...] = field(default=(), compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)

"""Each system against a second source, independent of the one that its file names."""

import functools

import pytest

from perfmodel.specs import catalog

TERA, GIGA = 1e12, 1e9

#: system, path, value of the second source, relative tolerance, that source and how the value follows from it.
SECOND = [
    # DGX H100
    ("dgx-h100", "rates.bf16", 8_000 * TERA / 8, 0.02, "dataflow paper, table 3: 8,000 TFLOPS"),
    ("dgx-h100", "rates.bf16", 132 * 4096 * 1.83e9, 0.01, "132 SMs x 4,096 dense FLOP a clock x 1.83 GHz"),
    ("dgx-h100", "rates.fp8", 2 * 8_000 * TERA / 8, 0.02, "twice the dense BF16 rate of the dataflow paper"),
    ("dgx-h100", "memory.hbm.bandwidth", 24 * TERA / 8, 0.12, "dataflow paper, table 3: 24.0 TB/s, rounded down"),
    ("dgx-h100", "memory.hbm.visible", 81_559 * 2**20 / (80 * GIGA), 0.01, "nvidia-smi: 81,559 MiB"),
    (
        "dgx-h100",
        "link.bandwidth_per_direction",
        18 * 26.56 * 0.94 * GIGA,
        0.01,
        "nvidia-smi nvlink: 18 links, 94 % payload",
    ),
    ("dgx-h100", "link.bandwidth_per_direction", 900 * GIGA / 2, 0.01, "data sheet: 900 GB/s, both directions"),
    ("dgx-h100", "network.bandwidth_per_direction", 8 * 400e9 / 8 / 8, 0.01, "8 ConnectX-7 of 400 Gb/s for 8 GPUs"),
    ("dgx-h100", "power.system_per_chip", 10.2e3 / 8, 0.01, "DGX H100 user guide: 10.2 kW"),
    (
        "dgx-h100",
        "power.system_per_chip",
        8.4e3 / 0.82 / 8,
        0.02,
        "arXiv:2412.08602: 8.4 kW measured, 18 % below rating",
    ),
    # DGX H100 of the dataflow paper
    ("dgx-h100-paper", "rates.bf16", 8_000 * TERA / 8, 1e-9, "dataflow paper, table 3"),
    (
        "dgx-h100-paper",
        "memory.hbm.bandwidth",
        300 * 16.6e9 / 0.21 / 8,
        0.02,
        "300 tok/s of 16.6 GB are 21 % of the peak",
    ),
    # DGX H200
    ("dgx-h200", "memory.hbm.visible", 143_771 * 2**20 / (141 * GIGA), 0.01, "nvidia-smi: 143,771 MiB"),
    ("dgx-h200", "memory.hbm.capacity", 143_771 * 2**20, 0.07, "nvidia-smi: 143,771 MiB"),
    ("dgx-h200", "memory.hbm.bandwidth", 4.8 * TERA, 1e-9, "aiconfigurator h200_sxm"),
    ("dgx-h200", "link.bandwidth_per_direction", 783.7 * GIGA / 2, 0.15, "p2pBandwidthLatencyTest: 783.7 GB/s duplex"),
    # DGX B200
    (
        "dgx-b200",
        "rates.bf16",
        148 * 8192 * 1.86e9,
        0.01,
        "microbench-blackwell: 148 SMs x 8,192 FLOP a clock x 1.86 GHz",
    ),
    ("dgx-b200", "rates.fp8", 72e15 / 8 / 2, 0.01, "DGX B200: 72 PFLOPS FP8, sparse"),
    ("dgx-b200", "rates.fp4", 144e15 / 8 / 2, 0.01, "DGX B200: 144 PFLOPS FP4, sparse"),
    ("dgx-b200", "memory.hbm.bandwidth", 64 * TERA / 8, 1e-9, "DGX B200: 64 TB/s"),
    ("dgx-b200", "memory.hbm.bandwidth", 7.7 * TERA, 0.05, "aiconfigurator b200_sxm"),
    ("dgx-b200", "memory.hbm.capacity", 1_440 * GIGA / 8, 1e-9, "DGX B200: 1,440 GB"),
    ("dgx-b200", "memory.hbm.visible", 180 * 2**30 / (180 * GIGA), 0.01, "aiconfigurator b200_sxm: 180 GiB"),
    ("dgx-b200", "link.bandwidth_per_direction", 14.4 * TERA / 8 / 2, 1e-9, "DGX B200: 14.4 TB/s, both directions"),
    ("dgx-b200", "power.system_per_chip", 14.3e3 / 8, 0.01, "DGX B200: 14.3 kW"),
    # GB200 NVL72, GB300 NVL72 and HGX B300
    ("gb200-nvl72", "chips_per_node", 18 * 4, 1e-9, "18 compute trays of 4 GPUs"),
    ("gb200-nvl72", "link.bandwidth_per_direction", 130 * TERA / 72 / 2, 0.01, "NVL72: 130 TB/s, both directions"),
    ("gb200-nvl72", "memory.hbm.visible", 186 * GIGA / (186 * GIGA), 0.08, "data sheet: 186 GB"),
    (
        "gb200-nvl72",
        "power.system_per_chip",
        18 * 5.4e3 / 72,
        0.25,
        "18 trays of 5.4 kW, switches and shelves not included",
    ),
    ("gb300-nvl72", "chips_per_node", 18 * 4, 1e-9, "18 compute trays of 4 GPUs"),
    ("gb300-nvl72", "link.bandwidth_per_direction", 130 * TERA / 72 / 2, 0.01, "NVL72: 130 TB/s, both directions"),
    ("gb300-nvl72", "network.bandwidth_per_direction", 800e9 / 8, 1e-9, "ConnectX-8 of 800 Gb/s"),
    ("gb300-nvl72", "memory.hbm.visible", 288 * GIGA / (288 * GIGA), 0.08, "data sheet: 288 GB"),
    ("b300", "memory.hbm.bandwidth", 62 * TERA / 8, 1e-9, "HGX B300: 62 TB/s"),
    ("b300", "memory.hbm.visible", 268 * 2**30 / (288 * GIGA), 0.01, "InferenceX: 268 GiB"),
    ("b300", "rates.fp4", 13_500 * TERA, 0.05, "InferenceX: 13.5 PFLOPS dense FP4"),
    ("b300", "network.bandwidth_per_direction", 800e9 / 8, 1e-9, "ConnectX-8 of 800 Gb/s"),
    # DGX A100
    ("dgx-a100", "rates.int8", 2 * 312 * TERA, 1e-9, "ml-engineering: 624 TOPS"),
    (
        "dgx-a100",
        "link.bandwidth_per_direction",
        12 * 50 * GIGA / 2,
        1e-9,
        "12 NVLink 3 links of 50 GB/s, both directions",
    ),
    ("dgx-a100", "power.system_per_chip", 6.5e3 / 8, 1e-9, "DGX A100 data sheet: 6.5 kW"),
    ("dgx-a100", "network.bandwidth_per_direction", 200e9 / 8, 1e-9, "ConnectX-6 of 200 Gb/s"),
    # AMD
    ("mi300x-8", "link.bandwidth_per_direction", 896 * GIGA / 2, 1e-9, "896 GB/s, both directions"),
    ("mi300x-8", "rates.fp8", 2 * 1307.4 * TERA, 1e-3, "twice the dense BF16 rate"),
    ("mi325x-8", "rates.bf16", 1307.4 * TERA, 1e-9, "same compute dies as the MI300X"),
    ("mi355x-8", "rates.fp8", 10.1e15 / 2, 0.01, "10.1 PFLOPS FP8, sparse"),
    ("mi355x-8", "link.bandwidth_per_direction", 1_075 * GIGA / 2, 0.01, "1,075 GB/s, both directions"),
    ("mi355x-8", "link.port_bandwidth_per_direction", 153.6 * GIGA / 2, 1e-9, "153.6 GB/s a link, both directions"),
    # Google
    ("tpu-v5e", "link.bandwidth_per_direction", 400 * GIGA / 2, 1e-9, "400 GB/s, all ports, both directions"),
    ("tpu-v5e", "memory.hbm.bandwidth", 800 * 2**30, 0.06, "another table of the documents: 800 GiB/s"),
    ("tpu-v5e", "rates.int8", 2 * 197 * TERA, 0.01, "twice the BF16 rate"),
    ("tpu-v6e", "rates.bf16", 4.7 * 197 * TERA, 0.02, "announcement: 4.7 times the v5e"),
    ("tpu-v6e", "memory.hbm.capacity", 2 * 16 * GIGA, 1e-9, "announcement: twice the v5e"),
    ("tpu-v6e", "memory.hbm.bandwidth", 2 * 819 * GIGA, 1e-3, "announcement: twice the v5e"),
    ("tpu-v6e", "link.bandwidth_per_direction", 2 * 400 * GIGA / 2, 1e-9, "announcement: twice the v5e"),
    ("tpu-v6e", "rates.int8", 2 * 918 * TERA, 1e-9, "twice the BF16 rate"),
    ("tpu-v7", "memory.hbm.bandwidth", 7_370 * GIGA, 0.01, "press: 7.37 TB/s"),
    ("tpu-v7", "rates.fp8", 42.5e18 / 9_216, 0.01, "press: 42.5 EFLOPS FP8 a pod of 9,216"),
    ("tpu-v7", "link.bandwidth_per_direction", 1_200 * GIGA / 2, 1e-9, "1,200 GB/s, both directions"),
    ("tpu-v7", "power.all_in_per_chip", 10e6 / 9_216, 0.01, "press: about 10 MW a pod of 9,216"),
    # AWS, Intel, Cerebras
    ("trainium2", "rates.fp8", 2_563 * TERA / 2, 0.02, "2,563 TFLOPS FP8, sparse"),
    ("trainium2", "memory.hbm.bandwidth", 3.0 * TERA, 0.04, "newer architecture guide: 3.0 TB/s"),
    ("trainium2", "link.bandwidth_per_direction", 4 * 128 * GIGA, 1e-9, "4 neighbours of 128 GB/s"),
    ("gaudi3-8", "rates.bf16", 1_835 * TERA, 0.1, "label; the clock for it does not last"),
    ("gaudi3-8", "memory.hbm.bandwidth", 3.67 * TERA, 0.01, "white paper, before rounding"),
    ("gaudi3-8", "link.bandwidth_per_direction", 21 * 200e9 / 8, 1e-9, "21 ports of 200 GbE"),
    ("gaudi3-8", "network.bandwidth_per_direction", 3 * 200e9 / 8, 1e-9, "3 ports of 200 GbE"),
    ("wse-3", "die.area", 215 * 215, 1e-9, "Cerebras: a square of 215 mm a side"),
    # Groq
    ("lpu-v1", "memory.sram.capacity", 220 * 2**20, 0.01, "ISCA 2020: 220 MiB"),
    ("lpu-v1", "memory.sram.capacity", 16.56 * GIGA / 72, 1e-9, "SHIP: 72 LPUs hold 16.56 GB"),
    ("lpu-v1", "memory.sram.bandwidth", 10_616 * TERA / 576, 1e-3, "SHIP, table 2: 10,616 TB/s on 576 LPUs"),
    ("lpu-v1", "memory.sram.bandwidth", 64 * 320 * 0.9e9, 1e-3, "64 streams of 320 B at 0.9 GHz"),
    ("lpu-v1", "memory.sram.bandwidth", 20 * 2**40 * 0.9, 0.1, "ISCA 2020: streams of 20 TiB/s at 1 GHz"),
    ("lpu-v1", "memory.ddr.bandwidth", 18.4 * TERA / 576, 0.01, "SHIP, table 2: 18.4 TB/s on 576 LPUs"),
    ("lpu-v1", "memory.ddr.capacity", 72 * TERA / 576, 1e-9, "SHIP, table 2: 72 TB on 576 LPUs"),
    ("lpu-v1", "rates.int8", 820 * TERA * 0.9, 0.02, "ISCA 2020: 820 TOPS at 1 GHz"),
    ("lpu-v1", "rates.int8", 4 * 320 * 320 * 2 * 0.9e9, 0.02, "4 matrix units of 320 x 320 at 0.9 GHz"),
    ("lpu-v1", "rates.fp16", 4 * 320 * 320 * 2 * 0.9e9 / 4, 0.03, "FP16 at a quarter of the INT8 rate"),
    (
        "lpu-v1",
        "link.bandwidth_per_direction",
        11 * 427 * GIGA / 40,
        0.01,
        "SHIP, table 1: 427 GB/s on 40 links; 11 ports",
    ),
    ("lpu-v1", "link.port_bandwidth_per_direction", 427 * GIGA / 40, 0.01, "SHIP, table 1: 427 GB/s on 40 links"),
    ("lpu-v1", "link.ports", 7 + 4, 1e-9, "7 to the node, 32 / 8 to others"),
    (
        "lpu-v1",
        "power.system_per_chip",
        1_788 * 8 * 41.2 / 1_520,
        0.01,
        "SHIP: 1,520 LPUs take the power of 41.2 DGX B200",
    ),
    ("lpu-v1", "tile", 320, 1e-9, "ISCA 2020: matrix units of 320 x 320"),
    ("groq3-lpx", "rates.fp8", 315e15 / 256, 0.03, "rack: 315 PFLOPS on 256 chips"),
    ("groq3-lpx", "memory.sram.capacity", 128 * GIGA / 256, 1e-9, "rack: 128 GB on 256 chips"),
    ("groq3-lpx", "memory.sram.bandwidth", 40e15 / 256, 0.05, "rack: 40 PB/s on 256 chips"),
    ("groq3-lpx", "link.bandwidth_per_direction", 640 * TERA / 256 / 2, 1e-9, "rack: 640 TB/s, both directions"),
    ("groq3-lpx", "link.bandwidth_per_direction", 96 * 112e9 / 8, 0.1, "96 links of 112 Gb/s, raw"),
    # SambaNova
    ("sn40l-16", "rates.bf16", 10_208 * TERA / 16, 1e-9, "dataflow paper, table 3: 10,208 TFLOPS"),
    ("sn40l-16", "memory.hbm.bandwidth", 25.6 * TERA / 16, 1e-9, "dataflow paper, table 3: 25.6 TB/s"),
    ("sn40l-16", "memory.hbm.bandwidth", 1_800 * GIGA, 0.15, "dataflow paper, figure 11: line at about 1,800 GB/s"),
    ("sn40l-16", "memory.hbm.capacity", 1_024 * GIGA / 16, 1e-9, "Hot Chips 2024: 1,024 GB"),
    ("sn40l-16", "memory.sram.capacity", 8.32 * GIGA / 16, 1e-9, "Hot Chips 2024: 8.32 GB"),
    ("sn40l-16", "memory.sram.capacity", 1_040 * 512e3, 0.03, "1,040 memory units of 512 KB"),
    ("sn40l-16", "memory.ddr.capacity", 24 * TERA / 16, 1e-9, "Hot Chips 2024: 24 TB"),
    ("sn40l-16", "chips_per_node", 8 * 2, 1e-9, "SambaNova documents: 8 modules of 2 RDUs"),
    (
        "sn40l-8",
        "memory.hbm.bandwidth",
        584 * 16.6e9 / 0.757 / 8,
        0.01,
        "584 tok/s of 16.6 GB are 75.7 % of the roofline",
    ),
    # PCIe cards
    ("l40s-8", "rates.fp8", 1_466 * TERA / 2, 1e-9, "data sheet: 1,466 TFLOPS FP8, sparse"),
    ("l40s-8", "link.bandwidth_per_direction", 16 * 16e9 / 8, 0.02, "PCIe Gen4: 16 lanes of 16 GT/s"),
    ("h100-pcie-8", "rates.bf16", 114 * 4096 * 1.62e9, 0.01, "114 SMs x 4,096 dense FLOP a clock x 1.62 GHz"),
    ("h100-pcie-8", "memory.hbm.bandwidth", 5120 / 8 * 3.2e9, 0.03, "HBM2e: 5,120 bits of 3.2 Gb/s"),
    ("h100-nvl-2", "rates.bf16", 1_671 * TERA / 2, 0.01, "data sheet: 1,671 TFLOPS BF16, sparse"),
    ("h100-nvl-2", "memory.hbm.bandwidth", 6144 / 8 * 5.1e9, 0.02, "HBM3: 6,144 bits of 5.1 Gb/s"),
    ("h100-nvl-2", "memory.hbm.visible", 94 * 2**30 / (94 * GIGA), 0.01, "94 GB of address space"),
    ("rtx-pro-6000-8", "rates.fp4", 4_000 * TERA / 2, 0.07, "data sheet: 4,000 TOPS FP4, sparse, at a higher clock"),
    ("rtx-pro-6000-8", "link.bandwidth_per_direction", 16 * 32e9 / 8, 0.02, "PCIe Gen5: 16 lanes of 32 GT/s"),
    ("rtx-pro-6000-8", "memory.hbm.visible", 96 * 2**30 / (96 * GIGA), 0.01, "data sheet: 96 GB of address space"),
    # Cards and older chips
    ("l4-8", "rates.bf16", 121 * TERA, 0.01, "gpu-specs: 121 TFLOPS, 242 sparse"),
    ("l4-8", "memory.hbm.bandwidth", 300 * GIGA, 1e-9, "gpu_specs: 300 GB/s"),
    ("a10-8", "rates.bf16", 125 * TERA, 1e-9, "gpu_specs: 125 TFLOPS, 250 sparse"),
    ("a10-8", "memory.hbm.bandwidth", 600 * GIGA, 1e-9, "Baseten, A10 vs A10G: 600 GB/s"),
    ("a40-8", "memory.hbm.bandwidth", 695.8 * GIGA, 0.01, "sysrqmts.com: 695.8 GB/s"),
    ("a100-pcie-8", "memory.hbm.bandwidth", 1_935 * GIGA, 1e-9, "gpu-specs: 1,935 GB/s"),
    ("a100-pcie-8", "power.chip_tdp", 300, 1e-9, "gpu-specs: 300 W"),
    ("a100-40gb-8", "memory.hbm.bandwidth", 1.55 * TERA, 0.01, "gpu-datasheet: 1.55 TB/s"),
    ("rtx-a6000-8", "rates.bf16", 312 * TERA / 2, 0.01, "sipoch.com: 312 TFLOPS, sparse"),
    ("rtx-a6000-8", "memory.hbm.bandwidth", 768 * GIGA, 1e-9, "botcraftman.ru: 768 GB/s"),
    ("rtx-6000-ada-8", "memory.hbm.bandwidth", 960 * GIGA, 1e-9, "a public table of bandwidths: 960 GB/s"),
    (
        "rtx-3090-8",
        "rates.bf16",
        82 * 512 * 1.695e9,
        0.01,
        "82 SMs x 512 dense FLOP a clock, sums in FP32, x 1.695 GHz",
    ),
    ("rtx-3090-8", "memory.hbm.bandwidth", 384 * 19.5e9 / 8, 0.01, "384 bits of GDDR6X at 19.5 Gb/s"),
    ("rtx-4090-8", "rates.bf16", 330 * TERA / 2, 0.01, "gpu_specs: 330 TFLOPS with sums in FP16"),
    ("rtx-4090-8", "memory.hbm.bandwidth", 1.01 * TERA, 0.01, "hmc-tech.com: 1.01 TB/s"),
    ("rtx-5090-8", "memory.hbm.bandwidth", 1_792 * GIGA, 1e-9, "exolabs, DGX Spark handbook: 1,792 GB/s"),
    ("v100-8", "rates.fp16", 125 * TERA, 1e-9, "grokipedia: 125 TFLOPS"),
    ("h20-8", "rates.fp16", 148 * TERA, 1e-9, "zangshuxian.com: 148 TFLOPS"),
    ("h20-8", "memory.hbm.bandwidth", 4.0 * TERA, 1e-9, "zangshuxian.com: 4.0 TB/s"),
    ("h800-8", "rates.bf16", 990 * TERA, 0.01, "a public table of GPUs: 990 TFLOPS"),
    ("h800-8", "link.bandwidth_per_direction", 400 * GIGA / 2, 1e-9, "tumgag.com: 400 GB/s, both directions"),
    ("gh200-96gb", "memory.hbm.capacity", 96 * GIGA, 1e-9, "Wikipedia, Hopper: 96 GB"),
    ("gh200-144gb", "memory.hbm.capacity", 144 * GIGA, 0.03, "Wikipedia, Hopper: 144 GB"),
    ("dgx-spark", "rates.fp4", 480 * TERA, 0.05, "banandre.com: 480 TFLOPS measured"),
    ("dgx-spark", "rates.bf16", 60 * TERA, 0.05, "banandre.com: about 60 TFLOPS measured"),
    ("dgx-spark", "memory.hbm.bandwidth", 273 * GIGA, 1e-9, "satgeo.blog: 273 GB/s"),
    ("gaudi2-8", "memory.hbm.capacity", 96 * GIGA, 1e-9, "Hugging Face, Accelerate: 96 GB"),
    ("tpu-v4", "rates.bf16", 275 * TERA, 1e-9, "ml-engineering: 275 TFLOPS"),
    (
        "tpu-v4",
        "link.port_bandwidth_per_direction",
        24 * TERA / 512,
        0.06,
        "24 TB/s through 2 x 16 x 16 links of a pod",
    ),
    ("tpu-v5p", "rates.bf16", 459 * TERA, 1e-9, "ml-engineering: 459 TFLOPS"),
    ("tpu-v5p", "link.bandwidth_per_direction", 4_800 * GIGA / 8, 1e-9, "an older page: 4,800 Gb/s"),
    ("trainium1", "rates.bf16", 3_040 * TERA / 16, 1e-9, "Trn1.32xlarge: 3,040 TFLOPS"),
    ("trainium1", "memory.hbm.bandwidth", 13_120 * GIGA / 16, 1e-9, "Trn1.32xlarge: 13,120"),
    ("inferentia2", "rates.bf16", 2_280 * TERA / 12, 1e-9, "Inf2.48xlarge: 2,280 TFLOPS"),
    ("inferentia2", "memory.hbm.bandwidth", 9_840 * GIGA / 12, 1e-9, "Inf2.48xlarge: 9,840"),
]


@functools.cache
def loaded(name):
    return catalog.load_system(name)[0]


def at(system, path):
    part = system
    for key in path.split("."):
        part = part[key] if isinstance(part, dict) else getattr(part, key)
    return part


@pytest.mark.parametrize(
    ("name", "path", "value", "tolerance"),
    [pytest.param(*row[:4], id=f"{row[0]}: {row[1]} against {row[4]}") for row in SECOND],
)
def test_a_second_source_agrees(name, path, value, tolerance):
    assert at(loaded(name), path) == pytest.approx(value, rel=tolerance)


def test_every_system_has_one():
    assert {row[0] for row in SECOND} == {name for name, _, _ in catalog.entries("system")}


@pytest.mark.parametrize(
    "name", ["dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72", "gb300-nvl72", "mi300x-8", "mi325x-8", "mi355x-8"]
)
def test_fp8_doubles_the_dense_bf16_rate(name):
    """A sparse rate put beside a dense one would show as a factor of 1 or 4."""
    rates = loaded(name).rates
    assert rates["fp8"] / rates["bf16"] == pytest.approx(2, rel=1e-3)


def test_lpu_against_b200_is_the_ratio_of_the_papers_both_directions():
    """SHIP sets 235 GB/s beside 1,800 GB/s: both are sums of both directions, so both halve."""
    lpu, b200 = (loaded(name).link.bandwidth_per_direction for name in ("lpu-v1", "dgx-b200"))
    assert b200 / lpu == pytest.approx(1_800 / 235, rel=1e-3)


def test_power_of_an_lpu_against_a_b200_gpu():
    """SHIP: one LPU to 4.6 of them a B200."""
    lpu, b200 = (loaded(name).power.system_per_chip for name in ("lpu-v1", "dgx-b200"))
    assert b200 / lpu == pytest.approx(4.6, abs=0.05)

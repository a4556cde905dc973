"""servcalc: one GPU only, so that eight are asked for as one with eight times the memory, bandwidth and arithmetic."""

from measure import LLAMA, main
from servcalc import Workload, estimate
from servcalc.gpus import GpuSpec, resolve
from vramcalc import Arch

ARCH = Arch.from_config(LLAMA)
ONE = resolve("H100 80GB")
GPUS = {tp: GpuSpec(f"{tp} x H100", tp * ONE.vram_bytes, tp * ONE.bandwidth_gbs, tp * ONE.bf16_tflops) for tp in (4, 8)}


def ask(question):
    concurrency, prompt, output, tp = question
    found = estimate(ARCH, GPUS[tp], workload=Workload(prompt, output, (concurrency,)), profile="vllm").points[0]
    return found.ttft_ms.mid / 1e3, found.itl_ms.mid / 1e3


def sweep():
    """Sixty-four batches of one prompt and output."""
    workload = Workload(2048, 256, tuple(range(1, 65)))
    return len(estimate(ARCH, GPUS[8], workload=workload, profile="vllm").points)


main(ask, 50, sweep)

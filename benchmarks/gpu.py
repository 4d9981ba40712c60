"""The sparse form on a GPU: against dense formulas, against the memory, forward and backward.

Times are medians: of CUDA-graph replays where a row says `graph`, otherwise of whole calls on the
host's clock, from the call until the result is there.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import latentgamma as lg
from latentgamma.generators import g4, random

Row = dict[str, Any]


def versions() -> Row:
    import triton

    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
    }


def milliseconds(work: Callable[[], object], *, graph: bool = True, repeat: int = 60) -> float:
    """The median time of a piece of work, in milliseconds."""
    import triton

    if not graph:
        return float(triton.testing.do_bench(work, rep=repeat, return_mode="median"))
    work()
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        work()
    return float(triton.testing.do_bench(recorded.replay, rep=repeat, return_mode="median"))


def milliseconds_of_call(call: Callable[[], object], repeat: int = 200) -> float:
    """The median time of a call until its result is there, in milliseconds."""
    times = []
    for _ in range(repeat + 20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[20:])


def dense_steps(model: lg.LatentGamma, state: torch.Tensor, steps: int) -> torch.Tensor:
    """The paper's formulas as one would type them."""
    u = torch.sigmoid(model.rules.body_logits).T
    v = torch.softmax(model.rules.head_logits, -1)
    for _ in range(steps):
        a = torch.sigmoid(model.sharpness * (state @ u - model.threshold))
        phi = (model.gain * model.confidence * a) @ v - model.offset
        state = state + (1 - state) * torch.sigmoid(phi) * torch.sigmoid(model.gate * phi)
    return state


def small(batches: tuple[int, ...] = (1, 500, 16_384), steps: int = 32) -> list[Row]:
    """G4: forward and backward, beside the dense formulas."""
    program = g4()
    ours = lg.oracle(program, form="sparse", device="cuda")
    reference = lg.oracle(program, form="sparse", device="cuda", kernel="reference")
    dense = lg.oracle(program, form="dense", device="cuda")
    rows = []
    for batch in batches:
        generator = torch.Generator("cuda").manual_seed(batch)
        state = (torch.rand(batch, program.M, generator=generator, device="cuda") < 0.02).float()
        with torch.no_grad():
            worst = (ours(state, steps) - reference(state, steps)).abs().max().item()
            reading = milliseconds(lambda: ours(state, steps))  # noqa: B023
            with ours.fixed():
                forward = milliseconds(lambda: ours(state, steps))  # noqa: B023
            formulas = milliseconds(lambda: dense_steps(dense, state, steps))  # noqa: B023
        weight = torch.rand(state.shape, generator=generator, device="cuda")

        wanted = [start := state.clone().requires_grad_(), *ours.parameters()]

        def both() -> None:
            torch.autograd.grad((ours(start, steps) * weight).sum(), wanted)  # noqa: B023

        def once() -> None:
            ours(start, steps)

        depth = max(lg.closure(program, row).depth for row in (state > 0.5).cpu().numpy()[:2000])

        def both_right() -> None:
            torch.autograd.grad((ours(start, depth) * weight).sum(), wanted)  # noqa: B023

        def both_closed() -> None:
            torch.autograd.grad((ours(start) * weight).sum(), wanted)  # noqa: B023

        trained, kept = milliseconds(both), milliseconds(once)
        with torch.no_grad():
            plain = milliseconds_of_call(lambda: ours(state, steps))  # noqa: B023
            right = milliseconds_of_call(lambda: ours(state, depth))  # noqa: B023
            closed = milliseconds_of_call(lambda: ours(state))  # noqa: B023
            with ours.fixed():
                replayed = milliseconds_of_call(lambda: ours(state, steps))  # noqa: B023
        both_right_ms, both_closed_ms = map(milliseconds_of_call, (both_right, both_closed))
        rows.append(
            {
                "job": f"G4, B = {batch}, T = {steps}",
                "forward_graph_ms": forward,
                "forward_graph_with_parameters_read_ms": reading,
                "dense_graph_ms": formulas,
                "dense / ours": formulas / forward,
                "forward_for_gradients_graph_ms": kept,
                "forward_backward_graph_ms": trained,
                "plain_call_ms": plain,
                "fixed_call_ms": replayed,
                "forward_backward_call_ms": milliseconds_of_call(both),
                "depth": depth,
                "steps_none_call_ms": closed,
                "steps_none / right steps": closed / right,
                "steps_none / right steps, forward and backward": both_closed_ms / both_right_ms,
                "largest_difference_from_reference": worst,
            }
        )
    return rows


def copy_bandwidth() -> float:
    """Bytes read and written in a second by a large copy."""
    source = torch.empty(1 << 28, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / milliseconds(lambda: target.copy_(source), graph=False) * 1e3


def large(size: int = 10**6, batch: int = 256, k: int = 3) -> list[Row]:
    """M = R = 10⁶: what part of the copy bandwidth the steps reach."""
    bandwidth = copy_bandwidth()
    program = random(size, size, body=k, seed=0)
    model = lg.oracle(program, lg.Constants.paper(), form="sparse", device="cuda")
    state = (torch.rand(batch, size, device="cuda") < 0.02).float()
    with torch.no_grad():
        short, long = (
            milliseconds(lambda: model(state, steps), graph=False)  # noqa: B023
            for steps in (4, 12)
        )
    step = (long - short) / 8
    moved = (k + 4) * size * batch * 4
    return [
        {
            "job": f"M = R = {size:,}, k = {k}, B = {batch}",
            "step_ms": step,
            "copy_TB_per_s": bandwidth / 1e12,
            "part_of_copy_bandwidth": moved / (step / 1e3) / bandwidth,
        }
    ]


def planes(words: int = 1 << 18) -> list[Row]:
    """Closures of bit planes, fact sets a second."""
    found = []
    for name, program, width in (
        ("G4", g4(), words),
        ("random, M = 5,000, R = 8,000", random(5_000, 8_000, seed=1), words // 16),
    ):
        bits = [torch.randint(-(2**62), 2**62, (program.M, width), device="cuda") for _ in "ab"]
        given = bits[0] & bits[1]
        time = milliseconds(lambda: lg.closures(program, given, packed=True), graph=False)  # noqa: B023
        found.append(
            {
                "job": f"closures, {name}, {64 * width:,} fact sets",
                "ms": time,
                "fact_sets_per_s": 64 * width / time * 1e3,
            }
        )
    return found


def rows() -> list[Row]:
    return [versions(), *small(), *large(), *planes()]


if __name__ == "__main__":
    import json

    print(json.dumps(rows(), indent=1))

"""`steps=None`: as many steps as each example needs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from latentgamma._arguments import level_of_caller
from latentgamma.certificate.certify import Certificate
from latentgamma.engine.tensors import has_triton
from latentgamma.logic.closure import depths_of_rows
from latentgamma.operator.kernels.interface import LEAST_SIZE, joined_values, make_literal_rows
from latentgamma.operator.rules import Literals, SparseRules
from latentgamma.operator.run import Runner
from latentgamma.program.program import Program

if TYPE_CHECKING:
    from latentgamma.operator.kernels.cuda_launch import CudaClosure

# ---- Runs with `steps=None`: each example runs until its support is closed under the program
# How many steps an example takes depends on that example alone. Its facts are read off its state,
# their closure takes d steps of T_P, where P are the rules that the certificate was proved with
# (`Certificate.rules`), and the model has reached it after d + t_min − depth steps: `docs/theorem.md`
# proves it. For inputs of zeros and ones that is all. Other facts may need longer: an example whose
# support is not closed yet goes on, in chunks, up to a limit inside the certified window.

#: How many steps of T_P the support of each state of a batch (B, M) takes to its closure. (B,).
Depths: TypeAlias = Callable[[Tensor], npt.NDArray[np.int64]]
#: Steps of the first chunk after the expected number; each further chunk is twice as long.
_FIRST_CHUNK = 4
#: States kept for a backward pass, in values; where there may be more, the depth is waited for.
_MOST_KEPT = 1 << 26


def _limits(certificate: Certificate) -> tuple[int, int]:
    """Return how many steps an example takes beyond its depth under T_P, and how many at most.

    The certificate must hold.
    """
    # Soft facts may need more steps than t_min, which is about facts at 1.
    most = int(min(certificate.t_max, 4 * certificate.t_min + 16))
    return int(certificate.t_min) - certificate.depth, most


def run_until_closed(
    runner: Runner, depths_of: Depths, certificate: Certificate, state: Tensor
) -> Tensor:
    """Return the state of every example once its support is closed under the program. (…, M).

    The certificate must hold, for every fact set and for states of this dtype.
    """
    if state.dim() != 2:
        batch = state.reshape(math.prod(state.shape[:-1]), state.shape[-1])
        return run_until_closed(runner, depths_of, certificate, batch).reshape(state.shape)
    delay, most = _limits(certificate)
    values = state.detach()
    depths = depths_of(values)
    taken = np.where(depths > 0, np.minimum(depths + delay, most), 0)
    after = _run(runner, state, taken)
    return after if _is_boolean(values) else _run_on(runner, depths_of, after, taken, most)


def _run(runner: Runner, batch: Tensor, counts: npt.NDArray[np.int64]) -> Tensor:
    """Return a batch (B, M) after as many steps of each example as the array (B,) says."""
    most = int(counts.max(initial=0))
    if most == 0:
        return batch
    if int(counts.min()) == most:
        return runner.final(batch, most)
    return runner.final(batch, most, torch.from_numpy(counts).to(batch.device))


def run_until_closed_on_gpu(
    runner: Runner,
    closure: CudaClosure,
    certificate: Certificate,
    kept: Sequence[Tensor],
    now: Sequence[Tensor],
    state: Tensor,
) -> Tensor | None:
    """Run as `run_until_closed`, but wait for the device only once, after the run was started.

    Args:
        runner: runs a kernel on the GPU.
        closure: the rules of the certificate.
        certificate: the last one that was proved.
        kept: the values that it holds for, from `joined_values`.
        now: the tensors that had these values.
        state: values in [0, 1]. (…, M).

    Returns:
        The states; None if a value has changed, so that the certificate says nothing.
    """
    delay, most = _limits(certificate)
    batch = state.reshape(math.prod(state.shape[:-1]), state.shape[-1])
    steps = min(most, certificate.depth + delay)
    pointers = tuple(tensor.data_ptr() for tensor in (*kept, *now))
    key = delay, most, id(runner.fixed), pointers
    unrecorded = replace(runner, recorded_runs=None)

    def changes() -> list[Tensor]:
        return [(a != b).any() for a, b in zip(kept, joined_values(now), strict=True)]

    def joined(counts: Tensor, soft: Tensor, changed: list[Tensor]) -> Tensor:
        """Return the numbers of steps, whether a value is soft, and whether any changed."""
        return torch.cat([counts, torch.stack([soft.any(), *changed])])

    def count(given: Tensor) -> tuple[Tensor]:
        return (joined(*closure.count(given, delay, most), changes()),)

    def count_and_run(given: Tensor) -> tuple[Tensor, Tensor]:
        first = delay + 1  # steps that every example takes whose support is not closed yet
        if first >= steps or not torch.cuda.is_current_stream_capturing():
            (found,) = count(given)
            return found, unrecorded.final(given, steps, found[: len(given)])
        # Counting takes about as long as these steps: in a graph both run at the same time.
        counting, comparing = _branch(), _branch()
        with torch.cuda.stream(counting):
            counts, soft = closure.count(given, delay, most)
        with torch.cuda.stream(comparing):
            changed = changes()
        middle = unrecorded.final(given, first)
        torch.cuda.current_stream().wait_stream(counting)
        middle = torch.where((counts > 0)[:, None], middle, given)
        after = unrecorded.final(middle, steps - first, counts - first)
        torch.cuda.current_stream().wait_stream(comparing)
        return joined(counts, soft, changed), after

    B = len(batch)
    if torch.is_grad_enabled():
        (found,) = closure.recorded_runs.run(("count", key), count, [batch.detach()])
        if steps * batch.numel() > _MOST_KEPT:
            steps = int(found[:B].max())
        after = runner.final(batch, steps, found[:B])
    else:
        found, after = closure.recorded_runs.run(("run", key), count_and_run, [batch])
    soft, *changed = found[B:].tolist()
    if any(changed):
        return None
    if soft:
        after = _run_on(runner, closure.depths, after, found[:B].cpu().numpy(), most)
    return after.reshape(state.shape)


def _branch() -> torch.cuda.Stream:
    """Return a stream that goes on from where the current one is now."""
    branch = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    branch.wait_stream(torch.cuda.current_stream())
    return branch


def _run_on(
    runner: Runner, depths_of: Depths, batch: Tensor, taken: npt.NDArray[np.int64], most: int
) -> Tensor:
    """Return the batch after further chunks of steps, until every support is closed."""
    taken = taken.copy()  # the backward pass of the first run still needs its own numbers
    chunk = _FIRST_CHUNK
    while len(batch):
        running = np.flatnonzero(depths_of(batch.detach()))
        if not len(running):
            break
        more = np.minimum(most - taken[running], chunk)
        if not more.max():
            _warn(len(running), len(batch), most)
            break
        rows = torch.from_numpy(running).to(batch.device)
        batch = batch.index_copy(0, rows, _run(runner, batch.index_select(0, rows), more))
        taken[running] += more
        chunk *= 2
    return batch


def _is_boolean(state: Tensor) -> bool:
    """Return whether every value is 0 or 1, as the certificate assumes."""
    if state.device.type == "cpu" and state.dtype in (torch.float32, torch.float64):
        array = state.numpy()  # comparing a small array takes numpy a tenth of the time
        return bool(((array == 0) | (array == 1)).all())
    return bool(((state == 0) | (state == 1)).all())


def _warn(unfinished: int, examples: int, limit: int) -> None:
    warnings.warn(
        f"{unfinished} of {examples} examples did not reach a closed support within {limit} "
        f"steps: their facts are too close to ½ for some rule to fire or not; move the facts "
        f"towards 0 or 1, or pass steps=",
        stacklevel=level_of_caller(),
    )


def depths_on_cpu(program: Program, state: Tensor) -> npt.NDArray[np.int64]:
    """Return how many steps of T_P the support of each state (B, M) takes to its closure. (B,)."""
    if state.device.type == "cpu" and state.dtype in (torch.float32, torch.float64):
        array: npt.NDArray[np.floating] = state.numpy()  # small arrays take a tenth of the time
        above = np.ascontiguousarray(array > 0.5)
    else:
        above = (state > 0.5).cpu().contiguous().numpy()
    large = program.M + program.R + len(program.body_indices) >= LEAST_SIZE
    return depths_of_rows(program, above, compiled=large, threads=torch.get_num_threads())


class ClosureCache:
    """Keeps T_P of one program on a GPU. A copy of a model starts anew."""

    def __init__(self) -> None:
        self._entry: tuple[Program, torch.device, CudaClosure | None] | None = None

    def get(self, program: Program, device: torch.device) -> CudaClosure | None:
        """Return T_P of this program as a GPU kernel, where there is one for it."""
        if device.type != "cuda" or not has_triton():
            return None
        entry = self._entry  # read once: another thread may replace it
        if entry is None or entry[0] is not program or entry[1] != device:
            from latentgamma.operator.kernels.cuda_launch import CudaClosure

            literals = Literals(*(x.to(device) for x in SparseRules.literals_of(program)))
            rows = make_literal_rows(literals, M=program.M, R=program.R)
            found = CudaClosure(rows) if CudaClosure.fits(rows) else None
            entry = self._entry = program, device, found
        return entry[2]

    def __reduce__(self) -> tuple[type[ClosureCache], tuple[()]]:
        return ClosureCache, ()

"""The last certificate of a model, kept while nothing that it depends on has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from latentgamma._certificate.certificate import Certificate


@dataclass(frozen=True, eq=False)
class _Entry:
    key: tuple[object, ...]
    values: list[Tensor]
    certificate: Certificate


class CertificateCache:
    """Keeps one certificate with a copy of the values that it was computed from.

    The values are compared: a version counter does not see changes made through `p.data`.
    """

    def __init__(self) -> None:
        self._entry: _Entry | None = None

    def get(
        self,
        key: tuple[object, ...],
        tensors: Iterable[Tensor],
        compute: Callable[[], Certificate],
        in_any_process: Callable[[bool], bool],
    ) -> Certificate:
        """The certificate for this key and these values, computed where there is none yet.

        Processes that share a model compute it together, if it has changed in any of them.
        """
        tensors = list(tensors)
        entry = self._entry  # read once: another thread may replace it
        changed = entry is None or entry.key != key or not _equal(entry.values, tensors)
        if in_any_process(changed) or entry is None:
            values = [tensor.detach().clone() for tensor in tensors]
            entry = self._entry = _Entry(key, values, compute())
        return entry.certificate


def _equal(kept: list[Tensor], now: list[Tensor]) -> bool:
    if [(a.dtype, a.device) for a in kept] != [(b.dtype, b.device) for b in now]:
        return False
    if all(tensor.is_cpu for tensor in now):
        return all(map(torch.equal, kept, now))
    # Each answer waits for the device, so there is one for each dtype.
    return all(map(torch.equal, _joined(kept), _joined(now)))


def _joined(tensors: list[Tensor]) -> list[Tensor]:
    """All values, as one tensor for each dtype and device."""
    kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    with torch.no_grad():
        for tensor in tensors:
            flat = tensor if tensor.dim() == 1 else tensor.reshape(-1)
            kinds.setdefault((tensor.dtype, tensor.device), []).append(flat)
        return [torch.cat(parts) for parts in kinds.values()]

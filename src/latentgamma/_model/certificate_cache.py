"""The certificates of a model, kept while nothing that it depends on has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from latentgamma._certificate.certificate import Certificate


@dataclass(frozen=True, eq=False)
class _Entry:
    values: list[Tensor]
    found: tuple[tuple[tuple[object, ...], Certificate], ...]  # keys and certificates

    def get(self, key: tuple[object, ...]) -> Certificate | None:
        return next((certificate for known, certificate in self.found if known == key), None)


class CertificateCache:
    """Keeps the certificates of some values, with a copy of these.

    The values are compared: a version counter does not see changes made through `p.data`.
    """

    def __init__(self) -> None:
        self._entry: _Entry | None = None

    def kept(self, key: tuple[object, ...]) -> tuple[Certificate, list[Tensor]] | None:
        """The certificate for this key, and the values it holds for as `joined_values` gives them.

        None where there is none yet. Whether the values are still the same is for the caller to see.
        """
        entry = self._entry
        found = None if entry is None else entry.get(key)
        return None if entry is None or found is None else (found, entry.values)

    def get(
        self,
        key: tuple[object, ...],
        tensors: Iterable[Tensor],
        compute: Callable[[], Certificate],
        in_any_process: Callable[[bool], bool] = bool,
    ) -> Certificate:
        """The certificate for this key and these values, computed where there is none yet.

        Processes that share a model compute it together, if it has changed in any of them.
        """
        now = joined_values(tensors)
        entry = self._entry  # read once: another thread may replace it
        if entry is None or not _equal(entry.values, now):
            entry = _Entry([value.detach().clone() for value in now], ())
        found = entry.get(key)
        if in_any_process(found is None) or found is None:
            found = compute()
            others = tuple(pair for pair in entry.found if pair[0] != key)
            self._entry = _Entry(entry.values, (*others, (key, found)))
        return found


def joined_values(tensors: Iterable[Tensor]) -> list[Tensor]:
    """All values: on the CPU as they are, on other devices as one flat tensor for each dtype.

    Each comparison on a device has to be waited for, so there should be few.
    """
    values = list(tensors)
    if all(value.is_cpu for value in values):
        return values
    values = [value.detach() for value in values]
    kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for value in values:
        kinds.setdefault((value.dtype, value.device), []).append(value.reshape(-1))
    return [torch.cat(parts) for parts in kinds.values()]


def _equal(kept: list[Tensor], now: list[Tensor]) -> bool:
    if len(kept) != len(now):
        return False
    return all(
        a.dtype is b.dtype and a.device == b.device and torch.equal(a, b)
        for a, b in zip(kept, now, strict=True)
    )

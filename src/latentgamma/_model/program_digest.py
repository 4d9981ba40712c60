"""A digest of a program: what the parameters of a model belong to."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor

from latentgamma._program.program import Program


def program_digest(program: Program) -> Tensor:
    """32 bytes that differ for programs that differ in a rule, an atom or an order. (32,)."""
    digest = hashlib.blake2b(digest_size=32)
    for array in (
        program.body_indptr,
        program.body_indices,
        program.head_indptr,
        program.head_indices,
    ):
        digest.update(np.ascontiguousarray(array, np.int64).tobytes())
        digest.update(b"|")
    for name in program.atoms:
        encoded = name.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)

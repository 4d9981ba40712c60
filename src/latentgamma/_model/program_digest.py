"""A digest of a program: what the values of a model or a layer belong to."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from latentgamma._errors import ModelError
from latentgamma._program.program import Program


def program_digest(program: Program) -> Tensor:
    """32 bytes that differ for programs that differ in a rule, an atom or an order. (32,)."""
    digest = hashlib.blake2b(digest_size=32)
    for array in (
        program.body_indptr,
        program.body_literals,
        program.head_indptr,
        program.head_indices,
    ):
        digest.update(np.ascontiguousarray(array, np.int64).tobytes())
        digest.update(b"|")
    for name in program.atoms:
        encoded = name.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)


def refuse_other_program(
    module: nn.Module, state_dict: dict[str, Any], prefix: str, *others: Any
) -> None:
    """Raise a ModelError for a state dict of another program, before anything is loaded."""
    own = module.get_extra_state()
    # State dicts of earlier releases have no digest.
    given = state_dict.setdefault(prefix + "_extra_state", own)
    if len(own) and len(given) and not torch.equal(own, given.cpu()):
        raise ModelError(
            "these values belong to another program; load them into a model or a layer of that "
            "program"
        )

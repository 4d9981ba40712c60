"""One flipped bit in a file: it is refused, or what is read means the same.

More bits than those of every run: FLIPS=1000 python -m pytest tests/test_damaged_files.py
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import latentgamma as lg

#: Bits that are flipped in each file, each on its own.
FLIPS = int(os.environ.get("FLIPS", "100"))


def damaged(data: bytes, seed: int, flips: int = FLIPS) -> Iterator[bytes]:
    """Yield copies of the data with one bit flipped, half of the flips near the start."""
    rng = np.random.default_rng(seed)
    for i in range(flips):
        where = int(rng.integers(8 * (len(data) if i % 2 else min(len(data), 1500))))
        changed = bytearray(data)
        changed[where // 8] ^= 1 << where % 8
        yield bytes(changed)


def count_refused(
    data: bytes, path: Path, read: Callable[[], object], error: type[Exception], flips: int = FLIPS
) -> int:
    """The number of flips that are refused; all others must read as the whole file does."""
    path.write_bytes(data)
    expected, refused = read(), 0
    for changed in damaged(data, len(data), flips):
        path.write_bytes(changed)
        message = ""
        try:
            assert read() == expected
        except error as problem:
            message = str(problem)
            refused += 1
        assert not message or path.name in message
    return refused


# ---------------------------------------------------------------------- models


def model_content(path: Path) -> tuple[object, ...]:
    """Everything that a model computes with."""
    model = lg.LatentGamma.load(path)
    tensors = {
        name: (t.dtype, t.shape, t.numpy().tobytes()) for name, t in model.state_dict().items()
    }
    return tensors, model.program, model.gate_kind, model.gradient, model.dtype


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_a_model_file_with_a_flipped_bit_is_refused_or_the_same(form: str, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    lg.oracle(lg.parse("b, c :- a. d :- b, c. e :- d."), form=form, dtype=torch.float32).save(path)  # type: ignore[arg-type]
    refused = count_refused(path.read_bytes(), path, lambda: model_content(path), lg.ModelError)
    assert refused > FLIPS / 2


def test_a_model_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    lg.oracle(lg.parse("b, c :- a. d :- b, c.")).save(path)
    data = path.read_bytes()
    for end in range(0, len(data), 7):
        path.write_bytes(data[:end])
        with pytest.raises(lg.ModelError):
            lg.LatentGamma.load(path)


# ---------------------------------------------------------------------- checkpoints


STATES = np.random.default_rng(0).random((60, 5)) < 0.5
PROGRAM = lg.parse("b :- a. c :- a, b. d :- c. a :- e, d.")
AFTER = np.stack([PROGRAM.mask(lg.step(PROGRAM, row)) for row in STATES])


def learned(path: Path) -> tuple[object, ...]:
    result = lg.fit(STATES, AFTER, atoms=PROGRAM.atoms, checkpoint=path, holdout=0)
    return result.program, dict(result.unexplained), result.training_accuracy


def test_a_checkpoint_with_a_flipped_bit_is_refused_or_ends_the_same(tmp_path: Path) -> None:
    path = tmp_path / "fit.learning"
    learned(path)
    # A damaged line at the end is computed again.
    assert count_refused(path.read_bytes(), path, lambda: learned(path), lg.DataError) > FLIPS / 4

"""One flipped bit in a file: it is refused, or what is read means the same.

More bits than those of every run: FLIPS=1000 python -m pytest tests/laws/test_damaged_files.py
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import latentgamma as lg
from latentgamma.operator import files
from reference import every_fact_set

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
    return content_of(lg.LatentGamma.load(path))


def content_of(model: lg.LatentGamma) -> tuple[object, ...]:
    tensors = {
        name: (t.dtype, t.shape, t.numpy().tobytes()) for name, t in model.state_dict().items()
    }
    options = [
        (p.program, p.gate_kind, p.gradient, p.kernel, p.dtype, p.rules.R) for p in model.parts
    ]
    return model.definite, tensors, model.program, options


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_a_model_file_with_a_flipped_bit_is_refused_or_the_same(form: str, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    lg.oracle(lg.parse("b, c :- a. d :- b, c. e :- d."), form=form, dtype=torch.float32).save(path)  # type: ignore[arg-type]
    refused = count_refused(
        path.read_bytes(), path, lambda: model_content(path), lg.errors.ModelError
    )
    assert refused > FLIPS / 2


#: Programs with negation: two strata, three, quoted names, facts, and atoms that no rule uses.
WITH_NEGATION = [
    "fly :- bird, not penguin. bird :- penguin.",
    "a. d :- c, not b. b :- a. c :- not a. e :- d, not f, not 'x y'. e :- not e2. e2 :- e1.",
    "#external z. p, q :- not z. r :- p, not s. s :- not t, not q. 'not s' :- s.",
]


@pytest.mark.quick_first
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("text", WITH_NEGATION)
def test_a_model_with_negation_comes_back_bit_for_bit(
    text: str, form: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    program = lg.parse(text)
    model = lg.oracle(program, form=form, dtype=dtype, gate="bump")  # type: ignore[call-overload]
    with torch.no_grad():  # every parameter has a value that no default gives
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.manual_seed(0))
    path = tmp_path / "net.safetensors"
    model.save(path)
    back = lg.LatentGamma.load(path)
    assert not back.definite
    assert content_of(back) == content_of(model)
    facts = model.state(every_fact_set(program.M))
    with torch.no_grad():
        assert torch.equal(back(facts, 3), model(facts, 3))


@pytest.mark.quick_first
@pytest.mark.parametrize("seed", range(30))
def test_the_strata_of_any_program_come_back(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    M = int(rng.integers(1, 9))
    rules = []
    for _ in range(int(rng.integers(1, 20))):  # only atoms before the head are negated
        head, below = int(rng.integers(M)), rng.permutation(M)[: int(rng.integers(4))].tolist()
        signs = [f"not a{i}" if i < head and rng.random() < 0.5 else f"a{i}" for i in below if i <= head]  # fmt: skip
        rules.append(f"a{head} :- {', '.join(signs)}." if signs else f"a{head}.")
    program = lg.parse("\n".join(rules))
    path = tmp_path / "net.safetensors"
    model = lg.oracle(program)
    model.save(path)
    assert content_of(lg.LatentGamma.load(path)) == content_of(model)


def test_a_damaged_model_with_negation_is_refused_or_the_same(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    lg.oracle(lg.parse(WITH_NEGATION[1]), dtype=torch.float32).save(path)
    refused = count_refused(
        path.read_bytes(), path, lambda: model_content(path), lg.errors.ModelError
    )
    assert refused > FLIPS / 2


@pytest.mark.slow
def test_tensors_that_do_not_fit_a_model_with_negation_are_refused(tmp_path: Path) -> None:
    """A file whose digest is right may still be wrong: somebody else's tensors."""
    path = tmp_path / "net.safetensors"
    lg.oracle(lg.parse(WITH_NEGATION[1])).save(path)
    tensors, metadata = files._read(path)
    changes: list[tuple[str, torch.Tensor | None]] = [(name, None) for name in tensors]
    changes += [(name, tensor[:-1]) for name, tensor in tensors.items() if tensor.dim()]
    changes += [(name, tensor[None]) for name, tensor in tensors.items()]
    changes += [(f"{s}.program.name_ends", torch.tensor(0)) for s in (0, 1)]
    changes += [
        ("extra", torch.zeros(1)),
        ("9.offset", torch.zeros(1)),
        ("program.body_negated", torch.zeros(len(tensors["program.body_negated"]))),
        ("program.body_indices", tensors["program.body_indices"] + 99),
        ("program.head_indices", tensors["program.head_indices"] - 1),
        ("program.names", tensors["program.names"] | 0x80),
        ("program.body_negated", ~tensors["program.body_negated"]),
    ]
    for name, tensor in changes:
        changed = {key: value for key, value in tensors.items() if key != name}
        if tensor is not None:
            changed[name] = tensor.contiguous()
        digest = files._digest(changed, metadata)
        save_file(changed, path, {**metadata, "digest": digest})
        with pytest.raises(lg.errors.ModelError):
            lg.LatentGamma.load(path)
    for options in ("[]", '{"strata": 3}', '{"strata": [{}]}', '{"strata": []}', "{}"):
        altered = {**metadata, "options": options}
        digest = files._digest(tensors, altered)
        save_file(tensors, path, {**altered, "digest": digest})
        with pytest.raises(lg.errors.ModelError):
            lg.LatentGamma.load(path)


@pytest.mark.parametrize("text", ["b, c :- a. d :- b, c.", WITH_NEGATION[0]])
def test_a_model_file_that_ends_early_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    lg.oracle(lg.parse(text)).save(path)
    data = path.read_bytes()
    for end in range(0, len(data), 7):
        path.write_bytes(data[:end])
        with pytest.raises(lg.errors.ModelError):
            lg.LatentGamma.load(path)


# ---------------------------------------------------------------------- checkpoints


STATES = np.random.default_rng(0).random((60, 5)) < 0.5
PROGRAM = lg.parse("b :- a. c :- a, b. d :- c. a :- e, d.")
AFTER = np.stack([PROGRAM.mask(lg.logic.step(PROGRAM, row)) for row in STATES])


def learned(path: Path) -> tuple[object, ...]:
    result = lg.fit(STATES, AFTER, atoms=PROGRAM.atoms, checkpoint=path, holdout=0)
    return result.program, dict(result.unexplained), result.training_accuracy


@pytest.mark.slow
def test_a_checkpoint_with_a_flipped_bit_is_refused_or_ends_the_same(tmp_path: Path) -> None:
    path = tmp_path / "fit.learning"
    learned(path)
    # A damaged line at the end is computed again.
    assert (
        count_refused(path.read_bytes(), path, lambda: learned(path), lg.errors.DataError)
        > FLIPS / 4
    )

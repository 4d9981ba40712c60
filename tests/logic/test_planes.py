"""Bit planes: packing, closures of packed fact sets, and random fact sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import latentgamma as lg
from latentgamma import Program
from latentgamma.errors import ArgumentError, FactsError
from latentgamma.logic.planes import pack_with_numpy, unpack_with_numpy
from random_programs import random_program
from reference import PATHS, every_fact_set, path, reference_levels


def bit(planes: np.ndarray, atom: int, n: int) -> bool:
    """The definition: bit n % 64 of word n // 64 in row i is atom i in fact set n."""
    return bool(int(planes[atom, n // 64]) >> int(n % 64) & 1)


# ---------------------------------------------------------------- packing


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("N", [0, 1, 7, 63, 64, 65, 130, 2_047, 2_048, 2_049, 5_000])
@pytest.mark.parametrize("M", [0, 1, 7, 8, 9, 70])
def test_packed_bits_are_where_they_should_be(kind: str, N: int, M: int) -> None:
    rng = np.random.default_rng(N + M)
    rows = rng.random((N, M)) < 0.4
    with path(kind):
        planes = lg.logic.pack(rows)
        assert planes.shape == (M, -(-N // 64))
        assert planes.dtype == np.uint64
        back = lg.logic.unpack(planes, N)
    assert back.dtype == np.bool_
    assert np.array_equal(back, rows)
    for n, i in zip(rng.integers(0, max(N, 1), 50), rng.integers(0, max(M, 1), 50), strict=True):
        if N and M:
            assert bit(planes, i, n) == rows[n, i]
    for n in range(N, 64 * planes.shape[1]):
        assert not any(bit(planes, i, n) for i in range(M))


def test_rows_may_be_of_any_layout_and_kind() -> None:
    rows = np.random.default_rng(0).random((100, 13)) < 0.5
    planes = lg.logic.pack(rows)
    for form in (rows.astype(int), rows.astype(float), np.asfortranarray(rows), rows.tolist()):
        assert np.array_equal(lg.logic.pack(form), planes)
    assert np.array_equal(lg.logic.unpack(np.asfortranarray(planes), 100), rows)
    assert np.array_equal(lg.logic.unpack(planes, 40), rows[:40])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lg.logic.pack([True, False]), r"shape \(N, M\) .* bool of shape \(2,\)"),
        (lambda: lg.logic.pack([["a"]]), "booleans or 0 and 1"),
        (lambda: lg.logic.pack([[0.5]]), "the values 0 and 1 only"),
        (lambda: lg.logic.pack([[2]]), "the values 0 and 1 only"),
        (
            lambda: lg.logic.unpack(np.zeros((2, 1), np.int64), 3),
            "unpack takes bit planes, a uint64",
        ),
        (
            lambda: lg.logic.unpack(np.zeros((2, 1), np.uint64), 65),
            "N (is at most 64|must be a whole number from 0 on)",
        ),
        (
            lambda: lg.logic.unpack(np.zeros((2, 1), np.uint64), -1),
            "N (is at most 64|must be a whole number from 0 on)",
        ),
    ],
)
def test_what_cannot_be_packed(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()


# ---------------------------------------------------------------- closures


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("N", [1, 64, 65, 3_000])
def test_closures_of_planes_are_those_of_rows(kind: str, N: int) -> None:
    rng = np.random.default_rng(N)
    for trial in range(10 if N < 1000 else 4):
        program = random_program(rng, 30, 20 * (1 + trial % 4), body=3)
        rows = rng.random((N, 30)) < 0.15
        with path("plain"):
            expected = np.array([lg.closure(program, row).state for row in rows])
        planes = lg.logic.pack(rows)
        before = planes.copy()
        with path(kind):
            for threads in (None, 1, 3):
                closed = lg.closures(program, planes, packed=True, threads=threads)
                assert np.array_equal(lg.logic.unpack(closed, N), expected)
            assert np.array_equal(planes, before)
            out = np.empty_like(planes)
            assert lg.closures(program, planes, packed=True, out=out) is out
            assert np.array_equal(out, closed)
            spread = np.zeros((30, 3 * planes.shape[1]), np.uint64)[:, ::3]  # not contiguous
            spread[:] = planes
            lg.closures(program, spread, packed=True, out=spread)
            assert np.array_equal(spread, closed)


def test_planes_may_overlap_with_where_their_closures_go() -> None:
    program = lg.generators.chain(5)
    memory = lg.logic.random_planes(np.full(program.M + 1, 0.3), 64 * 4097)
    for planes, out in (
        (memory[:-1, :-1], memory[:-1, 1:]),
        (memory[:-1, 1:], memory[:-1, :-1]),
        (memory[1:], memory[:-1]),
        (memory[:-1], memory[-2::-1]),
    ):
        expected = lg.closures(program, planes.copy(), packed=True)
        np.testing.assert_array_equal(lg.closures(program, planes, packed=True, out=out), expected)


@pytest.mark.parametrize("kind", PATHS)
def test_the_closures_of_all_fact_sets(kind: str) -> None:
    rng = np.random.default_rng(7)
    for _ in range(100):
        M = int(rng.integers(1, 7))
        program = random_program(rng, M, int(rng.integers(1, 3 * M + 1)))
        rows = every_fact_set(M)
        with path(kind):
            closed = lg.logic.unpack(
                lg.closures(program, lg.logic.pack(rows), packed=True), len(rows)
            )
        for row, answer in zip(rows, closed, strict=True):
            levels = reference_levels(program, program.names(row))
            assert program.names(answer) == frozenset().union(*levels)


def test_many_words_go_through_many_tiles() -> None:
    program = lg.generators.g2()
    planes = lg.logic.random_planes(np.full(program.M, 0.1), 64 * 1_500 + 5, seed=1)
    with path("plain"):
        by_numpy = lg.closures(program, planes, packed=True)
    with path("compiled"):
        compiled = lg.closures(program, planes, packed=True)
    assert np.array_equal(by_numpy, compiled)
    rows = lg.logic.unpack(planes, 200)
    expected = np.array([lg.closure(program, row).state for row in rows])
    assert np.array_equal(lg.logic.unpack(compiled, 200), expected)


@pytest.mark.parametrize("kind", PATHS)
def test_negation_on_planes(kind: str) -> None:
    program = lg.parse("a :- b, not c. d :- not a, b. e :- not d, not c. c :- x.")
    rng = np.random.default_rng(0)
    rows = rng.random((500, program.M)) < 0.4
    with path(kind):
        closed = lg.closures(program, lg.logic.pack(rows), packed=True)
        assert np.array_equal(lg.closures(program, rows), lg.logic.unpack(closed, 500))
    for row, answer in zip(rows, lg.logic.unpack(closed, 500), strict=True):
        assert np.array_equal(lg.closure(program, row).state, answer)


def test_tensors_come_back_as_tensors() -> None:
    program = lg.generators.g2()
    planes = lg.logic.random_planes(np.full(program.M, 0.1), 1_000)
    expected = lg.closures(program, planes, packed=True).view(np.int64)
    given = torch.from_numpy(planes.view(np.int64))
    closed = lg.closures(program, given, packed=True)
    assert closed.dtype == torch.int64
    assert np.array_equal(closed.numpy(), expected)
    out = torch.zeros_like(given)
    assert lg.closures(program, given, packed=True, out=out) is out
    assert torch.equal(out, closed)
    with pytest.raises(ArgumentError, match=r"a tensor of bit planes is int64"):
        lg.closures(program, given.double(), packed=True)
    with pytest.raises(ArgumentError, match="out must be a tensor of the same shape"):
        lg.closures(program, given, packed=True, out=out[:, :1])


def test_planes_that_do_not_fit() -> None:
    program = lg.parse("b :- a.")
    good = np.zeros((2, 1), np.uint64)
    with pytest.raises(ArgumentError, match=r"uint64 array of shape \(M, W\), not bool"):
        lg.closures(program, np.zeros((2, 2), bool), packed=True)
    with pytest.raises(FactsError, match="one row for each atom, 2, but these have 3"):
        lg.closures(program, np.zeros((3, 1), np.uint64), packed=True)
    for out in (np.zeros((2, 2), np.uint64), np.zeros((2, 1), np.int64), [0, 0]):
        with pytest.raises(ArgumentError, match=r"out must be a uint64 array of shape \(2, 1\)"):
            lg.closures(program, good, packed=True, out=out)
    with pytest.raises(ArgumentError, match="together with packed=True"):
        lg.closures(program, [["a"]], out=good)
    assert lg.closures(program, good[:, :0], packed=True).shape == (2, 0)
    assert lg.closures(Program.from_rules([]), good[:0], packed=True).shape == (0, 1)


# ---------------------------------------------------------------- one step


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_a_step_of_many_fact_sets_is_a_step_of_each(seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = random_program(rng, int(rng.integers(1, 12)), int(rng.integers(0, 20)))
    rows = rng.random((int(rng.integers(0, 150)), program.M)) < 0.4
    after = lg.logic.step(program, rows)
    assert after.shape == rows.shape
    for row, answer in zip(rows, after, strict=True):
        levels = reference_levels(program, program.names(row))
        assert program.names(answer) == levels[0].union(*levels[1:2]) == lg.logic.step(program, row)


def test_a_large_batch_of_steps_goes_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    program = lg.generators.g2()
    rows = lg.logic.unpack(lg.logic.random_planes(np.full(program.M, 0.2), 1_000), 1_000)
    expected = lg.logic.step(program, rows)
    monkeypatch.setattr("latentgamma.logic.closure._STEP_WORDS", 1)
    assert np.array_equal(lg.logic.step(program, rows), expected)


# ---------------------------------------------------------------- random fact sets

MASK = 2**64 - 1
GOLDEN, ODD = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03


def splitmix(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def uniform(seed: int, atom: int, n: int) -> int:
    """The 64 bits of the uniform number of one atom in one fact set, straight from the text."""
    key = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    bits = 0
    for place in range(64):
        stream = splitmix(key + (atom + 1) * ODD + (place + 1) * GOLDEN & MASK)
        word = splitmix(stream + (n // 64 + 1) * GOLDEN & MASK)
        bits = 2 * bits + (word >> (n % 64) & 1)
    return bits


PROBABILITIES = [0.0, 1.0, 0.5, 0.25, 0.3, 1e-3, 0.999, 2.0**-60, 1 - 2.0**-53, 1 / 3]


@pytest.mark.parametrize("kind", PATHS)
def test_an_atom_is_drawn_if_a_uniform_number_is_below_its_probability(kind: str) -> None:
    with path(kind):
        planes = lg.logic.random_planes(PROBABILITIES, 1_000, seed=7)
    rng = np.random.default_rng(0)
    for n in rng.integers(0, 1_000, 60).tolist():
        for i, p in enumerate(PROBABILITIES):
            assert bit(planes, i, n) == (uniform(7, i, n) < int(p * 2**64))


def test_the_planes_do_not_depend_on_how_they_are_drawn() -> None:
    p = np.random.default_rng(0).random(12)
    N = 64 * 600 + 5  # more words than the compiled loop draws together
    with path("plain"):
        expected = lg.logic.random_planes(p, N, seed=3)
    with path("compiled"):
        assert np.array_equal(lg.logic.random_planes(p, N, seed=3), expected)
        part = lg.logic.random_planes(p, N - 640, seed=3, start=640)
    assert np.array_equal(part, expected[:, 10:])
    assert not np.array_equal(lg.logic.random_planes(p, N, seed=4), expected)
    assert lg.logic.random_planes(p, 0).shape == (12, 0)
    assert lg.logic.random_planes([], 70).shape == (0, 2)


def test_the_bits_have_their_probabilities_and_are_independent() -> None:
    N = 1 << 17
    p = np.array([0.5, 0.1, 0.9, 0.01, 1 / 3, 0.7])
    rows = lg.logic.unpack(lg.logic.random_planes(p, N, seed=11), N).astype(float)
    deviation = np.sqrt(p * (1 - p) / N)
    assert np.all(np.abs(rows.mean(0) - p) < 4.5 * deviation)
    scaled = (rows - p) / np.sqrt(p * (1 - p))
    for shift in (0, 1, 64):  # between atoms, neighbours and words
        correlation = scaled[: N - shift].T @ scaled[shift:] / np.sqrt(N)
        if shift == 0:
            np.fill_diagonal(correlation, 0)
        assert np.all(np.abs(correlation) < 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5, 1.5], 10), "between 0 and 1"),
        (([np.nan], 10), "between 0 and 1"),
        (([[0.5]], 10), r"shape \(M,\)"),
        (([0.5], -1), "N must be a whole number"),
    ],
)
def test_what_cannot_be_drawn(arguments: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        lg.logic.random_planes(*arguments)
    with pytest.raises(ArgumentError, match="a multiple of 64"):
        lg.logic.random_planes([0.5], 10, start=5)
    with pytest.raises(ArgumentError, match="seed must be a whole number"):
        lg.logic.random_planes([0.5], 10, seed=-1)


@pytest.mark.quick_first
@pytest.mark.parametrize("shape", [(64, 16), (70, 16), (64, 13), (20_000, 1100)])
def test_bytes_that_are_read_as_booleans_are_true_or_false(shape: tuple[int, int]) -> None:
    octets = np.random.default_rng(0).choice(np.array([0, 1, 2, 255], np.uint8), shape)
    planes = lg.logic.pack(octets.view(np.bool_))
    assert np.array_equal(planes, lg.logic.pack(octets != 0))
    program = lg.generators.chain(shape[1])
    found = lg.closures(program, octets.view(np.bool_))
    assert np.array_equal(found, lg.closures(program, octets != 0))


@pytest.mark.quick_first
@pytest.mark.parametrize("N", [1, 3, 64, 200])
@pytest.mark.parametrize("M", [1, 2, 4, 70])
def test_planes_are_never_read_as_indices(N: int, M: int) -> None:
    """Without `packed=True` planes are refused, whatever their bits are."""
    rng = np.random.default_rng(N * M)
    program = random_program(rng, M, 2 * M, body=1)
    for share in (0.0, 0.1, 0.5, 1.0):
        planes = lg.logic.pack(rng.random((N, M)) < share)
        for read in (
            lambda given: lg.closures(program, given),
            lambda given: lg.closure(program, given[:, 0]),
            lambda given: lg.oracle(program).state(given),
            lambda given: lg.logic.step(program, given),
        ):
            with pytest.raises(FactsError, match="packed=True"):
                read(planes)


def test_planes_in_a_tensor_are_not_read_as_indices_that_no_atom_has() -> None:
    """Integers in a tensor may be indices; where they cannot be, the error says what else."""
    program = lg.generators.chain(5)
    words = torch.from_numpy(lg.logic.pack(np.ones((64, 5), bool)).view("int64"))
    with pytest.raises(FactsError, match=r"fact index -1 is outside 0…4; .* packed=True"):
        lg.closures(program, words)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize(
    ("N", "M"), [(1, 1), (7, 3), (64, 8), (65, 9), (500, 5), (2500, 3), (4200, 2)]
)
def test_numpy_packs_in_both_orders(N: int, M: int, in_order: bool) -> None:
    rng = np.random.default_rng(N)
    rows = rng.integers(0, 2, (N, M)) * rng.integers(1, 256, (N, M))  # any byte but 0 is true
    given = rows.astype(np.uint8).view(np.bool_)
    packed, back = np.full((M, -(-N // 64)), 7, np.uint64), np.empty((N, M), np.bool_)
    pack_with_numpy(given, packed, 2, in_order=in_order)
    unpack_with_numpy(packed, back, 2, in_order=in_order)
    assert np.array_equal(back.view(np.uint8), rows != 0)
    octets = packed.view(np.uint8)
    K = octets.shape[1]
    for n in range(N):
        bit, place = (n % 8, n // 8) if in_order else (n // K, n % K)
        assert np.array_equal(octets[:, place] >> bit & 1, rows[n] != 0)
    assert np.unpackbits(packed.view(np.uint8)).sum() == (rows != 0).sum()  # and zeros beyond

"""How many parameters there are, and how many bits there must be."""

from __future__ import annotations

import math
from itertools import chain, combinations

import pytest

import latentgamma as lg
from latentgamma.paper.bounds import (
    lower_bound_bits,
    parameter_count,
    upper_bound_bits,
)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("name", ["g1", "g2", "disjunctive"])
def test_the_count_is_what_the_module_holds(name: str, form: str) -> None:
    program = getattr(lg.generators, name)()
    model = lg.oracle(program, lg.Constants.paper(), form=form)
    held = sum(parameter.numel() for parameter in model.parameters())
    assert parameter_count(model) == parameter_count(program, form) == held - 2  # gain and gate


def test_dense_counts_as_in_the_paper() -> None:
    program = lg.generators.g4()
    R, M = program.R, program.M
    assert parameter_count(program) == 2 * R * M + 3 * R + M
    small = lg.oracle(lg.generators.g1(), lg.Constants.paper(), form="sparse")
    assert parameter_count(small, "dense") == parameter_count(lg.generators.g1())
    assert parameter_count(program, "sparse") == program.size + 5 * R + M


def test_another_form_is_refused() -> None:
    with pytest.raises(
        lg.errors.ArgumentError, match="form must be one of 'dense', 'sparse', not 'auto'"
    ):
        parameter_count(lg.generators.g1(), "auto")


def closure_functions(M: int, R: int, k: int) -> int:
    """The number of different closure functions of programs of this size, by trying them all."""
    bodies = [sum(1 << i for i in body) for n in range(k + 1) for body in combinations(range(M), n)]
    rules = [(body, 1 << head) for body in bodies for head in range(M)]
    programs = chain.from_iterable(combinations(rules, n) for n in range(R + 1))
    seen = set()
    for program in programs:
        function = []
        for state in range(1 << M):
            before = -1
            while state != before:
                before = state
                for body, head in program:
                    if body & ~state == 0:
                        state |= head
            function.append(state)
        seen.add(tuple(function))
    return len(seen)


@pytest.mark.parametrize(
    ("M", "R", "k"),
    [
        (1, 1, 1),
        (2, 1, 1),
        (2, 2, 1),
        (3, 1, 2),
        (3, 2, 1),
        (3, 2, 2),
        (3, 4, 1),
        (4, 2, 2),
        (4, 2, 3),
    ],
)
def test_the_bounds_enclose_the_true_number_of_programs(M: int, R: int, k: int) -> None:
    true = math.log2(closure_functions(M, R, k))
    assert lower_bound_bits(M, R, k) <= true + 1e-9
    assert upper_bound_bits(M, R, k) >= true - 1e-9


def test_the_lower_bound_is_of_the_order_the_theorem_says() -> None:
    # R k log₂ M up to a constant, while R stays well below the number of rules there are.
    for M, R, k in ((504, 648, 2), (1000, 500, 3), (10_000, 10_000, 2)):
        assert 0.3 < lower_bound_bits(M, R, k) / (R * k * math.log2(M)) < 1.5
    assert lower_bound_bits(504, 1296, 2) > 1.8 * lower_bound_bits(504, 648, 2)


def test_the_printed_formula_is_no_lower_bound() -> None:
    for M, R, k in ((33, 32, 2), (504, 648, 2)):
        assert lower_bound_bits(M, R, k) < upper_bound_bits(M, R, k)
        assert lower_bound_bits(M, R, k, printed=True) > upper_bound_bits(M, R, k)
    expected = 648 * (3 * math.log2(504) - 2)
    assert lower_bound_bits(504, 648, 2, printed=True) == pytest.approx(expected)


@pytest.mark.parametrize("size", [(63_436, 1_000, 176), (300_000, 200_000, 3)])
def test_the_bounds_hold_for_programs_of_any_size(size: tuple[int, int, int]) -> None:
    M, R, k = size
    rules = M * sum(math.comb(M, body) for body in range(k + 1))  # of all programs of this size
    number = math.fsum(math.log2(rules - i) - math.log2(i + 1) for i in range(R))
    high = upper_bound_bits(M, R, k)
    assert high == pytest.approx(number + math.log2(R + 1), rel=1e-12)
    assert 0.9 * high < lower_bound_bits(M, R, k) < high


def test_more_room_never_needs_fewer_bits() -> None:
    for M in range(1, 12):
        for R in range(1, 12):
            for k in range(4):
                here = lower_bound_bits(M, R, k)
                assert 0 <= here <= lower_bound_bits(M, R + 1, k)
                assert here <= lower_bound_bits(M, R, k + 1) + 1e-9
                assert here <= lower_bound_bits(M + 1, R, k) + 1e-9


def test_nothing_needs_no_bits_and_negative_sizes_are_refused() -> None:
    assert lower_bound_bits(0, 5, 2) == lower_bound_bits(5, 0, 2) == 0
    with pytest.raises(lg.errors.ArgumentError, match="R must be a whole number from 0 on, not -1"):
        lower_bound_bits(3, -1, 2)

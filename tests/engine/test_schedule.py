"""The arrays for a GPU, computed here row by row; the kernels themselves are in test_contract.py."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma.engine.circuit import (
    CYCLE,
    NEGATIONS,
    PRODUCTS,
    SUMS,
    Circuit,
    compile_circuit,
)
from latentgamma.engine.execute import run
from latentgamma.engine.reference import GODEL_ODDS
from latentgamma.engine.schedule import FEW, input_lists, packed, schedule
from random_programs import random_program


def hierarchy(seed: int, classes: int, parents: int) -> Circuit:
    rng = np.random.default_rng(seed)
    edges = {
        (f"c{i}", f"c{j}")
        for i in range(1, classes)
        for j in rng.integers(0, i if seed % 2 else min(i, 2), parents)
    }
    program = lg.Requirements.from_edges(sorted(edges)).layer().rules.program
    every = np.arange(program.M)
    return compile_circuit(program, every, every)


def rows_of(ptr: np.ndarray, flat: np.ndarray) -> list[list[int]]:
    return [flat[a:b].tolist() for a, b in itertools.pairwise(ptr)]


def covered(tiles: np.ndarray, first: int, last: int, sizes: np.ndarray) -> None:
    """Tiles cover rows one after another, know the longest, and do not mix long rows with others."""
    at = first
    for start, stop, width in tiles.tolist():
        assert start == at < stop
        assert width == sizes[start:stop].max()
        assert (sizes[start:stop] > FEW).all() or width <= FEW
        at = stop
    assert at == last


@pytest.mark.parametrize("seed", range(8))
def test_a_schedule_computes_what_its_circuit_does(seed: int) -> None:
    program = random_program(seed, 12, 30)
    every = np.arange(program.M)
    circuit = compile_circuit(program, every, every) if seed < 6 else hierarchy(seed, 90, 2)
    c, (rows, stages, edges, nodes, count, *_, cycles) = schedule(circuit)
    assert (nodes, count) == (circuit.nodes, len(circuit.outputs))
    assert rows >= 32
    assert edges == len(c.child)
    assert cycles == circuit.cycles
    x = np.random.default_rng(seed).normal(size=circuit.inputs)
    value = np.concatenate((x, np.full(circuit.nodes - circuit.inputs, -1e30)))
    children = rows_of(c.ptr, c.child)
    assert stages == len(c.stages)
    for kind, one, middle, end, *_, start, split, stop in c.stages[1:].tolist():
        covered(c.tiles[one:middle], start, split, np.diff(c.ptr))
        covered(c.tiles[middle:end], split, stop, np.diff(c.ptr))
        for _ in range(stop - start if kind == CYCLE else 1):
            for n in range(start, stop):
                least = kind == PRODUCTS or (kind == CYCLE and n < split)
                value[n] = (min if least else max)(value[i] for i in children[n])
                assert kind != NEGATIONS
    expected = run(circuit, GODEL_ODDS, torch.from_numpy(x)[None], plain=True)[0].numpy()
    node = c.outputs >= 0
    assert np.array_equal(value[c.outputs[node]], expected[node])
    assert node.sum() > 5
    # The same edges from the other end, and the outputs.
    users = dict(zip(c.use_row.tolist(), rows_of(c.use_ptr, c.uses), strict=True))
    for n in range(circuit.nodes):
        own = np.flatnonzero(c.child == n).tolist()
        assert users[n] == own + (edges + np.flatnonzero(c.outputs == n)).tolist()
    for *_, use_one, _, use_end, start, _, stop in c.stages.tolist():
        sizes = np.diff(c.use_ptr)
        assert sizes[start:stop].sum() == sum(len(users[n]) for n in range(start, stop))
        assert c.use_tiles[use_one][0] == start
        assert c.use_tiles[use_end - 1][1] == stop


@pytest.mark.parametrize("seed", range(4))
def test_lists_have_the_inputs_below_each_output(seed: int) -> None:
    circuit = hierarchy(seed, 80, 2)
    found = input_lists(circuit)
    assert found is not None
    lists, (_, count, tiles, use_tiles) = found
    assert (count, tiles, use_tiles) == tuple(map(len, (lists.row, lists.tiles, lists.use_tiles)))
    below = [{n} for n in range(circuit.inputs)]
    for n, some in enumerate(rows_of(circuit.arrays[0], circuit.parts.indices)):
        if n >= circuit.inputs:
            below.append({int(circuit.own[n])}.union(*(below[i] for i in some)))
    children = rows_of(lists.ptr, lists.child)
    for place, output in enumerate(lists.row.tolist()):
        assert sorted(below[circuit.outputs[output]]) == children[place]
    for place, given in enumerate(lists.use_row.tolist()):
        reads = rows_of(lists.use_ptr, lists.uses)[place]
        assert reads == [o for o, n in enumerate(circuit.outputs) if given in below[n]]
    covered(lists.tiles, 0, len(lists.row), np.diff(lists.ptr))
    covered(lists.use_tiles, 0, len(lists.use_row), np.diff(lists.use_ptr))


def test_lists_are_for_maxima_and_for_shallow_circuits() -> None:
    program = lg.parse("c :- a, b. d :- c.")
    assert input_lists(compile_circuit(program, [1, 2], [0, 3])) is None
    chain = lg.parse("".join(f"a{i + 1} :- a{i}." for i in range(600)))
    every = np.arange(chain.M)
    assert set(compile_circuit(chain, every, every).stage_kind.tolist()) == {SUMS}
    assert input_lists(compile_circuit(chain, every, every)) is None


def test_packed_arrays_begin_with_their_places() -> None:
    arrays = [np.arange(4), np.zeros((2, 3)), np.arange(0), np.arange(7, 9)]
    pack = packed(arrays)
    for n, array in enumerate(arrays):
        assert pack[pack[n] : pack[n] + array.size].tolist() == array.ravel().tolist()


def test_a_circuit_without_nodes_has_constant_outputs() -> None:
    circuit = compile_circuit(lg.parse("a. b :- c."), [], [0, 1])
    made, sizes = schedule(circuit)
    assert circuit.nodes == sizes[3] == 0
    assert made.outputs.tolist() == circuit.outputs.tolist()

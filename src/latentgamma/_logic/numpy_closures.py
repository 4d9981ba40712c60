"""The closures of many fact sets with numpy, one call for each body atom and head."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from latentgamma._logic.bit_planes import Planes
from latentgamma._program.dependency_graph import Rows, rule_order
from latentgamma._program.program import Program


class _Block(NamedTuple):
    """A block of rules as lists: (body, heads) pairs, and for each atom the rules that use it."""

    cyclic: bool
    rules: list[tuple[list[int], list[int]]]
    users: dict[int, list[int]]


def _blocks(program: Program) -> list[_Block]:
    order = rule_order(program)
    bodies = Rows(program.body_indptr, program.body_indices).to_lists()
    heads = Rows(program.head_indptr, program.head_indices).to_lists()
    blocks = []
    for cyclic, (a, b) in zip(
        order.cyclic.tolist(), pairwise(order.block_ptr.tolist()), strict=True
    ):
        rules = [(bodies[j], heads[j]) for j in order.rules[a:b].tolist()]
        users: dict[int, list[int]] = {}
        for n, (body, _) in enumerate(rules if cyclic else ()):
            for i in body:
                users.setdefault(i, []).append(n)
        blocks.append(_Block(cyclic, rules, users))
    return blocks


def close_with_numpy(program: Program, planes: Planes) -> None:
    """Close the fact sets in bit planes in place; the planes are contiguous."""
    rows = list(planes)
    buffer = np.empty(planes.shape[1], np.uint64)
    every = np.full(planes.shape[1], ~np.uint64(0))
    for block in program.cached(_blocks):
        if block.cyclic:
            _close_cycle(block, rows, buffer)
            continue
        for body, heads in block.rules:
            true = _all_true(rows, body, buffer) if body else every
            for h in heads:
                np.bitwise_or(rows[h], true, rows[h])


def _close_cycle(block: _Block, rows: list[Planes], buffer: Planes) -> None:
    """The same for one cyclic block: a rule is repeated when an atom of its body has changed."""
    queue = deque(range(len(block.rules)))
    queued = set(queue)
    while queue:
        n = queue.popleft()
        queued.discard(n)
        body, heads = block.rules[n]
        true = _all_true(rows, body, buffer)
        for h in heads:
            if np.any(true & ~rows[h]):
                np.bitwise_or(rows[h], true, rows[h])
                fresh = [user for user in block.users.get(h, ()) if user not in queued]
                queued.update(fresh)
                queue.extend(fresh)


def _all_true(rows: list[Planes], body: list[int], buffer: Planes) -> Planes:
    """The fact sets in which all of the body is true; perhaps in the buffer."""
    if len(body) == 1:
        return rows[body[0]]
    np.bitwise_and(rows[body[0]], rows[body[1]], buffer)
    for i in body[2:]:
        np.bitwise_and(buffer, rows[i], buffer)
    return buffer

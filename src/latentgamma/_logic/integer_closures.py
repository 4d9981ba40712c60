"""The closures of many fact sets in Python, with one long integer for each atom."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from latentgamma._logic.bit_planes import Planes
from latentgamma._logic.dependency_graph import Rows, rule_order
from latentgamma._program.program import Program


@dataclass(frozen=True)
class _Block:
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


def close_planes_in_python(program: Program, planes: Planes) -> Planes:
    """The closures of the fact sets in bit planes."""
    size = 8 * planes.shape[1]
    octets = np.ascontiguousarray(planes).astype("<u8").tobytes()
    words = [
        int.from_bytes(octets[i : i + size], "little") for i in range(0, size * program.M, size)
    ]
    close_integers(program, words, 8 * size)
    octets = b"".join([word.to_bytes(size, "little") for word in words])
    return np.frombuffer(octets, "<u8").reshape(planes.shape)


def close_integers(program: Program, words: list[int], N: int) -> None:
    """Close N fact sets in place: bit n of the integer of each atom is fact set n."""
    every = (1 << N) - 1
    for block in program.cached(_blocks):
        if block.cyclic:
            _close_cycle(block, words, every)
            continue
        for body, heads in block.rules:
            true = every
            for i in body:
                true &= words[i]
            if true:
                for h in heads:
                    words[h] |= true


def _close_cycle(block: _Block, words: list[int], every: int) -> None:
    """The same for one cyclic block: a rule is repeated when an atom of its body has changed."""
    queue = deque(range(len(block.rules)))
    queued = set(queue)
    while queue:
        n = queue.popleft()
        queued.discard(n)
        body, heads = block.rules[n]
        true = every
        for i in body:
            true &= words[i]
        for h in heads:
            if true & ~words[h]:
                words[h] |= true
                fresh = [user for user in block.users.get(h, ()) if user not in queued]
                queued.update(fresh)
                queue.extend(fresh)

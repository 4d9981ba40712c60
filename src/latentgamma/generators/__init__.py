"""Programs to try things on: the four of the paper, random ones, and families that scale.

| function | the program | M, R | k | rho_max | depth |
|---|---|---|---|---|---|
| `g1` | one chain, with a switch beside it | 33, 32 | 2 | 2 | 31 |
| `g2` | one domain with conjunctions | 57, 60 | 2 | 3 | 31 |
| `g3` | two cross-related domains | 117, 132 | 2 | 8 | 32 |
| `g4` | eight cross-related domains, in a ring | 504, 648 | 2 | 16 | 32 |
| `disjunctive` | rules of two and three heads | 36, 30 | 2 | | |
| `random` | uniformly drawn rules, up to millions of them | atoms, rules + facts | | | |
| `chain` | each atom needs the `body` atoms before it | n, n - body | body | 1 | n - body |
| `ladder` | each atom needs the whole layer before it | (layers + 1) k, layers k | k | 1 | layers |
| `clique` | every atom implies every other | n, n (n - 1) | 1 | n - 1 | 1 |
| `grid` | each cell needs its upper and its left neighbour | rows cols, rows cols - 1 | 2 | 1 | rows + cols - 2 |
| `layered` | several random rules per atom, layer by layer | (layers + 1) width, layers width per_head | body | per_head | layers |

Depth is the number of steps from the roots, all of them true (the first layer where there
are layers, any one atom of a clique). Every function is deterministic: the same arguments,
`seed` among them, give the same program.
"""

from latentgamma.generators.families import chain, clique, grid, ladder, layered
from latentgamma.generators.paper_graphs import disjunctive, g1, g2, g3, g4
from latentgamma.generators.random_programs import random

__all__ = [
    "g1", "g2", "g3", "g4",
    "disjunctive", "random",
    "chain", "ladder", "clique", "grid", "layered",
]  # fmt: skip

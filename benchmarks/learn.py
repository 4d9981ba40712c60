"""Rules from observations: gradient, the symbolic yardstick, and the paper's free training.

Fact sets have sizes drawn log-uniformly from 2 to M/2. "Transitions" are all steps on the way from
a fact set to its closure, except for G4, where only the first step of each is shown. A program is
exact when its rules are the true ones, those with needlessly large bodies aside; equivalent when
its closures are the same for every fact set. Accuracy is the share of 1,000 fresh fact sets whose
whole closure is right.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import latentgamma as lg
from latentgamma._extraction import minimal

#: task, program, fact sets, wrong labels, seeds, methods
CASES = [
    ("transitions", "random", 500, 0.0, range(5), ("gradient", "symbolic")),
    ("transitions", "g1", 500, 0.0, range(3), ("gradient", "symbolic")),
    ("transitions", "g2", 500, 0.0, range(3), ("gradient", "symbolic")),
    ("transitions", "g3", 500, 0.0, range(3), ("gradient", "symbolic")),
    ("transitions", "random", 500, 0.05, range(3), ("gradient", "symbolic")),
    ("transitions", "g1", 500, 0.05, range(3), ("gradient", "symbolic")),
    ("transitions", "g2", 500, 0.05, range(3), ("gradient", "symbolic")),
    ("transitions", "g3", 1000, 0.05, range(3), ("gradient", "symbolic")),
    ("closures", "random", 500, 0.0, range(5), ("gradient", "symbolic")),
    ("closures", "g1", 2000, 0.0, range(3), ("gradient", "symbolic")),
    ("closures", "g2", 4000, 0.0, range(3), ("gradient", "symbolic")),
    ("closures", "g3", 4000, 0.0, range(2), ("symbolic",)),
    ("closures", "g1", 2000, 0.02, range(3), ("symbolic",)),
    ("transitions", "random", 500, 0.0, range(3), ("paper",)),
    ("transitions", "g1", 500, 0.0, range(1), ("paper",)),
    ("transitions", "g4", 10000, 0.0, range(5), ("gradient", "symbolic")),
]


def rows() -> list[dict[str, Any]]:
    table = []
    for kind, name, count, noise, seeds, methods in CASES:
        for method in methods:
            for seed in seeds:
                table.append(case(kind, name, count, noise, seed, method))
                print({k: v for k, v in table[-1].items() if v != ""}, flush=True)
    return table


def case(kind: str, name: str, count: int, noise: float, seed: int, method: str) -> dict[str, Any]:
    program = program_of(name, seed)
    rng = np.random.default_rng(100 + seed)
    states = fact_sets(program.M, count, rng)
    if kind == "closures":
        after = lg.closures(program, states)
    else:
        states, after = transitions(program, states, along=name != "g4")
    after = after ^ (rng.random(after.shape) < noise)
    if kind == "closures":  # a wrong entry can be a fact as well
        states = states ^ (rng.random(states.shape) < noise)
    wall, cpu = time.perf_counter(), time.process_time()
    result = lg.fit(
        states,
        after,
        kind=kind,
        atoms=program.atoms,
        method=method,
        noise=noise if kind == "closures" or noise == 0 else "auto",
        seed=seed,
        holdout=0.0,
    )
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    fresh = fact_sets(program.M, 1000, np.random.default_rng(9))
    right = lg.closures(result.program, fresh) == lg.closures(program, fresh)
    true, found = rules_of(program), rules_of(result.program)
    aligned = lg.alignment(result.model, program)
    return {
        "task": kind,
        "program": name,
        "fact sets": count,
        "noise": noise,
        "method": method,
        "seed": seed,
        "true rules": len(true),
        "found": len(found),
        "of them true": len(true & found),
        "exact": true == found,
        "equivalent": bool(lg.equivalent(result.program, program)),
        "accuracy": float(right.all(1).mean()),
        "certified": result.certificate.holds,
        "aligned rows": aligned.precision,
        "wall s": round(wall, 1),
        "cpu s": round(cpu, 1),
    }


def program_of(name: str, seed: int) -> lg.Program:
    if name == "random":
        return lg.generators.random(10, 15, seed=seed)
    make = {"g1": lg.generators.g1, "g2": lg.generators.g2, "g3": lg.generators.g3}
    return make.get(name, lg.generators.g4)(seed=seed)


def fact_sets(M: int, count: int, rng: np.random.Generator) -> np.ndarray:
    states = np.zeros((count, M), bool)
    for row in states:
        size = int(np.exp(rng.uniform(np.log(2), np.log(M / 2))))
        row[rng.choice(M, size, replace=False)] = True
    return states


def transitions(
    program: lg.Program, states: np.ndarray, *, along: bool
) -> tuple[np.ndarray, np.ndarray]:
    before, after = [], []
    while len(states):
        following = states.copy()
        for j in range(program.R):
            following[:, program.heads_of(j)] |= states[:, program.body_of(j)].all(1)[:, None]
        before.append(states)
        after.append(following)
        if not along:
            break
        states = following[(following != states).any(1)]
    return np.concatenate(before), np.concatenate(after)


def rules_of(program: lg.Program) -> set[tuple[int, tuple[int, ...]]]:
    return set(
        minimal(
            (int(head), tuple(program.body_of(j).tolist()))
            for j in range(program.R)
            for head in program.heads_of(j)
        )
    )


if __name__ == "__main__":
    rows()

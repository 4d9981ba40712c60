"""How tight and how quick the certificate is.

`part` is the proved end of the window over the real one: the last step up to which the model is
right on all fact sets, found by running it. `seconds` are of the processor, the median of three for
small models.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import median, quantiles
from typing import Any

import numpy as np
import torch

import latentgamma as lg
from latentgamma.certificate.closed_sets import maximal_closed_sets
from latentgamma.generators import (
    clique,
    g1,
    ladder,
    random,
)

#: Models of a kind, and steps beyond which a real end is not looked for.
_MODELS = 60
_MOST_STEPS = 3000


def rows() -> list[dict[str, Any]]:
    """Tightness, then speed."""
    torch.set_num_threads(1)
    return [*tightness(), *speed()]


# -------------------------------------------------------------------- tightness


def tightness() -> list[dict[str, Any]]:
    """The proved end over the real one, for kinds of models and for single ones."""
    found = []
    for kind, draw in (("random models", random_model), ("trained models", trained_model)):
        parts: list[float] = []
        seed = 0
        while len(parts) < _MODELS:
            part = part_of(draw(np.random.default_rng(seed)))
            seed += 1
            if part is not None:
                parts.append(part)
        low = quantiles(parts, n=10)[0]
        found.append({"models": kind, "number": len(parts), "median part": round(median(parts), 3),
                      "one in ten below": round(low, 3)})  # fmt: skip
    for name, program, constants in (
        ("g1, hardness 0.35", g1(), lg.Constants.closed_form(g1(), 0.35)),
        ("clique of 40, paper", clique(40), lg.Constants.paper()),
        ("clique of 80, paper", clique(80), lg.Constants.paper()),
    ):
        model = lg.oracle(program, constants, dtype=torch.float64)
        part = part_of(model)
        found.append({"models": name, "number": 1, "median part": round(part or 0.0, 3),
                      "one in ten below": ""})  # fmt: skip
    return found


def part_of(model: lg.LatentGamma) -> float | None:
    """The proved end over the real one; None where there is no window or the end is too far."""
    program = model.program
    assert program is not None
    certificate = lg.certify(model, program, depth=1)
    if not certificate.holds or certificate.t_max > _MOST_STEPS:
        return None
    real = real_end(model)
    return None if real is None else certificate.t_max / real


def real_end(model: lg.LatentGamma) -> int | None:
    """The last step before an underivable atom of some fact set is above one half."""
    program = model.program
    assert program is not None
    sets = maximal_closed_sets(program)
    if sets is None:
        raise ValueError("too many closed sets to be run")
    state, outside = torch.from_numpy(sets.copy()).to(model.dtype), torch.from_numpy(~sets)
    with torch.no_grad(), model.fixed():
        for step in range(_MOST_STEPS * 2):
            if bool(((state > 0.5) & outside).any()):
                return step - 1
            state = model(state, 1)
    return None


def random_model(rng: np.random.Generator) -> lg.LatentGamma:
    """A small program, soft constants, and noise on every parameter."""
    atoms = int(rng.integers(5, 9))
    program = random(atoms, 2 * atoms, body=(1, 3), heads=(1, 2), seed=int(rng.integers(2**31)))
    constants = lg.Constants(*rng.uniform([3, 5, 4, 0.5, 3, 1.5], [10, 20, 14, 0.99, 16, 6]))
    dtype = (torch.float64, torch.float32)[int(rng.integers(2))]
    model = lg.oracle(program, constants, dtype=dtype)
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=dtype)
            parameter.add_(0.2 * noise * (0.1 + parameter.abs()).clamp(max=1.0))
    return model


def trained_model(rng: np.random.Generator) -> lg.LatentGamma:
    """Such a model after some steps of gradient descent on every parameter."""
    model = random_model(rng)
    program = model.program
    assert program is not None
    facts = (np.arange(2**program.M)[:, None] >> np.arange(program.M) & 1).astype(bool)
    wanted = torch.from_numpy(lg.closures(program, facts)).to(model.dtype)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(20):
        optimiser.zero_grad()
        reached = model(torch.from_numpy(facts).to(model.dtype), 2)
        loss = torch.nn.functional.binary_cross_entropy(reached.clamp(1e-6, 1 - 1e-6), wanted)
        loss.backward()
        optimiser.step()
    return model


# -------------------------------------------------------------------- speed


def chain(length: int) -> lg.Program:
    """A chain of that many rules: each atom follows from the one before it."""
    steps = np.arange(length)
    ends = np.arange(length + 1)
    return lg.Program.from_arrays(ends, steps, steps + 1, ends, atoms=length + 1)


def speed() -> list[dict[str, Any]]:
    """Seconds for constants and certificate."""
    sharp = random(11, 6, body=(1, 3), seed=4)
    cases: list[tuple[str, Callable[[], lg.Program], lg.Constants | None]] = [
        ("2 rules", lambda: lg.parse("bird :- penguin. animal :- bird."), None),
        ("6 rules, sharpness 300", lambda: sharp, lg.Constants(5.0, 12.0, 300.0, 0.95, 8.0, 5.0)),
        ("g1", g1, None),
        ("g1, hardness 0.35", g1, lg.Constants.closed_form(g1(), 0.35)),
        ("ladder, 4,094 closed sets", lambda: ladder(10, 2), lg.Constants.paper()),
        ("264,370 rules", lambda: random(63_436, 264_370, body=3, seed=0), None),
        ("1,000,000 rules", lambda: random(10**6, 10**6, body=3, seed=1), None),
        ("chain of 3,500,000", lambda: chain(3_500_000), None),
    ]
    found = []
    for name, make, constants in cases:
        program = make()
        lg.logic.depth_bound(program)
        times: list[tuple[float, float]] = []
        for _ in range(3 if program.R < 10**4 else 1):
            start = time.process_time()
            chosen = lg.Constants.certified(program) if constants is None else constants
            model = lg.oracle(program, chosen)
            middle = time.process_time()
            certificate = lg.certify(model, program)
            times.append((middle - start, time.process_time() - middle))
        found.append({
            "program": name,
            "constants and model, s": round(median(first for first, _ in times), 3),
            "certificate, s": round(median(last for _, last in times), 3),
            "t_min": certificate.t_min,
            "t_max": "for ever" if math.isinf(certificate.t_max) else certificate.t_max,
        })  # fmt: skip
    return found

"""Models that put a certificate to the test, each drawn from one seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from pairs import DTYPES, soft
from truth import plain

import latentgamma as lg
from latentgamma import Program
from random_programs import random_program
from reference import every_fact_set


@dataclass(frozen=True)
class Case:
    """A model, its program, the tolerance of its inputs, and fact sets to run it on."""

    model: lg.LatentGamma
    program: Program
    facts: np.ndarray  # (N, M) bool
    tolerance: float = 0.0


def small(rng: np.random.Generator, most: int = 5) -> Program:
    """A program whose fact sets can be enumerated."""
    M = int(rng.integers(1, most + 1))
    return random_program(rng, M, int(rng.integers(1, 2 * M + 2)), body=4)


def built(
    rng: np.random.Generator, program: Program, constants: lg.Constants, **options: object
) -> lg.LatentGamma:
    """A model of random form, gate and dtype."""
    chosen = {
        "form": ("dense", "sparse")[int(rng.integers(2))],
        "gate": ("sigmoid", "bump")[int(rng.random() < 0.25)],
        "dtype": DTYPES[int(rng.integers(4))],
        **options,
    }
    return lg.oracle(program, constants, **chosen)  # type: ignore[call-overload, no-any-return]


def shake(model: lg.LatentGamma, scale: float, rng: np.random.Generator) -> lg.LatentGamma:
    """The model with noise on every parameter, each in proportion to its own size."""
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(scale * noise * (0.1 + parameter.abs()).clamp(max=1.0))
    return model


def some_tolerance(rng: np.random.Generator) -> float:
    """Mostly none; otherwise up to 0.4."""
    return float(rng.choice([0.0, 0.0, 1e-4, 0.01, 0.1, 0.3]))


# -------------------------------------------------------------------- kinds of cases


def random_case(rng: np.random.Generator) -> Case:
    """Soft constants and noise."""
    program = small(rng)
    model = shake(built(rng, program, soft(rng)), float(rng.uniform(0, 0.5)), rng)
    return Case(model, program, every_fact_set(program.M), some_tolerance(rng))


def trained_case(rng: np.random.Generator) -> Case:
    """A model after some steps of gradient descent towards its own program."""
    program = small(rng, 4)
    facts = every_fact_set(program.M)
    dtype = DTYPES[int(rng.integers(2))]
    model = built(rng, program, soft(rng), dtype=dtype, gate="sigmoid")
    model = shake(model, float(rng.uniform(0, 0.5)), rng)
    wanted = torch.from_numpy(plain(program).closures(facts)[0]).to(dtype)
    optimiser = torch.optim.Adam(model.parameters(), lr=float(10 ** rng.uniform(-2, -0.5)))
    for _ in range(int(rng.integers(2, 12))):
        optimiser.zero_grad()
        reached = model(torch.from_numpy(facts).to(dtype), 2)
        loss = torch.nn.functional.binary_cross_entropy(reached.clamp(1e-6, 1 - 1e-6), wanted)
        loss.backward()
        optimiser.step()
    return Case(model, program, facts, some_tolerance(rng))


def extreme_case(rng: np.random.Generator) -> Case:
    """Parameters over many orders of magnitude, with thresholds and offsets close to what decides."""
    program = small(rng, 4)
    constants = lg.Constants(
        body=float(rng.uniform(0.5, 40)),
        head=float(rng.uniform(0, 40)),
        sharpness=float(10 ** rng.uniform(-1, 7)),
        confidence=float(rng.uniform(0.01, 0.999)),
        gain=float(10 ** rng.uniform(-1, 4)),
        gate=1 + float(10 ** rng.uniform(-3, 6)),
    )
    model = built(rng, program, constants)
    with torch.no_grad():
        sharpness = model.sharpness.double()
        sums = torch.tensor(program.body_sizes).double() * torch.sigmoid(
            torch.tensor(constants.body, dtype=torch.float64)
        )
        wanted = torch.from_numpy(rng.uniform(-5, 40, program.R))
        if rng.random() < 0.7:  # a satisfied body is ahead by a few units of the sigmoid
            model.threshold.copy_(sums - wanted / sharpness)
        if rng.random() < 0.7:
            amplitude = float((model.gain * model.confidence.max()).double()) if program.R else 1.0
            parts = torch.from_numpy(10 ** rng.uniform(-6, 0.1, program.M))
            model.offset.copy_(amplitude * parts)
    return Case(model, program, every_fact_set(program.M), some_tolerance(rng))


def subnormal_case(rng: np.random.Generator) -> Case:
    """Leaks so small that states live among subnormal numbers, and rows that notice them."""
    program = (lg.parse("a :- a."), lg.parse("a :- b. b :- a."), small(rng, 3))[
        int(rng.integers(3))
    ]
    constants = lg.Constants(
        12.0, 0.0 if program.M == 1 else 20.0, float(10 ** rng.uniform(2, 7)), 0.95, 40.0, 5.0
    )
    dtype = DTYPES[int(rng.integers(1, 4))]
    model = built(rng, program, constants, dtype=dtype, gate="sigmoid")
    with torch.no_grad():
        model.threshold.fill_(float(10 ** rng.uniform(-8, -3)))
        model.offset.fill_(float(rng.uniform(1, 12 if dtype == torch.float16 else 17)))
    return Case(model, program, every_fact_set(program.M))


def kernel_case(rng: np.random.Generator) -> Case:
    """A sparse model that is large enough for the compiled kernels, on its worst fact sets."""
    M = int(rng.integers(30, 60))
    program = random_program(rng, M, int(rng.integers(30, 90)), body=3)
    dtype = DTYPES[int(rng.integers(2))]
    hardness = float(rng.uniform(0.2, 0.8))
    constants = lg.Constants.closed_form(program, hardness)
    model = built(rng, program, constants, form="sparse", dtype=dtype)
    model = shake(model, float(rng.uniform(0, 0.05)), rng)
    sets = rng.random((60, M)) < rng.uniform(0.3, 1.0, (60, 1))
    nearly = ~np.eye(M, dtype=bool)  # everything but one atom
    return Case(model, program, np.concatenate([sets, nearly]), some_tolerance(rng))


def long_sum_case(rng: np.random.Generator) -> Case:
    """Bodies of up to 100,000 atoms, or as many rules for a head, decided by the last digits."""
    size = int(10 ** rng.uniform(2, 5))
    names = [f"x{i}" for i in range(size)]
    body = rng.random() < 0.5
    rules = [("h", names)] if body else [("h", [x]) for x in names]
    program = Program.from_rules(rules, atoms=["h", *names])
    logit = float(rng.uniform(3, 30))
    constants = lg.Constants(logit, 30.0, 20.0, 0.95, float(rng.uniform(5, 40)), 5.0)
    dtype = DTYPES[int(rng.integers(2))]
    model = lg.oracle(program, constants, form="sparse", dtype=dtype)
    with torch.no_grad():
        if rng.random() < 0.5:
            noise = torch.randn(model.rules.body_logits.shape, dtype=model.rules.body_logits.dtype)
            model.rules.body_logits.add_(0.1 * noise)
        weights = model.step_parameters()
        gap = float(10 ** rng.uniform(-13 if dtype == torch.float64 else -7, -0.5))
        if body:
            own = weights.body.double().sum() + size * weights.body_off.double()[0]
            model.threshold.fill_(float(own) - gap)
            model.sharpness_raw.fill_(min(1e11, float(rng.uniform(5, 60)) / gap))
        else:
            model.offset[0] = gap * float(model.gain.detach())
            model.gate_raw.fill_(float(rng.uniform(1, 100)) / gap)
    facts = np.zeros((4, program.M), bool)
    facts[1, 1:] = True
    facts[2, 1:] = rng.random(size) < 0.5
    facts[3, 2:] = True
    return Case(model, program, facts)


KINDS: dict[str, Callable[[np.random.Generator], Case]] = {
    "random": random_case,
    "trained": trained_case,
    "extreme": extreme_case,
    "subnormal": subnormal_case,
    "kernel": kernel_case,
    "long_sum": long_sum_case,
}

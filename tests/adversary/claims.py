"""Checks every claim that a model or a layer makes against closures by brute force.

A claim is a certificate that holds, or an answer with `steps=None`. An error of the library is no
claim; any other exception is reported, too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pairs import operators
from torch import Tensor
from truth import Mask, PlainProgram, plain

import latentgamma as lg
from reference import every_fact_set

#: Steps that a model is run for beyond the start of its window, and where a window may start.
_MOST_STEPS, _LATEST = 60, 2000


def near(facts: Mask, tolerance: float, dtype: torch.dtype, part: Mask | float = 1.0) -> Tensor:
    """The fact sets as values within the tolerance of 0 and 1, also once they are rounded."""
    state = torch.from_numpy(np.where(facts, 1 - tolerance * part, tolerance * part)).to(dtype)
    inward = torch.where(torch.from_numpy(facts), torch.ones_like(state), torch.zeros_like(state))
    far = (state.double() - inward.double()).abs() > tolerance
    return torch.where(far, torch.nextafter(state, inward), state)


def claimed(compute: Callable[[], Any], what: str, wrong: list[str]) -> Any:
    """What is computed; None where the library refuses, and a line for any other exception."""
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            return compute()
    except lg.LatentGammaError:
        return None
    except Exception as error:
        wrong.append(f"{what} raises {error!r}")
        return None


def check_certificate(
    model: Any, compared: PlainProgram, rng: np.random.Generator, **options: Any
) -> tuple[bool, list[str]]:
    """Whether the model is certified against a program, and what is wrong with that."""
    wrong: list[str] = []
    program = lg.parse(str(compared))
    found = claimed(lambda: lg.certify(model, program, **options), "certify", wrong)
    if found is None or not found.holds:
        return False, wrong
    if not (math.isfinite(found.t_min) and 0 <= found.t_min <= found.t_max):
        return True, [f"holds with the window [{found.t_min}, {found.t_max}]"]
    if set(model.atoms) != set(compared.atoms):
        return True, ["holds for a program with other atoms"]
    if found.dtype != str(model.dtype).removeprefix("torch."):
        return True, [f"is for {found.dtype}, but the model is in {model.dtype}"]
    if found.t_min > _LATEST:
        return False, wrong  # it would take too long to compare
    facts = every_fact_set(len(compared.atoms))
    wanted, depths = compared.closures(facts)
    if options.get("depth") is not None:
        covered = depths <= options["depth"]
    elif options.get("facts") is not None:
        given = np.array([[name in one for name in compared.atoms] for one in options["facts"]])
        covered = depths <= compared.closures(given)[1].max()
    else:
        covered = np.ones(len(facts), bool)
    own = [compared.atoms.index(name) for name in model.atoms]  # in the order of the model
    facts, wanted = facts[covered][:, own], torch.from_numpy(wanted[covered][:, own])
    first = int(found.t_min)
    last = int(min(found.t_max, first + _MOST_STEPS))
    tolerance = options.get("tolerance", 0.0)
    for part in (1.0, rng.random(facts.shape), rng.random(facts.shape) < 0.5):
        state = near(facts, tolerance, model.dtype, part)
        for steps in sorted({first, min(first + 1, last), (first + last) // 2, last}):
            after = claimed(lambda n=steps, s=state: model(s, n), f"{steps} steps", wrong)
            if after is not None and not torch.equal(after > 0.5, wanted):
                bad = int(((after > 0.5) != wanted).any(-1).sum())
                wrong.append(
                    f"{bad} of {len(facts)} fact sets are wrong after {steps} steps: {found}"
                )
        if not tolerance:
            break
    return True, wrong


def check_steps_none(model: Any, dtype: torch.dtype) -> tuple[bool, list[str]]:
    """Whether `steps=None` answers zeros and ones of a dtype, and what is wrong with the answers."""
    wrong: list[str] = []
    compared = plain(model.program)
    facts = every_fact_set(len(compared.atoms))
    wanted = compared.closures(facts)[0]
    state = torch.from_numpy(facts).to(dtype)
    after = claimed(lambda: model(state), f"steps=None in {dtype}", wrong)
    if after is None:
        return False, wrong
    bad = np.flatnonzero(((after > 0.5).numpy() != wanted).any(-1))
    if len(bad):
        wrong.append(f"{len(bad)} of {len(facts)} fact sets are wrong with steps=None in {dtype}")
    row = int(bad[0] if len(bad) else len(facts) // 2)
    found = claimed(lambda: model.closure(facts[row]), "closure", wrong)
    if found is not None and found != _names(compared, wanted[row]):
        wrong.append(f"the model's closure of {_names(compared, facts[row])} is {found}")
    return True, wrong


def _names(program: PlainProgram, row: Mask) -> set[str]:
    return {name for name, true in zip(program.atoms, row, strict=True) if true}


def check_tolerance(
    model: Any, compared: PlainProgram, rng: np.random.Generator
) -> tuple[bool, list[str]]:
    """Whether the model has a largest tolerance, and what is wrong with that."""
    wrong: list[str] = []
    program = lg.parse(str(compared))
    delta = claimed(lambda: lg.operator.tolerance(model, program), "tolerance", wrong)
    if delta is None:
        return False, wrong
    held, more = check_certificate(model, compared, rng, tolerance=delta)
    if not held:
        wrong.append(f"not certified at its tolerance {delta}")
    return True, wrong + more


def check_layer(
    layer: lg.Layer, compared: PlainProgram, delta: float, dtype: torch.dtype
) -> tuple[bool, list[str]]:
    """Whether a layer from all atoms to all atoms shows a certificate, and what is wrong with that."""
    wrong: list[str] = []
    found = claimed(lambda: layer.certificate, "the certificate of a layer", wrong)
    if found is None or not found.holds:
        return False, wrong
    computed = {str(part.dtype).removeprefix("torch.") for part in operators(layer)}
    if computed != {found.dtype}:
        wrong.append(f"the certificate of a layer is for {found.dtype}, but it is in {computed}")
    facts = every_fact_set(len(compared.atoms))
    wanted = torch.from_numpy(compared.closures(facts)[0])
    given = near(facts, 0.5 - delta, dtype)
    after = claimed(lambda: layer(given), "a layer", wrong)
    if after is not None and not torch.equal(after > 0.5, wanted):
        bad = int(((after > 0.5) != wanted).any(-1).sum())
        wrong.append(f"{bad} of {len(facts)} answers of a layer are wrong: {found}")
    return True, wrong

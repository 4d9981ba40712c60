"""Noise on the logits: models perturbed by it, and how likely it is to change a rule.

Theorem 7.1 of the paper bounds the probability that Gaussian noise flips the sign of a body
logit or the argmax of a rule's head logits, and says that without such an event the model is
still right for all facts. The two bounds hold. The conclusion does not follow: a weight of
0.51 has not flipped, and two of them do not satisfy a body of two. Its proof needs more room,
|noise| ≤ η − 1, and then counts that event as if it were no likelier than a flip; even so it
covers bodies of one atom alone, and forgets that the small weights off a body add up over M.

What is right needs no new theorem: `certify(perturbed, program)` reads the noisy weights and
says whether this very model is proved exact for every fact set, and for how many steps.
"""

from __future__ import annotations

import copy
import math
from statistics import NormalDist

import torch
from torch import Tensor

from latentgamma._arguments import real_number
from latentgamma.operator.model import (
    LatentGamma,
    refuse_if_too_large,
    require_definite_model,
    require_whole_model,
)
from latentgamma.operator.rules import DenseRules


def perturb(
    model: LatentGamma,
    sigma_body: float = 0.0,
    sigma_head: float = 0.0,
    generator: torch.Generator | None = None,
) -> LatentGamma:
    """Return a copy of the model, in the dense form, with Gaussian noise on every logit.

    >>> import latentgamma as lg
    >>> program = lg.parse("bird :- penguin. animal :- bird.")
    >>> noisy = perturb(lg.oracle(program), 0.1, generator=torch.Generator().manual_seed(0))
    >>> lg.certify(noisy, program).holds
    True

    Args:
        model: the model to copy; it is not changed. A sparse model is converted to the dense form
            first, since each of its 2RM logits gets noise.
        sigma_body: the standard deviation on the body logits, σ_η of the paper; at least 0.
        sigma_head: the standard deviation on the head logits, σ_ψ; at least 0.
        generator: the source of the noise; by default torch's own. The noise is drawn on the
            generator's device, or on the CPU, so that a seed gives the same model on every device.

    Returns:
        A model with `DenseRules` and the program of the given one.

    Raises:
        ModelError: if this is not a LatentGamma, has only a part of its rules, or is too large
            for the dense form; or if a standard deviation is negative or not finite.
    """
    require_definite_model(model, "perturb")
    require_whole_model(model, "perturb")
    for name, sigma in (("sigma_body", sigma_body), ("sigma_head", sigma_head)):
        _check_sigma(name, sigma)
    logit = next(model.rules.parameters())
    if not isinstance(model.rules, DenseRules):
        refuse_if_too_large(model.R, model.M, logit.dtype, logit.device)
    # The program never changes, so the copy may share it.
    noisy = copy.deepcopy(model, {id(model.program): model.program})
    rules = noisy.rules.to_dense()
    noisy.rules = rules
    source = torch.device("cpu") if generator is None else generator.device
    with torch.no_grad():
        for logits, sigma in ((rules.body_logits, sigma_body), (rules.head_logits, sigma_head)):
            if sigma > 0:
                logits.add_(_noise_like(logits, source, generator), alpha=sigma)
    return noisy


def _noise_like(logits: Tensor, source: torch.device, generator: torch.Generator | None) -> Tensor:
    noise = torch.randn(logits.shape, generator=generator, dtype=logits.dtype, device=source)
    return noise.to(logits.device)


# ---- How likely it is


def flip_bound(R: int, M: int, eta: float, sigma: float) -> float:
    """Return RM·Φ(−η/σ): Theorem 7.1's bound on the probability that some body logit changes sign.

    That no sign changes does not make the model right: see this module's docstring.

    >>> round(flip_bound(648, 504, 10, 2.5), 1)
    10.3

    Args:
        R: the number of rules.
        M: the number of atoms.
        eta: η, the size of the body logits.
        sigma: the standard deviation of the noise on the body logits; at least 0.

    Returns:
        The bound, which is also the expected number of sign changes and may exceed 1.

    Raises:
        ArgumentError: if `sigma` is negative or not finite.
    """
    _check_sigma("sigma", sigma)
    return R * M * _tail(eta, sigma)


def flip_probability(R: int, M: int, eta: float, sigma: float) -> float:
    """Return 1 − (1 − Φ(−η/σ))^RM: the probability itself that some body logit changes sign.

    >>> round(flip_probability(132, 117, 10, 2.5), 3)
    0.387

    Args:
        R: the number of rules.
        M: the number of atoms.
        eta: η, the size of the body logits.
        sigma: the standard deviation of the noise on the body logits; at least 0.

    Returns:
        The probability, between 0 and 1.

    Raises:
        ArgumentError: if `sigma` is negative or not finite.
    """
    _check_sigma("sigma", sigma)
    return -math.expm1(R * M * math.log1p(-_tail(eta, sigma)))


def misroute_bound(R: int, M: int, psi: float, sigma: float) -> float:
    """Return R(M − 1)·Φ(−Ψ/(σ√2)): Theorem 7.1's bound on a head logit being overtaken by another.

    A head that is still the largest may yet have lost most of the softmax to the others together,
    so no misroute does not make the model right.

    >>> round(misroute_bound(648, 504, 20, 4.0), 1)
    66.3

    Args:
        R: the number of rules.
        M: the number of atoms.
        psi: Ψ, the head logit of a rule's head; the others are 0.
        sigma: the standard deviation of the noise on the head logits; at least 0.

    Returns:
        The bound, which may exceed 1.

    Raises:
        ArgumentError: if `sigma` is negative or not finite.
    """
    _check_sigma("sigma", sigma)
    return R * max(0, M - 1) * _tail(psi, sigma * math.sqrt(2))


def critical_sigma(R: int, M: int, eta: float = 10.0) -> float:
    """Return the noise at which one sign change is to be expected: RM·Φ(−η/σ) = 1.

    >>> [round(critical_sigma(R, M), 2) for R, M in ((32, 33), (648, 504))]
    [3.22, 2.21]

    Args:
        R: the number of rules.
        M: the number of atoms.
        eta: η, the size of the body logits.

    Returns:
        The standard deviation; infinite where there are at most two logits, since Φ(−η/σ) stays
        below ½.

    Raises:
        ArgumentError: if `eta` is not positive.
    """
    real_number("eta", eta, "a positive number", lambda x: 0 < x < math.inf)
    if R * M <= 2:
        return math.inf
    return -eta / NormalDist().inv_cdf(1 / (R * M))


def _tail(margin: float, sigma: float) -> float:
    """Return Φ(−margin/σ), by erfc: it keeps its digits where 1 − Φ has none left."""
    return 0.0 if sigma == 0 else 0.5 * math.erfc(margin / (sigma * math.sqrt(2)))


def _check_sigma(name: str, sigma: float) -> None:
    expected = "a standard deviation, a finite number from 0 on"
    real_number(name, sigma, expected, lambda x: 0 <= x < math.inf)

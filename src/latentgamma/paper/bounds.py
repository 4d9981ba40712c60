"""What the paper states, as printed or corrected: bounds on noise, counts of bits.

`docs/paper.md` lists what holds. What is proved of a model says `certify`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from statistics import NormalDist

import torch

from latentgamma._arguments import one_of, real_number, whole_number
from latentgamma.operator.model import (
    LatentGamma,
    refuse_if_too_large,
    require_definite_model,
    require_whole_model,
)
from latentgamma.operator.rules import DenseRules
from latentgamma.program.program import Program

# ---- Noise on the logits
# Theorem 7.1 bounds the probability that Gaussian noise changes the sign of a body logit or the
# largest head logit of a rule, and says that without such an event the model is right for all facts.
# The two bounds hold. The conclusion does not follow: a weight of 0.51 has not changed its sign, and
# two of them do not satisfy a body of two; and the small weights outside a body add up over M.


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
                noise = torch.randn(
                    logits.shape, generator=generator, dtype=logits.dtype, device=source
                )
                logits.add_(noise.to(logits.device), alpha=sigma)
    return noisy


def flip_bound(R: int, M: int, eta: float, sigma: float) -> float:
    """Return RM·Φ(−η/σ): Theorem 7.1's bound on the probability that some body logit changes sign.

    That no sign changes does not make the model right: see docs/paper.md.

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


# ---- Parameters and bits
# Theorem 8.1 says that an operator that can represent every program of R rules with bodies of at most
# k of M atoms needs R(log₂ M + k log₂ M − k log₂ k) − O(R) bits. It counts R rules in order, which is
# R log₂ R bits too many, so the formula can exceed what suffices to number all programs.
# What is proved here counts programs that surely differ. Split the atoms into a that only occur in
# bodies and M − a that are only heads, and take rules with exactly k body atoms. Then different sets of
# rules have different closures: at least log₂ C(C(a, k)·(M − a), R) bits, for the best a.


def parameter_count(what: LatentGamma | Program, form: str | None = None) -> int:
    """Return the number of scalar parameters of a model, or of the oracle of a program.

    >>> from latentgamma import generators
    >>> parameter_count(generators.g4()), parameter_count(generators.g4(), "sparse")
    (655632, 5232)

    Args:
        what: a model, or the program one would be built from.
        form: "dense" or "sparse"; by default the model's own, and "dense" for a program.

    Returns:
        Dense, 2RM + 3R + M, as the paper counts; sparse, one per literal and 5R + M; with
        negation, the sum over the strata. The two numbers that all rules share, gain and gate,
        are not counted.

    Raises:
        ModelError: if the model has only a part of its rules.
        ArgumentError: if there is no such form.
    """
    if form is not None:
        one_of("form", form, ("dense", "sparse"))
    if not what.definite:
        parts: Sequence[LatentGamma | Program] = (
            what.parts
            if isinstance(what, LatentGamma)
            else [stratum.program for stratum in what.strata]
        )
        return sum(parameter_count(part, form) for part in parts)
    R, M = what.R, what.M
    if isinstance(what, LatentGamma):
        require_whole_model(what, "parameter_count")
        form = form or ("dense" if isinstance(what.rules, DenseRules) else "sparse")
        support = what.rules.literals()
        literals = len(support.body_atom) + len(support.head_atom)
    else:
        literals = what.size
    # Beside the logits: threshold, sharpness and confidence of a rule, the offset of an atom.
    logits = literals + 2 * R if form == "sparse" else 2 * R * M
    return logits + 3 * R + M


def lower_bound_bits(M: int, R: int, k: int, *, printed: bool = False) -> float:
    """Return the number of bits that an operator needs to represent every program of this size.

    >>> round(lower_bound_bits(504, 648, 2)), round(lower_bound_bits(504, 648, 2, printed=True))
    (9892, 16156)

    Args:
        M: the number of atoms, from 0 on.
        R: the largest number of rules, from 0 on.
        k: the largest number of atoms in a body, from 0 on.
        printed: whether to evaluate the formula of Theorem 8.1 without its O(R), which is not a
            bound: see docs/paper.md.

    Returns:
        A proved lower bound; with `printed`, the value of the formula.

    Raises:
        ArgumentError: if a number is negative.
    """
    for name, value in (("M", M), ("R", R), ("k", k)):
        whole_number(name, value)
    if M == 0 or R == 0:
        return 0.0
    if printed:
        return R * (math.log2(M) + k * math.log2(M) - (k * math.log2(k) if k else 0.0))
    most = max(
        math.comb(a, size) * (M - a) for size in range(min(k, M) + 1) for a in _splits(M, size)
    )
    return _log2_comb(most, min(R, most // 2))


def upper_bound_bits(M: int, R: int, k: int) -> float:
    """Return the bits that surely suffice: they number all programs of at most R rules.

    >>> round(upper_bound_bits(504, 648, 2))
    11692
    """
    rules = M * sum(math.comb(M, size) for size in range(min(k, M) + 1))
    # C(n, r) grows up to r = n/2, so R + 1 times the largest covers every number of rules.
    few = min(R, rules // 2)
    if rules <= R:
        return float(rules)
    return _log2_comb(rules, few) + math.log2(R + 1)


def _splits(M: int, size: int) -> range:
    """Return numbers of body atoms worth trying: C(a, k)(M − a) is largest near a = kM/(k + 1)."""
    best = size * (M + 1) // (size + 1)
    return range(max(0, best - 2), min(M, best + 2) + 1)


def _log2_comb(n: int, r: int) -> float:
    """Return log₂ C(n, r), to rounding also where n has more digits than a float."""
    r = min(r, n - r)
    if r * n.bit_length() <= 1 << 20:
        return math.log2(math.comb(n, r))
    # log n!/(n − r)! by Stirling's series, in x = r/n: n^r times a factor of at most e^r.
    x = r / n
    slope = -math.log1p(-x) / x if x else 1.0
    falling = r * (math.log(n) + (1 - x + 1 / (2 * n)) * slope - 1) - x * x / (12 * r * (1 - x))
    return (falling - math.lgamma(r + 1)) / math.log(2)

"""How many parameters a model has, and how many bits any operator of its kind needs.

Theorem 8.1 of the paper says that an operator that can represent every program of R rules with
bodies of at most k of M atoms needs R(log₂ M + k log₂ M − k log₂ k) − O(R) bits. Its count
takes R rules in order, and R! orders of the same rules are one program: R log₂ R bits too many,
which no O(R) covers. It then takes off 'O(R log M) bits' for rules that others make needless,
which is as much as the claim itself. So the printed formula can exceed the number of programs
there are: for R = 648, M = 504, k = 2 it says 16,156 bits, and 11,692 bits tell all of them apart.

What is proved here counts programs that surely differ. Split the atoms into a that only occur
in bodies and M − a that are only heads. Take rules with exactly k body atoms. Then h follows
from K, a set of k of the first kind, just when the rule K ⇒ h is there, so different sets of
rules have different closures: at least log₂ C(C(a, k)·(M − a), R) bits, for the best a.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from latentgamma._arguments import one_of, whole_number
from latentgamma.operator.model import LatentGamma, require_whole_model
from latentgamma.operator.rules import DenseRules
from latentgamma.program.program import Program


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
            bound: see this module's docstring.

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
    """Return log₂ C(n, r), by sums that stay exact to rounding where n is huge and r small."""
    r = min(r, n - r)
    if r <= 0:
        return 0.0
    if r <= 100_000:
        return math.fsum(math.log2((n - i) / (i + 1)) for i in range(r))
    return (math.lgamma(n + 1) - math.lgamma(r + 1) - math.lgamma(n - r + 1)) / math.log(2)

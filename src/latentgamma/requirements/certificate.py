"""Proofs that no input of a layer gives an answer that breaks a requirement."""

from __future__ import annotations

from dataclasses import dataclass

from latentgamma._display import Displayed
from latentgamma._text import listing, quantity
from latentgamma.engine.diagram import Diagram, broken_clauses, is_complete, labels_below
from latentgamma.errors import CertificateError, LatentGammaError
from latentgamma.requirements.programs import LabelProgram
from latentgamma.requirements.report import sat_solver, signed_clauses
from latentgamma.requirements.requirements import Requirements


@dataclass(frozen=True)
class RequirementsCertificate(Displayed):
    """What was proved of a layer; `str` of it says it in a few lines.

    >>> from latentgamma import Requirements
    >>> certificate = Requirements.from_edges([("cat", "animal")]).layer().certificate()
    >>> certificate.holds, certificate.proved
    (True, 1)

    Attributes:
        requirements: the number of requirements.
        proved: the number of those that hold for every input.
        broken: those that were not proved, as text with their places.
        proof: how it was proved, or why it could not be.
        complete: of "exact", whether it was proved that every allowed answer can come out, and
            so that `decide` returns the most likely of all of them; None for the other methods,
            which do not claim it.
    """

    requirements: int
    proved: int
    broken: tuple[str, ...]
    proof: str
    complete: bool | None = None

    @property
    def holds(self) -> bool:
        """Whether everything was proved that the method claims.

        That is every requirement, and of "exact" also that no allowed answer is lost.
        """
        return self.proved == self.requirements and not self.broken and self.complete is not False

    def require(self) -> RequirementsCertificate:
        """Return the certificate, or raise a `CertificateError` if it does not hold."""
        if not self.holds:
            raise CertificateError(str(self))
        return self

    def __str__(self) -> str:
        total = quantity(self.requirements, "requirement")
        verb = "holds" if self.requirements == 1 else "hold"
        lines = [f"{self.proved:,} of {total} {verb} for every input without NaN", self.proof]
        lines += [f"not proved: {listing(list(self.broken), 5)}"] if self.broken else []
        if self.complete is not None:
            lines.append(
                "proved: no allowed answer is lost, so each answer is the most likely one"
                if self.complete
                else "not proved: that no allowed answer is lost; the answer may not be the most "
                "likely one"
            )
        return "\n".join(lines)


def _certificate(
    req: Requirements, bad: list[int], proof: str, complete: bool | None = None
) -> RequirementsCertificate:
    broken = tuple(f"{req.place(c)}  {req[c]}" for c in bad)
    return RequirementsCertificate(len(req), len(req) - len(bad), broken, proof, complete)


def refused_certificate(req: Requirements, reason: str) -> RequirementsCertificate:
    """Return a certificate that does not hold, for this reason."""
    return _certificate(req, list(range(len(req))), reason)


def certify_diagram(
    req: Requirements, diagram: Diagram, decided: dict[int, int]
) -> RequirementsCertificate:
    """Prove that each answer is a path of the diagram, and that no path breaks a requirement.

    `decided` has the place in the diagram of each label that it decides.
    """
    try:
        labels_below(diagram)
    except ValueError as problem:
        return refused_certificate(req, f"the diagram is damaged: {problem}")
    clauses = signed_clauses(req)
    checked = [c for c, clause in enumerate(clauses) if not any(-x in clause for x in clause)]
    if any(abs(x) - 1 not in decided for c in checked for x in clauses[c]):
        return refused_certificate(req, "the diagram does not decide all labels")
    placed = [
        tuple((decided[abs(x) - 1] + 1) * (1 if x > 0 else -1) for x in clauses[c]) for c in checked
    ]
    bad = [checked[i] for i in broken_clauses(diagram, placed)]
    proof = "proved: each answer is a path of the diagram, and no path breaks a requirement"
    return _certificate(req, bad, proof, is_complete(diagram, placed))


def certify_program(req: Requirements, rules: LabelProgram) -> RequirementsCertificate:
    """Prove that no fixed point of the rules breaks a requirement.

    Minima, maxima and negations of log-odds commute with the threshold: what is above 0 is the
    fixed point of what is above 0 in the inputs.
    """
    written = _rules_as_written(rules)
    clauses = signed_clauses(req)
    open_ = [
        c
        for c, clause in enumerate(clauses)
        if not any(
            (x - 1, frozenset(-y for y in clause if y != x)) in written for x in clause if x > 0
        )
    ]
    if not open_:
        proof = "proved: each requirement is a rule of the layer, and its answers are closed"
        return _certificate(req, [], proof)
    try:
        bad = _broken_by_fixed_points(rules, clauses, open_)
    except LatentGammaError as error:
        return _certificate(req, open_, str(error))
    proof = "proved: that an answer of the layer breaks a requirement is unsatisfiable"
    return _certificate(req, bad, proof)


def _rules_as_written(rules: LabelProgram) -> set[tuple[int, frozenset[int]]]:
    """Return the rules over labels, as (label, literals ±(label + 1))."""
    program = rules.program
    if rules.outputs != tuple(range(len(rules.outputs))):
        return set()
    return {
        (head, frozenset(x + 1 if x >= 0 else x for x in body))
        for heads, body in program._row_lists()
        for head in heads
    }


def _broken_by_fixed_points(
    rules: LabelProgram, clauses: list[list[int]], chosen: list[int]
) -> list[int]:
    """Return those of the chosen clauses that some fixed point of the rules makes false."""
    program = rules.program
    next_variable = program.M + 1
    causes: list[list[int]] = [[] for _ in range(program.M)]
    out: list[list[int]] = []
    for heads, body in program._row_lists():
        literals = [x + 1 if x >= 0 else x for x in body]
        fires = next_variable
        next_variable += 1
        out += [[-fires, x] for x in literals]
        out.append([fires, *(-x for x in literals)])
        for head in heads:
            causes[head].append(fires)
    fed = set(rules.inputs)
    for atom, of_atom in enumerate(causes):
        out += [[-one, atom + 1] for one in of_atom]
        if atom not in fed:  # an input may be true without a rule
            out.append([-(atom + 1), *of_atom])
    names = [output + 1 for output in rules.outputs]
    bad = []
    with sat_solver(out) as solver:
        for c in chosen:
            wrong = [(-1 if x > 0 else 1) * names[abs(x) - 1] for x in clauses[c]]
            if solver.solve(assumptions=wrong):
                bad.append(c)
    return bad

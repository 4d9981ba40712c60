"""The explorer's page: one HTML document with the program, the operator and the scripts in it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from latentgamma.errors import ArgumentError, ModelError
from latentgamma.logic.proof import complete_program, instance_of
from latentgamma.plot.program_graph import Point, atom_label, drawn_program, layered_layout
from latentgamma.program.counting import written_program
from latentgamma.program.facts import Facts, fact_mask
from latentgamma.program.program import Program, Rule, require_program

if TYPE_CHECKING:
    from latentgamma.operator.model import LatentGamma

# The page holds the whole program and draws a node per atom: a browser shows this many fluently.
_MOST_ATOMS = 20_000
_MOST_LITERALS = 400_000
# Up to this size rules are drawn in layers with all their lines; beyond it as a grid of atoms.
_MOST_DRAWN_ATOMS, _MOST_DRAWN_LITERALS = 600, 3_000
# Pixels in an inch, and in inches: the width of a letter, the row of a box, the gap of layers.
_PIXELS, _LETTER, _ROW, _GAP = 72.0, 0.105, 0.55, 0.6


def render(
    program: Program,
    *,
    facts: Facts = (),
    model: LatentGamma | None = None,
    notes: Sequence[str] = (),
    title: str = "LatentGamma explorer",
) -> str:
    """Return the page of a program as one HTML document that needs nothing else.

    Args:
        program: The rules to explore, with negation or without.
        facts: The facts that are true when the page opens.
        model: A model to run, for example a learned one; by default the closed form. Its
            extracted rules are shown beside those of the program.
        notes: A note on each rule, for example its evidence: `map(str, result.evidence)` for a
            result of `lg.fit`.
        title: The title of the page.

    Returns:
        The HTML text. It contains its scripts and styles and loads nothing.

    Raises:
        ArgumentError: The notes are not as many as the rules.
        ModelError: The program is too large for a page, or the model has other atoms or strata.
        ProgramError: The first argument is not a program.

    >>> import latentgamma as lg
    >>> page = lg.explore.render(lg.parse("bird :- penguin."), facts=["penguin"])
    >>> page.startswith("<!doctype html>")
    True
    """
    require_program(program, "explore.render")
    if program.M > _MOST_ATOMS or program.size > _MOST_LITERALS:
        raise ModelError(
            f"a page shows up to {_MOST_ATOMS} atoms and {_MOST_LITERALS} literals, but this "
            f"program has {program.M} and {program.size}; explore a part of it"
        )
    if model is None:
        program, facts = complete_program(program, facts)
    notes = [str(note) for note in notes] or [""] * program.R
    if len(notes) != program.R:
        raise ArgumentError(f"notes has {len(notes)} texts, but the program has {program.R} rules")
    places = program.index
    drawn = program.M <= _MOST_DRAWN_ATOMS and program.size <= _MOST_DRAWN_LITERALS
    data = {
        "atoms": list(program.atoms),
        # Those that counts are compiled into come last, and are not shown.
        "written": [int(np.sum(~program.auxiliary)), written_program(program).R],
        "layout": _layout(program) if drawn else None,
        "rules": [
            {
                "heads": sorted(places[name] for name in rule.heads),
                "body": sorted(places[name] for name in rule.body),
                "negated": sorted(places[name] for name in rule.negated),
                "label": _place(program, j, named=drawn),
                "text": str(rule),
                "note": notes[j],
            }
            for j, rule in enumerate(program.rules)
        ],
        "facts": np.flatnonzero(fact_mask(program, facts)).tolist(),
        **_operator_data(program, model),
    }
    assets = files("latentgamma.explore") / "assets"
    parts = {
        "title": html.escape(title),
        "style": (assets / "explorer.css").read_text(encoding="utf-8"),
        "engine": (assets / "engine.js").read_text(encoding="utf-8"),
        "script": (assets / "explorer.js").read_text(encoding="utf-8"),
        # "<" would end the script element inside a name such as "</script>".
        "data": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
    }
    page = (assets / "page.html").read_text(encoding="utf-8")
    # In one pass, so that nothing in a part is taken for the name of another.
    return re.sub(r"\{(\w+)\}", lambda name: parts[name[1]], page)


def _place(program: Program, rule: int, *, named: bool) -> str:
    """Return where a rule is: its id, the line and substitution it comes from, or its number."""
    origin = instance_of(program, rule) if named else None
    return str(origin or program.label(rule) or f"rule {rule}")


def _layout(program: Program) -> dict[str, Any]:
    """Return the drawing of `lg.plot.program` in pixels, with y downwards."""
    drawn, written = drawn_program(program)
    labels = [atom_label(name) for name in drawn.atoms]
    widths = [_LETTER * len(label) + 0.25 for label in labels]
    found = layered_layout(drawn, widths, row=_ROW, gap=_GAP, wrap=True)

    def point(at: Point) -> list[float]:
        return [round(_PIXELS * at[0], 1), round(_PIXELS * (found.height - at[1]), 1)]

    def number(rule: int) -> int:  # those of counts come after all rules of the program
        return rule if rule < written else program.R + rule - written

    return {
        "size": [_PIXELS * found.width, _PIXELS * found.height],
        "widths": [_PIXELS * width for width in widths],
        "labels": labels,
        "atoms": [point(at) for at in found.atoms],
        "counts": [
            [int(drawn.literals_of(j)[0]), int(drawn.heads_of(j)[0])]
            for j in range(written, drawn.R)
        ],
        "junctions": [[number(j), *point(at)] for j, at in found.junctions.items()],
        "edges": [
            {
                "rule": number(edge.rule),
                "points": [point(at) for at in edge.points],
                "arrow": edge.arrow,
                "negated": edge.negated,
            }
            for edge in found.edges
        ],
    }


def _operator_data(program: Program, model: LatentGamma | None) -> dict[str, Any]:
    """Return the operator of each stratum, the certified window, and what a given model learned."""
    from latentgamma.certificate.certify import certify
    from latentgamma.operator.model import oracle

    learned = None if model is None else _learned_model(program, model)
    if model is None:
        model = oracle(program, form="sparse")
    strata = [
        {
            "rules": stratum.rules.tolist(),
            "atom": stratum.atom.tolist(),
            "negated": stratum.negated.tolist(),
            # A single stratum computes all its atoms, those without rules among them.
            "derived": list(range(program.M)) if program.definite else stratum.derived.tolist(),
            "model": _parameters(part),
        }
        for stratum, part in zip(program.strata, model.parts, strict=True)
    ]
    certificate = certify(model, program)
    window: dict[str, Any] = {"t_min": None, "t_max": None, "text": str(certificate)}
    if certificate.holds:
        window |= {"t_min": certificate.t_min, "t_max": min(certificate.t_max, 10**9)}
    return {"strata": strata, "window": window, "learned": learned}


def _parameters(model: LatentGamma) -> dict[str, Any]:
    """Return the parameters of the operator."""
    import torch

    with torch.no_grad():
        return {
            "threshold": model.threshold.double().tolist(),
            "sharpness": model.sharpness.double().tolist(),
            "amplitude": (model.gain.double() * model.confidence.double()).tolist(),
            "offset": model.offset.double().tolist(),
            "gate": float(model.gate),
            "gate_kind": model.gate_kind,
            **_rule_data(model),
        }


def _rule_data(model: LatentGamma) -> dict[str, Any]:
    """Return the body logits and head weights: one per literal, and a background for each rule."""
    from latentgamma.operator.model import require_whole_model
    from latentgamma.operator.rules import SparseRules

    require_whole_model(model, "explore")
    rules, parameters = model.rules, model.step_parameters()
    if isinstance(rules, SparseRules):
        return {
            "body_rule": rules.body_rule.tolist(),
            "body_atom": rules.body_atom.tolist(),
            "body_logits": rules.body_logits.double().tolist(),
            "body_background": rules.body_background.double().tolist(),
            "head_rule": rules.head_rule.tolist(),
            "head_atom": rules.head_atom.tolist(),
            "head_weight": parameters.head.double().tolist(),
            "head_background": parameters.head_off.double().tolist(),
        }
    # A dense matrix is the same with every entry a literal and no background.
    R, M = model.R, model.M
    if R * M > _MOST_LITERALS:
        raise ModelError(
            f"the dense matrices of this model have {R * M} entries; a page holds up to "
            f"{_MOST_LITERALS}"
        )
    dense = rules.to_dense()
    rule, atom = np.divmod(np.arange(R * M), M)
    return {
        "body_rule": rule.tolist(),
        "body_atom": atom.tolist(),
        "body_logits": dense.body_logits.double().flatten().tolist(),
        "body_background": [-1e3] * R,
        "head_rule": rule.tolist(),
        "head_atom": atom.tolist(),
        "head_weight": parameters.head.double().flatten().tolist(),
        "head_background": [0.0] * R,
    }


def _learned_model(program: Program, model: LatentGamma) -> dict[str, Any]:
    """Return the rules that a model applies beside those of the program."""
    from latentgamma.learning.extract import extract
    from latentgamma.logic.equivalence import compare_by_entailment

    if model.M != program.M:
        raise ModelError(f"the model has {model.M} atoms, the program {program.M}")
    read = [(place.atom.tolist(), place.negated.tolist()) for place in model.places]
    if read != [(stratum.atom.tolist(), stratum.negated.tolist()) for stratum in program.strata]:
        raise ModelError("the strata of the model have other atoms than those of the program")
    ours = {str(rule) for rule in program.rules}
    theirs, same = [], True
    for stratum, part in zip(program.strata, model.parts, strict=True):
        found = replace(extract(part), atoms=stratum.program.atoms)
        same = same and compare_by_entailment(found, stratum.program).equal
        for j in range(found.R):
            body, heads = found.body_of(j), found.heads_of(j)
            negated = stratum.negated[body]
            rule = Rule(
                tuple(program.atoms[i] for i in stratum.atom[heads]),
                frozenset(program.atoms[i] for i in stratum.atom[body[~negated]]),
                frozenset(program.atoms[i] for i in stratum.atom[body[negated]]),
            )
            theirs.append(str(rule))
    rows = [[text, text if text in ours else "–"] for text in theirs]
    rows += [["–", text] for text in sorted(ours - set(theirs))]
    where = "the program" if program.definite else "the program in each stratum"
    text = f"The extracted rules are {'' if same else 'not '}equivalent to {where}."
    return {"text": text, "rows": rows[:500]}

"""The commands: each makes one library call, shows what came back, and returns an exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import latentgamma as lg
from latentgamma._atomic_write import write_text
from latentgamma._cli.console import Screen, progress, working
from latentgamma._cli.formatting import (
    Run,
    rows_to_show,
    show_certificate,
    show_closure,
    show_proof,
    show_run,
    show_why_not,
)
from latentgamma._program.fact_text import atom_name, facts_in_file, split_facts
from latentgamma._program.files import read

if TYPE_CHECKING:
    from latentgamma import Constants, LatentGamma, Program, Trajectory

#: A run keeps every state; more bytes than this are refused.
_MOST_BYTES = 4 << 30
#: How often the bar of a long run moves.
_STRETCHES = 200


class Problem(Exception):  # noqa: N818 - it is shown to a person, not raised at a caller
    """Input that cannot be worked with; the message is the line that is shown."""


def closure(args: argparse.Namespace) -> int:
    """0, after showing what follows from the facts."""
    check_picture(args.plot)
    program = _program(args)
    facts = _facts(args, program)
    with working("closing"):
        known = lg.closure(program, facts)
    if args.plot:
        lg.plot.program(program, args.plot, highlight=known)
    screen = Screen()
    if not args.json:
        show_closure(screen, known, len(set(facts)), levels=args.levels)
        return 0
    document: dict[str, Any] = {"atoms": list(known), "depth": known.depth}
    if args.levels:
        document["levels"] = [sorted(level) for level in known.levels]
    screen.json(document)
    return 0


def explain(args: argparse.Namespace) -> int:
    """0 after showing a proof of the atom, 1 after showing why there is none."""
    check_picture(args.plot)
    program = _program(args)
    facts = _facts(args, program)
    atom = atom_name(program, args.atom.strip())
    screen = Screen()
    with working("looking for a proof"):
        account = lg.why_not(program, facts, atom)
        proof = lg.derivation(program, facts, atom)
    if account is not None:
        if args.json:
            texts = _texts(program, [blocked.rule for blocked in account.blocked])
            screen.json({"derivable": False, **account.to_dict(), "rule_text": texts})
        else:
            show_why_not(screen, account)
    if proof is None:
        return 1
    if args.dot:
        write_text(args.dot, proof.to_dot() + "\n")
    if args.plot:
        lg.plot.derivation(proof, args.plot)
    if args.json:
        texts = _texts(program, proof.rules)
        screen.json({"derivable": True, **proof.to_dict(), "rule_text": texts})
    else:
        show_proof(screen, proof)
    return 0


def certify(args: argparse.Namespace) -> int:
    """0 if the model is proved exact as far as was asked, else 1."""
    check_picture(args.plot)
    program = _program(args)
    paper = constants = None
    if args.model:
        _refuse(args, "constants", "gate", "dtype")
        model = _loaded(args.model)
        program = _aligned(program, model)
        with working("certifying"):
            certificate = lg.certify(model, program, depth=args.depth)
    else:
        from latentgamma._certificate.constants import ClosedForm
        from latentgamma._certificate.paper_window import paper_window

        try:
            with working("looking for constants"):
                constants = _constants(args, program, args.horizon)
        except lg.CertificateError as error:
            if not args.json:
                raise
            Screen().json({"holds": False, "message": str(error), "horizon": args.horizon})
            return 1
        with working("certifying"):
            form = ClosedForm(
                program, constants, bump=args.gate == "bump", dtype=args.dtype or "float32"
            )
            certificate = lg.certify(form, program, depth=args.depth)
            paper = paper_window(program, constants)
    fine = certificate.holds and certificate.t_max >= (args.horizon or 0)
    verdict = certificate.message
    if certificate.holds and not fine:
        verdict += f"; it was to reach step {args.horizon:,}"
    if args.plot:
        lg.plot.window(certificate, args.plot, paper=paper)
    screen = Screen()
    if not args.json:
        show_certificate(screen, certificate, paper, fine=fine, verdict=verdict)
        return 0 if fine else 1
    screen.json(
        {
            **certificate.to_dict(),
            "message": verdict,
            "horizon": args.horizon,
            "reaches_horizon": fine,
            "constants": None if constants is None else constants.to_dict(),
            "paper": None if paper is None else paper.to_dict(),
        }
    )
    return 0 if fine else 1


def run(args: argparse.Namespace) -> int:
    """0, after showing the values of a run."""
    check_picture(args.plot)
    program = _program(args)
    if args.model:
        _refuse(args, "constants", "gate", "dtype", "form")
        model = _loaded(args.model)
        program = model.program = _aligned(program, model)
        facts = _facts(args, program)
    else:
        facts = _facts(args, program)
        with working("building the model"):
            model = _built(args, program)
    trajectory = _iterated(model, facts, args.steps)
    values = Run(
        program,
        trajectory.states.double().numpy(),
        trajectory.crossing.numpy(),
        lg.closure(program, facts),
        _gradients(model, facts, trajectory, args.gradient),
    )
    if args.plot:
        lg.plot.trajectory(trajectory, args.plot)
    screen = Screen()
    if args.json:
        screen.json(values.to_dict())
    else:
        show_run(screen, values)
    return 0


def convert(args: argparse.Namespace) -> int:
    """0, after writing the rules in another format."""
    program = _program(args)
    lg.save(program, args.out)
    if args.json:
        keys = ("M", "R", "k", "rho_max")
        Screen().json({"path": args.out, **{key: getattr(program, key) for key in keys}})
    return 0


# -------------------------------------------------------------------- what they work with


def _program(args: argparse.Namespace) -> Program:
    with working("reading the rules"):
        if args.rules == "-":
            data = _standard_input()
            packed = ".gz" if data.startswith(b"\x1f\x8b") else ""
            return read(data, f".{args.format or 'lp'}{packed}", path="<stdin>")
        if args.format:
            packed = ".gz" if args.rules.endswith(".gz") else ""
            return read(Path(args.rules).read_bytes(), f".{args.format}{packed}", path=args.rules)
        return lg.load(args.rules)


def _facts(args: argparse.Namespace, program: Program) -> list[str]:
    facts = [atom_name(program, name) for text in args.facts for name in split_facts(text)]
    for path in args.facts_file:
        if path == "-" and args.rules == "-":
            raise Problem("rules and facts cannot both come from the standard input")
        data = _standard_input() if path == "-" else Path(path).read_bytes()
        facts += facts_in_file(program, data, "<stdin>" if path == "-" else path)
    return facts


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise Problem("there is no standard input to read from")
    return sys.stdin.buffer.read()


def _constants(args: argparse.Namespace, program: Program, horizon: int | None) -> Constants:
    if args.constants == "paper":
        return lg.Constants.paper()
    if args.constants == "scaled":
        return lg.Constants.scaled(program)
    return lg.Constants.certified(program, horizon or 10**6, dtype=args.dtype or "float32")


def _built(args: argparse.Namespace, program: Program) -> LatentGamma:
    import torch

    return lg.oracle(
        program,
        _constants(args, program, None),
        form=args.form or "auto",
        gate=args.gate or "sigmoid",
        gradient=args.gradient or "exact",
        dtype=getattr(torch, args.dtype or "float32"),
    )


def _loaded(path: str) -> LatentGamma:
    with working("reading the model"):
        return lg.LatentGamma.load(path)


def _aligned(program: Program, model: LatentGamma) -> Program:
    """The program with its atoms, and if it can be its rules, in the order of the model's."""
    if model.program is None:
        if model.M != program.M:
            raise Problem(f"the model has {model.M:,} atoms, but the rules have {program.M:,}")
        return program
    if _as_sets(program) == _as_sets(model.program):
        return model.program
    try:
        return lg.Program.from_rules(program.rules, atoms=model.program.atoms)
    except lg.FactsError as error:
        raise Problem(f"the model is not about these rules: {error}") from None


def _as_sets(program: Program) -> set[tuple[frozenset[str], frozenset[str]]]:
    return {(frozenset(rule.heads), rule.body) for rule in program.rules}


def _iterated(model: LatentGamma, facts: Sequence[str], steps: int) -> Trajectory:
    """The whole run, in stretches that move a bar."""
    import torch

    needed = (steps + 1) * model.M * model.dtype.itemsize
    if needed > _MOST_BYTES:
        raise Problem(
            f"a run of {steps:,} steps keeps {needed / 1e9:,.1f} GB of states, more than "
            f"{_MOST_BYTES / 1e9:.1f} GB; ask for fewer steps"
        )
    stretch = max(1, steps // _STRETCHES)
    states = [model.state(facts)[None]]  # (1, M)
    with torch.no_grad(), progress(f"running {steps:,} steps", steps) as advance:
        for done in range(0, steps, stretch):
            part = model.iterate(states[-1][-1], min(stretch, steps - done))
            states.append(part.states[1:])
            advance(part.steps)
    return lg.Trajectory(torch.cat(states), model.program)


def _gradients(
    model: LatentGamma, facts: Sequence[str], trajectory: Trajectory, kind: str | None
) -> dict[str, float]:
    """The gradient that reaches the facts from each atom that a table shows."""
    if kind is None:
        return {}
    from latentgamma._model.gradient_report import gradient_report

    rows = rows_to_show(trajectory.states.double().numpy(), trajectory.crossing.numpy())
    atoms = [model.program.atoms[i] for i in rows] if model.program else []
    with working("differentiating"):
        report = gradient_report(model, facts, steps=trajectory.steps, atoms=atoms)
    return {row.atom: row.exact if kind == "exact" else row.proof for row in report.rows}


def _texts(program: Program, rules: Sequence[int]) -> dict[str, str]:
    return {str(j): str(program.rules[j]) for j in rules}


def _refuse(args: argparse.Namespace, *names: str) -> None:
    for name in names:
        if getattr(args, name) is not None:
            raise Problem(f"--{name} has no effect on a model from --model; leave one of them out")


def check_picture(path: str | None) -> None:
    """Complain about a picture that could not be written before the work for it is done."""
    if path is None:
        return
    try:
        lg.plot.check_path(path)
    except ValueError as error:
        raise Problem(str(error)) from None
    if not Path(path).absolute().parent.is_dir():
        raise Problem(f"cannot write {path!r}: there is no such folder")

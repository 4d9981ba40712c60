"""The commands: each makes one library call, prints the result and returns an exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import latentgamma as lg
from latentgamma._atomic_write import write_text
from latentgamma._cli.checks import UsageError, check_outputs, check_picture
from latentgamma._cli.console import Screen, progress, working
from latentgamma._cli.fact_tables import close_tables, take_tables
from latentgamma._cli.formatting import (
    RunValues,
    rows_to_show,
    show_certificate,
    show_closure,
    show_proof,
    show_run,
    show_why_not,
)
from latentgamma._cli.ground import (
    ground_rules,
    grounding_warnings,
    shown_atoms,
    table_paths,
    wants_grounding,
    write_csv,
)
from latentgamma._cli.main import import_torch
from latentgamma._cli.strata import certify_with_negation, run_with_negation
from latentgamma._program.fact_text import atom_name, facts_in_file, split_facts
from latentgamma._program.files import SUFFIXES, read_text
from latentgamma._program.program import Program
from latentgamma._program.source_text import decode_text
from latentgamma.datalog.reading import read

if TYPE_CHECKING:
    from latentgamma import Constants, LatentGamma, Program, Trajectory

#: `run` keeps every state; a run that needs more bytes is refused.
_MOST_BYTES = 4 << 30
#: A long run is computed in so many parts, to advance the progress bar.
_PARTS = 200


def closure(args: argparse.Namespace) -> int:
    """Print the closure of the facts, or write those of a table; return 0."""
    if tables := take_tables(args):
        return close_tables(args, tables)
    _check_files(args)
    program = read_program(args)
    facts = read_facts(args, program)
    with working("computing the closure"):
        closed = lg.closure(program, facts)
    if args.plot:
        lg.plot.program(program, args.plot, highlight=closed)
    screen = Screen()
    only = shown_atoms(args, program)
    atoms = [name for name in closed if only is None or name in only]
    if args.csv:
        write_csv(args.csv, atoms)
        if args.csv == "-":
            return 0
    if not args.json:
        show_closure(screen, closed, len(set(facts)), levels=args.levels, only=only)
        return 0
    document: dict[str, Any] = {"atoms": atoms, "depth": closed.depth}
    if args.levels:
        kept = [level if only is None else level & only for level in closed.levels]
        document["levels"] = [sorted(level) for level in kept]
    screen.json(document)
    return 0


def explain(args: argparse.Namespace) -> int:
    """Print a proof of the atom and return 0, or why it does not follow and return 1."""
    _check_files(args)
    program = read_program(args)
    facts = read_facts(args, program)
    atom = atom_name(program, args.atom.strip())
    screen = Screen()
    with working("searching for a proof"):
        failure = lg.why_not(program, facts, atom)
        proof = lg.derivation(program, facts, atom)
    if failure is not None:
        if args.json:
            texts = _rule_texts(failure.program, [blocked.rule for blocked in failure.blocked])
            screen.json({"derivable": False, **failure.to_dict(), "rule_text": texts})
        else:
            show_why_not(screen, failure)
    if proof is None:
        return 1
    if args.dot:
        write_text(args.dot, proof.to_dot() + "\n")
    if args.plot:
        lg.plot.derivation(proof, args.plot)
    if args.json:
        texts = _rule_texts(proof.program, proof.rules)
        screen.json({"derivable": True, **proof.to_dict(), "rule_text": texts})
    else:
        show_proof(screen, proof)
    return 0


def certify(args: argparse.Namespace) -> int:
    """Print the certificate; return 0 if it holds up to the horizon, else 1."""
    _check_files(args)
    given = read_program(args)
    if not given.definite:
        return certify_with_negation(args, given)
    program = given
    paper = constants = None
    if args.model:
        _refuse_options(args, "constants", "gate", "dtype")
        model = load_model(args.model)
        program = align_atoms(program, model)
        with working("certifying"):
            certificate = lg.certify(model, program, depth=args.depth)
    else:
        from latentgamma._certificate.closed_form import ClosedForm
        from latentgamma._certificate.paper_window import paper_window

        try:
            with working("choosing constants"):
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
    success = certificate.holds and certificate.t_max >= (args.horizon or 0)
    message = certificate.message
    if certificate.holds and not success:
        message += f"; the horizon asked for is step {args.horizon:,}"
    if args.plot:
        lg.plot.window(certificate, args.plot, paper=paper)
    screen = Screen()
    if not args.json:
        show_certificate(screen, certificate, paper, success=success, message=message)
        return 0 if success else 1
    screen.json(
        {
            **certificate.to_dict(),
            "message": message,
            "horizon": args.horizon,
            "reaches_horizon": success,
            "constants": None if constants is None else constants.to_dict(),
            "paper": None if paper is None else paper.to_dict(),
        }
    )
    return 0 if success else 1


def run(args: argparse.Namespace) -> int:
    """Print the values of every step; return 0."""
    _check_files(args)
    given = read_program(args)
    if not given.definite:
        return run_with_negation(args, given, read_facts(args, given))
    program = given
    if args.model:
        _refuse_options(args, "constants", "gate", "dtype", "form")
        model = load_model(args.model)
        program = model.program = align_atoms(program, model)
        facts = read_facts(args, program)
    else:
        facts = read_facts(args, program)
        with working("building the model"):
            model = _build_model(args, program)
    trajectory = _iterate(model, facts, args.steps)
    values = RunValues(
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
    """Write the rules in another format; return 0."""
    check_outputs({"OUT": args.out}, {"RULES": args.rules})
    program = read_program(args)
    lg.save(program, args.out)
    if args.json:
        keys = ("M", "R", "k", "rho_max")
        Screen().json({"path": args.out, **{key: getattr(program, key) for key in keys}})
    return 0


# -------------------------------------------------------------------- inputs


def read_program(args: argparse.Namespace, *, ground_anyway: bool = False) -> Program:
    """Return the program of RULES.

    Args:
        args: the arguments of the command.
        ground_anyway: whether clingo grounds also rules without variables.
    """
    with working("reading the rules"), grounding_warnings():
        if ground_anyway or wants_grounding(args):
            if args.rules == "-":
                return ground_rules(args, decode_text(_standard_input(), "<stdin>"), "<stdin>")
            return ground_rules(args, read_text(args.rules), args.rules)
        if args.rules == "-":
            data = _standard_input()
            compressed = ".gz" if data.startswith(b"\x1f\x8b") else ""
            return read(data, f".{args.format or 'lp'}{compressed}", path="<stdin>")
        if args.format:
            compressed = ".gz" if args.rules.endswith(".gz") else ""
            data = Path(args.rules).read_bytes()
            return read(data, f".{args.format}{compressed}", path=args.rules)
        name = args.rules.lower().removesuffix(".gz")
        if Path(args.rules).is_file() and not name.endswith(SUFFIXES):
            raise UsageError(
                f"{args.rules!r}: the suffix does not tell the format; pass --format lp, cnf or "
                f"json, or rename the file to end in {', '.join(SUFFIXES)}"
            )
        return lg.load(args.rules)


def read_facts(args: argparse.Namespace, program: Program) -> list[str]:
    """Return the facts of --facts and --facts-file."""
    facts = [atom_name(program, name) for text in args.facts for name in split_facts(text)]
    for path in args.facts_file:
        if path == "-" and args.rules == "-":
            raise UsageError("RULES and --facts-file cannot both be the standard input")
        data = _standard_input() if path == "-" else Path(path).read_bytes()
        facts += facts_in_file(program, data, "<stdin>" if path == "-" else path)
    return facts


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise UsageError("cannot read the standard input: it is closed")
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise UsageError(f"cannot read the standard input: {error.strerror}") from None


def _constants(args: argparse.Namespace, program: Program, horizon: int | None) -> Constants:
    if args.constants == "paper":
        return lg.Constants.paper()
    if args.constants == "scaled":
        return lg.Constants.scaled(program)
    return lg.Constants.certified(
        program,
        horizon or 10**6,
        dtype=args.dtype or "float32",
        gate=args.gate or "sigmoid",
    )


def _build_model(args: argparse.Namespace, program: Program) -> LatentGamma:
    import_torch()
    import torch

    from latentgamma._model.oracle import definite_oracle

    return definite_oracle(
        program,
        _constants(args, program, None),
        form=args.form or "auto",
        gate=args.gate or "sigmoid",
        gradient=args.gradient or "exact",
        dtype=getattr(torch, args.dtype or "float32"),
    )


def load_model(path: str) -> LatentGamma:
    """Return a saved model of a definite program."""
    import_torch()
    with working("reading the model"):
        model = lg.LatentGamma.load(path)
    if not isinstance(model, lg.LatentGamma):
        raise UsageError(f"{path} holds a model with negation, but the rules have none")
    return model


def align_atoms(program: Program, model: LatentGamma) -> Program:
    """The program with its atoms, and if possible its rules, in the order of the model."""
    if model.program is None:
        if model.M != program.M:
            raise UsageError(f"the model has {model.M:,} atoms, but the rules have {program.M:,}")
        return program
    if _as_sets(program) == _as_sets(model.program):
        return model.program
    try:
        return lg.Program.from_rules(program.rules, atoms=model.program.atoms)
    except lg.FactsError as error:
        raise UsageError(f"the model belongs to other rules: {error}") from None


def _as_sets(program: Program) -> set[tuple[frozenset[str], frozenset[str]]]:
    return {(frozenset(rule.heads), rule.body) for rule in program.rules}


def _iterate(model: LatentGamma, facts: Sequence[str], steps: int) -> Trajectory:
    """The trajectory, computed in parts to advance the progress bar."""
    import torch

    needed = (steps + 1) * model.M * model.dtype.itemsize
    if needed > _MOST_BYTES:
        raise UsageError(
            f"--steps {steps:,} needs {needed / 1e9:,.1f} GB for the states, more than "
            f"{_MOST_BYTES / 1e9:.1f} GB; pass fewer steps"
        )
    size = max(1, steps // _PARTS)
    states = [model.state(facts)[None]]  # (1, M)
    with torch.no_grad(), progress(f"running {steps:,} steps", steps) as advance:
        for done in range(0, steps, size):
            part = model.iterate(states[-1][-1], min(size, steps - done))
            states.append(part.states[1:])
            advance(part.steps)
    return lg.Trajectory(torch.cat(states), model.program)


def _gradients(
    model: LatentGamma, facts: Sequence[str], trajectory: Trajectory, kind: str | None
) -> dict[str, float]:
    """The size of the gradient from each atom in the table to the facts."""
    if kind is None:
        return {}
    from latentgamma._model.gradient_report import gradient_report

    rows = rows_to_show(trajectory.states.double().numpy(), trajectory.crossing.numpy())
    atoms = [model.program.atoms[i] for i in rows] if model.program else []
    with working("computing gradients"):
        report = gradient_report(model, facts, steps=trajectory.steps, atoms=atoms)
    return {row.atom: row.exact if kind == "exact" else row.proof for row in report.rows}


def _rule_texts(program: Program, rules: Sequence[int]) -> dict[str, str]:
    return {str(j): str(program.rules[j]) for j in rules}


def _refuse_options(args: argparse.Namespace, *names: str) -> None:
    for name in names:
        if getattr(args, name) is not None:
            raise UsageError(
                f"--{name} cannot be combined with --model: the saved model has its own"
            )


def _check_files(args: argparse.Namespace) -> None:
    """Check the output files before the work for them is done."""
    check_picture(args.plot)
    table = getattr(args, "csv", None)
    outputs = {
        "--plot": args.plot,
        "--dot": getattr(args, "dot", None),
        "--csv": None if table == "-" else table,
    }
    inputs = {
        "RULES": args.rules,
        "--facts-file": getattr(args, "facts_file", None),
        "--model": getattr(args, "model", None),
        "--facts-table": table_paths(args),
    }
    check_outputs(outputs, inputs)

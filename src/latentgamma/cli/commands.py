"""The commands: parse, one library call, exit code."""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import latentgamma as lg
from latentgamma._arguments import usable_device
from latentgamma._atomic_write import write_text
from latentgamma._progress import ProgressBar
from latentgamma._text import quantity
from latentgamma.cli.console import Screen, new_console, print_message, working, write_output
from latentgamma.cli.formatting import (
    MOST_ROWS,
    RunValues,
    show_certificate,
    show_closure,
    show_reason,
    show_run,
)
from latentgamma.cli.main import import_torch
from latentgamma.datalog.programs import read
from latentgamma.program.files import content, decode_rules
from latentgamma.program.program import Program, require_definite
from latentgamma.program.rule_text import atom_name, decode_text, facts_in_file, split_facts

if TYPE_CHECKING:
    from latentgamma import Constants, LatentGamma, Program
    from latentgamma.certificate.constants import Gate
    from latentgamma.datalog.tables import Table
    from latentgamma.operator import Trajectory
    from latentgamma.paper.results import Timing, Validation


# ---- Checks of the arguments before any work is done: output files and devices


class UsageError(Exception):
    """Arguments that cannot be used; the message is printed as it is."""


def refuse_options(args: argparse.Namespace, names: Iterable[str], reason: str) -> None:
    """Raise a UsageError if one of these options is given."""
    for name in names:
        if getattr(args, name) != args.default_of(name):
            option = "TARGETS" if name == "targets" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} {reason}")


def check_outputs(
    outputs: Mapping[str, str | None], inputs: Mapping[str, str | Iterable[str] | None]
) -> None:
    """Check that every output can be written and that no two of the files are the same.

    Raises:
        UsageError: an output is a folder, its folder does not exist, or it is also an input or
            another output.
    """
    used: dict[object, str] = {}
    for name, paths in inputs.items():
        for source in [paths] if isinstance(paths, str) else paths or ():
            if source != "-":
                used[_identity(source)] = f"the input {name}"
    for name, path in outputs.items():
        if path is None:
            continue
        target = Path(path)
        if not path or target.is_dir():
            raise UsageError(f"cannot write {path!r}: {name} takes a file, and this is a folder")
        if not target.absolute().parent.is_dir():
            raise UsageError(f"cannot write {path!r}: there is no such folder")
        if target.exists() and not target.is_file():
            continue  # a device such as /dev/null
        other = used.setdefault(_identity(path), name)
        if other != name:
            raise UsageError(
                f"cannot write {path!r}: {name} and {other} are the same file; give {name} "
                f"another name"
            )


def check_picture(path: str | None) -> None:
    """Check that a picture can be written in the format that its name asks for."""
    if path is not None:
        lg.plot.check_path(path)


def check_device(name: str) -> None:
    """Check that tensors can be made on a device."""
    import_torch()
    usable_device(name)


def _identity(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:  # it is not there yet
        return os.path.realpath(path)
    return found.st_dev, found.st_ino


# ---- Rules with variables on the command line: the options, the command `ground`, tables of results


def ground_rules(args: argparse.Namespace, text: str, path: str) -> Program:
    """Return the ground program of a prepared text, as the options say."""
    from latentgamma.datalog.grounding import MAX_RULES, MAX_SECONDS, ground_text, require_clingo
    from latentgamma.datalog.source import signatures
    from latentgamma.datalog.tables import table_facts

    require_clingo()
    return ground_text(
        text,
        path,
        open_predicates=signatures(args.open),
        tables=tuple(table_facts(_predicate_tables(args))),
        max_rules=getattr(args, "max_rules", None) or MAX_RULES,
        max_seconds=getattr(args, "max_seconds", None) or MAX_SECONDS,
    )


def table_paths(args: argparse.Namespace) -> list[str]:
    """Return the files of --facts-table."""
    return [given.partition("=")[2] for given in args.facts_table]


def _predicate_tables(args: argparse.Namespace) -> Mapping[str, Table]:
    tables: dict[str, Table] = {}
    for given in args.facts_table:
        predicate, equals, path = given.partition("=")
        if not equals or not path:
            raise UsageError(f"--facts-table takes P=FILE, such as edge=edges.csv, not {given!r}")
        if predicate in tables:
            raise UsageError(f"--facts-table has two tables for {predicate!r}; join them")
        tables[predicate] = path
    return tables


@contextmanager
def grounding_warnings() -> Iterator[None]:
    """Print what grounding warns about to the standard error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    if not caught:
        return
    from latentgamma.datalog.grounding import TABLE_HINT, GroundingWarning

    for warning in caught:
        if issubclass(warning.category, GroundingWarning):
            text = str(warning.message).replace(TABLE_HINT, "--facts-table P=FILE")
            print_message(f"warning: {text}")


def ground(args: argparse.Namespace) -> int:
    """Print or write the ground program; return 0."""
    check_outputs(
        {"--output": args.output}, {"RULES": args.rules, "--facts-table": table_paths(args)}
    )
    program = read_program(args, ground_anyway=True)
    if args.output:
        lg.save(program, args.output)
    if args.json:
        Screen().json(
            {
                "path": args.output,
                **_sizes(program),
                "strata": len(program.strata),
                "inputs": list(lg.datalog.inputs(program)),
                "outputs": list(lg.datalog.outputs(program)),
            }
        )
    elif not args.output:
        text = str(program)
        write_output(f"{text}\n" if text else "")
    return 0


def _sizes(program: Program) -> dict[str, int]:
    return {"M": program.M, "R": program.R, "k": program.k, "rho_max": program.rho_max}


def shown_atoms(args: argparse.Namespace, program: Program) -> set[str] | None:
    """Return the atoms that --show or the '#show' of the rules selects; None for all."""
    if not args.show and program.origin is None:
        return None
    from latentgamma.datalog.grounding import atoms_of
    from latentgamma.datalog.origin import Grounding
    from latentgamma.datalog.source import signatures

    if args.show:
        wanted = tuple(signatures(args.show))
        found = set(atoms_of(program, wanted))
        if not found:
            raise UsageError(f"--show: the program has no atom of {', '.join(args.show)}")
        return found
    origin = program.origin
    if isinstance(origin, Grounding) and origin.shown is not None:
        return set(atoms_of(program, origin.shown))
    return None


def write_csv(path: str, atoms: Iterable[str]) -> None:
    """Write atoms as a table: their arguments, after the predicate where there are several."""
    from latentgamma.datalog.tables import cells_of

    rows = [cells_of(atom) for atom in atoms]
    predicates = {(row[0], len(row)) for row in rows}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(row[1:] if len(predicates) == 1 and len(row) > 1 else row for row in rows)
    if path == "-":
        write_output(text.getvalue())
    else:
        write_text(path, text.getvalue())


# ---- `closure --facts-table FILE -o FOLDER`: the closures of all fact sets of a table


def take_fact_sets(args: argparse.Namespace) -> list[str]:
    """Remove the tables of fact sets from --facts-table, and return them.

    What is left are tables of predicates, P=FILE, which belong to rules with variables.

    Raises:
        UsageError: an option is missing, or cannot be combined with a table of fact sets.
    """
    tables = [x for x in args.facts_table if "=" not in x or Path(x).exists()]
    if not tables:
        if args.output is not None:
            raise UsageError("-o takes the closures of a table; add --facts-table FILE")
        add = "is for tables; add --facts-table FILE -o FOLDER"
        refuse_options(args, ("workers", "keep"), add)
        return []
    if args.output is None:
        raise UsageError(
            f"for predicates --facts-table takes P=FILE, such as edge={tables[0]}; for the closures "
            "of a table of fact sets add -o FOLDER"
        )
    alone = ("facts", "facts_file", "levels", "csv", "plot")
    refuse_options(args, alone, "cannot be combined with a table of fact sets")
    args.facts_table = [x for x in args.facts_table if x not in tables]
    return tables


def close_fact_sets(args: argparse.Namespace, tables: list[str]) -> int:
    """Write the closures of the tables; return 0."""
    from latentgamma import distributed

    program = read_program(args)
    only = shown_atoms(args, program)
    atoms = None if only is None else [name for name in program.atoms if name in only]
    with contextlib.ExitStack() as stack:
        executor = None
        if args.workers is not None:
            executor = stack.enter_context(distributed.RayExecutor(args.workers))
        bar = stack.enter_context(ProgressBar())
        done = distributed.close_parquet(
            program,
            tables,
            args.output,
            atoms=atoms,
            keep=args.keep,
            executor=executor,
            progress=lambda finished, total: bar("fact sets", finished, total),
        )
    screen = Screen()
    if args.json:
        screen.json(
            {
                "folder": str(done.folder),
                "parts": [str(part) for part in done.parts],
                "rows": done.rows,
                "resumed": done.resumed,
                "seconds": done.seconds,
            }
        )
    else:
        files = quantity(len(done.parts), "file")
        there = f", {done.resumed:,} from an earlier call" if done.resumed else ""
        screen.line(f"closures of {done.rows:,} fact sets in {files} in {done.folder}{there}")
    return 0


# ---- The commands: each makes one library call, prints the result and returns an exit code

_OWN = "cannot be combined with --model: the saved model has its own"
#: `run` keeps every state; a run that needs more bytes is refused.
_MOST_BYTES = 4 << 30
#: A long run is computed in this many parts, to advance the progress bar.
_PARTS = 200
#: With negation, the first t steps are computed anew for each t; more would take too long.
_MOST_STEPS_OF_STRATA = 2000


def closure(args: argparse.Namespace) -> int:
    """Print the closure of the facts, or write those of a table; return 0."""
    if tables := take_fact_sets(args):
        return close_fact_sets(args, tables)
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
    if args.all == (args.atom is not None):
        raise UsageError("explain takes either ATOM or --all")
    if args.all and (args.dot or args.plot):
        raise UsageError("--dot and --plot are for the proof of one ATOM, not for --all")
    program = read_program(args)
    facts = read_facts(args, program)
    screen = Screen()
    if args.all:
        return _explain_all(screen, program, facts, as_json=args.json)
    atom = atom_name(program, args.atom.strip())
    with working("searching for a proof"):
        failure = lg.why_not(program, facts, atom)
        proof = lg.derivation(program, facts, atom)
    if failure is not None:
        if args.json:
            texts = _rule_texts(failure.program, [blocked.rule for blocked in failure.blocked])
            screen.json({"derivable": False, **failure.to_dict(), "rule_text": texts})
        else:
            show_reason(screen, failure, [blocked.rule for blocked in failure.blocked[:20]])
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
        show_reason(screen, proof, proof.rules)
    return 0


def _explain_all(screen: Screen, program: Program, facts: list[str], *, as_json: bool) -> int:
    with working("searching for proofs"):
        found = lg.derivations(program, facts)
        rows = [] if as_json else found.rows()
    if as_json:
        texts = _rule_texts(found.program, sorted(set(found.rule.tolist())))
        screen.json({**found.to_dict(), "rule_text": texts})
    else:
        screen.table(("depth", "atom", "by", "from"), rows, right=4)
    return 0


def certify(args: argparse.Namespace) -> int:
    """Print the certificate; return 0 if it holds up to the horizon, else 1."""
    _check_files(args)
    program = read_program(args)
    paper = constants = None
    if args.model:
        refuse_options(args, ("constants", "gate", "dtype"), _OWN)
        model = load_model(args.model)
        program = align_atoms(program, model)
        with working("certifying"):
            certificate = lg.certify(model, program, depth=args.depth)
    else:
        from latentgamma.certificate.constants import certified_strata, certify_closed_form

        dtype: str = args.dtype or "float32"
        gate: Gate = args.gate or "sigmoid"
        try:
            with working("choosing constants"):
                given = _given_constants(args, program)
                constants = (
                    certified_strata(program, args.horizon or 10**6, dtype=dtype, gate=gate)
                    if given is None
                    else [given] * len(program.strata)
                )
        except lg.errors.CertificateError as error:
            if not args.json:
                raise
            Screen().json({"holds": False, "message": str(error), "horizon": args.horizon})
            return 1
        with working("certifying"):
            certificate = certify_closed_form(
                program, constants, depth=args.depth, dtype=dtype, bump=gate == "bump"
            )
        if program.definite:
            from latentgamma.paper.window import paper_window

            paper = paper_window(program, constants[0])
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
    shown = [each.to_dict() for each in constants or ()]
    screen.json(
        {
            **certificate.to_dict(),
            "message": message,
            "strata": len(program.strata),
            "horizon": args.horizon,
            "reaches_horizon": success,
            "constants": (shown[0] if program.definite else shown) if shown else None,
            "paper": None if paper is None else paper.to_dict(),
        }
    )
    return 0 if success else 1


def run(args: argparse.Namespace) -> int:
    """Print the values of every step; return 0."""
    _check_files(args)
    program = read_program(args)
    if args.gradient:
        require_definite(program, "--gradient")
    if args.model:
        refuse_options(args, ("constants", "gate", "dtype", "form"), _OWN)
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
        Screen().json({"path": args.out, **_sizes(program)})
    return 0


def check(args: argparse.Namespace) -> int:
    """Print which rows break requirements, or what is wrong with them; return 1 if there is any."""
    from latentgamma.learning.data import read_table

    with working("reading the requirements"):
        if args.requirements == "-":
            if args.format not in (None, "text", "dimacs"):
                raise UsageError(f"--format {args.format} takes a file, not the standard input")
            text = decode_text(_standard_input(), "<stdin>")
            reader = "from_dimacs" if args.format == "dimacs" else "from_text"
            req = getattr(lg.Requirements, reader)(text)
        else:
            req = lg.Requirements.load(args.requirements, format=args.format)
    screen = Screen()

    def named(clause: int) -> dict[str, object]:
        return {"line": int(req.lines[clause]), "text": req[clause]}

    if args.labels is None:
        with working("looking for conflicts and redundant requirements"):
            report = req.report()
        if args.json:
            names = ("always_true", "always_false", "free")
            screen.json(
                {
                    "requirements": len(req),
                    "satisfiable": report.satisfiable,
                    "conflict": list(map(named, report.conflict)),
                    "redundant": list(map(named, report.redundant)),
                    **{name: list(getattr(report, name)) for name in names},
                }
            )
        else:
            screen.line(str(report))
        return 0 if report.satisfiable else 1
    if not len(req):
        raise UsageError(f"{req.path}: there are no requirements to check the table against")
    with working("reading the labels"):
        table = read_table(Path(args.labels), only={req.labels[i] for i in req.atoms.tolist()})
    with working(f"checking {quantity(len(table.values), 'row')}"):
        found = req.check(table.values, table.columns)
    if args.json:
        screen.json(
            {
                "rows": found.rows,
                "broken_rows": found.broken_rows.tolist(),
                "violations": [{"row": row, **named(c)} for row, c in found.pairs.tolist()],
            }
        )
    else:
        screen.line(str(found))
        if len(found):
            screen.line("rows are counted from 0, after the line with the names")
    return 1 if len(found) else 0


# ---- Inputs


def read_program(args: argparse.Namespace, *, ground_anyway: bool = False) -> Program:
    """Return the program of RULES."""
    with working("reading the rules"), grounding_warnings():
        data, suffix, path = _read_rules(args)
        if ground_anyway or args.open or args.facts_table:
            return ground_rules(args, decode_rules(data, suffix, path), path)
        return read(data, suffix, path=path)


def _read_rules(args: argparse.Namespace) -> tuple[bytes, str, str]:
    """Return the content of RULES, its suffix or that of --format, and its name in errors."""
    if args.rules == "-":
        data = _standard_input()
        packed = ".gz" if data.startswith(b"\x1f\x8b") else ""
        return data, f".{args.format or 'lp'}{packed}", "<stdin>"
    packed = ".gz" if args.rules.endswith(".gz") else ""
    return content(args.rules, args.format and f"{args.format}{packed}")


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


def _given_constants(args: argparse.Namespace, program: Program) -> Constants | None:
    """Return the constants that --constants names; None for certified ones."""
    if args.constants == "paper":
        return lg.Constants.paper()
    return lg.Constants.scaled(program) if args.constants == "scaled" else None


def _build_model(args: argparse.Namespace, program: Program) -> LatentGamma:
    import_torch()
    import torch

    return lg.oracle(
        program,
        _given_constants(args, program),
        form=args.form or "auto",
        gate=args.gate or "sigmoid",
        gradient=args.gradient or "exact",
        dtype=getattr(torch, args.dtype or "float32"),
    )


def load_model(path: str) -> LatentGamma:
    """Return a saved model."""
    import_torch()
    with working("reading the model"):
        return lg.LatentGamma.load(path)


def align_atoms(program: Program, model: LatentGamma) -> Program:
    """Return the program with its atoms, and if possible its rules, in the order of the model."""
    if model.program is None:
        if model.M != program.M:
            raise UsageError(f"the model has {model.M:,} atoms, but the rules have {program.M:,}")
        return program
    if _as_sets(program) == _as_sets(model.program):
        return model.program
    try:
        return lg.Program.from_rules(program.rules, atoms=model.program.atoms)
    except lg.errors.FactsError as error:
        raise UsageError(f"the model belongs to other rules: {error}") from None


def _as_sets(program: Program) -> set[tuple[frozenset[str], ...]]:
    return {(frozenset(rule.heads), rule.body, rule.negated) for rule in program.rules}


def _iterate(model: LatentGamma, facts: Sequence[str], steps: int) -> Trajectory:
    """Return the trajectory, computed in parts to advance the progress bar."""
    import torch

    needed = (steps + 1) * model.M * model.dtype.itemsize
    if needed > _MOST_BYTES:
        raise UsageError(
            f"--steps {steps:,} needs {needed / 1e9:,.1f} GB for the states, more than "
            f"{_MOST_BYTES / 1e9:.1f} GB; pass fewer steps"
        )
    if not model.definite and steps > _MOST_STEPS_OF_STRATA:
        raise UsageError(
            f"--steps: a model with negation runs at most {_MOST_STEPS_OF_STRATA:,} steps"
        )
    size = max(1, steps // _PARTS)
    start = model.state(facts)
    states = [start[None]]  # (1, M)
    with torch.no_grad(), ProgressBar() as bar:
        for done in range(0, steps, size):
            more = range(done + 1, min(done + size, steps) + 1)
            states.append(
                model.iterate(states[-1][-1], len(more)).states[1:]
                if model.definite
                else torch.stack([model(start, t) for t in more])
            )
            bar("steps", done + len(more), steps)
    return lg.operator.Trajectory(torch.cat(states), model.program)


def _gradients(
    model: LatentGamma, facts: Sequence[str], trajectory: Trajectory, kind: str | None
) -> dict[str, float]:
    """Return the size of the gradient from each atom in the table to the facts."""
    if kind is None:
        return {}
    from latentgamma.paper.gradients import gradient_report
    from latentgamma.plot.charts import rows_to_show

    states, crossing = trajectory.states.double().numpy(), trajectory.crossing.numpy()
    rows = rows_to_show(states, crossing, MOST_ROWS, MOST_ROWS)
    atoms = [model.program.atoms[i] for i in rows] if model.program else []
    with working("computing gradients"):
        report = gradient_report(model, facts, steps=trajectory.steps, atoms=atoms)
    return {row.atom: row.exact if kind == "exact" else row.proof for row in report.rows}


def _rule_texts(program: Program, rules: Sequence[int]) -> dict[str, str]:
    return {str(j): str(program.rules[j]) for j in rules}


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


# ---- The command `explore`: an interactive page for a program


def explore(args: argparse.Namespace) -> int:
    """Write the page and return 0, or serve it until Ctrl-C and return 130."""
    inputs = {"RULES": args.rules, "--facts-file": args.facts_file, "--model": args.model}
    check_outputs({"--export": args.export}, inputs)
    program = read_program(args)
    facts = read_facts(args, program)
    import_torch()
    model = None
    if args.model:
        model = load_model(args.model)
        program = align_atoms(program, model)
    with working("preparing the page"):
        page = lg.explore.render(program, facts=facts, model=model, title=args.title)
    screen = Screen()
    if args.export:
        write_text(args.export, page)
        if args.json:
            screen.json({"page": args.export})
        else:
            screen.line(f"wrote {args.export}")
        return 0

    lg.explore.serve(
        page,
        port=args.port,
        open_browser=not args.no_browser,
        ready=lambda address: print_message(f"{address} (Ctrl-C to stop)"),
    )
    return 0


# ---- The commands `validate` and `report`: the paper's experiments and their report

#: The width of the tables in a pipe.
_WIDTH = 132


def validate(args: argparse.Namespace) -> int:
    """Run the experiments and print the tables; return 0 if every claim holds, else 1."""
    from latentgamma.paper import report, validation

    graphs = [name.strip().lower() for name in args.graphs.split(",") if name.strip()]
    if not graphs or len(set(graphs)) < len(graphs) or not set(graphs) <= set(validation.GRAPHS):
        known = ",".join(validation.GRAPHS)
        raise UsageError(f"--graphs takes some of {known}, each once, not {args.graphs!r}")
    check_device(args.device)
    if args.out is not None:  # what could not be written is said before the work is done
        check_picture("report.svg")
        Path(args.out).mkdir(parents=True, exist_ok=True)
    if not args.json:
        write_output(f"Running the experiments of the paper on {', '.join(graphs).upper()}.\n")
        write_output()
    with ProgressBar() as bar:
        results, timing = validation.run_validation(
            graphs,
            seed=args.seed,
            perturbations=args.perturbations,
            device=args.device,
            progress=bar,
        )
    files = report.save(results, timing, args.out) if args.out else {}
    _print(results, timing, args.json)
    if not args.json:
        for path in files.values():
            write_output(f"{path}\n")
    return 0 if results.holds else 1


def report(args: argparse.Namespace) -> int:
    """Write the page again from saved results; return 0 if every claim held, else 1."""
    from latentgamma.paper import report

    folder = Path(args.results).parent
    out = Path(args.out) if args.out else folder / "report.html"
    inputs = {"RESULTS": args.results, "timing.json": str(folder / "timing.json")}
    check_outputs({"--out": str(out)}, inputs)
    results, timing = report.load(args.results)
    write_text(out, report.render_html(results, timing))
    _print(results, timing, args.json)
    if not args.json:
        write_output(f"{out}\n")
    return 0 if results.holds else 1


def _print(results: Validation, timing: Timing | None, as_json: bool) -> None:
    from latentgamma.paper import report

    if as_json:
        write_output(results.to_json())
        return
    screen = Screen()
    console = screen.console if screen.terminal else new_console(width=_WIDTH)
    report.render_terminal(results, console, timing)

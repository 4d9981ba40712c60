"""Rules with variables on the command line: the options, the command `ground`, tables of results."""

from __future__ import annotations

import argparse
import csv
import io
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import latentgamma as lg
from latentgamma._atomic_write import write_text
from latentgamma._cli.checks import UsageError, check_outputs
from latentgamma._cli.console import Screen, write_output

if TYPE_CHECKING:
    from latentgamma import Program
    from latentgamma.datalog.tables import Table


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that read rules."""
    parser.add_argument(
        "--open", metavar="P/N", action="append", default=[],
        help="a predicate whose facts are given, for example edge/2; rules with variables only",
    )  # fmt: skip
    parser.add_argument(
        "--facts-table", metavar="P=FILE", action="append", default=[],
        help="a table of facts, for example edge=edges.csv, or edge(from,to)=edges.csv if the first "
             "row names the columns; .csv, .tsv or .parquet",
    )  # fmt: skip


def wants_grounding(args: argparse.Namespace) -> bool:
    """Whether an option was given that only rules with variables have."""
    return bool(args.open or args.facts_table)


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
        tables=tuple(table_facts(_tables(args))),
        max_rules=getattr(args, "max_rules", None) or MAX_RULES,
        max_seconds=getattr(args, "max_seconds", None) or MAX_SECONDS,
    )


def table_paths(args: argparse.Namespace) -> list[str]:
    """Return the files of --facts-table."""
    return [given.partition("=")[2] for given in args.facts_table]


def _tables(args: argparse.Namespace) -> Mapping[str, Table]:
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
    from latentgamma.datalog import GroundingWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GroundingWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, GroundingWarning):
            sys.stderr.write(f"latentgamma: warning: {warning.message}\n")


def ground(args: argparse.Namespace) -> int:
    """Print or write the ground program; return 0."""
    from latentgamma._cli.commands import read_program

    check_outputs(
        {"--output": args.output}, {"RULES": args.rules, "--facts-table": table_paths(args)}
    )
    program = read_program(args, ground_anyway=True)
    if args.output:
        lg.save(program, args.output)
    if args.json:
        strata = len(program.strata)
        Screen().json(
            {
                "path": args.output,
                **{key: getattr(program, key) for key in ("M", "R", "k", "rho_max")},
                "strata": strata,
                "inputs": list(lg.datalog.inputs(program)),
                "outputs": list(lg.datalog.outputs(program)),
            }
        )
    elif not args.output:
        text = str(program)
        write_output(f"{text}\n" if text else "")
    return 0


def shown_atoms(args: argparse.Namespace, program: Program) -> set[str] | None:
    """Return the atoms that --show or the '#show' of the rules selects; None for all."""
    from latentgamma.datalog.interface import atoms_of
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

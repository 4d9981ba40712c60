"""`closure --facts-table FILE -o FOLDER`: the closures of all fact sets of a table."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from latentgamma._cli.checks import UsageError
from latentgamma._cli.console import Screen, progress
from latentgamma._cli.ground import shown_atoms


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a table of fact sets."""
    parser.add_argument(
        "-o", "--output", metavar="FOLDER",
        help="write the closure of every row of --facts-table FILE, a Parquet table with a boolean "
             "column for each atom, to Parquet files in this folder; the same call resumes",
    )  # fmt: skip
    parser.add_argument(
        "--keep", metavar="COLUMN", action="append", default=[],
        help="copy a column that is not an atom",
    )  # fmt: skip
    parser.add_argument(
        "--workers", metavar="N", type=int,
        help="compute in N processes of a Ray cluster on this machine instead of in threads",
    )  # fmt: skip


def take_tables(args: argparse.Namespace) -> list[str]:
    """Remove the tables of fact sets from --facts-table, and return them.

    What is left are tables of predicates, P=FILE, which belong to rules with variables.

    Raises:
        UsageError: an option is missing, or cannot be combined with a table of fact sets.
    """
    tables = [x for x in args.facts_table if "=" not in x or Path(x).exists()]
    if not tables:
        if args.output is not None:
            raise UsageError("-o takes the closures of a table; add --facts-table FILE")
        for name in ("workers", "keep"):
            if getattr(args, name):
                raise UsageError(f"--{name} is for tables; add --facts-table FILE -o FOLDER")
        return []
    if args.output is None:
        raise UsageError(
            f"for predicates --facts-table takes P=FILE, such as edge={tables[0]}; for the closures "
            "of a table of fact sets add -o FOLDER"
        )
    for name in ("facts", "facts_file", "levels", "csv", "plot"):
        if getattr(args, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} cannot be combined with a table of fact sets")
    args.facts_table = [x for x in args.facts_table if x not in tables]
    return tables


def close_tables(args: argparse.Namespace, tables: list[str]) -> int:
    """Write the closures of the tables; return 0."""
    from latentgamma import distributed
    from latentgamma._cli.commands import read_program

    program = read_program(args)
    only = shown_atoms(args, program)
    atoms = None if only is None else [name for name in program.atoms if name in only]
    with contextlib.ExitStack() as stack:
        executor = None
        if args.workers is not None:
            executor = stack.enter_context(distributed.RayExecutor(args.workers))
        advance = None
        shown = 0

        def show(finished: int, total: int) -> None:
            nonlocal advance, shown
            if advance is None:
                advance = stack.enter_context(progress("closing fact sets", total))
            advance(finished - shown)
            shown = finished

        done = distributed.close_parquet(
            program,
            tables,
            args.output,
            atoms=atoms,
            keep=args.keep,
            executor=executor,
            progress=show,
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
        files = "1 file" if len(done.parts) == 1 else f"{len(done.parts):,} files"
        there = f", {done.resumed:,} from an earlier call" if done.resumed else ""
        screen.line(f"closures of {done.rows:,} fact sets in {files} in {done.folder}{there}")
    return 0

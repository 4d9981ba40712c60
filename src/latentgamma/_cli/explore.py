"""The command `explore`: an interactive page for a program."""

from __future__ import annotations

import argparse
import sys

import latentgamma as lg
from latentgamma._atomic_write import write_text
from latentgamma._cli.checks import check_outputs
from latentgamma._cli.commands import align_atoms, load_model, read_facts, read_program
from latentgamma._cli.console import Screen, working
from latentgamma._cli.main import import_torch
from latentgamma._program.program import require_definite


def explore(args: argparse.Namespace) -> int:
    """Write the page and return 0, or serve it until Ctrl-C and return 130."""
    inputs = {"RULES": args.rules, "--facts-file": args.facts_file, "--model": args.model}
    check_outputs({"--export": args.export}, inputs)
    program = read_program(args)
    facts = read_facts(args, program)
    import_torch()
    model = None
    if args.model:
        program = require_definite(program, "--model")
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

    def announce(address: str) -> None:
        sys.stderr.write(f"latentgamma: {address} (Ctrl-C to stop)\n")
        sys.stderr.flush()

    lg.explore.serve(page, port=args.port, open_browser=not args.no_browser, ready=announce)
    return 0

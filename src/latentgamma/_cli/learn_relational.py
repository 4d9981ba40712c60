"""`learn --relational`: from examples of a relation to rules with variables."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import latentgamma as lg
from latentgamma._atomic_write import write_text
from latentgamma._cli.checks import UsageError, check_outputs
from latentgamma._cli.console import (
    Screen,
    learning,
    print_message,
    report_interruption,
    working,
    write_output,
)
from latentgamma._errors import DataError
from latentgamma._learning.journal import delete_checkpoint, finished_pieces
from latentgamma._learning.wording import quantity
from latentgamma.relational.popper import PopperFiles, read_examples, read_popper
from latentgamma.relational.problem import read_facts
from latentgamma.relational.result import rule_lines, summary_lines

if TYPE_CHECKING:
    from latentgamma.relational import RelationalResult, SearchStep

#: Options of `learn` that rules with variables do not have, with their defaults.
_OTHERS: dict[str, Any] = {
    "delimiter": None,
    "ignore": [],
    "kind": "transitions",
    "bodies": [],
    "forbid": [],
    "known": None,
    "refine": False,
    "holdout": None,
    "device": "cpu",
    "plot": None,
    "explain": [],
}
_ONLY_RELATIONAL = ("invent", "max_variables", "time_limit")


def refuse_relational_options(args: argparse.Namespace) -> None:
    """Raise a UsageError if an option for rules with variables is given without --relational."""
    for name in _ONLY_RELATIONAL:
        if getattr(args, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} is only for --relational")
    if args.method == "search":
        raise UsageError("--method search is only for --relational; use --method symbolic")


def learn_relational(args: argparse.Namespace) -> int:
    """Print the learned program; return 0, or 1 if none was found or the network is not proved."""
    _check_arguments(args)
    with working("reading the examples"):
        files = _read(args.data, args.targets)
    checkpoint = args.checkpoint
    if args.output and not checkpoint and not args.noise and args.method != "gradient":
        checkpoint = f"{args.output}.learning"
    if checkpoint and args.fresh:
        delete_checkpoint(checkpoint)
    resumed = finished_pieces(checkpoint) if checkpoint else 0
    if resumed:
        print_message(
            f"resuming from {checkpoint}, with {quantity(resumed, 'finished piece')} of work"
        )
    try:
        with learning() as show:

            def progress(step: SearchStep) -> None:
                show(step.stage, step.explained, step.candidates, [])

            result = lg.relational.fit(
                files.background,
                files.positive,
                files.negative,
                noise=args.noise,
                method=args.method,
                seed=args.seed,
                progress=progress,
                checkpoint=checkpoint,
                **_limits(args, files),
            )
    except KeyboardInterrupt:
        return report_interruption(checkpoint)
    for sentence in files.unused:
        print_message(f"not used: {sentence}")
    if args.output and result.found:
        write_text(args.output, f"{result.text}\n")
    if args.model and result.model is not None:
        result.model.save(args.model)
    _print_result(args, result, files)
    write_output()
    if checkpoint:
        delete_checkpoint(checkpoint)
    proved = result.certificate is not None and result.certificate.holds
    return 0 if result.found and proved else 1


def _check_arguments(args: argparse.Namespace) -> None:
    for name, default in _OTHERS.items():
        if getattr(args, name) != default:
            raise UsageError(f"--{name.replace('_', '-')} has no meaning with --relational")
    if args.method in {"symbolic", "paper"}:
        raise UsageError("--relational takes --method auto, search or gradient")
    if args.output and not args.output.endswith((".lp", ".pl", ".dl")):
        raise UsageError(f"the rules are written as Datalog, .lp, .pl or .dl, not {args.output!r}")
    check_outputs(
        {"--output": args.output, "--model": args.model, "--checkpoint": args.checkpoint},
        {"DATA": args.data, "TARGETS": args.targets},
    )


def _read(data: str, targets: str | None) -> PopperFiles:
    if os.path.isdir(data):
        if targets is not None:
            raise UsageError("pass a folder with bk.pl, exs.pl and bias.pl, or two files")
        return read_popper(data)
    if targets is None:
        raise UsageError(
            "--relational takes a folder with Popper's bk.pl, exs.pl and bias.pl, or two files: "
            "the background and the examples"
        )
    for path in (data, targets):
        if not os.path.isfile(path):
            raise DataError(f"cannot read {path!r}: there is no such file")
    facts = read_facts(Path(data), "background")
    tables = {f"{name}/{arity}": rows for (name, arity), rows in facts.items()}
    found = PopperFiles(background=tables, positive=[], negative=None)
    read_examples(targets, found)
    return found


def _limits(args: argparse.Namespace, files: PopperFiles) -> dict[str, Any]:
    """Return the limits: those of the command line, else those of bias.pl."""
    options = dict(files.options)
    for name in ("invent", "max_body", "max_variables", "time_limit"):
        if getattr(args, name) is not None:
            options[name] = getattr(args, name)
    if args.heads:
        options["target"] = [name.strip() for names in args.heads for name in names.split(",")]
    return options


def _print_result(args: argparse.Namespace, result: RelationalResult, files: PopperFiles) -> None:
    screen = Screen()
    if args.json:
        screen.json({**result.to_dict(), "unused": files.unused})
        return
    if result.found and not args.output:
        for line in rule_lines(result):
            screen.line(line)
        screen.line()
    mark = "% " if result.found and not args.output else ""
    for line, style in summary_lines(result):
        screen.line(mark + line, style)

"""The command `learn`: from examples to a program, with what the data say about each rule."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import latentgamma as lg
from latentgamma._atomic_write import write_text
from latentgamma._cli.checks import UsageError, check_device, check_outputs, check_picture
from latentgamma._cli.console import (
    Screen,
    learning,
    print_message,
    report_interruption,
    working,
    write_output,
)
from latentgamma._cli.learn_relational import learn_relational, refuse_relational_options
from latentgamma._cli.main import with_options
from latentgamma._errors import unknown_atoms
from latentgamma._learning.journal import delete_checkpoint, finished_pieces
from latentgamma._learning.observations import observe
from latentgamma._learning.result import rule_lines, summary_lines
from latentgamma._learning.wording import quantity
from latentgamma._program.fact_text import atom_name, split_facts
from latentgamma._program.files import is_rule_text
from latentgamma._program.program import require_definite

if TYPE_CHECKING:
    from latentgamma._learning.history import HistoryEntry
    from latentgamma._learning.observations import Observations
    from latentgamma._learning.result import FitResult

#: Added to the name of the output, or else of the data.
_CHECKPOINT = ".learning"
_STDIN = "-"
_DELIMITERS = {"tab": "\t", "\\t": "\t"}


def learn(args: argparse.Namespace) -> int:
    """Print what was learned; return 0, or 1 if the network is not proved equal to the rules."""
    if args.relational:
        return learn_relational(args)
    refuse_relational_options(args)
    _check_arguments(args)
    check_device(args.device)
    with working("reading the examples"):
        data = observe(
            _source(args.data),
            _source(args.targets),
            kind=args.kind,
            delimiter=_delimiter(args.delimiter),
            ignore=[name.strip() for names in args.ignore for name in names.split(",")],
        )
        known = require_definite(lg.load(args.known), "--known") if args.known else None
    options = _options(args, data)
    heads = _atoms(args.explain, data.atoms, "--explain")
    checkpoint = _checkpoint(args)
    if checkpoint and args.fresh:
        delete_checkpoint(checkpoint)
    resumed = finished_pieces(checkpoint) if checkpoint else 0
    try:
        with learning() as show:

            def progress(entry: HistoryEntry) -> None:
                nonlocal resumed
                if resumed:  # the checkpoint was read and fits
                    pieces = quantity(resumed, "finished piece")
                    print_message(f"resuming from {checkpoint}, with {pieces} of work")
                    resumed = 0
                show(entry.stage, entry.explained, entry.rules, [str(rule) for rule in entry.new])

            result = lg.fit(
                data,
                kind=args.kind,
                method=args.method,
                noise=args.noise,
                seed=args.seed,
                known=known,
                refine=args.refine,
                holdout=args.holdout,
                device=args.device,
                checkpoint=checkpoint,
                progress=progress,
                **options,
            )
    except KeyboardInterrupt:
        return report_interruption(checkpoint)
    _write_files(args, result)
    try:
        _print_result(args, result, heads)
        write_output()  # only what has arrived is done
    except BrokenPipeError:  # whoever reads has seen enough
        if checkpoint:
            delete_checkpoint(checkpoint)
        raise
    if checkpoint:
        delete_checkpoint(checkpoint)
    return 0 if result.certificate.holds else 1


# -------------------------------------------------------------------- arguments


def _check_arguments(args: argparse.Namespace) -> None:
    """Raise before the work is done if an output could not be written."""
    check_picture(args.plot)
    if args.output:
        is_rule_text(args.output)  # the name must say what to write
    check_outputs(
        {
            "--output": args.output,
            "--model": args.model,
            "--plot": args.plot,
            "--checkpoint": args.checkpoint,
        },
        {"DATA": args.data, "TARGETS": args.targets, "--known": args.known},
    )
    if args.refine and not args.known:
        raise UsageError("--refine is about the rules of --known; pass them, or leave it out")
    if args.data == args.targets == _STDIN:
        raise UsageError("only one table can be read from the standard input")


def _source(path: str | None) -> Any:
    """Return what to read: the standard input for "-", else the path."""
    return sys.stdin.buffer if path == _STDIN else path


def _delimiter(text: str | None) -> str | None:
    if text is None:
        return None
    mark = _DELIMITERS.get(text.lower(), text)
    if len(mark) != 1:
        raise UsageError(f"--delimiter takes one character, or the word tab, not {text!r}")
    return mark


def _options(args: argparse.Namespace, data: Observations) -> dict[str, Any]:
    """Return the options that limit the rules, without those that were not given."""
    options: dict[str, Any] = {}
    if args.heads:
        options["heads"] = _atoms(args.heads, data.atoms, "--heads")
    if args.bodies:
        options["bodies"] = _atoms(args.bodies, data.atoms, "--bodies")
    if args.forbid:
        options["forbidden"] = _pairs(args.forbid, data.atoms)
    if args.max_body is not None:
        options["max_body"] = args.max_body
    return options


def _atoms(texts: Iterable[str], atoms: Sequence[str], option: str) -> list[str]:
    program = lg.Program.from_rules([], atoms)
    names = [atom_name(program, name) for text in texts for name in split_facts(text)]
    if unknown := [name for name in names if name not in program.index]:
        message = str(unknown_atoms(unknown, atoms, what=option))
        raise UsageError(message.replace("this program does", "these data do"))
    return names


def _pairs(texts: Iterable[str], atoms: Sequence[str]) -> list[tuple[str, str]]:
    pairs = []
    for text in (pair for option in texts for pair in split_facts(option)):
        if ":" not in text:
            raise UsageError(f"--forbid takes HEAD:ATOM, not {text!r}")
        # A name may have a colon in it, so take the place where both sides are names.
        found, problems = None, []
        for cut in (n for n, mark in enumerate(text) if mark == ":"):
            sides = text[:cut], text[cut + 1 :]
            if not all(side.strip() for side in sides):
                raise UsageError(f"--forbid takes HEAD:ATOM, not {text!r}")
            try:
                found = [_atoms([side], atoms, "--forbid") for side in sides]
                break
            except (UsageError, lg.LatentGammaError) as problem:
                problems.append(problem)
        if found is None:
            raise problems[0]
        pairs += [(h, a) for h in found[0] for a in found[1]]
    return pairs


def _checkpoint(args: argparse.Namespace) -> str | None:
    if args.checkpoint:
        return str(args.checkpoint)
    if args.method == "paper" or args.kind == "models":
        return None  # these finish in one piece
    name = args.output or ("" if args.data == _STDIN else args.data)
    if not name:
        return None
    path = Path(f"{name}{_CHECKPOINT}")
    if not os.access(path.absolute().parent, os.W_OK):
        print_message(f"no checkpoint is kept: cannot write {path}; pass --checkpoint FILE")
        return None
    return str(path)


# -------------------------------------------------------------------- results


def _write_files(args: argparse.Namespace, result: FitResult) -> None:
    if args.output:
        if is_rule_text(args.output):
            write_text(args.output, "\n".join([*rule_lines(result), ""]))
        else:
            lg.save(result.program, args.output)
    if args.model:
        result.model.save(args.model)
    if args.plot:
        lg.plot.learning(result, args.plot)


def _print_result(args: argparse.Namespace, result: FitResult, heads: Sequence[str]) -> None:
    screen = Screen()
    if args.json:
        document = _document(result)
        if heads:
            document["explain"] = {head: result.explain(head) for head in heads}
        screen.json(document)
        return
    if heads:
        for head in heads:
            screen.line(result.explain(head))
        screen.line()
    elif not args.output:
        for line in rule_lines(result):
            screen.line(line)
        screen.line()
    # Beside rules, the summary is a comment.
    mark = "% " if heads or not args.output else ""
    for line, style in summary_lines(result):
        screen.line(mark + with_options(line), style)


def _document(result: FitResult) -> dict[str, Any]:
    return {
        "rules": [
            {
                "rule": str(one.rule),
                "head": one.rule.heads[0],
                "body": sorted(one.rule.body),
                "support": one.support,
                "confidence": one.confidence,
                "alternatives": [str(other) for other in one.alternatives],
            }
            for one in result.evidence
        ],
        "atoms": list(result.program.atoms),
        "accuracy": result.accuracy,
        "training_accuracy": result.training_accuracy,
        "noise": result.noise,
        "method": result.method,
        "reason": result.reason,
        "notes": [with_options(note) for note in result.notes],
        "unexplained": dict(result.unexplained),
        "certificate": result.certificate.to_dict(),
        "history": [
            {
                "stage": entry.stage,
                "rules": entry.rules,
                "explained": entry.explained,
                "new": [str(rule) for rule in entry.new],
            }
            for entry in result.history
        ],
    }

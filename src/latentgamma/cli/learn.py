"""`latentgamma learn`, from tables and with variables."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import latentgamma as lg
from latentgamma._atomic_write import write_text
from latentgamma._checkpoint import delete_checkpoint, finished_pieces
from latentgamma._progress import ProgressBar
from latentgamma._text import quantity
from latentgamma.cli.commands import (
    UsageError,
    check_device,
    check_outputs,
    check_picture,
    refuse_options,
)
from latentgamma.cli.console import (
    Screen,
    print_message,
    report_interruption,
    working,
    write_output,
)
from latentgamma.cli.main import with_options
from latentgamma.errors import DataError, MissingPackageError, ProgramError, unknown_atoms
from latentgamma.learning.data import observe
from latentgamma.learning.estimator import fit_table
from latentgamma.learning.result import rule_lines, summary_lines
from latentgamma.program.files import SUFFIXES, is_rule_text
from latentgamma.program.program import require_definite
from latentgamma.program.rule_text import atom_name, split_facts
from latentgamma.relational.popper import PopperFiles, read_examples, read_popper, read_prolog
from latentgamma.relational.problem import read_facts
from latentgamma.relational.result import rule_lines as relational_rule_lines
from latentgamma.relational.result import summary_lines as relational_summary_lines

if TYPE_CHECKING:
    from latentgamma.learning.data import Observations
    from latentgamma.learning.result import FitResult
    from latentgamma.relational import RelationalResult


# ---- `learn --relational`: from examples of a relation to rules with variables

#: Options of `learn` that rules with variables do not have.
_NOT_RELATIONAL = (
    "delimiter", "ignore", "kind", "bodies", "forbid", "known", "refine", "holdout", "device",
    "plot", "explain",
)  # fmt: skip
_LANGUAGE = ("constants", "negation", "comparisons", "closed_world")
_ONLY_RELATIONAL = ("invent", "max_variables", "time_limit", "ground_lists", *_LANGUAGE)


def refuse_relational_options(args: argparse.Namespace) -> None:
    """Raise a UsageError if an option for rules with variables is given without --relational."""
    refuse_options(args, _ONLY_RELATIONAL, "is only for --relational")
    if args.method == "search":
        raise UsageError("--method search is only for --relational; use --method symbolic")


def learn_relational(args: argparse.Namespace) -> int:
    """Print the learned program; return 0, or 1 if none explains every example or is proved."""
    _check_relational_arguments(args)
    with working("reading the examples"):
        files = _read(args.data, args.targets, args.ground_lists)
    checkpoint = args.checkpoint
    if args.output and not checkpoint and not args.noise and args.method != "gradient":
        checkpoint = f"{args.output}.learning"
    try:
        with _resuming(args, checkpoint) as progress:
            result = lg.relational.fit(
                files.background,
                files.positive,
                files.negative,
                noise=args.noise or 0.0,
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
    with _finishing(checkpoint):
        _print_relational_result(args, result, files)
    proved = result.certificate is not None and result.certificate.holds
    return 0 if proved and (result.complete or result.noise) else 1


@contextmanager
def _resuming(args: argparse.Namespace, checkpoint: str | None) -> Iterator[Callable[[Any], None]]:
    """Yield what shows progress, and says first what work a checkpoint has; obey --fresh."""
    if checkpoint and args.fresh:
        delete_checkpoint(checkpoint)
    pieces = finished_pieces(checkpoint) if checkpoint else 0
    with ProgressBar() as bar:

        def progress(entry: Any) -> None:
            nonlocal pieces
            if pieces:  # the checkpoint was read and fits
                done = quantity(pieces, "finished piece")
                print_message(f"resuming from {checkpoint}, with {done} of work")
                pieces = 0
            bar(entry)

        yield progress


@contextmanager
def _finishing(checkpoint: str | None) -> Iterator[None]:
    """Delete the checkpoint once what the block prints has arrived, or is no longer read."""
    broken = None
    try:
        yield
        write_output()
    except BrokenPipeError as error:
        broken = error
    if checkpoint:
        delete_checkpoint(checkpoint)
    if broken is not None:
        raise broken


def _names(texts: Iterable[str]) -> list[str]:
    """Return the names between commas of an option that may be given several times."""
    return [name.strip() for text in texts for name in text.split(",")]


def _check_relational_arguments(args: argparse.Namespace) -> None:
    refuse_options(args, _NOT_RELATIONAL, "has no meaning with --relational")
    if args.method == "symbolic":
        raise UsageError("--relational takes --method auto, search or gradient")
    if args.output and not args.output.endswith((".lp", ".pl", ".dl")):
        raise UsageError(f"the rules are written as Datalog, .lp, .pl or .dl, not {args.output!r}")
    check_outputs(
        {"--output": args.output, "--model": args.model, "--checkpoint": args.checkpoint},
        {"DATA": args.data, "TARGETS": args.targets},
    )


def _read(data: str, targets: str | None, ground_lists: int | None) -> PopperFiles:
    if os.path.isdir(data):
        if targets is not None:
            raise UsageError("pass a folder with bk.pl, exs.pl and bias.pl, or two files")
        return read_popper(data, ground_lists=ground_lists)
    if targets is None:
        raise UsageError(
            "--relational takes a folder with Popper's bk.pl, exs.pl and bias.pl, or two files: "
            "the background and the examples"
        )
    for path in (data, targets):
        if not os.path.isfile(path):
            raise DataError(f"cannot read {path!r}: there is no such file")
    found = PopperFiles(background={}, positive=[], negative=None)
    read_examples(targets, found)
    if ground_lists is not None:
        return read_prolog(data, found.positive, found.negative, ground_lists, None, None)
    facts = read_facts(Path(data), "background")
    found.background = {f"{name}/{arity}": rows for (name, arity), rows in facts.items()}
    return found


def _limits(args: argparse.Namespace, files: PopperFiles) -> dict[str, Any]:
    """Return the limits: those of the command line, else those of bias.pl."""
    options = dict(files.options)
    for name in ("invent", "max_body", "max_variables", "time_limit", *_LANGUAGE):
        if getattr(args, name) is not None:
            options[name] = getattr(args, name)
    if args.heads:
        options["target"] = _names(args.heads)
    return options


def _print_relational_result(
    args: argparse.Namespace, result: RelationalResult, files: PopperFiles
) -> None:
    screen = Screen()
    if args.json:
        screen.json({**result.to_dict(), "unused": files.unused})
        return
    shown = relational_rule_lines(result) if result.found and not args.output else None
    _print_rules(screen, shown, relational_summary_lines(result))


def _print_rules(
    screen: Screen, rules: list[str] | None, summary: Iterable[tuple[str, str]]
) -> None:
    """Print lines of rules, and a summary, which is a comment beside rules."""
    for line in () if rules is None else (*rules, ""):
        screen.line(line)
    for line, style in summary:
        screen.line(line if rules is None else f"% {line}", style)


# ---- `learn --label`: from an ordinary table to rules for its classes

#: Options of `learn` that rules for the classes of a table do not have.
_NOT_LABEL = (
    "targets", "relational", "kind", "heads", "bodies", "forbid", "known", "refine", "holdout",
    "device", "model", "checkpoint", "fresh", "explain", "method",
)  # fmt: skip


def learn_label(args: argparse.Namespace) -> int:
    """Print the rules for the classes of a table; return 0, or 1 if there is none."""
    refuse_options(args, _NOT_LABEL, "has no meaning with --label")
    refuse_relational_options(args)
    check_picture(args.plot)
    check_outputs({"--output": args.output, "--plot": args.plot}, {"DATA": args.data})
    if args.output and not args.output.endswith((".sql", ".py")):
        try:
            is_rule_text(args.output)  # the name must say what to write
        except ProgramError:
            endings = ", ".join((*SUFFIXES, ".sql"))
            raise UsageError(f"--output ends in {endings} or .py, not {args.output!r}") from None
    options: dict[str, Any] = {"form": args.form, "noise": args.noise, "seed": args.seed}
    if args.max_body is not None:
        options["max_body"] = args.max_body
    try:
        with ProgressBar() as bar:
            classifier = fit_table(
                _source(args.data),
                args.label,
                delimiter=_delimiter(args.delimiter),
                ignore=tuple(_names(args.ignore)),
                progress=bar,
                **options,
            )
    except KeyboardInterrupt:
        return report_interruption(None)
    if args.output:
        if args.output.endswith(".sql"):
            write_text(args.output, f"{classifier.to_sql()};\n")
        elif args.output.endswith(".py"):
            write_text(args.output, classifier.to_python())
        else:
            lg.save(classifier.program_, args.output)
    if args.plot:
        lg.plot.rules(classifier, args.plot)
    screen = Screen()
    if args.json:
        screen.json(classifier.to_dict())
    else:
        screen.line(classifier.summary())
    write_output()
    return 0 if any(one.bodies for one in classifier.class_rules_) else 1


# ---- The command `learn`: from examples to a program, with what the data say about each rule

#: Added to the name of the output, or else of the data.
_CHECKPOINT = ".learning"
_STDIN = "-"
_DELIMITERS = {"tab": "\t", "\\t": "\t"}


def learn(args: argparse.Namespace) -> int:
    """Print what was learned; return 0, or 1 if the network is not proved equal to the rules."""
    if args.label is not None:
        return learn_label(args)
    if args.form != "auto":
        raise UsageError("--form is only for --label")
    if args.relational:
        return learn_relational(args)
    if os.path.isfile(os.path.join(args.data, "exs.pl")):
        raise UsageError(f"{args.data!r} has Popper's files; add --relational to learn from them")
    refuse_relational_options(args)
    _check_arguments(args)
    try:
        check_device(args.device)
    except MissingPackageError as error:
        raise UsageError(f"{error}; for the rules of one column, --label names it") from None
    with working("reading the examples"):
        data = observe(
            _source(args.data),
            _source(args.targets),
            kind=args.kind,
            delimiter=_delimiter(args.delimiter),
            ignore=_names(args.ignore),
        )
        known = require_definite(lg.load(args.known), "--known") if args.known else None
    options = _options(args, data)
    heads = _atoms(args.explain, data.atoms, "--explain")
    checkpoint = _checkpoint(args)
    try:
        with _resuming(args, checkpoint) as progress:
            result = lg.fit(
                data,
                kind=args.kind,
                method=args.method,
                noise=args.noise or 0.0,
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
    with _finishing(checkpoint):
        _print_result(args, result, heads)
    return 0 if result.certificate.holds else 1


# ---- Arguments


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
        lacking = "these data do not have"
        raise UsageError(str(unknown_atoms(unknown, atoms, option, lacking=lacking)))
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
    if args.kind == "models":
        return None  # they finish in one piece
    name = args.output or ("" if args.data == _STDIN else args.data)
    if not name:
        return None
    path = Path(f"{name}{_CHECKPOINT}")
    if not os.access(path.absolute().parent, os.W_OK):
        print_message(f"no checkpoint is kept: cannot write {path}; pass --checkpoint FILE")
        return None
    return str(path)


# ---- Results


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
        document = _document(result, args)
        if heads:
            document["explain"] = {head: result.explain(head) for head in heads}
        screen.json(document)
        return
    shown = [result.explain(head) for head in heads] or None
    if not heads and not args.output:
        shown = rule_lines(result)
    summary = [(with_options(line, vars(args)), style) for line, style in summary_lines(result)]
    _print_rules(screen, shown, summary)


def _document(result: FitResult, args: argparse.Namespace) -> dict[str, Any]:
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
        "notes": [with_options(note, vars(args)) for note in result.notes],
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

"""The command that learns rules: examples in, a program out, and an account of it."""

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
from latentgamma._cli.console import Screen, learning, working, write_output
from latentgamma._errors import unknown_atoms
from latentgamma._learning.journal import discard, finished_pieces
from latentgamma._learning.observations import observe
from latentgamma._program.fact_text import atom_name, split_facts
from latentgamma._program.files import is_rule_text
from latentgamma._program.names import quote
from latentgamma._program.stratified import require_definite

if TYPE_CHECKING:
    from latentgamma._learning.fit import FitResult
    from latentgamma._learning.head_learner import Moment
    from latentgamma._learning.observations import Observations

#: Added to the name of the output, or else of the data.
_CHECKPOINT = ".learning"
#: Undecided rules and unexplained atoms that a summary lists.
_MOST_LISTED = 10
#: Alternatives to one rule that it lists.
_MOST_OTHERS = 3
#: Rules longer than this do not push the remarks behind the others to the right.
_WIDEST = 56


def learn(args: argparse.Namespace) -> int:
    """0 after showing what was learned, 1 if the network is not proved to equal the rules."""
    _check_places(args)
    check_device(args.device)
    with working("reading the examples"):
        data = observe(args.data, args.targets, kind=args.kind)
        known = require_definite(lg.load(args.known), "--known") if args.known else None
    options = _options(args, data)
    heads = _atoms(args.explain, data.atoms, "--explain")
    checkpoint = _checkpoint(args)
    if checkpoint and args.fresh:
        discard(checkpoint)
    resumed = finished_pieces(checkpoint) if checkpoint else 0
    try:
        with learning() as show:

            def progress(moment: Moment) -> None:
                nonlocal resumed
                if resumed:  # and it was found to fit
                    _remark(f"going on from {checkpoint}, with {resumed} pieces of work done")
                    resumed = 0
                new = [str(rule) for rule in moment.new]
                show(moment.stage, moment.explained, moment.rules, new)

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
        return _interrupted(checkpoint)
    _save(args, result)
    try:
        _show(args, result, heads)
        write_output()  # only what has arrived is done
    except BrokenPipeError:  # whoever reads has seen enough
        if checkpoint:
            discard(checkpoint)
        raise
    if checkpoint:
        discard(checkpoint)
    return 0 if result.certificate.holds else 1


# -------------------------------------------------------------------- what is asked for


def _check_places(args: argparse.Namespace) -> None:
    """Complain about files that could not be written before the work for them is done."""
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


def _options(args: argparse.Namespace, data: Observations) -> dict[str, Any]:
    """The options that have another meaning when they are not given."""
    options: dict[str, Any] = {}
    if args.target:
        options["heads"] = _atoms(args.target, data.atoms, "--target")
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
        return None  # these keep none
    path = Path(f"{args.output or args.data}{_CHECKPOINT}")
    if not os.access(path.absolute().parent, os.W_OK):
        _remark(f"no checkpoint is kept: {path} cannot be written; pass --checkpoint FILE")
        return None
    return str(path)


def _interrupted(checkpoint: str | None) -> int:
    pieces = finished_pieces(checkpoint) if checkpoint else 0
    if checkpoint and pieces:
        _remark(
            f"interrupted; {pieces} pieces of work are kept in {checkpoint}: "
            f"the same command goes on from there, and with --fresh it starts again"
        )
    else:
        if checkpoint:
            discard(checkpoint)
        _remark("interrupted, before anything was finished")
    return 130


def _remark(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"latentgamma: {text}\n")


# -------------------------------------------------------------------- what came of it


def _save(args: argparse.Namespace, result: FitResult) -> None:
    if args.output:
        if is_rule_text(args.output):
            text = "\n".join([*_text(result), ""])
            write_text(args.output, text)
        else:
            lg.save(result.program, args.output)
    if args.model:
        result.model.save(args.model)
    if args.plot:
        lg.plot.learning(result, args.plot)


def _show(args: argparse.Namespace, result: FitResult, heads: Sequence[str]) -> None:
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
        for line in _text(result):
            screen.line(line)
        screen.line()
    # What stands beside rules is a remark in their language.
    mark = "% " if heads or not args.output else ""
    for line, style in _summary(result):
        screen.line(mark + line, style)


def _text(result: FitResult) -> list[str]:
    """The rules as text, each with what the data say about it.

    Atoms that no rule speaks about are declared, so that the text still has them.
    """
    program = result.program
    used = {*program.head_indices.tolist(), *program.body_indices.tolist()}
    alone = [f"#external {quote(a)}." for i, a in enumerate(program.atoms) if i not in used]
    texts = [str(one.rule) for one in result.evidence]
    width = max((len(text) for text in texts if len(text) <= _WIDEST), default=0)
    rules = [
        f"{text:<{width}}  % support {one.support}, confidence {one.confidence:.3f}"
        for text, one in zip(texts, result.evidence, strict=True)
    ]
    return [*alone, *rules]


def _summary(result: FitResult) -> list[tuple[str, str]]:
    rules = f"{result.program.R} {'rule' if result.program.R == 1 else 'rules'}"
    lines = [(f"{rules} by method {result.method} ({result.reason})", "bold")]
    right = f"{result.training_accuracy:.4f} of the training examples"
    if result.accuracy is not None:
        right = f"{result.accuracy:.4f} of the examples kept aside, {right}"
    lines.append((f"exactly right: {right}", ""))
    lines.append((f"wrong labels assumed: {result.noise:.2%}" if result.noise else
                  "wrong labels assumed: none", ""))  # fmt: skip
    fine = result.certificate.holds
    lines.append(
        (f"{'✓' if fine else '✗'} the network: {result.certificate}", "green" if fine else "red")
    )
    for one in result.undecided[:_MOST_LISTED]:
        others = [str(other) for other in one.alternatives[:_MOST_OTHERS]]
        if len(one.alternatives) > _MOST_OTHERS:
            others.append(f"{len(one.alternatives) - _MOST_OTHERS} more")
        lines.append((f"undecided: {'  or  '.join([str(one.rule), *others])}", "yellow"))
    if len(result.undecided) > _MOST_LISTED:
        lines.append((f"undecided: and {len(result.undecided) - _MOST_LISTED} more", "yellow"))
    if result.unexplained:
        counts = sorted(result.unexplained.items(), key=lambda item: -item[1])
        shown = [f"{quote(atom)} ({count})" for atom, count in counts[:_MOST_LISTED]]
        more = f" and {len(counts) - len(shown)} more" if len(counts) > len(shown) else ""
        some = " (wrong labels among them)" if result.noise else ""
        text = f"unexplained, in so many examples{some}: {', '.join(shown)}{more}"
        lines.append((text, "yellow"))
    lines += [(f"note: {note}", "") for note in result.notes]
    return lines


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
        "notes": list(result.notes),
        "unexplained": dict(result.unexplained),
        "certificate": result.certificate.to_dict(),
        "history": [
            {
                "stage": moment.stage,
                "rules": moment.rules,
                "explained": moment.explained,
                "new": [str(rule) for rule in moment.new],
            }
            for moment in result.history
        ],
    }

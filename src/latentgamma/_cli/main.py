"""The command line: parse the arguments, make one library call, show it, return an exit code.

Exit codes: 0 fine; 1 the claim asked about does not hold; 2 bad input, with one line on the
standard error that says what to do; 130 interrupted; 141 nobody reads the output any more.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, NoReturn, get_args

import latentgamma as lg
from latentgamma._cli import commands, learn, validate
from latentgamma._cli.commands import Problem
from latentgamma._learning.observations import Kind

#: Numbers of steps up to here are taken; beyond, floating-point numbers would run out.
_LARGEST = 10**60


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise Problem(f"{message} (see '{self.prog} --help')")


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code, after doing what the arguments ask for."""
    try:
        # Names may hold what a terminal cannot show; better an escape than an exception.
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.simplefilter("ignore")
            args = _parser().parse_args(argv)
            code: int = args.run(args)
        sys.stdout.flush()
        return code
    except SystemExit as done:  # --help and --version
        return int(done.code or 0)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except BrokenPipeError:
        _give_up_output()
        return 141
    except lg.CertificateError as error:
        return _complain(str(error), 1)
    except (Problem, lg.LatentGammaError, ImportError) as error:
        return _complain(str(error), 2)
    except MemoryError:
        return _complain("there is not enough memory for this", 2)
    except OSError as error:
        _give_up_output()
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return _complain(f"{where}{error.strerror or error}", 2)


def _complain(problem: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(f"latentgamma: {problem}", file=sys.stderr)
    return code


def _give_up_output() -> None:
    """Leave nothing to be flushed at the end, where it would fail again."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# -------------------------------------------------------------------- arguments


def _whole(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value <= _LARGEST:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 on, not {text:.40}")
    return value


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1, not {text:.40}")
    return value


def _noise(text: str) -> float | Literal["auto"]:
    return "auto" if text == "auto" else _share(text)


def _takes_rules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rules", metavar="RULES", help="a file of rules, or - for standard input")
    parser.add_argument(
        "--format", choices=("lp", "cnf", "json"),
        help="how to read RULES; by default as its suffix says, and standard input as lp",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _takes_facts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--facts", metavar="A,B", action="append", default=[],
        help="facts between commas; commas in edge(a,b) or in quotes do not count",
    )  # fmt: skip
    parser.add_argument(
        "--facts-file", metavar="FILE", action="append", default=[],
        help="facts one name a line, or as rule text 'a. b.'; - for standard input",
    )  # fmt: skip


def _takes_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--constants", choices=("paper", "scaled", "certified"),
        help="of the closed form; by default certified",
    )  # fmt: skip
    parser.add_argument("--gate", choices=("sigmoid", "bump"), help="by default sigmoid")
    parser.add_argument(
        "--dtype", choices=("float32", "float64", "bfloat16"), help="by default float32"
    )
    parser.add_argument("--model", metavar="FILE", help="a saved model instead of a closed form")


def _takes_picture(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--plot", metavar="FILE", help=f"draw {what} (.png, .svg, .pdf)")


def _closure_takes(parser: argparse.ArgumentParser) -> None:
    _takes_rules(parser)
    _takes_facts(parser)
    parser.add_argument("--levels", action="store_true", help="show the step each atom comes at")
    _takes_picture(parser, "the rules, with the closure in colour")


def _explain_takes(parser: argparse.ArgumentParser) -> None:
    _takes_rules(parser)
    parser.add_argument("atom", metavar="ATOM", help="what to prove")
    _takes_facts(parser)
    parser.add_argument("--dot", metavar="FILE", help="write the proof as a Graphviz graph")
    _takes_picture(parser, "the proof")


def _certify_takes(parser: argparse.ArgumentParser) -> None:
    _takes_rules(parser)
    _takes_model(parser)
    parser.add_argument(
        "--depth", type=_whole, metavar="D",
        help="for fact sets that take at most D steps; by default for every fact set",
    )  # fmt: skip
    parser.add_argument(
        "--horizon",
        type=_whole,
        metavar="N",
        help="the window must reach step N; certified constants are chosen so that it does",
    )
    _takes_picture(parser, "the leak against time, the paper's promise beside it")


def _run_takes(parser: argparse.ArgumentParser) -> None:
    _takes_rules(parser)
    _takes_facts(parser)
    parser.add_argument("--steps", type=_whole, metavar="T", required=True, help="how many steps")
    _takes_model(parser)
    parser.add_argument("--form", choices=("auto", "dense", "sparse"), help="by default auto")
    parser.add_argument(
        "--gradient", choices=("exact", "proof"),
        help="also show how much the last values move with the facts, by this backward",
    )  # fmt: skip
    _takes_picture(parser, "a heat map of atoms and steps")


def _convert_takes(parser: argparse.ArgumentParser) -> None:
    _takes_rules(parser)
    parser.add_argument("out", metavar="OUT", help="a file to write: .lp, .cnf or .json, or .gz")


def _learn_takes(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("data", metavar="DATA", help=(
        "examples: a .csv or .parquet table with a column for each atom, and a' beside a for what "
        "became of it; or a .npy or .npz file"
    ))  # fmt: skip
    add("targets", metavar="TARGETS", nargs="?",
        help="a second table with what became of each example of the first")  # fmt: skip
    add("--kind", choices=get_args(Kind), default="transitions",
        help="what the examples show: one step, everything that follows, states in a row (told "
             "apart by a column 'trajectory'), or closed sets alone; by default transitions"
    )  # fmt: skip
    add("--target", metavar="A,B", action="append", default=[],
        help="the atoms that may have rules; by default all")  # fmt: skip
    add("--bodies", metavar="A,B", action="append", default=[],
        help="the atoms that rules may use; by default all")  # fmt: skip
    add("--forbid", metavar="HEAD:ATOM", action="append", default=[],
        help="no rule for HEAD may use ATOM")  # fmt: skip
    add("--max-body", type=_whole, metavar="N", help="the largest body; by default 8")
    add("--noise", type=_noise, default=0.0, metavar="SHARE",
        help="the share of wrong labels, or auto to estimate it; by default 0")  # fmt: skip
    add("--method", choices=("auto", "symbolic", "gradient", "paper"), default="auto",
        help="search, training, or the paper's free training; by default auto")  # fmt: skip
    add("--known", metavar="RULES", help="rules that are there from the start")
    add("--refine", action="store_true", help="known rules go if the examples speak against them")
    add("--seed", type=_whole, default=0, metavar="N", help="of everything random; by default 0")
    add("--holdout", type=_share, metavar="SHARE",
        help="the share of the examples kept aside to measure accuracy; by default 0.1, of models none"
    )  # fmt: skip
    add("--device", default="cpu", help="where training runs; by default cpu")
    add("-o", "--output", metavar="RULES",
        help="write the rules: .lp, .cnf or .json, or .gz; by default they are printed")  # fmt: skip
    add("--model", metavar="FILE", help="write the network (.safetensors)")
    _takes_picture(parser, "the learning curve")
    add("--explain", metavar="HEAD", action="append", default=[],
        help="print what was learned about this atom, and not all rules")  # fmt: skip
    add("--checkpoint", metavar="FILE",
        help="where finished work is kept until all is done, for the same command to go on from; "
             "by default the output's name, or the data's, and .learning")  # fmt: skip
    add("--fresh", action="store_true", help="delete what is kept there, and start again")
    add("--json", action="store_true", help="print one JSON document")


def _validate_takes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--graphs",
        metavar="G1,G2",
        default="g1,g2,g3,g4",
        help="some of g1,g2,g3,g4; all if not given",
    )
    parser.add_argument(
        "--seed", type=_whole, default=0, metavar="N",
        help="decides the graphs, the fact sets and the noise; by default 0",
    )  # fmt: skip
    parser.add_argument("--device", default="cpu", help="where the models run; by default cpu")
    parser.add_argument(
        "--out", metavar="DIR", help="write results.json, timing.json and report.html there"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _report_takes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", metavar="RESULTS", help="a results.json that validate wrote")
    parser.add_argument(
        "--out", metavar="FILE", help="the page to write; by default report.html beside RESULTS"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


class _Command(NamedTuple):
    name: str
    summary: str
    takes: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


_COMMANDS = (
    _Command("closure", "everything that follows from facts", _closure_takes, commands.closure),
    _Command(
        "explain", "a proof of one atom, or why there is none", _explain_takes, commands.explain
    ),
    _Command("certify", "the steps in which a model is exact", _certify_takes, commands.certify),
    _Command("run", "the values of the operator, step by step", _run_takes, commands.run),
    _Command("convert", "the same rules in another format", _convert_takes, commands.convert),
    _Command("learn", "the rules that explain examples", _learn_takes, learn.learn),
    _Command(
        "validate",
        "the paper's experiments, run here, beside its own figures",
        _validate_takes,
        validate.validate,
    ),
    _Command(
        "report",
        "what validate found, without computing it again",
        _report_takes,
        validate.report,
    ),
)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="latentgamma",
        description="Logic rules as an exact, differentiable PyTorch layer, and back.",
        epilog="exit codes: 0 fine, 1 the claim asked about does not hold, 2 bad input",
    )
    parser.add_argument("--version", action="version", version=f"latentgamma {lg.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        sub = commands.add_parser(
            command.name, help=command.summary, description=f"Shows {command.summary}."
        )
        command.takes(sub)
        sub.set_defaults(run=command.run)
    return parser

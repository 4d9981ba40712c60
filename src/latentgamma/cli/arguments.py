"""The arguments of every command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Literal, NoReturn, TypeAlias

from latentgamma._version import __version__
from latentgamma.cli import commands
from latentgamma.cli.commands import UsageError
from latentgamma.program.files import SUFFIXES

# ---- The arguments of every command

#: The largest number of steps that is accepted; beyond, floating-point numbers would overflow.
_LARGEST = 10**60


class _Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see '{self.prog} --help')")


#: Returns the parser of a new command, from its name, what it does, and its function.
_NewCommand: TypeAlias = Callable[
    [str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser
]


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments, with the function of the command as `run`.

    Raises:
        UsageError: they do not fit the command.
        SystemExit: --help or --version was asked for, and printed.
    """
    found, others = new_parser().parse_known_args(argv)
    if others:
        listed = "" if "--facts" not in (argv or sys.argv) else "; atoms are separated by commas"
        raise UsageError(
            f"unrecognized arguments: {' '.join(others)}{listed} (see 'latentgamma {found.command} "
            "--help')"
        )
    return found


def new_parser() -> argparse.ArgumentParser:
    """Return a parser for all commands."""
    parser = _Parser(
        prog="latentgamma",
        description="Logic rules as an exact, differentiable PyTorch layer, and back.",
        epilog="exit codes: 0 success, 1 the claim does not hold, 2 bad input",
    )
    parser.add_argument("--version", action="version", version=f"latentgamma {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(
        name: str, summary: str, run: Callable[[argparse.Namespace], int]
    ) -> argparse.ArgumentParser:
        described = f"{summary[0].upper()}{summary[1:]}."
        sub = subparsers.add_parser(name, help=summary, description=described)
        sub.set_defaults(run=run, command=name, default_of=sub.get_default)
        sub.add_argument("--json", action="store_true", help="print the result as JSON")
        return sub

    for add_arguments in (
        _closure_arguments, _explain_arguments, _certify_arguments, _run_arguments,
        _decide_arguments, _serve_arguments, _explore_arguments, _ground_arguments,
        _convert_arguments, _check_arguments, _learn_arguments, _validate_arguments,
        _report_arguments,
    ):  # fmt: skip
        add_arguments(command)
    command("compile", "compile all code ahead of time", _compile)
    return parser


# ---- Commands whose modules take long to import


def _decide(args: argparse.Namespace) -> int:
    from latentgamma.cli.decide import decide

    return decide(args)


def _serve(args: argparse.Namespace) -> int:
    from latentgamma.cli.decide import serve

    return serve(args)


def _learn(args: argparse.Namespace) -> int:
    from latentgamma.cli.learn import learn

    return learn(args)


def _compile(args: argparse.Namespace) -> int:
    from latentgamma.cli.compile import compile_all

    return compile_all(args)


# ---- Values


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value <= _LARGEST:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 on, not {text:.40}")
    return value


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"expected a fraction from 0 to 1, not {text:.40}")
    return value


def _noise(text: str) -> float | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        return _fraction(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; or auto") from None


# ---- Shared arguments


def _add_rules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rules", metavar="RULES", help="a file of rules, or - for standard input")
    parser.add_argument(
        "--format", choices=[suffix[1:] for suffix in SUFFIXES],
        help="the format of RULES; by default from its suffix, and lp for standard input",
    )  # fmt: skip
    parser.add_argument(
        "--open", metavar="P/N", action="append", default=[],
        help="a predicate whose facts are given, for example edge/2; rules with variables only",
    )  # fmt: skip
    parser.add_argument(
        "--facts-table", metavar="P=FILE", action="append", default=[],
        help="a table of facts, for example edge=edges.csv, or edge(from,to)=edges.csv if the first "
             "row names the columns; .csv, .tsv or .parquet",
    )  # fmt: skip


def _add_facts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--facts", metavar="A,B", action="append", default=[],
        help="facts separated by commas, for example --facts \"bird,edge(a,b),'night train'\"",
    )  # fmt: skip
    parser.add_argument(
        "--facts-file", metavar="FILE", action="append", default=[],
        help="a file of facts, one name per line or as rule text 'a. b.'; - for standard input",
    )  # fmt: skip


def _add_model(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--constants", choices=("paper", "scaled", "certified"),
        help="the constants of the closed form; by default certified")  # fmt: skip
    add("--gate", choices=("sigmoid", "bump"), help="the gate function; by default sigmoid")
    add("--dtype", choices=("float32", "float64", "bfloat16"),
        help="the type of the state; by default float32")  # fmt: skip
    add("--model", metavar="FILE", help="a saved model instead of a closed form")


def _add_plot(parser: argparse.ArgumentParser, content: str) -> None:
    parser.add_argument("--plot", metavar="FILE", help=f"draw {content} (.png, .svg, .pdf)")


# ---- Arguments of each command


def _closure_arguments(command: _NewCommand) -> None:
    parser = command("closure", "list every atom that follows from facts", commands.closure)
    add = parser.add_argument
    _add_rules(parser)
    _add_facts(parser)
    add("--levels", action="store_true", help="show the step that derives each atom")
    add("--show", metavar="P/N", action="append", default=[],
        help="only the atoms of this predicate, for example path/2; by default what '#show' "
             "says")  # fmt: skip
    add("--csv", metavar="FILE",
        help="write the atoms as a table, one argument in a column; - to print")  # fmt: skip
    _add_plot(parser, "the rules, with the closure highlighted")
    add("-o", "--output", metavar="FOLDER",
        help="write the closure of every row of --facts-table FILE, a Parquet table with a boolean "
             "column for each atom, to Parquet files in this folder; the same call resumes"
    )  # fmt: skip
    add("--keep", metavar="COLUMN", action="append", default=[],
        help="copy a column that is not an atom")  # fmt: skip
    add("--workers", metavar="N", type=int,
        help="compute in N processes of a Ray cluster on this machine instead of in threads")  # fmt: skip


def _explain_arguments(command: _NewCommand) -> None:
    parser = command("explain", "prove an atom, or show why it does not follow", commands.explain)
    _add_rules(parser)
    atom = parser.add_argument(
        "atom", metavar="ATOM", help="the atom to prove; left out with --all"
    )
    atom.required = False  # not with --all; nargs="?" would refuse options before it
    parser.add_argument(
        "--all", action="store_true", help="instead of ATOM: one step for every atom that follows"
    )
    _add_facts(parser)
    parser.add_argument("--dot", metavar="FILE", help="write the proof as a Graphviz graph")
    _add_plot(parser, "the proof")


def _certify_arguments(command: _NewCommand) -> None:
    parser = command("certify", "compute the steps for which a model is exact", commands.certify)
    _add_rules(parser)
    _add_model(parser)
    parser.add_argument(
        "--depth", type=_count, metavar="D",
        help="only for fact sets that need at most D steps; by default for every fact set",
    )  # fmt: skip
    parser.add_argument(
        "--horizon", type=_count, metavar="N",
        help="require the window to reach step N; certified constants are chosen for it",
    )  # fmt: skip
    _add_plot(parser, "the bound on underivable atoms over time, beside the paper's window")


def _run_arguments(command: _NewCommand) -> None:
    parser = command("run", "run the operator and show its values", commands.run)
    add = parser.add_argument
    _add_rules(parser)
    _add_facts(parser)
    add("--steps", type=_count, metavar="T", required=True, help="the number of steps")
    _add_model(parser)
    add("--form", choices=("auto", "dense", "sparse"),
        help="the form of the model; by default auto")  # fmt: skip
    add("--gradient", choices=("exact", "proof"),
        help="also show the gradient from each atom to the facts, of this kind")  # fmt: skip
    _add_plot(parser, "a heat map of atoms and steps")


def _decide_arguments(command: _NewCommand) -> None:
    parser = command("decide", "decide the requests of a table, with reasons", _decide)
    add = parser.add_argument
    _add_decider(parser)
    add("requests", metavar="REQUESTS", help="a table of requests: .csv, .tsv, .jsonl or .parquet")
    add("--id", metavar="COLUMN", help="the column that names each request, for the output")
    add("-o", "--output", metavar="FILE",
        help="write the decisions, one JSON object on each line; by default they are printed")  # fmt: skip
    add("--proof", action="store_true", help="with the proofs of what follows")
    add("--missing", action="store_true", help="with a smallest change for what does not follow")
    add("--stop", action="store_true", help="stop at the first bad request")


def _serve_arguments(command: _NewCommand) -> None:
    parser = command("serve", "decide requests over HTTP", _serve)
    _add_decider(parser)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="the address to listen on; by default 127.0.0.1")
    add("--port", type=_count, default=8000, metavar="N", help="the port; by default 8000")
    add("--max-bytes", type=_count, default=1 << 20, metavar="N",
        help="the size of the largest body; by default 1048576")  # fmt: skip
    add("--max-requests", type=_count, default=1000, metavar="N",
        help="the longest list of requests; by default 1000")  # fmt: skip
    add("--seconds", type=_count, default=10, metavar="N",
        help="the time after which an explanation is given up, and a decision on uncertain facts; "
             "by default 10")  # fmt: skip


def _add_decider(parser: argparse.ArgumentParser) -> None:
    _add_rules(parser)
    parser.add_argument(
        "--question",
        metavar="ATOM",
        action="append",
        default=[],
        help="an atom to decide; give the option once for each",
    )
    parser.add_argument(
        "--ignore-unknown", action="store_true",
        help="ignore names in a request that the rules do not have",
    )  # fmt: skip


def _explore_arguments(command: _NewCommand) -> None:
    parser = command("explore", "open an interactive page for the rules", commands.explore)
    add = parser.add_argument
    _add_rules(parser)
    _add_facts(parser)
    add("--model", metavar="FILE", help="run a saved model, and show its rules beside RULES")
    add("--export", metavar="FILE", help="write one self-contained page instead of serving it")
    add("--title", default="LatentGamma explorer", help="the title of the page")
    add("--port", type=_count, default=0, metavar="N", help="the port; by default any free one")
    add("--no-browser", action="store_true", help="do not open a browser")


def _ground_arguments(command: _NewCommand) -> None:
    parser = command(
        "ground", "replace rules with variables by their ground instances", commands.ground
    )
    add = parser.add_argument
    _add_rules(parser)
    add("--max-rules", type=_count, metavar="N",
        help="stop beyond N ground rules; by default 20 million")  # fmt: skip
    add("--max-seconds", type=_count, metavar="N", help="stop after N seconds; by default 600")
    add("-o", "--output", metavar="OUT",
        help="write the ground rules: .lp or .json, or one of them and .gz; by default they "
             "are printed")  # fmt: skip


def _convert_arguments(command: _NewCommand) -> None:
    parser = command("convert", "write the rules in another format", commands.convert)
    _add_rules(parser)
    parser.add_argument(
        "out", metavar="OUT", help="the file to write: .lp, .cnf or .json, or one of them and .gz"
    )


def _check_arguments(command: _NewCommand) -> None:
    parser = command("check", "list the rows of a table that break requirements", commands.check)
    add = parser.add_argument
    add("requirements", metavar="REQUIREMENTS",
        help="clauses as text, or a hierarchy: .txt .cnf .csv .tsv .obo .arff, also as .gz")  # fmt: skip
    add("labels", metavar="LABELS", nargs="?",
        help="a .csv, .tsv or .parquet table of 0 and 1, a column for each label; without "
             "it, conflicts and redundant requirements are listed")  # fmt: skip
    add("--format", metavar="NAME",
        help="text, dimacs, edges, obo, arff, rules (of CCN) or pishield; by default the "
             "name of the file decides")  # fmt: skip


def _learn_arguments(command: _NewCommand) -> None:
    parser = command("learn", "learn rules from examples", _learn)
    add = parser.add_argument
    add("data", metavar="DATA", help=(
        "examples: a .csv, .tsv or .parquet table with two columns per atom, a before and a' after; "
        "- for a table on the standard input; with --relational, background "
        "facts as Datalog, or a folder with bk.pl, exs.pl and bias.pl"
    ))  # fmt: skip
    add("targets", metavar="TARGETS", nargs="?",
        help="a second table with the state after each example of the first; with --relational, "
             "the examples: pos(atom). and neg(atom).")  # fmt: skip
    add("--label", metavar="COLUMN",
        help="learn rules for the classes in this column of an ordinary table, from its numbers, "
             "categories, dates and missing values")  # fmt: skip
    add("--form", choices=("auto", "rules", "points"), default="auto",
        help="with --label, a decision list or a points score; by default whichever predicts "
             "better")  # fmt: skip
    add("--relational", action="store_true",
        help="learn rules with variables from examples of a relation")  # fmt: skip
    add("--invent", type=_count, metavar="N",
        help="with --relational, the largest number of invented predicates; by default 0"
    )  # fmt: skip
    add("--max-variables", type=_count, metavar="N",
        help="with --relational, the largest number of variables in a rule; by default 6"
    )  # fmt: skip
    add("--time-limit", type=_count, metavar="SECONDS",
        help="with --relational, the time after which the best program so far is returned; "
             "by default 60"
    )  # fmt: skip
    add("--constants", action="store_true", default=None,
        help="with --relational, rules may name constants")  # fmt: skip
    add("--negation", action="store_true", default=None,
        help="with --relational, bodies may hold not p(X)")  # fmt: skip
    add("--comparisons", action="store_true", default=None,
        help="with --relational, bodies may hold X != Y, X < Y and thresholds such as X >= 7")  # fmt: skip
    add("--closed-world", action=argparse.BooleanOptionalAction, default=None,
        help="with --relational and without negative examples, whether every other tuple is "
             "false")  # fmt: skip
    add("--ground-lists", type=_count, metavar="N",
        help="with --relational and a folder, the longest list that background predicates build; by "
             "default the longest in the examples")  # fmt: skip
    add("--delimiter", metavar="C",
        help="what separates the cells of a table in text: a character, or tab; by default the "
             "first of , ; tab | that the first line has")  # fmt: skip
    add("--ignore", metavar="A,B", action="append", default=[],
        help="columns to leave out; A stands for A' as well")  # fmt: skip
    add("--kind", choices=("transitions", "closures", "trajectories", "models"), default="transitions",
        help="what the examples are: one step, the whole closure, states one after another (with "
             "a column 'trajectory'), or closed sets alone; by default transitions"
    )  # fmt: skip
    add("--heads", "--target", dest="heads", metavar="A,B", action="append", default=[],
        help="the atoms to learn rules for; by default all")  # fmt: skip
    add("--bodies", metavar="A,B", action="append", default=[],
        help="the atoms that bodies may contain; by default all")  # fmt: skip
    add("--forbid", metavar="HEAD:ATOM", action="append", default=[],
        help="no rule for HEAD may have ATOM in its body")  # fmt: skip
    add(
        "--max-body",
        type=_count,
        metavar="N",
        help="the largest body; by default 8, 6 with --relational, and 5 with --label",
    )
    add("--noise", type=_noise, metavar="FRACTION",
        help="the fraction of wrong labels, or auto to estimate it; by default 0, and auto with "
             "--label, where a fraction is only for columns that are true or false"
    )  # fmt: skip
    add("--method", choices=("auto", "symbolic", "search", "gradient"), default="auto",
        help="gradient descent, or a search: symbolic, called search with --relational; by default "
             "auto, which chooses"
    )  # fmt: skip
    add("--known", metavar="RULES", help="a file of rules that are known")
    add("--refine", action="store_true", help="drop known rules that contradict the examples")
    add("--seed", type=_count, default=0, metavar="N", help="the random seed; by default 0")
    add("--holdout", type=_fraction, metavar="FRACTION",
        help="the fraction of examples held out to measure accuracy; by default 0.1, and 0 for "
             "closed sets")  # fmt: skip
    add("--device", default="cpu", help="the device to train on; by default cpu")
    add("-o", "--output", metavar="RULES",
        help="write the rules: .lp, .cnf or .json, or one of them and .gz; with --label also .sql and "
             ".py; by default they are printed")  # fmt: skip
    add("--model", metavar="FILE", help="write the network (.safetensors)")
    _add_plot(parser, "the learning curve")
    add("--explain", metavar="HEAD", action="append", default=[],
        help="print only what was learned about this atom")  # fmt: skip
    add("--checkpoint", metavar="FILE",
        help="where finished work is saved until the command succeeds; the same command resumes "
             "from it; by default the name of the output, or of the data, and .learning")  # fmt: skip
    add("--fresh", action="store_true", help="delete the checkpoint and start again")


def _validate_arguments(command: _NewCommand) -> None:
    parser = command(
        "validate", "run the paper's experiments and compare the figures", commands.validate
    )
    add = parser.add_argument
    add("--graphs", metavar="G1,G2", default="g1,g2,g3,g4",
        help="some of g1,g2,g3,g4; by default all")  # fmt: skip
    add("--seed", type=_count, default=0, metavar="N",
        help="the seed of the graphs, the fact sets and the noise; by default 0")  # fmt: skip
    add("--perturbations", type=_count, default=3, metavar="N",
        help="noisy models per graph and level of noise; by default 3, as in the paper")  # fmt: skip
    add("--device", default="cpu", help="the device to run on; by default cpu")
    add("--out", metavar="DIR", help="a folder for results.json, timing.json and report.html")


def _report_arguments(command: _NewCommand) -> None:
    parser = command("report", "render the results of validate again", commands.report)
    parser.add_argument("results", metavar="RESULTS", help="a results.json written by validate")
    parser.add_argument(
        "--out", metavar="FILE", help="the page to write; by default report.html beside RESULTS"
    )

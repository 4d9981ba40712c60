"""Mutation testing: change one operator or number at a time and see whether a test fails.

    python tests/mutation.py closure derivation --sample 60 --seed 3
    python tests/mutation.py --package certificate --comparisons
    python tests/mutation.py --total 20                              # drawn from all modules

Modules are found in `src`. The tests of a module are its doctests and the test files that use it:
the names that a file takes from the package say which modules it uses, and the imports between
modules how far that is from the module. The nearest files are collected once. Then each mutant gets
a forked process, in which its functions have the changed code, and runs the tests that reach the
changed statement, those first that killed other mutants. A mutant is killed when a test fails, the
process crashes, or a test takes far longer than before.
Not mutated: messages, annotations, and tuning values, which are the module's constants named
`_LIKE_THIS`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import functools
import gc
import importlib
import inspect
import itertools
import json
import math
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "latentgamma"

COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
}  # fmt: skip
#: Functions and methods that are exchanged with each other.
EXTREMES = {"min": "max", "amin": "amax", "argmin": "argmax", "minimum": "maximum"}
EXTREMES |= {large: small for small, large in EXTREMES.items()}
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Mod: ast.Add,
    ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
LOGIC = {ast.And: ast.Or, ast.Or: ast.And}

#: Line, description and text.
Mutant = tuple[int, str, str]


def replacements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield changed copies of a node."""
    new: Any = copy.deepcopy(node)
    if isinstance(new, ast.Compare):
        for i, old in enumerate(new.ops):
            for other in COMPARISONS[type(old)]:
                changed = copy.deepcopy(new)
                changed.ops[i] = other()
                yield changed
    elif isinstance(new, ast.Call) and isinstance(new.func, (ast.Name, ast.Attribute)):
        field = "id" if isinstance(new.func, ast.Name) else "attr"
        if (other_name := EXTREMES.get(getattr(new.func, field))) is not None:
            setattr(new.func, field, other_name)
            yield new
    elif isinstance(new, (ast.BinOp, ast.AugAssign)) and type(new.op) in ARITHMETIC:
        new.op = ARITHMETIC[type(new.op)]()
        yield new
    elif isinstance(new, ast.BoolOp):
        new.op = LOGIC[type(new.op)]()
        yield new
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, (ast.Not, ast.USub)):
        yield new.operand
    elif isinstance(new, ast.Constant) and isinstance(new.value, (bool, int, float)):
        if isinstance(new.value, bool):
            new.value = not new.value
        else:
            new.value = new.value + 1 if isinstance(new.value, int) else new.value * 1.5 or 1.0
        yield new


def is_tuning(node: ast.AST) -> bool:
    """Whether the statement assigns a tuning value."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    targets = [part for one in targets for part in getattr(one, "elts", [one])]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return isinstance(node, (ast.Assign, ast.AnnAssign)) and any(
        name.startswith("_") and name.isupper() for name in names
    )


def places(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Yield every part of a tree that can be changed: parent, field, position and the new part."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        parts = value if isinstance(value, list) else [value]
        for i, part in enumerate(parts):
            if not isinstance(part, ast.AST) or is_tuning(part):
                continue
            if isinstance(part, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
                continue
            # A union of types is written with |, as is one of sets.
            if isinstance(part, ast.BinOp) and "None" in ast.unparse(part):
                continue
            for new in replacements(part):
                yield node, field, i if isinstance(value, list) else None, new
            yield from places(part)


def mutants(text: str, *, comparisons: bool = False) -> Iterator[Mutant]:
    """Yield line, description and text of every mutant of a module, or of its comparisons alone."""
    tree = ast.parse(text)
    for parent, field, i, new in list(places(tree)):
        if comparisons and not isinstance(new, (ast.Compare, ast.Call)):
            continue
        siblings = getattr(parent, field)
        old = siblings if i is None else siblings[i]
        if i is None:
            setattr(parent, field, new)
        else:
            siblings[i] = new
        line = getattr(old, "lineno", getattr(parent, "lineno", 0))
        yield line, f"{ast.unparse(old)}  ->  {ast.unparse(new)}", ast.unparse(tree)
        if i is None:
            setattr(parent, field, old)
        else:
            siblings[i] = old


def statement_lines(tree: ast.AST, line: int) -> range:
    """The lines of the smallest statement around a line."""
    around = [
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return min(around, key=len)


# ------------------------------------------------------------------------ other code for functions

Changes = list[tuple[int, types.CodeType]]


def code_objects(code: types.CodeType) -> list[types.CodeType]:
    """A code object and those inside of it, in the order of the text."""
    inside = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return [code, *(part for one in inside for part in code_objects(one))]


def code_changes(path: Path, text: str, mutated: str) -> Changes | None:
    """Which code objects of a module change, and to what; None if it changes what runs at import."""
    before = code_objects(compile(ast.unparse(ast.parse(text)), str(path), "exec"))
    after = code_objects(compile(mutated, str(path), "exec"))
    changed = [
        (i, new)
        for i, (old, new) in enumerate(zip(before, after, strict=True))
        if (old.co_code, old.co_names) != (new.co_code, new.co_names)
        or repr(constants(old)) != repr(constants(new))
    ]
    in_functions = all(new.co_flags & inspect.CO_OPTIMIZED for _, new in changed)
    return changed if changed and in_functions else None


def is_inside_a_function(name: str, path: Path, mutant: Mutant) -> bool:
    """Whether a mutant changes functions only, in a module that can be imported on this machine."""
    try:
        importlib.import_module(f"{SOURCES.name}.{name}")
    except ImportError:
        return False
    return code_changes(path, path.read_text(encoding="utf-8"), mutant[2]) is not None


def constants(code: types.CodeType) -> list[object]:
    return [one for one in code.co_consts if not isinstance(one, types.CodeType)]


def replace_code(path: Path, text: str, mutated: str) -> None:
    """Give the functions of a module the code of a mutant, wherever they are referred to."""
    old = code_objects(compile(text, str(path), "exec"))
    new = code_objects(compile(mutated, str(path), "exec"))
    codes = {(a.co_qualname, a.co_firstlineno): b for a, b in zip(old, new, strict=True)}
    for one in gc.get_objects():
        if type(one) is types.FunctionType and one.__code__.co_filename == str(path):
            one.__code__ = codes[one.__code__.co_qualname, one.__code__.co_firstlineno]
    # A loop is compiled again, and not taken from a file: its key does not cover all of the code.
    from numba.core.dispatcher import Dispatcher

    for module in list(sys.modules.values()):
        if (compile_loop := vars(module).get("compile_loop")) is not None:
            compile_loop.cache_clear()
    keep = Dispatcher.enable_caching

    def enable_caching(self: Any) -> None:
        if self.py_func.__code__.co_filename != str(path):
            keep(self)

    Dispatcher.enable_caching = enable_caching


# ------------------------------------------------------------------------ processes


def fork() -> tuple[int, int]:
    """Fork; return the process (0 in the child, which writes to the pipe) and the pipe."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    os.setsid()
    os.close(read)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    return child, write


def send(pipe: int, message: list[Any]) -> None:
    os.write(pipe, json.dumps(message).encode() + b"\n")


def receive(child: int, pipe: int, limit: Callable[[Any], float]) -> Iterator[Any]:
    """Yield the messages of a process; raise TimeoutError if the next takes too long."""
    rest, seconds = b"", 900.0
    try:
        while select.select([pipe], [], [], seconds)[0]:
            data = os.read(pipe, 1 << 20)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                seconds = limit(message)
                yield message
        raise TimeoutError
    finally:
        os.close(pipe)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def run_item(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Whether a test passes."""
    reports = runtestprotocol(item, log=False, nextitem=following)
    return not any(report.failed for report in reports)


def too_long(*_: object) -> None:
    """End the test that runs."""
    raise TimeoutError("this test takes too long for mutation testing")


class Trace:
    """The lines of a file that are run, before and in a test."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.setup: set[int] = set()
        self.lines: set[int] = set()
        self.in_setup = True

    def __call__(self, frame: types.FrameType, event: str, argument: object) -> Any:
        return self.line if frame.f_code.co_filename == self.path else None

    def line(self, frame: types.FrameType, event: str, argument: object) -> Any:
        (self.setup if self.in_setup else self.lines).add(frame.f_lineno)
        return self.line

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        self.in_setup = True
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        self.in_setup = False
        return (yield)


class Mutation:
    """A pytest plugin: in place of running the tests, it runs them for each mutant."""

    def __init__(
        self, name: str, path: Path, chosen: list[Mutant], options: argparse.Namespace, out: TextIO
    ) -> None:
        self.name, self.path, self.options, self.out = name, path, options, out
        self.chosen = chosen
        self.items: list[pytest.Item] = []
        self.seconds: dict[int, float] = {}
        self.lines: dict[int, set[int]] = {}
        self.kills: Counter[int] = Counter()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = session.items
        text = self.path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        self.measure(session)
        # The same code, put in place like that of a mutant, must pass.
        quick = [i for i, seconds in self.seconds.items() if seconds < 1]
        verdict = self.run(quick, text, ast.unparse(tree))
        if quick and verdict != "SURVIVED":
            sys.exit(f"{self.name}: without any change the tests end with: {verdict}")
        loops = set(re.findall(r"compile_loop\((\w+)\)", text))
        killed = 0
        for line, what, mutated in self.chosen:
            changes = code_changes(self.path, text, mutated)
            if changes is None:
                verdict = self.run_afresh(text, mutated)
            else:
                names = {new.co_qualname.split(".")[0] for _, new in changes}
                # Lines of compiled loops cannot be traced.
                lines = set(statement_lines(tree, line))
                tests = [i for i in self.seconds if names & loops or lines & self.lines[i]]
                tests.sort(key=lambda i: max(0.01, self.seconds[i]) / (1 + self.kills[i]))
                spent = itertools.accumulate(self.seconds[i] for i in tests)
                enough = sum(seconds <= self.options.seconds for seconds in spent)
                verdict = self.run(tests[: max(1, enough)], text, mutated)
            killed += not verdict.startswith("SURVIVED")
            print(f"{self.name}:{line} {verdict}: {what}", file=self.out, flush=True)
        print(f"{self.name}: {killed} of {len(self.chosen)} killed", file=self.out, flush=True)
        return True

    def measure(self, session: pytest.Session) -> None:
        """Find how long each test takes and which lines of the module it runs."""
        in_setup: dict[str, set[int]] = {}
        child, pipe = fork()
        if child == 0:
            trace = Trace(self.path)
            session.config.pluginmanager.register(trace)
            signal.signal(signal.SIGPROF, too_long)
            first = time.process_time()
            for i, item in enumerate(self.items):
                if time.process_time() - first > self.options.measure:
                    break
                trace.setup, trace.lines = set(), set()
                began = time.process_time()
                signal.setitimer(signal.ITIMER_PROF, self.options.longest)
                sys.settrace(trace)
                passed = False
                with contextlib.suppress(TimeoutError):
                    passed = run_item(item, self.items[i + 1] if i + 1 < len(self.items) else None)
                signal.setitimer(signal.ITIMER_PROF, 0)
                sys.settrace(None)
                seconds = time.process_time() - began
                send(pipe, [i, passed, seconds, sorted(trace.setup), sorted(trace.lines)])
            os._exit(0)
        for i, passed, seconds, setup, lines in receive(child, pipe, lambda message: 900.0):
            if not passed:  # also because it is traced, or takes too long
                continue
            self.seconds[i], self.lines[i] = seconds, {*setup, *lines}
            # What a fixture has made may be checked by any test of the file.
            in_setup.setdefault(str(self.items[i].path), set()).update(setup)
        for i, lines in self.lines.items():
            lines |= in_setup[str(self.items[i].path)]
        total = sum(self.seconds.values())
        told = f"{self.name}: {len(self.seconds)} of {len(self.items)} tests, {total:.0f} s"
        print(told, file=self.out, flush=True)

    def run(self, tests: list[int], text: str, mutated: str) -> str:
        """What becomes of a mutant when these tests run."""
        if not tests:
            return "SURVIVED, no test runs it"
        child, pipe = fork()
        if child == 0:
            try:
                replace_code(self.path, text, mutated)
            except BaseException as error:  # not a kill
                send(pipe, [-1, f"SURVIVED, not run: {error!r}"])
                os._exit(1)
            for i, following in zip(tests, [*tests[1:], None], strict=True):
                send(pipe, [i, ""])
                # Time of the processor, so that other processes cannot kill a mutant.
                signal.setitimer(signal.ITIMER_PROF, 10 + 5 * self.seconds[i])
                if not run_item(
                    self.items[i], None if following is None else self.items[following]
                ):
                    send(pipe, [i, "killed"])
                    os._exit(0)
            send(pipe, [-1, "SURVIVED"])
            os._exit(0)
        last, verdict = -1, "crashed or out of time"
        limit = lambda message: 600.0  # noqa: E731
        try:
            for message in receive(child, pipe, limit):
                last, verdict = message[0], message[1] or verdict
        except TimeoutError:
            verdict = "timed out"
        if last < 0:
            return verdict
        self.kills[last] += 1
        return f"{verdict} by {self.items[last].name}"

    def run_afresh(self, text: str, mutated: str) -> str:
        """What becomes of a mutant that changes what runs at import: a new process runs all tests."""
        self.path.write_text(mutated, encoding="utf-8")
        tests = sorted({str(item.path) for item in self.items})
        command = [sys.executable, "-m", "pytest", *OPTIONS, *tests]
        limit = 120 + 5 * sum(self.seconds.values())
        try:
            done = subprocess.run(command, capture_output=True, timeout=limit, check=False)
            return "killed afresh" if done.returncode else "SURVIVED afresh"
        except subprocess.TimeoutExpired:
            return "timed out afresh"
        finally:
            self.path.write_text(text, encoding="utf-8")


OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header",
           "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]  # fmt: skip


# ------------------------------------------------------------------------ modules and their tests


@functools.cache
def modules() -> dict[str, Path]:
    """The files of all modules of the package by their names without the package's."""
    return {
        ".".join(path.relative_to(SOURCES).with_suffix("").parts): path
        for path in sorted(SOURCES.rglob("*.py"))
    }


@functools.cache
def used_by(path: Path) -> Counter[str]:
    """How often a file uses each module, by importing it or by a public name that it defines."""
    package = importlib.import_module(SOURCES.name)
    known = modules()
    found: Counter[str] = Counter()

    def use(name: str) -> None:
        """Count the module with this name, or the one that defines the object with this name."""
        found[name] += 1
        value: Any = package
        with contextlib.suppress(Exception):
            for part in name.split(".")[1:]:
                value = getattr(value, part)
            found[getattr(value, "__module__", None) or value.__name__] += 1

    aliases = {SOURCES.name}
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(one.name for one in node.names)
            aliases |= {one.asname or "" for one in node.names if one.name == SOURCES.name}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(SOURCES.name):
            found[node.module or ""] += 1
            for one in node.names:
                use(f"{node.module}.{one.name}")
    for node in nodes:
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            if first in aliases:
                use(f"{SOURCES.name}.{rest}")
    total: Counter[str] = Counter()
    for one, count in found.items():
        name = one.removeprefix(SOURCES.name).removeprefix(".") or "__init__"
        total.update({each: count for each in (name, f"{name}.__init__") if each in known})
    return total


@functools.cache
def with_helpers(path: Path) -> set[Path]:
    """A test file and the modules beside it that it imports, directly or not."""
    found, edge = {path}, {path}
    while edge:
        nodes = [
            node for one in edge for node in ast.walk(ast.parse(one.read_text(encoding="utf-8")))
        ]
        names = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        edge = {path.parent / f"{name}.py" for name in names} - found
        edge = {one for one in edge if one.exists()}
        found |= edge
    return found


def test_files(name: str, most: int) -> list[Path]:
    """The test files that use a module, those first that use it, or what needs it, the most."""
    needs = {one: set(used_by(path)) for one, path in modules().items()}
    steps, edge = {name: 0}, {name}
    while edge:
        edge = {one for one, below in needs.items() if below & edge and one not in steps}
        steps |= dict.fromkeys(edge, max(steps.values()) + 1)
    scores = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        used = sum((used_by(one) for one in with_helpers(path)), Counter())
        near = sum(count * 4.0 ** -steps[one] for one, count in used.items() if one in steps)
        if near:
            scores[path] = near / (sum(used.values()) + 10)
    return sorted(scores, key=lambda path: (-scores[path], path))[:most]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="names of modules; by default all")
    parser.add_argument("--package", help="modules whose package has this in its name")
    parser.add_argument("--comparisons", action="store_true", help="comparisons, min and max only")
    parser.add_argument("--sample", type=int, help="mutants per module; by default all")
    parser.add_argument("--total", type=int, help="mutants of functions of all modules together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=int, default=5, help="test files per module")
    parser.add_argument("--slow", action="store_true", help="with the tests that are marked slow")
    parser.add_argument("--seconds", type=float, default=math.inf, help="of tests for a mutant")
    parser.add_argument(
        "--longest", type=int, default=20, help="seconds of a test, or it is left out"
    )
    parser.add_argument("--measure", type=float, default=300.0, help="seconds of tests per module")
    parser.add_argument("--only", help="a regular expression for 'line change'")
    parser.add_argument("--list", action="store_true", help="show the mutants and the test files")
    options = parser.parse_args()
    known = modules()
    names = [name for name in known if name.rpartition(".")[2] in options.modules]
    if missing := set(options.modules) - {name.rpartition(".")[2] for name in names}:
        parser.error(f"no module is called {', '.join(sorted(missing))}")
    names = names or [name for name in known if not options.modules]
    if options.package:
        names = [name for name in names if options.package in name.rpartition(".")[0]]
    generator = random.Random(options.seed)
    drawn: list[tuple[str, Mutant]] = []
    for name in names:
        text = known[name].read_text(encoding="utf-8")
        found = list(mutants(text, comparisons=options.comparisons))
        generator.shuffle(found)
        if options.only:
            found = [one for one in found if re.search(options.only, f"{one[0]} {one[1]}")]
        drawn += [(name, one) for one in found[: options.sample]]
    if options.total is not None:
        # What runs at import is left out: each such mutant takes a new process and all tests.
        generator.shuffle(drawn)
        inside = (one for one in drawn if is_inside_a_function(one[0], known[one[0]], one[1]))
        drawn = list(itertools.islice(inside, options.total))
    copied = ROOT / "out" / "mutation"
    shutil.rmtree(copied, ignore_errors=True)  # modules may have been renamed
    shutil.copytree(ROOT / "src", copied)
    for name in sorted({name for name, _ in drawn}):
        chosen = [one for other, one in drawn if other == name]
        files = test_files(name, options.files)
        if options.list:
            print(f"{name}: {len(chosen)} mutants; {' '.join(path.stem for path in files)}")
            continue
        if (child := os.fork()) == 0:
            mutate_module(name, copied, chosen, files, options)
            os._exit(0)
        os.waitpid(child, 0)


def mutate_module(
    name: str, copied: Path, chosen: list[Mutant], files: list[Path], options: argparse.Namespace
) -> None:
    """Run mutants of one module whose sources lie in a folder."""
    for one in [one for one in sys.modules if one.partition(".")[0] == SOURCES.name]:
        del sys.modules[one]  # they were imported from the sources that are not mutated
    sys.path[:0] = [str(copied), str(ROOT / "tests")]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    for one in ("torch", "numba", "rich.table", SOURCES.name):
        importlib.import_module(one)
    path = copied / SOURCES.name / Path(*name.split(".")).with_suffix(".py")
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    plugin = Mutation(name, path, chosen, options, out)
    marks = [] if options.slow else ["-m", "not slow"]
    pytest.main([*OPTIONS, *marks, str(path), *map(str, files)], plugins=[plugin])


if __name__ == "__main__":
    main()

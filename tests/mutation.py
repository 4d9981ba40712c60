"""Mutation testing: change one operator or number at a time and see whether a test fails.

    python tests/mutation.py closure derivation --sample 60 --out survivors.txt

Each mutant runs in a forked process against a copy of the sources, with the test files of its
module and its doctests. A mutant is killed when a test fails or the time runs out. Not mutated:
messages, annotations, and tuning values, which are the module's constants named `_LIKE_THIS`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "latentgamma"

#: The modules that are mutated, and the test files that must notice.
TESTS = {
    "_logic/closure": "closure facts",
    "_logic/closures": "closure bit_planes",
    "_logic/derivation": "proof",
    "_logic/missing_facts": "proof",
    "_logic/why_not": "proof",
    "_certificate/certify": "certificate",
    "_certificate/rounding": "rounding step_bounds",
    "_certificate/closed_sets": "closed_sets",
    "_certificate/upper_end": "certificate",
    "_certificate/lower_end": "certificate",
    "_certificate/constants": "constants certificate",
    "_certificate/step_bounds": "step_bounds rounding",
    "_model/rules": "rules_contract",
    "_model/dense_rules": "rules_contract operator",
    "_model/sparse_rules": "rules_contract operator",
    "_model/stages": "rules_contract numerics",
    "_model/module": "operator citizenship",
}

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Mod: ast.Add,
    ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
LOGIC = {ast.And: ast.Or, ast.Or: ast.And}


def replacement(node: ast.AST) -> ast.AST | None:
    """Return the changed copy of a node, or None where there is nothing to change."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in COMPARISONS:
        new.ops[0] = COMPARISONS[type(new.ops[0])]()
    elif isinstance(new, (ast.BinOp, ast.AugAssign)) and type(new.op) in ARITHMETIC:
        new.op = ARITHMETIC[type(new.op)]()
    elif isinstance(new, ast.BoolOp):
        new.op = LOGIC[type(new.op)]()
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, (ast.Not, ast.USub)):
        return new.operand
    elif isinstance(new, ast.Constant) and isinstance(new.value, bool):
        new.value = not new.value
    elif isinstance(new, ast.Constant) and isinstance(new.value, int):
        new.value += 1
    elif isinstance(new, ast.Constant) and isinstance(new.value, float):
        new.value = new.value * 1.5 or 1.0
    else:
        return None
    return new


def is_tuning(node: ast.AST) -> bool:
    """Whether the statement assigns a tuning value."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
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
            if (new := replacement(part)) is not None:
                yield node, field, i if isinstance(value, list) else None, new
            yield from places(part)


def mutants(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, description and text of every mutant of a module."""
    tree = ast.parse(text)
    for parent, field, i, new in list(places(tree)):
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


def run_tests(copied: Path, tests: list[str], seconds: float) -> bool:
    """Whether the tests pass with the sources of this folder, in a forked process."""
    child = os.fork()
    if child == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        sys.path[:0] = [str(copied), str(ROOT / "tests")]
        os.environ["PYTHONPATH"] = str(copied)
        import pytest

        options = [
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "--no-header",
            "-m",
            "not slow",
        ]
        options += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
        os._exit(int(pytest.main([*options, *tests]) != 0))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="names of modules; by default all")
    parser.add_argument("--sample", type=int, help="mutants per module; by default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file to which survivors are added")
    options = parser.parse_args()
    for warm in ("pytest", "numpy", "torch", "numba", "rich.table"):
        __import__(warm)
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copied)
        for name, files in TESTS.items():
            path = copied / "latentgamma" / f"{name}.py"
            chosen = not options.modules or name.rpartition("/")[2] in options.modules
            if not chosen or not path.exists():
                continue
            tests = [str(ROOT / "tests" / f"test_{file}.py") for file in files.split()]
            tests = [str(path), *(test for test in tests if Path(test).exists())]
            began = time.monotonic()
            if not run_tests(copied, tests, 900):
                sys.exit(f"{name}: the tests fail before anything is changed")
            if not run_tests(copied, tests, 900):  # now with warm caches, to be timed
                sys.exit(f"{name}: the tests fail before anything is changed")
            seconds = 3 * (time.monotonic() - began) + 30
            text = path.read_text(encoding="utf-8")
            found = list(mutants(text))
            random.Random(options.seed).shuffle(found)
            found = found[: options.sample]
            killed = 0
            for line, what, mutated in found:
                path.write_text(mutated, encoding="utf-8")
                survived = run_tests(copied, tests, seconds)
                killed += not survived
                print(f"{name}:{line} {'SURVIVED' if survived else 'killed  '} {what}", flush=True)
                if survived and options.out:
                    with options.out.open("a", encoding="utf-8") as stream:
                        stream.write(f"{name}:{line} {what}\n")
            path.write_text(text, encoding="utf-8")
            print(f"{name}: {killed} of {len(found)} killed", flush=True)


if __name__ == "__main__":
    main()

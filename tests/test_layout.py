"""The map in CONTRIBUTING.md is the layout: data flows one way, and heavy imports stay away."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import latentgamma as lg

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "latentgamma"


def rows() -> list[list[str]]:
    """The rooms of each row of the map, from top to bottom."""
    lines = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
    return [re.findall(r"`(\w+)`", line) for line in lines if re.match(r"\| [a-z].*`", line)]


def imports(room: str) -> set[str]:
    """The rooms that a room imports when it is itself imported."""
    found = set()
    tree = ast.parse((PACKAGE / f"{room}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "latentgamma":
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("latentgamma."):
            found.add(node.module.split(".")[1])
    return found


def test_every_room_is_on_the_map_once() -> None:
    listed = [room for row in rows() for room in row]
    assert sorted(listed) == sorted(path.stem for path in PACKAGE.glob("*.py"))


def test_rooms_import_from_their_own_row_and_those_above() -> None:
    height = {room: i for i, row in enumerate(rows()) for room in row}
    wrong = {
        (room, other)
        for room in height
        for other in imports(room)
        if other in height and height[other] > height[room]
    }
    assert not wrong


def loaded_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(done.stdout.split())


SYMBOLS = """
import latentgamma as lg
program = lg.parse('b :- a. c :- a, b.')
assert lg.closure(program, ['a']).atoms == {'a', 'b', 'c'}
lg.derivation(program, ['a'], 'c'), lg.why_not(program, [], 'c'), lg.closures(program, [['a']])
lg.Constants.certified(program), lg.equivalent(program, program)
"""


def test_symbolic_work_needs_no_heavy_import() -> None:
    heavy = {"torch", "numba", "matplotlib", "rich", "clingo", "argparse", "safetensors"}
    assert not heavy & loaded_after(SYMBOLS)


def test_such_an_import_would_be_seen() -> None:
    assert "torch" in loaded_after(SYMBOLS + "\nlg.oracle(program)")


def test_the_public_names_are_the_ones_promised() -> None:
    promised = """
        parse load save Program Rule generators step closure closures Closure depth_bound
        derivation Derivation why_not WhyNot equivalent oracle Constants LatentGamma Trajectory
        certify Certificate gradient_report GradientReport paper_window PaperWindow perturb
        flip_bound flip_probability misroute_bound critical_sigma parameter_count
        lower_bound_bits validation report plot fit FitResult Homotopy extract alignment Alignment
        LatentGammaError ProgramError ParseError FactsError StateError ModelError DataError
        CertificateError
    """
    assert set(lg.__all__) == set(promised.split())
    assert len(lg.__all__) == len(set(lg.__all__))
    for name in lg.__all__:
        assert getattr(lg, name) is not None
        assert name in dir(lg)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        lg.nonsense  # noqa: B018

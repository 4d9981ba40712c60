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


def table() -> list[tuple[list[str], list[str]]]:
    """The rows of the table in CONTRIBUTING.md: packages, and the modules listed for them."""
    lines = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
    cells = [line.split("|")[1:-1] for line in lines if line.startswith("| `")]
    return [(re.findall(r"`(\w+)`", row[0]), re.findall(r"`(\w+)`", row[-1])) for row in cells]


def imports(path: Path) -> set[str]:
    """The packages that a file imports, also inside functions and for types only."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import"
            if node.module == "latentgamma":
                found |= {name.name if is_part(name.name) else "__init__" for name in node.names}
            elif (node.module or "").startswith("latentgamma."):
                found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            parts = [name.name.split(".") for name in node.names]
            found |= {[*p, "__init__"][1] for p in parts if p[0] == "latentgamma"}
    return found


def is_part(name: str) -> bool:
    """Whether the name is a package or a module directly below the library."""
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()


def files(part: str) -> list[Path]:
    return sorted((PACKAGE / part).rglob("*.py")) or [PACKAGE / f"{part}.py"]


def test_every_package_and_every_module_is_in_the_table() -> None:
    parts = {p.stem for p in PACKAGE.glob("*.py")}
    parts |= {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert sorted(part for row, _ in table() for part in row) == sorted(parts)
    for row, modules in table():
        paths = [path for part in row if (PACKAGE / part).is_dir() for path in files(part)]
        assert sorted(modules) == sorted(p.stem for p in paths if p.stem != "__init__")


def test_a_package_imports_only_from_packages_above_it() -> None:
    height = {part: i for i, (row, _) in enumerate(table()) for part in row}
    wrong = {
        (part, other)
        for part in height
        for path in files(part)
        for other in imports(path)
        if height[other] > height[part]
    }
    assert not wrong


# A name is looked up in one of these. Public packages are used with their name in front, as in
# `lg.plot.window`; the functions of `commands` are called after the commands that they run, and
# the two launchers are one interface.
SEPARATE = {"commands", "cpu_launch", "cuda_launch", "cpu_kernels", "cuda_kernels"}


def definitions() -> dict[str, set[str]]:
    """Where every class and every public function at the top of a module is defined."""
    found: dict[str, set[str]] = {}  # sets, since overloads are defined in one place
    for path in sorted(PACKAGE.rglob("*.py")):
        package = path.relative_to(PACKAGE).parts[0]
        where = path.stem if path.stem in SEPARATE else "" if package[0] == "_" else package
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            public = isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).add(str(path.relative_to(PACKAGE)))
            elif public:
                found.setdefault(f"{where}.{node.name}", set()).add(str(path.relative_to(PACKAGE)))
    return found


def test_no_name_has_two_meanings() -> None:
    twice = {name.strip("."): where for name, where in definitions().items() if len(where) > 1}
    assert twice == {}


def test_a_module_has_at_most_400_lines_or_a_reason_in_its_docstring() -> None:
    long = {}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        reason = "more than 400 lines" in " ".join(
            (ast.get_docstring(ast.parse(text)) or "").split()
        )
        if text.count("\n") > 400 and not reason:
            long[path.stem] = text.count("\n")
    assert long == {}


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
        parse load save Program StratifiedProgram Rule datalog generators step closure closures
        pack unpack random_planes Closure depth_bound derivation Derivation why_not WhyNot
        equivalent oracle Constants LatentGamma Trajectory certify Certificate tolerance
        gradient_report GradientReport Layer Categorical Inference LikelyProof shortcuts
        Shortcuts Annealing paper_window PaperWindow perturb flip_bound flip_probability
        misroute_bound critical_sigma parameter_count lower_bound_bits validation report plot
        explore fit FitResult Evidence HistoryEntry ProgressBar RuleClassifier Homotopy extract alignment
        Alignment LatentGammaError ProgramError ParseError FactsError StateError ModelError
        DataError ArgumentError CertificateError DistributedError distributed Rules ProofStep Absent Blocked Equivalence
        DenseRules SparseRules StratifiedModel Status Margins GradientRow Plan relational
    """
    assert set(lg.__all__) == set(promised.split())
    assert len(lg.__all__) == len(set(lg.__all__))
    for name in lg.__all__:
        assert getattr(lg, name) is not None
        assert name in dir(lg)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        lg.nonsense  # noqa: B018

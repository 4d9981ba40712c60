"""The table in CONTRIBUTING.md is the layout: imports go one way, and heavy ones stay away."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import latentgamma as lg

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "latentgamma"


def table() -> list[list[str]]:
    """The packages in each row of the table in CONTRIBUTING.md."""
    lines = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
    return [re.findall(r"`(\w+)`", line.split("|")[1]) for line in lines if line.startswith("| `")]


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


def test_every_package_is_in_the_table() -> None:
    parts = {p.stem for p in PACKAGE.glob("*.py")}
    parts |= {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert sorted(part for row in table() for part in row) == sorted(parts)


def test_a_package_imports_only_from_packages_above_it() -> None:
    height = {part: i for i, row in enumerate(table()) for part in row}
    wrong = {
        (part, other)
        for part in height
        for path in files(part)
        for other in imports(path)
        if height[other] > height[part]
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
lg.derivation(program, ['a'], 'c'), lg.derivations(program, ['a']).table(), lg.why_not(program, [], 'c'), lg.closures(program, [['a']])
lg.Constants.certified(program), lg.equivalent(program, program)
"""


def test_symbolic_work_needs_no_heavy_import() -> None:
    heavy = {"torch", "numba", "matplotlib", "rich", "clingo", "argparse", "safetensors"}
    assert not heavy & loaded_after(SYMBOLS)


@pytest.mark.slow
def test_without_torch_a_model_says_what_to_install() -> None:
    code = (
        SYMBOLS
        + """
import sys
sys.modules['torch'] = None
for name in ('Layer', 'oracle', 'extract', 'shortcuts'):
    try:
        getattr(lg, name)
        raise SystemExit(name)
    except lg.errors.MissingPackageError as error:
        assert str(error) == (
            f"latentgamma.{name} needs PyTorch, which is not installed: "
            "pip install 'latentgamma[torch]'"
        )
import contextlib, io
from latentgamma.cli.main import main
with contextlib.redirect_stderr(io.StringIO()) as told:
    assert main(['run', 'examples/animals.lp', '--steps', '3']) == 2
assert told.getvalue() == (
    "latentgamma: this command needs PyTorch, which is not installed: "
    "pip install 'latentgamma[torch]'\\n"
), told.getvalue()
"""
    )
    loaded_after(code)


@pytest.mark.slow
def test_such_an_import_would_be_seen() -> None:
    assert "torch" in loaded_after(SYMBOLS + "\nlg.oracle(program)")


def test_the_public_names_are_the_ones_promised() -> None:
    promised = {
        lg: """
            parse load save Program Rule closure closures derivation derivations why_not equivalent
            oracle LatentGamma certify Constants Layer Categorical Inference Annealing shortcuts fit
            extract RuleClassifier Requirements CoherentClassifier average_precision requirements Decider decide datalog relational generators plot explore distributed errors
            paper logic operator layer learning LatentGammaError ParseError
        """,
        lg.logic: """
            step depth_bound pack unpack random_planes Closure Derivation Derivations ProofStep Absent
            WhyNot Blocked Equivalence Rules Label Condition condition_rows
        """,
        lg.decide: "Decision Decisions Change Violation SCHEMA application",
        lg.operator: """
            rules DenseRules SparseRules Trajectory Certificate Status Margins
            tolerance Homotopy
        """,
        lg.layer: "Plan LikelyProof Shortcuts concept_mapping",
        lg.requirements: """
            Requirements Violations Report RequirementsLayer RequirementsCertificate
            RequirementsPlan Change Changes
        """,
        lg.learning: """
            ClassRules RuleStatistics Threshold RuleNetwork FitResult Evidence HistoryEntry Alignment alignment ProgressBar
            CandidateRules ConceptAccuracy ConceptFit fit_concepts
        """,
        lg.paper: """
            validation report charts paper_window PaperWindow perturb flip_bound flip_probability
            misroute_bound critical_sigma parameter_count lower_bound_bits gradient_report
            GradientReport GradientRow
        """,
    }
    for namespace, names in promised.items():
        assert set(namespace.__all__) == set(names.split())
        for name in namespace.__all__:
            assert getattr(namespace, name) is not None
            assert name in dir(namespace)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        lg.nonsense  # noqa: B018

"""What every test starts from."""

import importlib.util
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from latentgamma.cli.main import main

HAS_TORCH = importlib.util.find_spec("torch") is not None


class _SkipWithoutTorch:
    """Skips every test, or every file of tests, that imports torch where it is not installed."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "torch":
            pytest.skip("torch is not installed", allow_module_level=True)


if not HAS_TORCH:
    sys.meta_path.insert(0, _SkipWithoutTorch)  # type: ignore[arg-type]

# For relational_tasks. Last on the path: other modules of the benchmarks have plain names.
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

# A shell starts background jobs with SIGINT ignored, and their children inherit that. The tests of
# Ctrl-C need the default.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every run. HYPOTHESIS_PROFILE=search draws new ones. How long an example
# takes says nothing: other processes use the machine too.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", patient, derandomize=True, database=None)
settings.register_profile("search", patient, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `quick_first`, all sets of parameters but the first are slow."""
    seen = set()
    for item in items:
        if item.get_closest_marker("quick_first") is not None:
            test = item.nodeid.partition("[")[0]
            if test in seen:
                item.add_marker(pytest.mark.slow)
            seen.add(test)


@pytest.fixture(autouse=True, scope="session")
def _one_thread_each() -> None:
    """Tests run side by side, and their tensors are small: threads would only get in the way."""
    if HAS_TORCH:
        import torch

        torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _no_warnings_of_interpreted_kernels() -> None:
    """Triton's interpreter computes with numpy, which warns of 0 / 0 also in masked places."""
    if "TRITON_INTERPRET" in os.environ:
        np.seterr(all="ignore")


@pytest.fixture(autouse=True, scope="session")
def _compiled_for_float32_alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compiling for float64 takes a minute: on a CPU the quick tests run it in plain torch.

    The tests that hold kernels to plain torch in float64 are slow, and run compiled with the others.
    """
    quick = request.config.option.markexpr == "not slow"
    if not HAS_TORCH or not quick or "TRITON_INTERPRET" in os.environ:
        yield
        return
    import torch

    from latentgamma.engine import execute, tensors
    from latentgamma.layer import semantics
    from latentgamma.operator import run

    def can_leave_torch(*given: torch.Tensor) -> bool:
        wide = any(tensor.is_cpu and tensor.dtype == torch.float64 for tensor in given)
        return not wide and tensors.can_leave_torch(*given)

    kernel_for = run.kernel_for
    with pytest.MonkeyPatch.context() as patch:
        for module in (execute, semantics):
            patch.setattr(module, "can_leave_torch", can_leave_torch)
        patch.setattr(
            run,
            "kernel_for",
            lambda rules, state, raw: (
                kernel_for(rules, state, raw) if can_leave_torch(state) else None
            ),
        )
        yield


@pytest.fixture(autouse=True)
def _compiled_by_no_test_before() -> None:
    """torch.compile takes eight versions of a function in a process, and refuses a ninth."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()


@pytest.fixture(autouse=True)
def _plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output is the same whatever the terminal of the person who runs the tests."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _fixed_seeds() -> None:
    """A test that draws without a generator of its own draws the same numbers on every run."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    if HAS_TORCH:
        import torch

        torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def folder_of_all_workers(tmp_path_factory: pytest.TempPathFactory) -> None:
    if HAS_TORCH and "PYTEST_XDIST_WORKER" in os.environ:
        import small_validation

        small_validation.shared_folder = tmp_path_factory.getbasetemp().parent


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Run a command here; returns the output and the errors, after a check of the exit code."""

    def call(*args: object, code: int = 0) -> tuple[str, str]:
        got = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert got == code, (out, err)
        return out, err

    return call

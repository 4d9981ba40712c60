"""A command, run in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from latentgamma.cli.main import main


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Run a command here; returns the output and the errors, after a check of the exit code."""

    def call(*args: object, code: int = 0) -> tuple[str, str]:
        got = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert got == code, (out, err)
        return out, err

    return call

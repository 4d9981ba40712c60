"""What every test starts from."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread_each() -> None:
    """Tests run side by side, and their tensors are small: threads would only get in the way."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output is the same whatever the terminal of the person who runs the tests."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

"""What every test starts from."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread_each() -> None:
    """Tests run side by side, and their tensors are small: threads would only get in the way."""
    torch.set_num_threads(1)

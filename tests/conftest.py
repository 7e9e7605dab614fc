import pytest
import torch


@pytest.fixture(autouse=True)
def _exact():
    """Every test computes in float64 from a fixed seed, so that tolerances mean something."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)

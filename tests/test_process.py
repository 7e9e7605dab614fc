import subprocess
import sys

import pytest

PROGRAM = """
import resource
import torch
from trellisnet.process import prepare_process

if {prepared}:
    prepare_process()
    assert float(torch.tensor(1e-30) * torch.tensor(1e-10)) == 0

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(5)
print(faults(50))
"""


def faults(prepared):
    """Pages that the system had to provide for tensors of 64 MB, after others like them were used and freed."""
    command = [sys.executable, "-c", PROGRAM.format(prepared=prepared)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the allocator is left as it is")
def test_a_prepared_process_keeps_freed_memory():
    plain = faults(False)
    if plain < 25 * 2**26 // 4096:
        pytest.skip("this C library keeps freed memory by itself")
    assert faults(True) < plain / 4  # not 0: the heap grows until there is room for aligned pieces

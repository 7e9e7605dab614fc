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

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""


def faults(prepared):
    """Pages that the system had to provide for a tensor of 64 MB, when one like it was used and freed before."""
    command = [sys.executable, "-c", PROGRAM.format(prepared=prepared)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the allocator is left as it is")
def test_a_prepared_process_keeps_freed_memory():
    plain, prepared = faults(False), faults(True)
    assert prepared < 100
    if plain < 100:
        pytest.skip("this C library keeps freed memory by itself")

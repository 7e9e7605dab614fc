"""A node joins a run and is killed, and the run goes on: two nodes as network namespaces of one machine.

python benchmarks/nodes.py    needs Linux, root and iproute2; takes a few minutes

The commands of the nodes are those of `docs/tutorials/scaling.md`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NODES = {"trellis-a": "10.77.0.1", "trellis-b": "10.77.0.2"}  # names of the namespaces, and addresses in them
FIRST = next(iter(NODES))
TEXT = "".join(f"a line of {i * i % 17} words and {i % 5}\n" for i in range(3000))
TASK = "my-text --data.options.path text.txt --data.options.kind words --model.hidden_size 16 --model.embedding_size 8"
TASK += " --training.epochs 10000 --training.steps 10 --training.batch_size 8 --training.save_minutes 0.05"
SECONDS = 180  # for each event


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "text.txt").write_text(TEXT)
        _connect()
        try:
            _start(FIRST, place)
            _wait_for(r"^epoch 1:", place, "one node trains")
            _start("trellis-b", place)
            _wait_for(r"^2 instead of 1 processes", place, "another node joins")
            _wait_for(r"^resumes from step", place, "both go on from the last checkpoint")
            _kill("trellis-b")
            _wait_for(r"^1 instead of 2 processes", place, "the other node is killed")
            _wait_for(r"^1 instead of 2 processes.*^resumes from step.*^epoch", place, "the first one goes on alone")
        finally:
            for name in NODES:
                _kill(name)
                subprocess.run(["ip", "netns", "del", name], check=False)


def _connect() -> None:
    """Make the namespaces, with a cable between them."""
    first, second = NODES
    commands = [f"ip netns add {name}" for name in NODES]
    commands += [f"ip link add {first} netns {first} type veth peer name {second} netns {second}"]
    for name, address in NODES.items():
        commands += [f"ip -n {name} addr add {address}/24 dev {name}"]
        commands += [f"ip -n {name} link set {device} up" for device in ("lo", name)]
    for command in commands:
        subprocess.run(command.split(), check=True)


def _start(name: str, place: Path) -> None:
    """Start torchrun in a namespace; it writes to a file."""
    launcher = f"{sys.executable} -m torch.distributed.run --nnodes 1:4 --nproc_per_node 1 --max-restarts 3"
    launcher += f" --rdzv-backend c10d --rdzv-id run-1 --rdzv-endpoint {NODES[FIRST]}:29400 --local-addr {NODES[name]}"
    launcher += f" --rdzv-conf is_host={int(name == FIRST)},last_call_timeout=5 -m trellisnet train {TASK} --to run"
    own = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": name, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with (place / f"{name}.log").open("w") as log:
        command = ["ip", "netns", "exec", name, *launcher.split()]
        subprocess.Popen(command, cwd=place, env={**os.environ, **own}, stdout=log, stderr=log)


def _kill(name: str) -> None:
    """Kill all processes of a namespace."""
    found = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True, text=True)
    for process in found.stdout.split():
        os.kill(int(process), signal.SIGKILL)


def _wait_for(pattern: str, place: Path, event: str) -> None:
    """Wait until the first node has said something, or exit with what it said instead."""
    started = time.monotonic()
    while not re.search(pattern, said := (place / f"{FIRST}.log").read_text(), re.MULTILINE | re.DOTALL):
        if time.monotonic() - started > SECONDS:
            raise SystemExit(f"not within {SECONDS} s: {event}\n{said[-2000:]}")
        time.sleep(0.5)
    print(f"{event}: after {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()

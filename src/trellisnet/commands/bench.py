"""`trellisnet bench`."""

from __future__ import annotations

import time
from statistics import median


def bench(
    *,
    input_size: int = 200,
    hidden_size: int = 600,
    num_layers: int = 40,
    steps: int = 128,
    batch_size: int = 8,
    tail: int | None = None,
    seconds: float = 5.0,
) -> None:
    """Measure a training step and a streaming step of a net of given size on this machine.

    For comparisons with other networks, run `make bench` in the repository.

    Args:
        input_size: channels of the input.
        hidden_size: width.
        num_layers: depth.
        steps: length of a sequence.
        batch_size: number of sequences.
        tail: compute only the last n outputs.
        seconds: duration of each measurement.
    """
    import torch  # noqa: PLC0415

    from trellisnet import TrellisNet  # noqa: PLC0415
    from trellisnet.process import prepare_process  # noqa: PLC0415

    prepare_process()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(steps, batch_size, input_size, device=device)
    print(f"{torch.__version__} on {device}, {torch.get_num_threads()} threads; medians")
    for memory in ("store", "recompute"):
        net = TrellisNet(input_size, hidden_size, num_layers, memory=memory, device=device)

        def train_step(net: TrellisNet = net) -> None:
            net.zero_grad()
            net(x, tail=tail)[0].square().mean().backward()

        each = _measure(train_step, seconds)
        rate = steps * batch_size / each
        print(f"training step, memory={memory}: {1000 * each:.1f} ms, {rate:,.0f} steps of sequences per second")
    with torch.no_grad():
        state = net(x[:1, :1])[1]

        def stream_step() -> None:
            nonlocal state
            state = net(x[:1, :1], state)[1]

        each = _measure(stream_step, seconds)
        print(f"streaming step, batch 1: {1000 * each:.2f} ms, {1 / each:,.0f} per second")


def _measure(step: object, seconds: float) -> float:
    import torch  # noqa: PLC0415

    assert callable(step)
    times: list[float] = []
    started = time.perf_counter()
    step()  # warm up
    while time.perf_counter() - started < seconds or len(times) < 3:
        start = time.perf_counter()
        step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return median(times)

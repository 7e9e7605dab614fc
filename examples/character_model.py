"""Train a character model on Python's own library, and let it write.

    python examples/character_model.py

Most of a minute on one core, which ends with:

    step 500: 2.22 bits
    step 600: 2.18 bits
    unseen modules: 2.21 bits a character; 4.24 by frequencies alone

and with 400 characters that look like Python from afar, such as "return file of self.inting:". The text differs from
version to version of Python, and the numbers with it.
"""

from __future__ import annotations

import math
from itertools import chain, islice, repeat

import torch

from trellisnet import TrellisLM
from trellisnet.data import TextData, load


def main(steps: int = 600, characters: int = 400) -> dict[str, float]:
    """Train for so many steps and write so many characters; bits per character of unseen modules."""
    torch.set_flush_denormal(True)  # deep stacks underflow, which makes a CPU slow
    torch.manual_seed(0)
    data = load("python-library")
    assert isinstance(data, TextData)
    print(f"{len(data.splits['train']):,} characters, {len(data.vocabulary)} different ones; {data.note}")

    lm = TrellisLM(len(data.vocabulary), 48, hidden_size=160, num_layers=6, vocabulary=data.vocabulary)
    optimiser = torch.optim.AdamW(lm.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=0.006, total_steps=steps)
    batches = data.batches("train", batch_size=16, steps=64)  # 16 columns of the text, read side by side
    state = None
    for step, batch in enumerate(islice(chain.from_iterable(repeat(batches)), steps), start=1):
        # The weights do not depend on the depth: three layers are cheaper at first, and the change costs a few steps.
        out = lm(batch.inputs, batch.targets, state if batch.continues else None, depth=3 if step <= steps // 2 else 6)
        state = out.state  # where the next batch goes on, already cut from the graph
        optimiser.zero_grad()
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(lm.parameters(), 0.5)
        optimiser.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}: {out.loss.item() / math.log(2):.2f} bits")

    lm.eval()
    # The modules of the test split, or rather their beginning: enough for two digits.
    unseen = torch.from_numpy(data.splits["test"][:20_000].astype("int64"))
    counts = torch.bincount(unseen).double()
    shares = counts[counts > 0] / len(unseen)
    bits = {"trellis": lm.score(unseen).bits, "frequencies": -(shares * shares.log2()).sum().item()}
    print(f"unseen modules: {bits['trellis']:.2f} bits a character; {bits['frequencies']:.2f} by frequencies alone")

    # A character costs one step through the layers, however long the text has become.
    prompt = "def "
    print(prompt, end="")
    for piece in lm.stream_text(prompt, characters, temperature=0.7, seed=1):
        print(piece, end="", flush=True)
    print()
    return bits


if __name__ == "__main__":
    main()

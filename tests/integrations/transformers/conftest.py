import pytest
import torch

pytest.importorskip("transformers", reason="needs the extra hf")

from trellisnet import TrellisLM, Vocabulary
from trellisnet.integrations.transformers import TrellisNetForCausalLM, TrellisNetTokenizer

LETTERS = Vocabulary(list("abcdefghijkl \n"), "characters")


def decided(lm):
    """Make the predictions of a new model differ clearly from token to token."""
    torch.nn.init.uniform_(lm.embedding.weight, -2, 2)
    return lm.eval()


@pytest.fixture
def lm():
    return decided(TrellisLM(len(LETTERS), 12, 24, 6, dilation=[1, 2], weight_norm=True, vocabulary=LETTERS))


@pytest.fixture
def model(lm):
    return TrellisNetForCausalLM.from_lm(lm)


@pytest.fixture
def tokenizer():
    return TrellisNetTokenizer(vocabulary=LETTERS)

"""Files beside the weights: the model card, and the code that transformers loads with `trust_remote_code=True`."""

from __future__ import annotations

from trellisnet.models.body import receptive_field
from trellisnet.models.language import MODEL_TYPE, LanguageModel

CODE_TEXT = '''"""Loads this model with the package trellisnet and its extra hf, which must be installed."""

from trellisnet.integrations.transformers import TrellisNetConfig, TrellisNetForCausalLM, TrellisNetTokenizer

__all__ = ["TrellisNetConfig", "TrellisNetForCausalLM", "TrellisNetTokenizer"]
'''

CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags:
- {tag}
---

# {name}

A language model of the package `trellisnet` on the body `{body}`, with {parameters:,} parameters and a vocabulary of
{vocab_size:,} tokens. A prediction depends on {field}.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer
from trellisnet.integrations.transformers import register

register()  # or pass trust_remote_code=True below
model = AutoModelForCausalLM.from_pretrained("this-folder")
tokenizer = AutoTokenizer.from_pretrained("this-folder")
```

`trellisnet.LanguageModel.from_pretrained("this-folder")` reads the same folder without transformers.

Training data, results and limits of use: to be written by those who trained the model.

| option | value |
|---|---|
{options}
"""


def model_card(lm: LanguageModel) -> str:
    """Return the text of a model card: what the model is and how to load it; its author adds the rest."""
    described = lm._described()
    arguments = described["arguments"]
    body = arguments.pop("body", {})
    steps = receptive_field(lm.net)
    return CARD.format(
        tag=MODEL_TYPE,
        name=described["model"],
        body=body.get("name") or body.get("class") or "trellis",
        parameters=lm.num_parameters,
        vocab_size=lm.vocab_size,
        field="the whole text before it" if steps is None else f"the last {steps:,} tokens",
        options="\n".join(f"| `{name}` | `{value}` |" for name, value in {**arguments, **body}.items()),
    )

"""A real model: the exact codecs give the default cache's tokens, in every way of generating."""

import pytest
import torch

import rota.transformers

PROMPTS = ["The capital of France is", "Gravity is a force by which", "def fibonacci(n):\n    if n < 2:"]


def generate(model, inputs, **options):
    with torch.no_grad():
        return model.generate(**inputs, max_new_tokens=40, do_sample=False, **options)


@pytest.fixture(scope="module")
def inputs(smollm2):
    _, tokenizer = smollm2
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return {name: x for name, x in tokenizer(PROMPTS, return_tensors="pt", padding=True).items() if name != "token_type_ids"}


@pytest.mark.parametrize("codec", ["f32", "f16"])
def test_generates_the_default_caches_tokens(smollm2, inputs, codec):
    model, tokenizer = smollm2
    want = generate(model, inputs)
    rota.transformers.enable(model, k=codec, v=codec)
    try:
        got = generate(model, inputs)
    finally:
        rota.transformers.disable(model)
    assert tokenizer.batch_decode(got) == tokenizer.batch_decode(want)

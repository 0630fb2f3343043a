"""generate() on Rota's cache gives the tokens of generate() without it."""

import copy

import pytest
import torch

import rota
import rota.transformers
from tiny_models import FAMILIES, left_padded, one_row, random_ids, tiny

NEW = 40  # with 30 tokens of prompt beyond a page of 64, and beyond every window

WAYS = {
    "greedy": (one_row, {}),
    "left padding": (left_padded, {}),
    "sampling": (left_padded, dict(do_sample=True, temperature=0.8)),
    "beams": (left_padded, dict(num_beams=4)),
    "prompt lookup": (one_row, dict(prompt_lookup_num_tokens=4)),
    "assisted": (one_row, dict(assistant=True)),
    "prompt in chunks": (left_padded, dict(prefill_chunk_size=16)),
    "second turn": (left_padded, dict(second_turn=True)),
}
# Logits of eager attention and of ours differ by rounding, 3e-5 at most; below this two tokens are equally good.
TIE = 1e-4


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return tiny(request.param)


def generate(model, inputs, **options):
    torch.manual_seed(1)
    options = dict(max_new_tokens=NEW, do_sample=False) | options
    with torch.no_grad():
        return model.generate(**inputs, return_dict_in_generate=True, output_logits=True, **options)


def assistant_of(model):
    """A model that is right most of the time."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter) * parameter.std() * 0.02)
    return other


def assert_same(want, got, start, beams):
    """The same tokens, but that a row may part where its two best tokens are equally good."""
    if torch.equal(want.sequences, got.sequences):
        return
    assert not beams, "beams differ"
    for row in range(want.sequences.shape[0]):
        differ = (want.sequences[row, start:] != got.sequences[row, start:]).nonzero()
        if len(differ):
            best = want.logits[int(differ[0])][row].topk(2).values
            assert best[0] - best[1] < TIE, f"row {row} differs from token {int(differ[0])} on"


def compare(model, way, device, **cache_options):
    make_inputs, options = WAYS[way]
    inputs, options = make_inputs(), dict(options)
    second = options.pop("second_turn", False)
    if options.pop("assistant", False):
        torch.manual_seed(2)
        options["assistant_model"] = assistant_of(model)
    model.set_attn_implementation("eager")
    want = generate(model, inputs, **options)
    if second:
        turn = torch.cat([want.sequences, random_ids(len(want.sequences), 7, seed=3)], 1)
        more = torch.ones(len(turn), turn.shape[1] - inputs["attention_mask"].shape[1], dtype=torch.long)
        again = dict(input_ids=turn, attention_mask=torch.cat([inputs["attention_mask"], more], 1))
        want_again = generate(model, again)
    rota.transformers.enable(model, k="f32", v="f32", dense="f32", page=64, tail=64, device=device, **cache_options)
    try:
        cache = rota.transformers.RotaCache(model.config, k="f32", v="f32", page=64, device=device, **cache_options)
        got = generate(model, inputs, **options, **(dict(past_key_values=cache) if second else {}))
        assert_same(want, got, inputs["input_ids"].shape[1], "num_beams" in options)
        if second:
            got_again = generate(model, again, past_key_values=cache)
            assert_same(want_again, got_again, turn.shape[1], False)
            assert cache.kv.counters["sequences"] == 3
    finally:
        rota.transformers.disable(model)


@pytest.mark.parametrize("way", WAYS)
def test_gives_the_tokens_of_the_default_cache(model, way):
    compare(model, way, "cpu")


@pytest.mark.parametrize(
    "family, way",
    [("mistral, window", "left padding"), ("gpt-oss, window, sink logits", "beams"),
     ("llama", "prompt lookup"), ("gemma2, window, soft cap", "prompt in chunks")],
)  # fmt: skip
def test_the_same_on_a_gpu(family, way):
    compare(tiny(family), way, "vulkan:0", max_tokens=8192, max_step_tokens=512)

"""What RotaCache does besides generating, and what is refused aloud."""

import copy

import pytest
import torch
import transformers

import rota
import rota.transformers
from rota.transformers import RotaCache
from tiny_models import left_padded, one_row, random_ids, tiny


@pytest.fixture
def model():
    return tiny("llama")


def logits(model, ids, **options):
    with torch.no_grad():
        return model(input_ids=ids, **options).logits


def test_forward_keeps_keys_without_being_given_a_cache(model):
    ids = random_ids(2, 20)
    want = logits(model, ids)
    rota.transformers.enable(model, k="f32", v="f32")
    torch.testing.assert_close(logits(model, ids), want, atol=1e-4, rtol=0)
    torch.testing.assert_close(logits(model, ids, use_cache=False), want, atol=1e-4, rtol=0)


def test_disable_leaves_the_model_as_it_was(model):
    before = model.config._attn_implementation
    rota.transformers.enable(model)
    rota.transformers.enable(model, k="f16", v="f16")  # the last one counts
    rota.transformers.disable(model)
    assert model.config._attn_implementation == before
    assert type(model(input_ids=random_ids(1, 3)).past_key_values) is transformers.DynamicCache


def test_a_copy_of_a_prompt_shares_its_pages(model):
    rota.transformers.enable(model, k="turbo4", v="turbo4")
    cache = RotaCache(model.config)
    prompt, a, b = random_ids(1, 300), random_ids(1, 5, seed=7), random_ids(1, 5, seed=8)
    logits(model, prompt, past_key_values=cache)
    used = cache.kv.counters["bytes_used"]
    other = copy.deepcopy(cache)
    first, second = logits(model, a, past_key_values=cache), logits(model, b, past_key_values=other)
    assert cache.kv.counters["sequences"] == 2 and cache.kv.counters["bytes_used"] < 1.9 * used
    fresh = RotaCache(model.config)
    logits(model, prompt, past_key_values=fresh)
    assert torch.equal(logits(model, b, past_key_values=fresh), second)
    assert not torch.equal(first, second)


def test_a_forward_that_fails_leaves_the_cache_as_it_was(model):
    rota.transformers.enable(model, k="f32", v="f32")
    cache, ids, more = RotaCache(model.config, k="f32", v="f32"), random_ids(2, 20), random_ids(2, 4, seed=5)
    logits(model, ids, past_key_values=cache)
    hook = model.model.layers[2].register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        logits(model, more, past_key_values=cache)
    hook.remove()
    with pytest.warns(UserWarning, match="after 2 of 4 layers"):
        got = logits(model, more, past_key_values=cache)
    assert [row.length for row in cache.rows] == [24, 24] and cache.get_seq_length() == 24
    rota.transformers.disable(model)
    want = logits(model, torch.cat([ids, more], 1))[:, -4:]
    torch.testing.assert_close(got, want, atol=1e-4, rtol=0)


def test_rows_of_padding_alone_wait(model):
    """A chunk in which a row has no token yet."""
    inputs = left_padded(columns=30, padding=(0, 25, 5))
    rota.transformers.enable(model, k="f32", v="f32")
    cache = RotaCache(model.config, k="f32", v="f32")
    with torch.no_grad():
        for begin in range(0, 30, 10):
            part = slice(begin, begin + 10)
            out = model(input_ids=inputs["input_ids"][:, part], attention_mask=inputs["attention_mask"][:, : part.stop],
                        position_ids=(inputs["attention_mask"].cumsum(1) - 1).clamp(0)[:, part],
                        past_key_values=cache)  # fmt: skip
    assert [row.length for row in cache.rows] == [30, 5, 25]
    rota.transformers.disable(model)
    with torch.no_grad():
        want = model(**inputs, position_ids=(inputs["attention_mask"].cumsum(1) - 1).clamp(0)).logits[:, -1]
    torch.testing.assert_close(out.logits[:, -1], want, atol=1e-4, rtol=0)


def test_reset_gives_everything_back(model):
    rota.transformers.enable(model)
    cache = RotaCache(model.config)
    logits(model, random_ids(1, 200), past_key_values=cache)
    kv = cache.kv
    cache.reset()
    assert kv.counters["sequences"] == 0 and cache.get_seq_length() == 0
    logits(model, random_ids(3, 9), past_key_values=cache)
    assert cache.batch_size == 3


def test_numbers_beyond_f16_are_told(model):
    with torch.no_grad():
        model.model.layers[1].self_attn.v_proj.weight.mul_(1e6)
    rota.transformers.enable(model)
    with pytest.warns(UserWarning, match="as they were stored"):
        logits(model, random_ids(1, 20))


def refused(model, match, call):
    rota.transformers.enable(model, k="f32", v="f32")
    with torch.no_grad(), pytest.raises((NotImplementedError, RuntimeError, ValueError), match=match):
        call(model)


def test_refuses_what_it_does_not_compute(model):
    ids = random_ids(2, 8)
    refused(model, "caller's own", lambda m: m(input_ids=ids, attention_mask=torch.ones(2, 1, 8, 8).bool()))
    refused(model, "attention weights", lambda m: m(input_ids=ids, output_attentions=True))
    refused(model, "do not come from a RotaCache", lambda m: m(input_ids=ids, past_key_values=transformers.DynamicCache()))
    refused(model, "cache_implementation", lambda m: m.generate(ids, cache_implementation="static", max_new_tokens=3))
    packed = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3]])
    refused(model, "packed", lambda m: m(input_ids=ids[:1], position_ids=packed))
    refused(model, "packed", lambda m: m(ids[:1], None, packed))
    refused(model, "holds 2 rows", lambda m: [m(input_ids=x, past_key_values=c)
                                              for c in [RotaCache(m.config)] for x in (ids, ids[:1])])  # fmt: skip
    refused(model, "negative", lambda m: RotaCache(m.config).crop(3))
    rota.transformers.enable(model)
    with pytest.raises(NotImplementedError, match="no_grad"):
        model(input_ids=ids)


def test_refuses_a_mask_that_changes_its_mind(model):
    ids, more = random_ids(2, 8), random_ids(2, 2, seed=3)
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[0, :3] = 0
    rota.transformers.enable(model, k="f32", v="f32")
    for first, second in ((None, mask), (mask[:, :8], None), (mask[:, :8], torch.ones_like(mask)), (None, mask[:, :9])):
        cache = RotaCache(model.config, k="f32", v="f32")
        logits(model, ids, attention_mask=first, past_key_values=cache)
        with pytest.raises((NotImplementedError, ValueError), match="attention mask"):
            logits(model, more, attention_mask=second, past_key_values=cache)


def test_crop_removes_columns(model):
    """Of a row whose newest column is padding no token goes."""
    ids, more = random_ids(2, 8), random_ids(2, 2, seed=3)
    mask = torch.ones(2, 8, dtype=torch.long)
    mask[1, 7] = 0
    after = torch.ones(2, 9, dtype=torch.long)
    want_cache = transformers.DynamicCache(config=model.config)
    logits(model, ids, attention_mask=mask, past_key_values=want_cache)
    want_cache.crop(-1)
    want = logits(model, more, attention_mask=after, past_key_values=want_cache)
    rota.transformers.enable(model, k="f32", v="f32")
    cache = RotaCache(model.config, k="f32", v="f32")
    logits(model, ids, attention_mask=mask, past_key_values=cache)
    cache.crop(-1)
    assert [row.length for row in cache.rows] == [7, 7] and cache.get_seq_length() == 7
    torch.testing.assert_close(logits(model, more, attention_mask=after, past_key_values=cache), want, atol=1e-4, rtol=0)


def test_refuses_a_model_that_lacks_layers(model):
    rota.transformers.enable(model)
    layers, model.model.layers = model.model.layers, model.model.layers[:2]
    with torch.no_grad(), pytest.raises(NotImplementedError, match="2 of 4 layers"):
        model(input_ids=random_ids(1, 4))
    rota.transformers.disable(model)
    with pytest.raises(NotImplementedError, match=r"lacks layers \[2, 3\]"):
        rota.transformers.enable(model)


def test_refuses_padding_behind_tokens_in_windows():
    inputs = one_row(20)
    inputs["attention_mask"] = inputs["attention_mask"].clone()
    inputs["attention_mask"][0, -4:] = 0
    refused(tiny("mistral, window"), "pad on the left", lambda m: m(**inputs))


def test_refuses_rota_cache_with_another_attention(model):
    with pytest.raises(RuntimeError, match="attn_implementation"):
        logits(model, random_ids(1, 4), past_key_values=RotaCache(model.config))


def test_refuses_bad_options_at_once(model):
    with pytest.raises(rota.Error, match="turbo7"):
        rota.transformers.enable(model, k="turbo7")
    with pytest.raises(rota.Error, match="vulkan:9"):
        rota.transformers.enable(model, device="vulkan:9")
    assert model.config._attn_implementation != "rota"
    rota.transformers.enable(model)
    with pytest.raises(rota.Error, match="turbo7"):
        rota.transformers.enable(model, k="turbo7")
    assert model.config._attn_implementation == "rota", "as it was"
    with pytest.raises(NotImplementedError, match="float64"):
        rota.transformers.enable(tiny("llama").double())

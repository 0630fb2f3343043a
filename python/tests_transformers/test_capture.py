"""rota.capture: what it writes is what the model's attention saw, and the tool reads it."""

import json
import subprocess

import numpy
import pytest
import torch
import transformers

import rota


@pytest.fixture(scope="module")
def captured(smollm2, text, tmp_path_factory):
    model, tokenizer = smollm2
    return rota.capture(model, text, tmp_path_factory.mktemp("captured") / "smollm2", tokenizer=tokenizer)


@pytest.fixture(scope="module")
def seen(smollm2, text):
    """(cache, q of layer 10 before RoPE, its rotation's cos and sin) of a run without rota."""
    model, tokenizer = smollm2
    ids = torch.tensor([tokenizer(text, verbose=False).input_ids[:512]])
    cache = transformers.DynamicCache(config=model.config)
    kept = {}
    attention = model.model.layers[10].self_attn
    hooks = [attention.q_proj.register_forward_hook(lambda module, args, output: kept.update(q=output)),
             model.model.rotary_emb.register_forward_hook(lambda module, args, output: kept.update(turn=output))]
    with torch.inference_mode():
        model(ids, past_key_values=cache)
    for hook in hooks:
        hook.remove()
    return cache, kept["q"][0].view(512, 9, 64), kept["turn"]


def test_keys_and_values_are_those_of_a_cache(captured, seen):
    cache = seen[0]
    for layer in (0, 10, 19, 29):
        for head in range(3):
            for name, wanted in (("k", cache.layers[layer].keys), ("v", cache.layers[layer].values)):
                found = numpy.load(captured / f"L{layer:02}_g{head}_{name}.npy")
                numpy.testing.assert_array_equal(found, wanted[0, head].numpy().astype(numpy.float16))
    assert len(list(captured.glob("*.npy"))) == 4 * 3 * 3


def test_queries_are_rotated_and_not_scaled(captured, seen):
    _, q, (cos, sin) = seen
    cos, sin = cos[0, :, None], sin[0, :, None]
    turned = q * cos + torch.cat([-q[..., 32:], q[..., :32]], -1) * sin
    found = numpy.load(captured / "L10_g1_q.npy")
    assert found.shape == (512, 3, 64)
    numpy.testing.assert_allclose(found, turned[:, 3:6].numpy(), rtol=2e-3, atol=2e-3)
    assert json.loads((captured / "index.json").read_text())["softmax_scale"] == 0.125


def test_the_tool_reads_it(captured, rota_tool):
    done = subprocess.run([*rota_tool, "distort", str(captured), "-o", "json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = {(row["side"], row["codec"]): row for row in json.loads(done.stdout)["rows"]}
    assert rows["k", "f16"]["mse"] == 0  # what f16 files hold
    assert 1e-4 < rows["k", "turbo4"]["mse"] < 1e-2
    assert rows["k", "turbo4"]["head_dim"] == 64


def test_layers_heads_and_types_are_chosen(smollm2, tmp_path):
    model, _ = smollm2
    ids = torch.arange(1000, 1300)
    path = rota.capture(model, ids, tmp_path / "some", layers=[7, 2], heads=[1], tokens=260, dtype="f32")
    assert sorted(file.name for file in path.iterdir()) == [
        "L02_g1_k.npy", "L02_g1_q.npy", "L02_g1_v.npy", "L07_g1_k.npy", "L07_g1_q.npy", "L07_g1_v.npy", "index.json"]
    keys = numpy.load(path / "L02_g1_k.npy")
    assert keys.dtype == numpy.float32 and keys.shape == (260, 64)
    index = json.loads((path / "index.json").read_text())
    assert index["tokens"] == ids[:260].tolist() and index["layers"] == [2, 7]


def test_the_model_is_as_it_was(smollm2, captured):
    assert smollm2[0].config._attn_implementation == "sdpa"


@pytest.mark.parametrize(("options", "sentence"), [
    ({"tokens": 301}, "the text has 300 tokens; wanted 301, or tokens=300"),
    ({"tokens": 256}, "tokens is 256; wanted 257 or more"),
    ({"layers": [30]}, "layer 30 is not there; wanted 0 to 29"),
    ({"heads": [3]}, "KV head 3 is not there; wanted 0 to 2"),
    ({"dtype": "bf16"}, "dtype is 'bf16'; wanted 'f16' or 'f32'"),
])
def test_what_cannot_be_captured_is_refused(smollm2, tmp_path, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        rota.capture(smollm2[0], torch.arange(300), tmp_path / "none", **{"tokens": 300, **options})
    assert not (tmp_path / "none").exists()


def test_text_wants_a_tokenizer(smollm2, text, tmp_path):
    with pytest.raises(ValueError, match="has no tokenizer; wanted tokenizer=, or token ids"):
        rota.capture(smollm2[0], text, tmp_path / "none")


def test_files_that_are_there_stay(smollm2, captured):
    with pytest.raises(FileExistsError, match="holds files already"):
        rota.capture(smollm2[0], torch.arange(600), captured)


def windowed_model(**changes):
    config = transformers.Gemma3TextConfig(**{
        "vocab_size": 2000, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "sliding_window": 100,
        "layer_types": ["sliding_attention", "full_attention"] * 2, **changes})
    return transformers.Gemma3ForCausalLM(config).eval()


def test_layers_with_a_window_are_left_out_or_refused(tmp_path):
    model, ids = windowed_model(), torch.arange(300)
    path = rota.capture(model, ids, tmp_path / "whole", tokens=300)
    assert json.loads((path / "index.json").read_text())["layers"] == [1, 3]
    with pytest.raises(ValueError, match="layer 0 sees 100 tokens, and rota distort lets queries see all"):
        rota.capture(model, ids, tmp_path / "window", tokens=300, layers=[0])

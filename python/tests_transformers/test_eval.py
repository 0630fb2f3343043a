"""`rota eval`: its parts against their definitions, and what codecs do to a real model."""

import json
import math

import gguf
import numpy
import pytest
import torch
import transformers

import rota
import rota.eval
import rota.transformers
from rota._eval import caches, ggml
from rota._eval.attention import implementation_kept, own_attention, set_implementation, watched

TOKENS = 2048


def tiny_llama(**changes):
    torch.manual_seed(7)
    config = transformers.LlamaConfig(**{
        "vocab_size": 400, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, **changes})
    return transformers.LlamaForCausalLM(config).eval()


def random_ids(count, vocabulary=400):
    return torch.randint(0, vocabulary, (count,), generator=torch.Generator().manual_seed(3))


# --- ggml's formats -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ggml.BITS)
def test_formats_are_those_of_ggml(name):
    random = numpy.random.default_rng(1)
    x = numpy.concatenate([
        random.standard_normal((2000, 64)),
        random.standard_t(2, (2000, 64)),
        numpy.round(4 * random.standard_normal((2000, 64))) / 4,  # codes that lie between two levels
        numpy.zeros((1, 64)),
        numpy.concatenate([[[127.0]], numpy.arange(-31.5, 31)[None]], 1),  # q8_0: halves of a scale of 1 (first block)
    ]).astype(numpy.float32)
    kind = gguf.GGMLQuantizationType[name.upper()]
    stored = gguf.quants.quantize(x, kind)
    wanted = gguf.quants.dequantize(stored, kind)
    numpy.testing.assert_array_equal(ggml.restored(torch.from_numpy(x), name).numpy(), wanted)
    assert 8 * stored.nbytes / x.size == ggml.BITS[name]


@pytest.mark.parametrize("dim", [32, 64, 96, 128])
def test_rotation_is_orthogonal_and_undone(dim):
    x = torch.randn(50, dim, generator=torch.Generator().manual_seed(1))
    turned = ggml.rotated(x)
    assert not torch.allclose(turned, x, atol=0.1)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(ggml.rotated(turned), x, atol=1e-5, rtol=1e-5)


def test_rotation_spreads_an_outlier():
    x = torch.randn(500, 64, generator=torch.Generator().manual_seed(1))
    x[:, 5] += 30
    plain, turned = (ggml.restored(x, "q4_0", rotate=rotate) - x for rotate in (False, True))
    assert turned.norm() < 0.7 * plain.norm()


def test_heads_that_have_no_blocks_are_refused():
    with pytest.raises(ValueError, match="blocks of 32 values; wanted heads of a multiple of it, found 80"):
        ggml.restored(torch.zeros(2, 80), "q8_0")


# --- what is measured -----------------------------------------------------------------------------------------------


def outputs_of(model, ids, codec, chunk):
    """Logits and each layer's attention, by hooks and from one cache: another way than measure()'s."""
    seen = {layer: [] for layer in range(model.config.num_hidden_layers)}
    hooks = [block.self_attn.o_proj.register_forward_pre_hook(lambda module, args, at=layer: seen[at].append(args[0]))
             for layer, block in enumerate(model.model.layers)]
    cache = transformers.DynamicCache() if codec is None else caches.SimulatedCache(model.config, codec)
    with torch.inference_mode():
        logits = torch.cat([model(part[None], past_key_values=cache).logits[0] for part in ids.split(chunk)])
    for hook in hooks:
        hook.remove()
    return logits.double(), [torch.cat(parts, 1).double() for parts in seen.values()]


def test_statistics_are_their_definitions():
    model, ids, chunk = tiny_llama(initializer_range=0.2), random_ids(100), 32
    codec = caches.parse_codec("q4_0", rota.CODECS)
    row = rota.eval.evaluate(model, ids, ["q4_0"], chunk=chunk)[1]
    exact, exact_attention = outputs_of(model, ids, None, chunk)
    found, found_attention = outputs_of(model, ids, codec, chunk)

    kld = torch.nn.functional.kl_div(found.log_softmax(-1), exact.log_softmax(-1), reduction="none", log_target=True)
    kld = kld.sum(-1)
    assert kld.mean() > 1e-4
    assert row["kld_mean"] == pytest.approx(kld.mean().item(), rel=1e-6)
    assert row["kld_p99"] == pytest.approx(torch.quantile(kld, 0.99).item(), rel=1e-6)
    assert row["kld_max"] == pytest.approx(kld.max().item(), rel=1e-6)
    assert row["top1"] == (found.argmax(-1) == exact.argmax(-1)).double().mean().item()
    surprise = torch.nn.functional.cross_entropy(found[:-1], ids[1:])
    assert row["perplexity"] == pytest.approx(math.exp(surprise), rel=1e-6)
    errors = [((a - b).norm() / b.norm()).item() for a, b in zip(found_attention, exact_attention)]
    assert row["attention_errors"] == pytest.approx(errors, rel=1e-4)
    assert row["attention_error_mean"] == pytest.approx(sum(errors) / 3, rel=1e-4)
    assert row["attention_error_worst"] == pytest.approx(max(errors), rel=1e-4)
    assert row["attention_error_worst_layer"] == errors.index(max(errors))


def test_a_reference_differs_from_itself_by_nothing():
    model, ids = tiny_llama(), random_ids(100)
    row = rota.eval.evaluate(model, ids, [], chunk=32)[0]
    assert row["kld_max"] < 1e-12 and row["top1"] == 1 and row["attention_error_worst"] == 0


def test_simulated_caches_keep_every_token_as_it_is_restored():
    model, ids = tiny_llama(), random_ids(64)
    plain = transformers.DynamicCache(config=model.config)
    cache = caches.SimulatedCache(model.config, caches.parse_codec("q8_0/q4_0+rot", rota.CODECS))
    with torch.inference_mode():
        for kept in (plain, cache):
            for part in ids.split(24):
                model(part[None], past_key_values=kept)
    # The first layer's input is the same, whatever the cache.
    torch.testing.assert_close(cache.layers[0].keys, ggml.restored(plain.layers[0].keys, "q8_0"), rtol=0, atol=0)
    wanted = ggml.restored(plain.layers[0].values, "q4_0", rotate=True)
    torch.testing.assert_close(cache.layers[0].values, wanted, rtol=0, atol=0)


def test_models_that_sdpa_does_not_serve_are_measured_by_eager():
    assert own_attention(tiny_llama()) == "sdpa"
    config = transformers.Gemma2Config(
        vocab_size=400, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, sliding_window=16, query_pre_attn_scalar=32)
    model = transformers.Gemma2ForCausalLM(config).eval()
    assert own_attention(model) == "eager"
    rows = rota.eval.evaluate(model, random_ids(60), ["q8_0"], chunk=20)
    assert 0 < rows[1]["attention_error_worst"] < 0.05
    # A window of 16 and one layer that sees all, 1 x (32 + 32) values in each.
    assert rows[1]["bytes"]["2048"] == (16 + 2048) * 64 * 8.5 / 8


def test_the_model_keeps_its_attention():
    model = tiny_llama()
    model.set_attn_implementation("eager")
    rota.eval.evaluate(model, random_ids(40), ["q8_0"], chunk=20)
    assert model.config._attn_implementation == "eager"


def test_memory_of_formats():
    shapes = [caches.Shape(layers=30, kv_heads=3, head_dim=64, value_dim=64, window=None)]
    values = 2048 * 30 * 3 * 128
    assert caches.cache_bytes(shapes, caches.parse_codec("q8_0", rota.CODECS), 2048) == values * 8.5 / 8
    mixed = caches.parse_codec("q8_0/q4_0", rota.CODECS)
    assert caches.stored_bits(shapes, mixed) == 6.5
    assert caches.stored_bits(shapes, caches.parse_codec("turbo4", rota.CODECS)) == 4.3125  # docs/page-format.md
    group = rota.KvGroup(30, 3, 64, k="turbo4", v="turbo4")
    wanted = rota.estimate([group], max_tokens=2048)["bytes"]
    assert caches.cache_bytes(shapes, caches.parse_codec("turbo4", rota.CODECS), 2048) == wanted


# --- a real model ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm2_rows(smollm2, text):
    model, tokenizer = smollm2
    ids = rota.eval.first_tokens(tokenizer, text, TOKENS, "docs/page-format.md")
    rows = rota.eval.evaluate(model, ids, ["turbo8", "turbo4", "turbo3", "q8_0", "q4_0"])
    return {row["codec"]: row for row in rows}


@pytest.mark.parametrize(("codec", "most"), [("turbo8", 2e-5), ("turbo4", 2e-3), ("turbo3", 1e-2)])
def test_divergence_of_a_real_model(smollm2_rows, codec, most):
    row = smollm2_rows[codec]
    assert 0 < row["kld_mean"] <= most
    assert row["sealed_share"] > 0.8


def test_codecs_beside_those_of_ggml(smollm2_rows):
    kld = {codec: row["kld_mean"] for codec, row in smollm2_rows.items()}
    assert kld["turbo8"] < kld["q8_0"] < kld["turbo4"] < kld["turbo3"] < kld["q4_0"]
    assert 1e-5 < kld["q8_0"] < 2e-3
    assert 1e-2 < kld["q4_0"] < 0.5
    for codec in ("turbo8", "q8_0"):
        assert smollm2_rows[codec]["perplexity"] == pytest.approx(smollm2_rows["reference"]["perplexity"], rel=0.005)


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def tiny_folder(smollm2, tmp_path_factory):
    """A model of no knowledge with a real tokenizer."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = smollm2[1]
    tiny_llama(vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def text_file(text, tmp_path):
    path = tmp_path / "text.md"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_command_prints_a_table_and_writes_json(tiny_folder, text_file, tmp_path, capsys):
    out = tmp_path / "eval.json"
    arguments = [str(tiny_folder), "--text", str(text_file), "--tokens", "300", "--json", str(out),
                 "--codecs", "f16,turbo8/turbo4,q4_0+rot"]
    assert rota.eval.main(arguments) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].endswith("LlamaForCausalLM, float32, 3 layers")
    names = [line.split()[0] for line in lines[3:8]]
    assert names == ["codec", "reference", "f16", "turbo8/turbo4", "q4_0+rot"]
    assert printed.err.splitlines()[-1].startswith("rota eval: 300 of 300 tokens, done, ")

    written = json.loads(out.read_text())
    assert (written["report"], written["format"], written["tokens"], written["chunk"]) == ("eval", 1, 300, 128)
    assert written["command"].startswith("rota eval " + str(tiny_folder))
    rows = {row["codec"]: row for row in written["rows"]}
    assert rows["turbo8/turbo4"]["kind"] == "rota" and rows["turbo8/turbo4"]["bits_stored"] == 6.3125
    assert rows["q4_0+rot"]["kind"] == "simulated" and rows["q4_0+rot"]["rotated"]
    assert len(rows["f16"]["attention_errors"]) == 3
    assert all(row["kld_mean"] < 1e-12 or codec != "reference" for codec, row in rows.items())


@pytest.mark.parametrize(("arguments", "code", "sentence"), [
    (["--text", "TEXT", "--tokens", "100000"], 2, "tokens; wanted 100000: a longer text, or --tokens "),
    (["--text", "/none/text"], 2, "/none/text: No such file or directory; wanted a text file"),
    (["--text", "TEXT", "--codecs", "turbo9"], 2, "--codecs: 'turbo9' is no codec; wanted one of f32, "),
    (["--text", "TEXT", "--codecs", "q8_0/turbo4"], 2, "'q8_0/turbo4' is half simulated"),
    (["--text", "TEXT", "--gguf", "none.gguf"], 2, "none.gguf: is not there; wanted a GGUF file"),
    (["--text", "TEXT", "--json", "/none/out.json"], 2, "/none/out.json: its folder is not there"),
])
def test_what_is_wrong_is_said_in_a_line(tiny_folder, text_file, capsys, arguments, code, sentence):
    arguments = [str(text_file) if argument == "TEXT" else argument for argument in arguments]
    assert rota.eval.main([str(tiny_folder), *arguments]) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if "loading" not in line]
    assert len(lines) == 2 and lines[0].startswith("rota eval: ") and sentence in lines[0], lines
    assert lines[1] == "try: rota eval --help"


def test_a_missing_model_is_named(text_file, capsys):
    assert rota.eval.main(["/none/model", "--text", str(text_file)]) == 2
    assert "/none/model: is no folder; wanted the name or the folder" in capsys.readouterr().err


def test_a_model_that_rota_refuses_is_refused_in_its_words(smollm2, text_file, tmp_path, capsys):
    config = transformers.GPT2Config(vocab_size=len(smollm2[1]), n_embd=64, n_layer=2, n_head=2)
    config.add_cross_attention = True
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(tmp_path / "model")
    smollm2[1].save_pretrained(tmp_path / "model")
    why = rota.transformers.refusal(model)
    assert why
    arguments = [str(tmp_path / "model"), "--text", str(text_file), "--tokens", "100", "--codecs", "turbo4"]
    assert rota.eval.main(arguments) == 4
    assert f"rota eval: turbo4: {why}\n" in capsys.readouterr().err


@pytest.mark.parametrize(("chunk", "tokens"), [(128, 1000), (100, 700), (300, 900)])
def test_keys_that_are_sealed_are_those_of_the_cache(chunk, tokens):
    model = tiny_llama()
    cache = caches.rota_cache(model, caches.parse_codec("turbo4", rota.CODECS))
    shapes = [caches.Shape(layers=3, kv_heads=2, head_dim=64, value_dim=64, window=None)]
    seals = []  # of keys and of values, when the first layer of a chunk has attended

    def see(module, query, key, value, output, options):
        if module.layer_idx == 0:
            seals.append(cache.kv.counters["seals"])

    parts = random_ids(tokens).split(chunk)
    with torch.inference_mode(), implementation_kept(model), watched("rota", see):
        set_implementation(model, "rota")
        for part in parts:
            model(part[None], past_key_values=cache)
    assert len(seals) == len(parts) and seals[-1] > 0
    # Each query of a chunk sees the pages that were sealed by then, but for the sinks.
    sealed = sum(len(part) * max(0, 128 * count // 2 - 4) for part, count in zip(parts, seals))
    assert caches.sealed_share(shapes, tokens, chunk) == pytest.approx(sealed / (tokens * (tokens + 1) / 2))


@pytest.mark.parametrize("arguments", [[], ["model"], ["model", "--text", "t", "--tokens", "0"], ["m", "--nonsense"]])
def test_wrong_usage_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        rota.eval.main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("\ntry: rota eval --help\n")

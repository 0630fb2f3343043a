"""generate() with a page store: prompts are loaded that this model has seen before, here or in another process."""

import copy
import gc
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import numpy
import pytest
import torch

import rota
import rota.transformers
from rota.transformers import RotaCache, weights_of
from tiny_models import FAMILIES, left_padded, random_ids, tiny

EXACT = dict(k="f32", v="f32", dense="f32", page=64, tail=64)
PROMPT, NEW = 300, 20


def prompt(columns=PROMPT, rows=1, seed=1):
    ids = random_ids(rows, columns, seed)
    return dict(input_ids=ids, attention_mask=torch.ones_like(ids))


class Watched:
    """What became of the caches that generate() made: (columns that were restored, columns that were computed)."""

    def __init__(self, model, monkeypatch):
        self.seen = []
        restore = RotaCache.restore

        def watched(cache, ids):
            restored = restore(cache, ids)
            self.seen.append(restored)
            return restored

        monkeypatch.setattr(RotaCache, "restore", watched)


def generate(model, inputs, **options):
    with torch.no_grad():
        output = model.generate(**inputs, do_sample=False, **(dict(max_new_tokens=NEW) | options))
    wait_until_stored()
    return output


def wait_until_stored():
    """What a cache leaves behind is stored by a thread."""
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "rota-store":
            thread.join()


@pytest.fixture
def url(tmp_path):
    return f"file:{tmp_path}/pages"


# A window of more than a page, so that its pages can be stored before they leave it.
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_loaded_gives_the_tokens_of_what_is_computed(family, url, monkeypatch):
    model = tiny(family, sliding_window=160)
    inputs = prompt()
    want = generate(model, inputs)
    rota.transformers.enable(model, store=url, **EXACT)
    watched = Watched(model, monkeypatch)
    assert torch.equal(generate(model, inputs), want)
    assert torch.equal(generate(model, inputs), want)
    assert watched.seen == [0, PROMPT // 64 * 64]


@pytest.mark.parametrize("way", [dict(num_beams=3), dict(prefill_chunk_size=50), dict(prompt_lookup_num_tokens=3)],
                         ids=str)  # fmt: skip
def test_ways_of_generating_share_a_prompt(way, url, monkeypatch):
    model, inputs = tiny("llama"), prompt()
    want = generate(model, inputs, **way)
    rota.transformers.enable(model, store=url, **EXACT)
    generate(model, inputs)
    watched = Watched(model, monkeypatch)
    assert torch.equal(generate(model, inputs, **way), want)
    # Assisted decoding gives its first forward all of the prompt.
    assert watched.seen == ([] if "prompt_lookup_num_tokens" in way else [256])


def test_rows_share_what_all_of_them_have(url, monkeypatch):
    model, both = tiny("llama"), prompt(rows=2)
    want = generate(model, both)
    rota.transformers.enable(model, store=url, **EXACT)
    watched = Watched(model, monkeypatch)
    generate(model, dict(input_ids=both["input_ids"][:1, :200]))
    assert torch.equal(generate(model, both), want)
    assert torch.equal(generate(model, both), want)
    assert watched.seen == [0, 0, 256]


def test_padding_is_not_stored_and_does_not_disturb(url, monkeypatch):
    model, inputs = tiny("llama"), left_padded(PROMPT, (0, 150, 33))
    want = generate(model, inputs)
    rota.transformers.enable(model, store=url, **EXACT)
    watched = Watched(model, monkeypatch)
    assert torch.equal(generate(model, inputs), want) and watched.seen == []
    # A row's tokens are the same without the padding in front of them.
    alone = dict(input_ids=inputs["input_ids"][1:2, 150:])
    assert torch.equal(generate(model, alone)[0], want[1, 150:]) and watched.seen == [128]


def test_sealed_pages_are_the_same_for_all_who_load_them(url):
    model, ids = tiny("llama"), random_ids(1, 400)
    options = dict(k="turbo4", v="turbo4", store=rota.PageStore(url), weights=weights_of(model))
    rota.transformers.enable(model)

    def logits(cache, begin):
        with torch.no_grad():
            return model(input_ids=ids[:, begin:], past_key_values=cache).logits[:, -1]

    first = RotaCache(model.config, **options)
    computed = logits(first, first.restore(ids))
    del first
    wait_until_stored()
    caches = [RotaCache(model.config, **options) for _ in range(2)]
    assert [cache.restore(ids) for cache in caches] == [256, 256]
    loaded = [logits(cache, 256) for cache in caches]
    assert torch.equal(*loaded)
    assert (loaded[0] - computed).norm() < 0.2 * computed.norm() and not torch.equal(loaded[0], computed)


def test_what_was_taken_back_is_not_stored_as_it_was(url):
    """Crops, copies and reordered rows take their tokens along."""
    model = tiny("llama")
    options = dict(EXACT, store=rota.PageStore(url), weights=weights_of(model))
    rota.transformers.enable(model, k="f32", v="f32")
    ids, other = random_ids(2, PROMPT), random_ids(2, PROMPT, seed=9)

    def forward(cache, tokens):
        with torch.no_grad():
            return model(input_ids=tokens, past_key_values=cache).logits[:, -1]

    cache = RotaCache(model.config, **options)
    forward(cache, ids[:, :100])
    cache.crop(-60)
    forward(cache, other[:, 40:])
    twin = copy.deepcopy(cache)
    cache.reorder_cache(torch.tensor([1, 0]))
    forward(cache, ids[:, :100])
    forward(twin, other[:, :100])
    del cache, twin
    wait_until_stored()
    start = torch.cat([ids[:, :40], other[:, 40:]], 1)
    for tokens in (torch.cat([start.flip(0), ids[:, :100]], 1), torch.cat([start, other[:, :100]], 1)):
        loaded, computed = RotaCache(model.config, **options), RotaCache(model.config, k="f32", v="f32", page=64)
        assert loaded.restore(tokens) == 384
        torch.testing.assert_close(forward(loaded, tokens[:, 384:]), forward(computed, tokens), atol=1e-4, rtol=0)
    # The first page of `ids` was computed, and taken back later; of `other` alone there is none.
    assert RotaCache(model.config, **options).restore(ids) == 64
    assert RotaCache(model.config, **options).restore(other) == 0


def test_positions_and_inputs_of_the_callers_own_are_not_stored(url):
    model, ids = tiny("llama"), random_ids(1, PROMPT)
    options = dict(EXACT, store=rota.PageStore(url), weights=weights_of(model))
    rota.transformers.enable(model)
    shifted = torch.arange(7, 7 + PROMPT)[None]
    embedded = model.get_input_embeddings()(ids)
    for given in (dict(input_ids=ids, position_ids=shifted), dict(inputs_embeds=embedded)):
        with torch.no_grad():
            model(**given, past_key_values=RotaCache(model.config, **options))
        wait_until_stored()
    assert options["store"].stat()["pages"] == 0
    with torch.no_grad():
        model(input_ids=ids, past_key_values=RotaCache(model.config, **options))
    wait_until_stored()
    assert options["store"].stat()["pages"] == 4


def test_positions_of_the_callers_own_load_nothing(url, monkeypatch):
    model, inputs = tiny("llama"), prompt()
    rota.transformers.enable(model, store=url, **EXACT)
    generate(model, inputs)
    watched = Watched(model, monkeypatch)
    jump = torch.cat([torch.arange(200), torch.arange(100, 100 + PROMPT - 200)])[None]
    for positions in (torch.arange(7, 7 + PROMPT)[None], jump):
        rota.transformers.disable(model)
        want = generate(model, inputs | dict(position_ids=positions))
        rota.transformers.enable(model, store=url, **EXACT)
        assert torch.equal(generate(model, inputs | dict(position_ids=positions)), want)
    assert watched.seen == []
    generate(model, inputs | dict(position_ids=torch.arange(PROMPT)[None]))
    assert watched.seen == [256]


@pytest.mark.parametrize("rope", [
    dict(rope_type="dynamic", factor=4.0, rope_theta=1e4),
    dict(rope_type="longrope", rope_theta=1e4, factor=4.0, original_max_position_embeddings=256,
         short_factor=[1.0] * 8, long_factor=[2.0] * 8)], ids=lambda rope: rope["rope_type"])  # fmt: skip
def test_keys_that_depend_on_the_whole_text_are_not_shared(rope, url):
    model = tiny("llama")
    model.config.rope_parameters = rope
    rota.transformers.enable(model)
    with pytest.raises(NotImplementedError, match=f"rope '{rope['rope_type']}'"):
        rota.transformers.enable(model, store=url)


def test_what_autocast_computes_is_of_its_own(url, monkeypatch):
    model, inputs = tiny("llama"), prompt()
    rota.transformers.enable(model, store=url, **EXACT)
    watched = Watched(model, monkeypatch)
    with torch.autocast("cpu", torch.bfloat16):
        generate(model, inputs)
    generate(model, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        generate(model, inputs)
    assert watched.seen == [0, 0, 256]
    # A cache that lived through both.
    other = prompt(seed=2)["input_ids"]
    cache = RotaCache(model.config, **EXACT, store=rota.PageStore(url), weights=weights_of(model))
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            model(input_ids=other[:, :20], past_key_values=cache)
        model(input_ids=other[:, 20:], past_key_values=cache)
    del cache
    wait_until_stored()
    generate(model, dict(input_ids=other))
    with torch.autocast("cpu", torch.bfloat16):
        generate(model, dict(input_ids=other))
    assert watched.seen[3:] == [0, 0]


def test_positions_that_the_model_makes_up_are_not_stored(url):
    model, ids = tiny("llama"), random_ids(1, PROMPT)
    model.model.rope_deltas = None  # as models have that see images
    rota.transformers.enable(model)
    store = rota.PageStore(url)
    for positions, pages in ((None, 0), (torch.arange(PROMPT)[None], 4)):
        cache = RotaCache(model.config, **EXACT, store=store, weights=weights_of(model))
        with torch.no_grad():
            model(input_ids=ids, position_ids=positions, past_key_values=cache)
        del cache
        wait_until_stored()
        assert store.stat()["pages"] == pages


def test_tokens_are_int32(url):
    cache = rota.KvCache([rota.KvGroup([0], 1, 64, page=64, tail=64)], max_tokens=1000)
    store = rota.PrefixStore(rota.PageStore(url), cache, weights="test")
    tokens = numpy.arange(500)
    assert store.match(tokens.astype(numpy.int32)) == 0
    for others in (tokens, tokens + 2**32, tokens + 0.75):
        with pytest.raises(TypeError):
            store.match(others)


def test_a_program_that_ends_waits_for_its_pages(url):
    """The cache is alive then, as a script's global is."""
    script = """
import sys, threading
import rota._prefixes
class Slow:
    counters = dict(queued_puts=1, failed_calls=0)
    def flush(self, seconds):
        threading.Event().wait(1)
        print("stored", flush=True)
rows = rota._prefixes.StoredRows(Slow(), [])
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert ended.stdout == "stored\n", ended.stderr


def test_other_weights_codecs_and_salts_share_nothing(url, monkeypatch):
    model, inputs = tiny("llama"), prompt()
    rota.transformers.enable(model, store=url, salt=b"tenant 1, 16 bytes", **EXACT)
    generate(model, inputs)
    watched = Watched(model, monkeypatch)
    rota.transformers.enable(model, store=url, salt=b"tenant 2, 16 bytes", **EXACT)
    generate(model, inputs)
    rota.transformers.enable(model, store=url, salt=b"tenant 1, 16 bytes", **(EXACT | dict(k="f16")))
    generate(model, inputs)
    rota.transformers.enable(model, store=url, salt=b"tenant 1, 16 bytes", **EXACT)
    weight = model.model.layers[2].mlp.up_proj.weight
    before = weight.detach().clone()
    with torch.no_grad():
        weight[-1, -1] += 0.25
    generate(model, inputs)
    with torch.no_grad():
        weight.copy_(before)
    generate(model, inputs)
    assert watched.seen == [0, 0, 0, 256]


def test_models_with_adapters_want_a_name(url):
    model = tiny("llama")
    model._hf_peft_config_loaded = True
    with pytest.raises(NotImplementedError, match="adapters.*weights="):
        rota.transformers.enable(model, store=url)
    rota.transformers.enable(model, store=url, weights="a model with an adapter")
    with pytest.raises(ValueError, match="weights="):
        RotaCache(model.config, store=url)
    with pytest.raises(rota.Error, match="wanted"):
        rota.transformers.enable(model, store="ftp://example")


def test_a_store_that_is_gone_is_a_warning(url, tmp_path):
    model, inputs = tiny("llama"), prompt()
    want = generate(model, inputs)
    rota.transformers.enable(model, store=url, **EXACT)
    generate(model, inputs)
    (tmp_path / "pages").rename(tmp_path / "elsewhere")
    (tmp_path / "pages").write_text("not a folder")
    with pytest.warns(UserWarning, match="the page store failed"):
        assert torch.equal(generate(model, inputs), want)


# Processes that have nothing in common but a store.

CHILD = """
import functools, json, sys, time
import torch, transformers
import rota, rota.transformers
folder, url, count, file = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
ids = torch.tensor(json.load(open(file)))[None, :count]
model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder)).eval()
model.load_state_dict(torch.load(folder + "/weights.pt", mmap=True))
rota.transformers.enable(model, k="turbo4", v="turbo4", store=url)
restored, times, restore = [], [], rota.transformers.RotaCache.restore
def watched(cache, tokens):
    restored.append(restore(cache, tokens))
    return restored[-1]
rota.transformers.RotaCache.restore = watched
columns, forward = [], model.forward
@functools.wraps(forward)
def counted(*args, **kwargs):
    columns.append(kwargs["input_ids"].shape[1])
    return forward(*args, **kwargs)
model.forward = counted
class Streamer:
    def put(self, tokens):
        times.append(time.perf_counter())
    def end(self):
        pass
begin = time.perf_counter()
with torch.no_grad():
    output = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False,
                            pad_token_id=0, streamer=Streamer(), output_logits=True, return_dict_in_generate=True)
logits = torch.cat(output.logits).double()
print(json.dumps(dict(restored=restored, columns=columns[0], first=times[1] - begin,
                      tokens=output.sequences[0, ids.shape[1]:].tolist(),
                      logits=[float(logits.sum()), float((logits**2).sum())])))
"""
# .ci/deep takes 32,768.
COUNT = int(os.environ.get("ROTA_TEST_SHARED_TOKENS", "2048"))


@pytest.fixture(scope="module")
def real(smollm2, text, tmp_path_factory):
    """SmolLM2 as files that load in a second, and a text's tokens."""
    model, tokenizer = smollm2
    folder = tmp_path_factory.mktemp("smollm2")
    config = copy.deepcopy(model.config)  # without the GGUF's, whose weights are f32 here
    del config.quantization_config
    config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "weights.pt")
    ids = tokenizer(text)["input_ids"]
    (folder / "ids.json").write_text(json.dumps((ids * (COUNT // len(ids) + 1))[:COUNT]))
    return folder


def run_child(real, url, host=()):
    done = subprocess.run([*host, sys.executable, "-c", CHILD, real, url, str(COUNT), real / "ids.json"],
                          capture_output=True, text=True, timeout=3000)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check_shared(computed, loaded):
    """Nothing of the prompt but what was dense as it was computed is computed again."""
    print(f"{COUNT} tokens: the first answer after {computed['first']:.2f} s, loaded after {loaded['first']:.2f} s")
    restored = (COUNT - 128) // 128 * 128
    assert (computed["restored"], computed["columns"]) == ([0], COUNT)
    assert (loaded["restored"], loaded["columns"]) == ([restored], COUNT - restored)


@pytest.fixture
def hosts(tmp_path):
    """Two hosts, each a network namespace, as prefixes of commands; and a server on the first, by its URL."""
    names = [f"rota-{os.getpid()}-{i}" for i in range(2)]
    on = [["ip", "netns", "exec", name] for name in names]

    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    server = None
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "rota0", "netns", names[0], "type", "veth", "peer", "name", "rota1", "netns", names[1])
        for i, name in enumerate(names):
            ip("-n", name, "address", "add", f"10.210.0.{i + 1}/24", "dev", f"rota{i}")
            ip("-n", name, "link", "set", f"rota{i}", "up")
            ip("-n", name, "link", "set", "lo", "up")
        program = pathlib.Path(__file__).resolve().parents[2] / "build/valkey/valkey-server"
        server = subprocess.Popen([*on[0], program, "--bind", "10.210.0.1", "--port", "6379", "--save", "", "--dir",
                                   tmp_path, "--protected-mode", "no", "--maxmemory", "1gb", "--maxmemory-policy",
                                   "allkeys-lru"], stdout=subprocess.DEVNULL)  # fmt: skip
        time.sleep(0.5)
        yield on, "valkey://10.210.0.1"
    finally:
        if server is not None:
            server.terminate()
            server.wait()
        for name in names:
            subprocess.run(["ip", "netns", "delete", name])


def test_processes_and_hosts_share_a_prompt(real, url, hosts):
    computed, loaded = (run_child(real, url) for _ in range(2))
    check_shared(computed, loaded)
    (here, there), server = hosts
    computed_here, loaded_there = run_child(real, server, here), run_child(real, server, there)
    check_shared(computed_here, loaded_there)
    # Whoever computes the prefix, and wherever it lies: who loads it goes on with the same bits.
    assert (loaded["tokens"], loaded["logits"]) == (loaded_there["tokens"], loaded_there["logits"])

"""The bindings, with NumPy alone: results against the definition, in f64."""

import doctest
import inspect
import sys
import threading

import numpy
import pytest

import rota


def random(*shape, seed=0, dtype=numpy.float32):
    return numpy.random.default_rng(seed).standard_normal(shape).astype(dtype)


def attention(q, k, v, scale, window=None, soft_cap=None, sink_logits=None):
    """Of the newest tokens, from the definition."""
    q, k, v = (x.astype(numpy.float64) for x in (q, k, v))
    group, out = q.shape[1] // k.shape[1], numpy.zeros((q.shape[0], q.shape[1], v.shape[2]))
    for row in range(q.shape[0]):
        position = k.shape[0] - q.shape[0] + row
        first = 0 if window is None else max(0, position + 1 - window)
        for head in range(q.shape[1]):
            logits = k[first : position + 1, head // group] @ q[row, head] * scale
            if soft_cap is not None:
                logits = numpy.tanh(logits / soft_cap) * soft_cap
            weights = numpy.exp(logits)
            total = weights.sum() + (0 if sink_logits is None else numpy.exp(float(sink_logits[head])))
            out[row, head] = weights @ v[first : position + 1, head // group] / total
    return out


def test_a_step_attends_as_defined():
    k, v, q = random(150, 2, 32), random(150, 2, 32, seed=1), random(150, 4, 32, seed=2)
    sinks = random(4, seed=3)
    group = rota.KvGroup(1, 2, 32, k="f32", v="f32", window=60)
    cache = rota.KvCache([group], max_step_tokens=128)
    sequence, begin = cache.open_sequence(), 0
    for tokens in (100, 1, 49):
        part = slice(begin, begin + tokens)
        step = cache.extend([(sequence, tokens)])
        assert step.positions == list(range(begin, begin + tokens))
        out = step.update(0, q[part], k[part], v[part], scale=0.2, soft_cap=3.0, sink_logits=sinks)
        begin += tokens
        want = attention(q[part], k[:begin], v[:begin], 0.2, 60, 3.0, sinks)
        assert abs(out - want).max() < 1e-5
    assert sequence.length == len(sequence) == 150


def test_sealed_pages_err_as_their_codec_does():
    x = random(256, 3, 64)
    # Of normally distributed numbers: docs/distortion.md.
    for codec, most in (("turbo8", 1e-4), ("turbo4", 0.011), ("turbo3", 0.04), ("turbo2", 0.13)):
        for side in ("keys", "values"):
            format = rota.PageFormat(codec, side, 64)
            pages = rota.seal(x, format)
            assert pages.shape == (2, 3, format.page_bytes) and pages.dtype == numpy.uint8
            error = ((rota.unseal(pages, format) - x) ** 2).mean() / (x**2).mean()
            assert 0 < error < most, codec


def test_strides_do_not_change_bytes():
    x = random(3, 256, 2, 64, dtype=numpy.float16)
    format = rota.PageFormat("turbo4", "keys", 64)
    want = rota.seal(x, format)
    head_major = numpy.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    wide = numpy.zeros((3, 256, 2, 130), numpy.float16)
    wide[..., 1:129:2] = x
    misaligned = numpy.frombuffer(b"\0" + x.tobytes(), numpy.uint8)[1:].view(numpy.float16).reshape(x.shape)
    for same in (head_major, wide[..., 1:129:2], misaligned):
        assert (rota.seal(same, format) == want).all()
    assert (rota.seal(x[::-1], format) == want[::-1]).all()
    assert (rota.seal(x[1], format) == want[1]).all()
    spread = numpy.zeros((3, 2, 256, 64), numpy.float32).transpose(0, 2, 1, 3)
    assert rota.unseal(want, format, out=spread) is spread
    assert (spread == rota.unseal(want, format)).all()


def test_outputs_are_written_where_they_are():
    q, k = random(1, 2, 16), random(9, 2, 16, seed=1)
    out = numpy.full((1, 2, 32), numpy.nan, numpy.float32)
    assert rota.attend(q, k, k, scale=0.25, out=out[..., ::2]) is not None
    assert abs(out[..., ::2] - attention(q, k, k, 0.25)).max() < 1e-6 and numpy.isnan(out[..., 1::2]).all()
    with pytest.raises(TypeError, match="writable"):
        out.flags.writeable = False
        rota.attend(q, k, k, scale=0.25, out=out[..., ::2])
    with pytest.raises(TypeError, match="writable"):
        rota.attend(q, k, k, scale=0.25, out=[[0.0]])


def test_outputs_that_overlap_are_refused():
    tricks = numpy.lib.stride_tricks
    q, k = random(4, 1, 64), random(9, 1, 64, seed=1)
    for out in (tricks.as_strided(numpy.zeros(67, numpy.float32), (4, 1, 64), (4, 0, 4))[::-1],
                numpy.broadcast_to(numpy.zeros((1, 1, 64), numpy.float32), (4, 1, 64))):  # fmt: skip
        with pytest.raises((rota.Error, TypeError)):
            rota.attend(q, k, k, scale=0.1, out=out)
    format = rota.PageFormat("turbo4", "values", 64)
    out = tricks.as_strided(numpy.zeros((128, 2, 64), numpy.float32), (2, 128, 2, 64), (0, 512, 256, 4))
    with pytest.raises(rota.Error, match="overlap"):
        rota.unseal(rota.seal(random(2, 128, 2, 64), format), format, out=out)


def test_an_output_is_counted_once_more_only_with_pythons_lock():
    """Another thread that binds and drops the same array finds its reference count whole."""
    out, x, done = numpy.zeros((1, 1, 16), numpy.float32), random(1, 1, 16), threading.Event()

    def bind():
        while not done.is_set():
            for name in (out, out, out, out):
                del name

    thread = threading.Thread(target=bind)
    before = sys.getrefcount(out)
    thread.start()
    for _ in range(400):
        rota.rope(x, [1], theta=1e4, out=out)
    done.set()
    thread.join()
    assert sys.getrefcount(out) <= before + 1


def test_sequences_fork_truncate_leave_and_return(tmp_path):
    x = random(300, 2, 64)
    group = rota.KvGroup(2, 2, 64, k="turbo4", v="turbo4")
    cache = rota.KvCache([group], max_step_tokens=512, max_sequences=6)
    one = cache.open_sequence()

    def append(sequence, part):
        step = cache.extend([(sequence, len(part))])
        return [step.update(layer, part, part, part, scale=0.125) for layer in range(2)]

    append(one, x)
    other = one.fork()
    saved = one.save()
    one.save(tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == saved
    loaded, mapped = cache.load(saved), cache.load(tmp_path / "one")
    assert cache.load(saved, tokens=128).length == 128
    token = random(1, 2, 64, seed=5)
    want = append(one, token)
    for sequence in (other, loaded, mapped):
        assert all((a == b).all() for a, b in zip(append(sequence, token), want))
    other.truncate(300)
    assert other.length == 300
    before = cache.counters["sequences"]
    other.close()
    del loaded  # a sequence that nobody has is closed
    assert cache.counters["sequences"] == before - 2
    with pytest.raises(rota.Error, match="closed"):
        other.fork()
    with pytest.raises(rota.Error) as refused:
        cache.load(saved[:-1])
    assert refused.value.code == "io"


def test_limits_are_errors_with_a_code():
    group = rota.KvGroup(1, 2, 64)
    cache = rota.KvCache([group], max_tokens=256, max_step_tokens=256)
    sequence = cache.open_sequence()
    with pytest.raises(rota.Error) as refused:
        cache.open_sequence()
    assert refused.value.code == "out_of_pages"
    with pytest.raises(rota.Error) as refused:
        cache.extend([(sequence, 257)])
    assert refused.value.code in ("invalid_argument", "out_of_pages")


@pytest.mark.parametrize(
    "call",
    [
        lambda: rota.KvGroup(1, 2, 64, k="q4_0"),
        lambda: rota.KvGroup(1, 2, 64, k=4),
        lambda: rota.KvGroup(1, 2, 64, dense="turbo4"),
        lambda: rota.KvGroup(1, -2, 64),
        lambda: rota.KvCache([]),
        lambda: rota.KvGroup(-1, 2, 64),
        lambda: rota.KvGroup(1, 2, 64, shared={"a": 0}),
        lambda: rota.KvCache([rota.KvGroup(1, 2, 64)]).extend([(None, 4)]),
        lambda: rota.KvCache([rota.KvGroup(1, 2, 64)]).open_sequence().save("/no/such/folder/file"),
        lambda: rota.KvCache([rota.KvGroup(1, 2, 64)], layer_order="backwards"),
        lambda: rota.PageFormat("f16", "keys", 64),
        lambda: rota.PageFormat("turbo4", "keys", 17),
        lambda: rota.PageFormat.read(b"no description of 32 bytes......"),
        lambda: rota.seal(random(100, 2, 64), rota.PageFormat("turbo4", "keys", 64)),
        lambda: rota.seal(random(128, 2, 32), rota.PageFormat("turbo4", "keys", 64)),
        lambda: rota.seal(random(128, 64), rota.PageFormat("turbo4", "keys", 64)),
        lambda: rota.seal(random(128, 2, 64, dtype=numpy.float64), rota.PageFormat("turbo4", "keys", 64)),
        lambda: rota.seal(numpy.full((128, 2, 64), numpy.nan, numpy.float32), rota.PageFormat("turbo4", "keys", 64)),
        lambda: rota.unseal(numpy.zeros((1, 2, 100), numpy.uint8), rota.PageFormat("turbo4", "keys", 64)),
        lambda: rota.attend(random(1, 3, 16), random(9, 2, 16), random(9, 2, 16), scale=1.0),
        lambda: rota.attend(random(1, 2, 16), random(9, 2, 16), random(8, 2, 16), scale=1.0),
        lambda: rota.rope(random(2, 1, 16), [0], theta=1e4),
        lambda: rota.Device("gpu"),
    ],
)
def test_bad_arguments_are_refused_in_a_sentence(call):
    with pytest.raises((rota.Error, TypeError)) as refused:
        call()
    assert len(str(refused.value)) > 10


def test_other_threads_run_while_the_library_computes():
    """Python's lock is released: a thread that counts goes on."""
    group = rota.KvGroup(1, 8, 128, k="f32", v="f32")
    cache = rota.KvCache([group], max_step_tokens=8192)
    x = random(6000, 8, 128)
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    step = cache.extend([(cache.open_sequence(), 6000)])
    thread.start()
    before = counted[0]
    step.update(0, x, x, x, scale=0.1)
    during = counted[0] - before
    done.set()
    thread.join()
    assert during > 10_000


def test_examples_of_docstrings_are_true():
    parser, runner, found = doctest.DocTestParser(), doctest.DocTestRunner(), 0
    for name, thing in inspect.getmembers(rota):
        test = parser.get_doctest(inspect.getdoc(thing) or "", {}, name, None, 0)
        found += len(test.examples)
        runner.run(test)
    assert runner.failures == 0 and found > 20

#!/usr/bin/env python3
"""llama.cpp's tools with --rota, met as their user meets them.

    test_tools.py BIN_FOLDER SMOLLM2.gguf GEMMA.gguf [--tiny FOLDER] [--valkey SERVER]
                  [what unittest takes, such as -v or -k server]

SMOLLM2.gguf is SmolLM2-135M-Instruct; GEMMA.gguf is Gemma 3 270M, whose windows have 512 tokens. FOLDER has what
`test-llama-archs -o FOLDER -a REGEX` writes. ROTA_TEST_LONG=1 benchmarks at a depth of 8192 as well.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"
TEXT = DOCS / "page-format.md"
WINDOW = 512  # of Gemma
SECONDS = 300  # that one process may take
LONG = os.environ.get("ROTA_TEST_LONG") == "1"

# Pages are sealed, with an error that is small beside that of a wrong page.
SEALED = ("--rota", "turbo8")

# For a store: time enough for a machine that is slow.
PATIENT = "deadline=60000,flush=60000"

bin_folder: pathlib.Path
tiny_folder: pathlib.Path | None
valkey: pathlib.Path | None  # valkey-server
folder: pathlib.Path  # for files of the tests
smollm2: pathlib.Path
gemma: pathlib.Path


def setUpModule():
    # Quantized weights round each activation to 8 bits, which makes a step of every rounding: texts then differ between
    # any two kernels. With 16 bits, differences stay as small as they are.
    for name in ("smollm2", "gemma"):
        model = folder / f"{name}.gguf"
        run("llama-quantize", "--allow-requantize", globals()[name], model, "F16", "1")
        globals()[name] = model


def text_of(log):
    return log.decode("utf-8", "replace")


def run(tool, *args, fails=False, says=""):
    """Runs a tool to its end, and gives its (stdout, log), where `says` is found. No end is a signal."""
    command = [bin_folder / tool, *map(str, args)]
    for _ in range(4):  # llama-perplexity may end before its thread for logs has written the last lines
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
            out, log, code = text_of(done.stdout), text_of(done.stderr), done.returncode
        except subprocess.TimeoutExpired as late:
            out, log, code = text_of(late.stdout or b""), text_of(late.stderr or b""), f"none after {SECONDS} s"
        if code != (1 if fails else 0):
            break
        if re.search(says, out + log):
            return out, log
    shown = f"{out[-2000:]}\n{log[-6000:]}"
    raise AssertionError(f"{' '.join(map(str, command))}\nexit code {code}, expected: {says}\n{shown}")


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Server:
    """A llama-server for a `with` block. SIGTERM ends it with exit code 0; its log is shown if the block fails, and is
    in `logged` behind it."""

    def __init__(self, model, *args):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = tempfile.TemporaryFile()
        command = [bin_folder / "llama-server", "-m", model, "-t", 1, "--host", "127.0.0.1", "--port", port,
                   "--slot-save-path", folder, "--no-webui", "--no-warmup", "-lv", 4, *args]
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log)

    def __enter__(self):
        end = time.monotonic() + SECONDS
        try:
            while not self.is_ready():
                if self.process.poll() is not None or time.monotonic() > end:
                    raise AssertionError("llama-server does not begin to serve")
                time.sleep(0.05)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def is_ready(self):
        try:
            return self.get("/health")["status"] == "ok"
        except (OSError, KeyError):
            return False

    def __exit__(self, kind, error, trace):
        died = self.process.poll()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.log.seek(0)
        log = self.logged = text_of(self.log.read())
        self.log.close()
        if kind is not None or died is not None or code != 0:
            print(f"\n{' '.join(map(str, self.process.args))}\nexit code {code}\n{log[-8000:]}", file=sys.stderr)
        if kind is None and (died is not None or code != 0):
            raise AssertionError(f"llama-server ended with exit code {code}")

    def get(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data), timeout=SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def tokens(self, text):
        return self.get("/tokenize", {"content": text, "add_special": True})["tokens"]

    def complete(self, prompt, **more):
        """The answer to a prompt, which is a text or tokens, at temperature 0."""
        return self.get("/completion", {"prompt": prompt, "n_predict": 16, "temperature": 0, "n_probs": 1, **more})

    def slot(self, number, action, filename=None):
        return self.get(f"/slots/{number}?action={action}", {"filename": filename})


def passages():
    """Paragraphs of prose. Where one begins again, a model repeats it word for word: its text then depends on what the
    cache has, near and far, and not on rounding."""
    text = "\n\n".join(path.read_text() for path in sorted((DOCS / "adr").glob("0*.md")))
    paragraphs = [paragraph.split() for paragraph in text.split("\n\n")]
    return [words for words in paragraphs if words and words[0][0].isupper() and len(words) > 25]


def prose(words):
    """At least so many words."""
    result = []
    for passage in passages():
        if len(" ".join(result).split()) < words:
            result.append(" ".join(passage))
    return "\n\n".join(result)


def again(number):
    """The beginning of a passage."""
    return "\n\n" + " ".join(passages()[number][:14])


class Cli(unittest.TestCase):
    def chat(self, model, *args):
        """What llama-cli answers, and its log. Below 4, llama.cpp does not say what its own cache is either."""
        prompt = "Count from one to thirty in words: one, two, three, four, five, six, seven, eight, nine,"
        out, log = run("llama-cli", "-m", model, "-t", 1, "-c", 512, "-n", 40, "-p", prompt, "--single-turn", "--temp",
                       0, "--simple-io", "--no-warmup", "--no-show-timings", "-lv", 4, *args)
        answer = out.partition(prompt)[2].rpartition("Exiting...")[0].strip()
        self.assertGreater(len(answer), 40, out + log[-4000:])
        return answer, log

    def test_a_chat_is_served_and_its_log_names_the_cache(self):
        for model in (smollm2, gemma):
            with self.subTest(model=model.stem):
                _, log = self.chat(model, "--rota", "turbo4")
                self.assertRegex(log, r"llama_kv_rota: size = .* K \(turbo4\), V \(turbo4\)")
                self.assertNotIn("llama_kv_cache:", log)

    def test_f16_gives_the_text_of_the_caches_of_llama_cpp(self):
        for model in (smollm2, gemma):
            with self.subTest(model=model.stem):
                expected, log = self.chat(model, "-ctk", "f16", "-ctv", "f16")
                self.assertIn("llama_kv_cache: size", log)
                self.assertEqual(self.chat(model, "--rota", "f16")[0], expected)


class Slots(unittest.TestCase):
    """Slots of llama-server. For Gemma, the prompts are longer than a window."""

    def check_repeats(self, answer, number):
        rest = " ".join(passages()[number][14:])
        self.assertTrue(len(answer["content"]) > 20 and rest.startswith(answer["content"].strip()), answer["content"])

    def check_same(self, answer, expected):
        """Both have the same text, and were as sure of it: keys that are one position off are seen here alone."""
        self.assertEqual(answer["content"], expected["content"])
        for one, other in zip(answer["completion_probabilities"], expected["completion_probabilities"], strict=True):
            self.assertAlmostEqual(math.exp(one["logprob"]), math.exp(other["logprob"]), delta=0.08)

    def check_reused(self, answer, expected, tokens_at_least):
        self.check_same(answer, expected)
        self.assertGreaterEqual(answer["timings"]["cache_n"], tokens_at_least, answer["timings"])

    def test_slots_share_save_restore_copy_and_come_back_from_the_prompt_cache(self):
        for model, words in ((smollm2, 150), (gemma, 600)):
            with self.subTest(model=model.stem):
                self.check_slots(model, words)

    def check_slots(self, model, words):
        prompts = [prose(words) + again(number) for number in (0, 1)]
        with Server(model, *SEALED, "-c", 2048, "-np", 1) as server:
            count = len(server.tokens(prompts[0]))
            self.assertGreater(count, 256 if model is smollm2 else WINDOW + 256)
            # The one slot takes up another text: the first goes into the prompt cache, and comes back.
            expected = [server.complete(prompts[0])]
            server.complete("Day 1: soup. " * 20, n_predict=1)
            self.check_reused(server.complete(prompts[0]), expected[0], count - 8)
            expected.append(server.complete(prompts[1], cache_prompt=False))
            for number in (0, 1):
                self.check_repeats(expected[number], number)

        with Server(model, *SEALED, "-c", 4096, "-np", 2) as server:
            def both():
                with concurrent.futures.ThreadPoolExecutor() as pool:
                    return list(pool.map(lambda n: server.complete(prompts[n], id_slot=n), (0, 1)))
            for answer, one in zip(both(), expected):
                self.check_same(answer, one)
            for answer, one in zip(both(), expected):
                self.check_reused(answer, one, count - 8)

            saved = server.slot(0, "save", model.stem)
            self.assertGreaterEqual(saved["n_saved"], count, saved)
            server.slot(0, "erase")
            restored = server.slot(0, "restore", model.stem)
            self.assertEqual(restored["n_restored"], saved["n_saved"], restored)
            self.check_reused(server.complete(prompts[0], id_slot=0), expected[0], count - 8)

            for copy in server.complete(prompts[1], n_cmpl=2):
                self.check_same(copy, expected[1])

        with Server(model, *SEALED, "-c", 2048, "-np", 1) as server:
            server.slot(0, "restore", model.stem)
            self.check_reused(server.complete(prompts[0]), expected[0], count - 8)

    def test_a_prompt_that_leaves_another_before_its_window_is_served(self):
        with Server(gemma, *SEALED, "-c", 2048, "-np", 1) as server:
            tokens = server.tokens(prose(1000))[:1300]
            self.assertEqual(len(tokens), 1300)
            # Of 1300 tokens, the pages before 640 are gone; after the first 1000 alone, tokens from 489 on are seen.
            prompts = [tokens[:shared] + server.tokens(again(2))[1:] for shared in (1200, 1000)]
            answers = []
            for prompt in prompts:
                server.complete(tokens, n_predict=1)
                answers.append(server.complete(prompt))
        self.assertEqual(answers[0]["timings"]["cache_n"], 1200)
        self.assertLess(answers[1]["timings"]["cache_n"], 1000)
        with Server(gemma, *SEALED, "-c", 2048, "-np", 1) as server:
            for prompt, answer in zip(prompts, answers):
                self.check_same(answer, server.complete(prompt, cache_prompt=False))
                self.check_repeats(answer, 2)


class Stores(unittest.TestCase):
    """What one process has computed the next one loads."""

    def check_shared(self, model, words, url):
        """Two llama-servers, one after the other. The second computes the tail and less than a page."""
        args = (model, "--rota", f"turbo8,{PATIENT},store={url}", "-c", 2048, "-np", 1)
        prompt = prose(words) + again(0)
        with Server(*args) as server:
            count = len(server.tokens(prompt))
            expected = server.complete(prompt)
        self.assertEqual((expected["timings"]["cache_n"], expected["timings"]["prompt_n"]), (0, count))
        self.assertRegex(server.logged, r"store: pages matched 0, .* stored [1-9].* dropped 0; calls failed 0")
        logs = server.logged
        with Server(*args) as server:
            answer = server.complete(prompt)
            # Sealed are whole pages of 64 tokens older than the newest 128; the last that was said is not computed.
            stored = (count + 15 - 128) // 64 * 64
            self.assertEqual((answer["timings"]["cache_n"], answer["timings"]["prompt_n"]), (stored, count - stored))
            self.assertEqual(answer["content"], expected["content"])
            again_here = server.complete(prompt)
            self.assertGreaterEqual(again_here["timings"]["cache_n"], count - 8, "the slot has more than the store")
            self.assertEqual(again_here["content"], expected["content"])
        print(f"{url.partition(':')[0]}, {model.stem}: {count} tokens in {expected['timings']['prompt_ms']:.0f} ms,"
              f" then {count - stored} of them in {answer['timings']['prompt_ms']:.0f} ms", file=sys.stderr)
        return logs + server.logged

    def test_servers_share_a_folder(self):
        for model, words in ((smollm2, 300), (gemma, 600)):
            with self.subTest(model=model.stem):
                self.check_shared(model, words, f"file:{folder}/store")

    def test_servers_share_a_valkey_and_no_log_has_its_password(self):
        if valkey is None:
            self.skipTest("no --valkey SERVER")
        port = free_port()
        command = [valkey, "--bind", "127.0.0.1", "--port", str(port), "--requirepass", "se,cret", "--save", "",
                   "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            for _ in range(200):
                with socket.socket() as one:
                    if one.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            logs = self.check_shared(smollm2, 150, f"valkey://:se%2Ccret@127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait()
        self.assertNotRegex(logs, "se(,|%2C)cret")

    def test_chats_share_what_llama_cli_computes(self):
        def chat():
            _, log = run("llama-cli", "-m", smollm2, "-t", 1, "-c", 512, "-n", 4, "-p", prose(120), "--single-turn",
                         "--simple-io", "--no-warmup", "-lv", 4, "--rota",
                         f"turbo8,tail=0,{PATIENT},store=file:{folder}/chats")
            return re.search(r"store: pages matched (\d+), missed \d+, loaded (\d+) .* stored (\d+) ", log).groups()
        _, _, stored = chat()
        self.assertGreater(int(stored), 1)
        self.assertEqual(chat(), (stored, stored, "0"))


class FullContext(unittest.TestCase):
    def check_serves(self, server):
        answer = server.complete("Box 1: red plum\nBox 2: red plum\nBox 3:")
        self.assertTrue(answer["content"].startswith(" red plum"), answer)

    def test_a_sequence_that_fills_the_context_ends_and_the_next_request_is_served(self):
        with Server(smollm2, "--rota", "turbo4", "-c", 512, "-np", 1) as server:
            tokens = server.tokens(prose(600))
            answer = server.complete(tokens[:490], n_predict=100, ignore_eos=True)
            self.assertEqual((answer["truncated"], answer["stop_type"]), (True, "limit"), answer)
            self.assertLessEqual(490 + answer["tokens_predicted"], 513)
            refused = server.complete(tokens[:600])
            self.assertEqual(refused["error"]["type"], "exceed_context_size_error", refused)
            self.check_serves(server)

    def test_two_sequences_that_fill_a_unified_context_end_and_the_next_request_is_served(self):
        with Server(smollm2, "--rota", "turbo4", "-c", 512, "-np", 2, "--kv-unified") as server:
            tokens = server.tokens(prose(600))
            prompts = [tokens[:245], tokens[:1] + tokens[200:444]]
            with concurrent.futures.ThreadPoolExecutor() as pool:
                ask = lambda n: server.complete(prompts[n], id_slot=n, n_predict=60, ignore_eos=True)
                answers = list(pool.map(ask, range(2)))
            self.assertTrue(any("Context size" in str(answer.get("error")) for answer in answers), answers)
            self.check_serves(server)


class Bench(unittest.TestCase):
    def test_tokens_are_generated_at_every_depth(self):
        for model, depths in ((smollm2, [0, 2048] + LONG * [8192]), (gemma, [0, 2048])):
            with self.subTest(model=model.stem):
                out, _ = run("llama-bench", "-m", model, "-t", 1, "--rota", "turbo4", "-p", 0, "-n", 8, "-r", 1, "-d",
                             ",".join(map(str, depths)), "-o", "json")
                rows = json.loads(out)
                self.assertEqual([row["n_depth"] for row in rows], depths)
                for row in rows:
                    self.assertGreater(row["avg_ts"], 0)
                    self.assertEqual((row["type_k"], row["type_v"]), ("turbo4", "turbo4"))


class Perplexity(unittest.TestCase):
    def measure(self, model, context, *args):
        # Steps of 128 tokens: within a step, tokens see one another before they are sealed.
        final = r"Final estimate: PPL = ([0-9.]+) "
        _, log = run("llama-perplexity", "-m", model, "-t", 1, "-f", TEXT, "-c", context, "-ub", 128, "--chunks", 1,
                     *args, says=final)
        return float(re.search(final, log)[1])

    def test_f16_is_that_of_llama_cpp_and_turbo4_is_near_it(self):
        for model, context in ((smollm2, 512), (gemma, 768)):
            with self.subTest(model=model.stem):
                expected = self.measure(model, context, "-ctk", "f16", "-ctv", "f16")
                self.assertAlmostEqual(self.measure(model, context, "--rota", "f16") / expected, 1, delta=1e-3)
                sealed = self.measure(model, context, "--rota", "turbo4")
                self.assertAlmostEqual(sealed / expected, 1, delta=0.02)
                self.assertNotEqual(sealed, expected)

    def test_tokens_of_several_sequences_count_for_each(self):
        # Winogrande evaluates what comes before the gap once, as tokens of two sequences.
        tasks = folder / "winogrande.csv"
        tasks.write_text("0,The piano does not fit into the wagon because the _ is too large for it.,piano,wagon,1\n"
                         "1,Anna thanked Maria for all the help because _ had given it for free.,Anna,Maria,2\n"
                         "2,The ball broke the table because the _ was made of very thin wood.,ball,table,2\n\n")
        for model in (smollm2, gemma):
            with self.subTest(model=model.stem):
                def scores(*args):
                    out, _ = run("llama-perplexity", "-m", model, "-t", 1, "-c", 128, "--winogrande", "-f", tasks,
                                 *args, says=r"\n3\t.*\n")
                    return [list(map(float, row.split()[2:4])) for row in re.findall(r"^\d+\t.*", out, re.M)]
                expected = scores("-ctk", "f16", "-ctv", "f16")
                for ours, its in zip(scores("--rota", "f16"), expected, strict=True):
                    for one, other in zip(ours, its):
                        self.assertAlmostEqual(one, other, delta=0.01)


class Refusals(unittest.TestCase):
    """A sentence and exit code 1, before the weights are loaded."""

    def check_refused(self, sentence, tool, model, *args):
        with self.subTest(" ".join(map(str, (tool, model.stem, *args)))):
            more = [] if tool == "llama-bench" else ["-lv", 4]
            _, log = run(tool, "-m", model, *args, *more, fails=True, says=re.escape(sentence))
            self.assertNotIn("load_tensors:", log)

    def test_of_specs(self):
        for tool, *args in (("llama-cli", "-p", "x", "-st"), ("llama-server", "--port", 0), ("llama-bench",),
                            ("llama-perplexity", "-f", TEXT)):
            self.check_refused("'turbo9' is no codec; there are f32, f16,", tool, smollm2, *args, "--rota", "turbo9")
        for spec, sentence in (("k=", "'' is no codec"), ("tail=x", "tail='x' is not a number of tokens"),
                               ("heads=2", "'heads' is unknown; there are k, v,"),
                               ("page=100", "page is 100; wanted 64 or 128"),
                               ("turbo4,store=valkey://:secret@127.0.0.1:1", "127.0.0.1:1")):
            self.check_refused(sentence, "llama-server", smollm2, "--port", 0, "--rota", spec)

    def test_of_shifts(self):
        for args in (["--context-shift"], ["--cache-reuse", 64]):
            self.check_refused("keys cannot be shifted", "llama-server", smollm2, "--port", 0, *SEALED, *args)

    def test_of_architectures(self):
        if tiny_folder is None:
            self.skipTest("no --tiny FOLDER")
        for architecture, sentence in (
                ("mamba-dense", "a model of mamba has a recurrent state"),
                ("jamba-dense", "a model of jamba mixes attention with a recurrent state"),
                ("deepseek2-moe", "a model of deepseek2 has multi-head latent attention (MLA)"),
                ("llama4-moe", "windows that do not end at their token"),
                ("grok-moe", "a model of grok caps its logits in a way of its own")):
            model = tiny_folder / f"{architecture}.gguf"
            self.check_refused(sentence, "llama-server", model, "--port", 0, "--rota", "turbo4")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("smollm2", type=pathlib.Path)
    parser.add_argument("gemma", type=pathlib.Path)
    parser.add_argument("--tiny", type=pathlib.Path)
    parser.add_argument("--valkey", type=pathlib.Path)
    given, rest = parser.parse_known_args()
    bin_folder, tiny_folder, smollm2, gemma = given.bin.resolve(), given.tiny, given.smollm2, given.gemma
    valkey = given.valkey
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        unittest.main(argv=[sys.argv[0], *rest])

#!/usr/bin/env python3
"""The numbers of docs/scale.md: what a store of pages holds, loads and loses, by arithmetic and by simulation.

    python3 bench/prefix_sim.py                       simulates hit rates; --svg FILE also draws them
    python3 bench/prefix_sim.py --bytes               of tokens and pages; --rota TOOL asks `rota estimate`, too
    python3 bench/prefix_sim.py --load                seconds of loading, beside seconds of prefill
    python3 bench/prefix_sim.py --fleet               shards, memory and network of 10,000 contexts
    python3 bench/prefix_sim.py --hot                 how often a page can be read
    python3 bench/prefix_sim.py --down                what is left of matches while a shard is down

Standard library alone. The same seed gives the same numbers everywhere. GB and Gb are powers of ten."""

import argparse
import bisect
import collections
import itertools
import json
import math
import pathlib
import random
import subprocess
import sys

PAGE = 128  # tokens
CONTEXT = 32768
MODELS = ["llama-3.1-8b", "llama-3.1-70b", "deepseek-v3", "smollm2-135m"]
WINDOWED = "gemma-3-27b"  # most of its layers see the newest 1,024 tokens alone
CODECS = ["f16", "turbo8", "turbo4", "turbo3"]

# ---- Bytes: docs/page-format.md, data/models.json


def read_models():
    path = pathlib.Path(__file__).resolve().parent.parent / "data" / "models.json"
    return {model["name"]: model for model in json.loads(path.read_text(encoding="utf-8"))["models"]}


SHAPES = read_models()


def side_bytes(dims, codec, has_mean):
    """Of 128 tokens of one head: keys, which have a mean, or values."""
    if codec == "f16":
        return PAGE * dims * 2
    bits = int(codec.removeprefix("turbo"))
    mean = -(-2 * dims // 64) * 64 if has_mean else 0
    return mean + 2 * PAGE + PAGE * dims * bits // 8


def group_bytes(group, codec):
    """Of a page in all layers of a group. Values that are in the keys take nothing, unless pages are sealed."""
    layers = group["count"] if "count" in group else len(group["layers"])
    values = 0 if group.get("v_in_k") and codec == "f16" else side_bytes(group["value_dim"], codec, False)
    return layers * group["kv_heads"] * (side_bytes(group["head_dim"], codec, True) + values)


def page_bytes(name, codec):
    return sum(group_bytes(group, codec) for group in SHAPES[name]["groups"])


def load_bytes(name, codec, tokens):
    """Of a prefix, as it is loaded: in groups with a window, the pages alone that the next token sees."""
    pages = tokens // PAGE
    return sum(group_bytes(group, codec) * min(pages, -(-(group.get("window", tokens + 1) - 1) // PAGE))
               for group in SHAPES[name]["groups"])


def check_bytes(tool, name, codec):
    command = [tool, "estimate", "-m", name, "-c", str(CONTEXT), "-ctk", codec, "-ctv", codec, "--memory", "1TiB"]
    said = subprocess.run([*command, "-o", "jsonl"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    total = json.loads(said.stdout.splitlines()[-1])
    found, wanted = total["made_of"]["pages_bytes"], CONTEXT // PAGE * page_bytes(name, codec)
    if found != wanted:
        sys.exit(f"{name}, {codec}: rota estimate says {found} bytes of pages; wanted {wanted}")


def print_bytes(tool):
    rows = []
    for name, codec in itertools.product(MODELS, CODECS):
        if tool:
            check_bytes(tool, name, codec)
        page = page_bytes(name, codec)
        rows.append([name, codec, f"{page / PAGE:g}", f"{page:d}", f"{page / page_bytes(name, 'f16'):.3f}",
                     f"{CONTEXT // PAGE * page / 1e9:.3f}"])
    print_table(["model", "codec", "bytes/token", "bytes/page", "of f16", "GB of 32k"], rows, left=2)
    if tool:
        print("\nrota estimate says the same of all of them.")
    page, loaded = page_bytes(WINDOWED, "turbo4"), load_bytes(WINDOWED, "turbo4", CONTEXT)
    print(f"\n{WINDOWED}, turbo4: {page} bytes/page; of 32k {CONTEXT // PAGE * page / 1e9:.3f} GB are stored, and "
          f"{loaded / 1e9:.3f} GB are loaded")


# ---- Prefill and loading. What follows is assumed, not measured.

PEAK = 989e12  # FLOP/s of an H100 SXM or H200, bf16 without sparsity (NVIDIA's data sheets)
REACHED = 0.4
NETWORKS = [1, 10, 100, 400]  # Gb/s, all of it for one request
LAPTOP_FLOPS, LAPTOP_READS, LAPTOP_BUDGET = 5e12, 3e9, 100e9  # reached, not a peak; bytes per second of its SSD; of files
# Active parameters, query heads, and numbers in a key and a value as prefill computes them; GPUs that share a prompt.
Prefill = collections.namedtuple("Prefill", "parameters heads dims gpus")
PREFILL = {
    "llama-3.1-8b": Prefill(8.03e9, 32, 256, 1),
    "llama-3.1-70b": Prefill(70.55e9, 64, 256, 4),
    "deepseek-v3": Prefill(37e9, 128, 192 + 128, 8),
}


def layers_of(name):
    return sum(group["count"] for group in SHAPES[name]["groups"])


def prefill_flops(name, begin, end):
    """Of the tokens from `begin` up to `end`, each of which sees all before it."""
    of = PREFILL[name]
    return 2 * of.parameters * (end - begin) + layers_of(name) * of.heads * of.dims * (end**2 - begin**2)


def prefill_seconds(name, begin, end):
    return prefill_flops(name, begin, end) / (PREFILL[name].gpus * PEAK * REACHED)


def print_load():
    rows = []
    for name in PREFILL:
        computed = prefill_seconds(name, 0, CONTEXT)
        for codec in CODECS:
            size = load_bytes(name, codec, CONTEXT)
            seconds = [8 * size / (gbit * 1e9) for gbit in NETWORKS]
            first = 8 * page_bytes(name, codec) / prefill_seconds(name, 0, PAGE)
            rows.append([name, codec, f"{computed:.2f}", *(f"{s:.2f}" for s in seconds), f"{8 * size / computed / 1e9:.1f}",
                         f"{first / 1e9:.1f}"])
    print("seconds of a prefix of 32768 tokens; it pays to load all of it, or its first page, from so many Gb/s on")
    print_table(["model", "codec", "prefill", *(f"{gbit} Gb/s" for gbit in NETWORKS), "all", "page 1"], rows, left=2)
    print()
    name = "llama-3.1-8b"
    print(f"a laptop, {name}: prefill {prefill_flops(name, 0, CONTEXT) / LAPTOP_FLOPS:.0f} s")
    sizes = {codec: load_bytes(name, codec, CONTEXT) for codec in CODECS}
    print_table(["codec", "s from its SSD", "contexts in 100 GB"],
                [[codec, f"{size / LAPTOP_READS:.2f}", f"{LAPTOP_BUDGET // size:.0f}"] for codec, size in sizes.items()], left=1)


# ---- A fleet. What follows is assumed, too.

CONTEXTS, TENANTS, SYSTEM_PROMPT = 10_000, 20, 4096
SHARD_BYTES, FILLED = 256e9, 0.8  # what is left is for fragmentation, buffers and replicas that catch up
SHARD_BITS, USED = 25e9, 0.6  # of the network, so that queues stay short
TURN_SECONDS, TURN_TOKENS = 60, 512  # of each context: from turn to turn; new ones in a turn
ANSWER_SECONDS = 5  # for which a context is in a GPU's memory


def stored_pages():
    return TENANTS * SYSTEM_PROMPT // PAGE + CONTEXTS * (CONTEXT - SYSTEM_PROMPT) // PAGE


def print_fleet():
    turns = CONTEXTS / TURN_SECONDS
    rows = []
    for name, codec in itertools.product(PREFILL, CODECS):
        stored = stored_pages() * page_bytes(name, codec)
        loads = 8 * turns * load_bytes(name, codec, CONTEXT - TURN_TOKENS)
        puts = 8 * turns * TURN_TOKENS // PAGE * page_bytes(name, codec)
        by_memory = math.ceil(stored / (SHARD_BYTES * FILLED))
        by_network, by_half = (math.ceil(share * loads / (SHARD_BITS * USED)) for share in (1, 0.5))
        rows.append([name, codec, f"{stored / 1e12:.1f}", f"{by_memory}", f"{loads / 1e12:.2f}", f"{puts / 1e9:.0f}",
                     f"{by_network}", f"{by_half}", f"{max(by_memory, by_half)}"])
    print(f"{stored_pages()} pages, {turns:.1f} turns per second")
    print_table(["model", "codec", "TB", "by memory", "loads Tb/s", "puts Gb/s", "by network", "half local", "shards"],
                rows, left=2)
    print()
    rows = []
    for name in PREFILL:
        whole, rest = (turns * PREFILL[name].gpus * prefill_seconds(name, begin, CONTEXT)
                       for begin in (0, CONTEXT - TURN_TOKENS))
        held = [turns * ANSWER_SECONDS * load_bytes(name, codec, CONTEXT) / 1e12 for codec in ("f16", "turbo4")]
        rows.append([name, f"{whole:.0f}", f"{rest:.0f}", *(f"{size:.1f}" for size in held)])
    print(f"{turns * ANSWER_SECONDS:.0f} contexts are answered at once")
    print_table(["model", "GPUs of prefill, no store", "all found", "TB answered, f16", "turbo4"], rows, left=1)


def print_hot():
    rows = []
    for name, codec in itertools.product(["llama-3.1-8b", "llama-3.1-70b"], ["f16", "turbo4"]):
        reads = SHARD_BITS * USED / 8 / page_bytes(name, codec)
        rows.append([name, codec, *(f"{reads / pages:.0f}" for pages in (1, 2, 4, 8))])
    print("loads per second that one shard serves, if so many pages of the prompt are on it")
    print_table(["model", "codec", "1 page", "2", "4", "8"], rows, left=2)
    print()
    pages = SYSTEM_PROMPT // PAGE
    rows = [[f"{shards}", f"{shards * (1 - (1 - 1 / shards)**pages):.1f}", f"{busiest(pages, shards):.1f}"]
            for shards in (3, 6, 12, 25, 50, 100, 200)]
    print(f"a prompt of {SYSTEM_PROMPT} tokens, {pages} pages")
    print_table(["shards", "that hold some of it", "pages on the fullest"], rows)


def busiest(pages, shards, turns=2000):
    """The mean of the most pages that one shard has."""
    drawn = random.Random(SEED)
    most = 0
    for _ in range(turns):
        most += max(collections.Counter(int(drawn.random() * shards) for _ in range(pages)).values())
    return most / turns


# ---- A shard that is down


def matched_pages(pages, shards, down=1):
    """The mean of the pages before the first that is missing."""
    kept = 1 - down / shards
    return sum(kept**page for page in range(1, pages + 1))


def prefill_gpus(name, shards):
    """Of the fleet's turns, on average, if no page is local: each computes what is behind the first missing page."""
    pages, kept = (CONTEXT - TURN_TOKENS) // PAGE, 1 - 1 / shards
    ends = [(kept**page / shards, page) for page in range(pages)] + [(kept**pages, pages)]
    seconds = sum(chance * prefill_seconds(name, page * PAGE, CONTEXT) for chance, page in ends)
    return CONTEXTS / TURN_SECONDS * PREFILL[name].gpus * seconds


def print_down():
    rows = []
    for shards in (3, 6, 12, 25, 50, 100, 200, 400):
        row = [f"{shards}"]
        for pages in (SYSTEM_PROMPT // PAGE, CONTEXT // PAGE):
            mean = matched_pages(pages, shards)
            row += [f"{mean:.1f}", f"{100 * mean / pages:.0f} %", f"{100 * (1 - 1 / shards)**pages:.1f} %"]
        rows.append([*row, f"{prefill_gpus('llama-3.1-8b', shards):.0f}"])
    print("pages before the first that is missing; the last column is for llama-3.1-8b in the fleet above")
    print_table(["shards", "of 32 pages", "share", "whole", "of 256 pages", "share", "whole", "GPUs of prefill"], rows)


# ---- The simulation

SEED = 20260101
SIM_MODEL = "llama-3.1-8b"
SIM_TENANTS, ZIPF = 100, 1.0
CONVERSATIONS = 500  # that are open at once; any of them may send the next request
TURNS = 6  # of a conversation, on average
QUESTION, DOCUMENT, ANSWER = 4, 24, 4  # at most, in pages: of a turn, of the first one, of an answer; 1 at least
SIM_PROMPT = 32  # pages
WARM, COUNTED = 5000, 5000  # requests
BUDGETS = [8, 16, 32, 64, 128, 256, 512]  # GB


# What a request wants: a tenant's system prompt, and pages of a conversation's own behind it, of which the last come with
# the answer.
Request = collections.namedtuple("Request", "tenant conversation asked_pages own_pages")


class Conversation:
    def __init__(self, number, tenant, first):
        self.number, self.tenant = number, tenant
        self.pages, self.more = 0, first  # its own, without the system prompt; those of the next question


def make_requests(count):
    drawn = random.Random(SEED)
    shares = list(itertools.accumulate(1 / (rank + 1)**ZIPF for rank in range(SIM_TENANTS)))
    numbers = itertools.count(1)
    most = CONTEXT // PAGE - SIM_PROMPT

    def up_to(pages):
        return 1 + int(drawn.random() * pages)

    def begin():
        # Segments are numbers: of conversations positive ones, of tenants the others.
        tenant = -bisect.bisect(shares, drawn.random() * shares[-1])
        return Conversation(next(numbers), tenant, up_to(DOCUMENT))

    open_ones = [begin() for _ in range(CONVERSATIONS)]
    requests = []
    for _ in range(count):
        at = int(drawn.random() * CONVERSATIONS)
        one = open_ones[at]
        asked = min(one.pages + one.more, most)
        one.pages, one.more = min(asked + up_to(ANSWER), most), up_to(QUESTION)
        requests.append(Request(one.tenant, one.number, asked, one.pages))
        if one.pages == most or drawn.random() < 1 / TURNS:
            open_ones[at] = begin()
    return requests


class LruFromEnds:
    """As a store of files: what is least recently used leaves, and of a chain its end first.

    All pages of a segment are used together, so that a segment and how many of its pages are there say everything. A
    conversation's pages are never newer than those of the system prompt before them."""

    def __init__(self, most):
        self.most, self.total, self.there = most, 0, collections.OrderedDict()

    def match(self, request):
        prompt = self.there.get(request.tenant, 0)
        return prompt if prompt < SIM_PROMPT else prompt + min(request.asked_pages, self.there.get(request.conversation, 0))

    def use(self, request):
        """Returns how many pages were not there."""
        before = self.total
        for segment, pages in ((request.conversation, request.own_pages), (request.tenant, SIM_PROMPT)):
            self.total += pages - self.there.get(segment, 0)
            self.there[segment] = pages
            self.there.move_to_end(segment)
        added = self.total - before
        while self.total > self.most:
            oldest = next(iter(self.there))
            leave = min(self.there[oldest], self.total - self.most)
            self.there[oldest] -= leave
            self.total -= leave
            if self.there[oldest] == 0:
                del self.there[oldest]
        return added


class SampledLru:
    """As a server with allkeys-lru: of a few pages drawn at random, the oldest leaves. It knows no chains.

    The 16 oldest of earlier draws are remembered. All pages of a segment were used at the same time."""

    SAMPLES, REMEMBERED = 5, 16

    def __init__(self, most):
        self.most, self.now, self.drawn = most, 0, random.Random(SEED).random
        self.there, self.used = collections.defaultdict(set), {}  # indices of a segment's pages; when it was used
        self.keys, self.place = [], {}  # of all pages, (segment, index); where in the list
        self.oldest = []  # (when it was used, key)

    def first_missing(self, segment, pages):
        there = self.there[segment]
        return pages if len(there) >= pages and there.issuperset(range(pages)) else next(
            index for index in range(pages) if index not in there)

    def match(self, request):
        prompt = self.first_missing(request.tenant, SIM_PROMPT)
        return prompt if prompt < SIM_PROMPT else prompt + self.first_missing(request.conversation, request.asked_pages)

    def use(self, request):
        self.now += 1
        added = 0
        for segment, pages in ((request.tenant, SIM_PROMPT), (request.conversation, request.own_pages)):
            self.used[segment] = self.now
            for index in [index for index in range(pages) if index not in self.there[segment]]:
                self.there[segment].add(index)
                self.place[segment, index] = len(self.keys)
                self.keys.append((segment, index))
                added += 1
                if len(self.keys) > self.most:
                    self.evict()
        return added

    def evict(self):
        while True:
            limit = self.oldest[-1][0] if len(self.oldest) == self.REMEMBERED else self.now + 1
            for _ in range(self.SAMPLES):
                key = self.keys[int(self.drawn() * len(self.keys))]
                used = self.used[key[0]]
                if used < limit and (used, key) not in self.oldest:
                    bisect.insort(self.oldest, (used, key))
            del self.oldest[self.REMEMBERED:]
            while self.oldest:
                _, key = self.oldest.pop(0)
                if key in self.place:
                    return self.remove(key)

    def remove(self, key):
        self.there[key[0]].discard(key[1])
        at, last = self.place.pop(key), self.keys.pop()
        if last != key:
            self.keys[at], self.place[last] = last, at


Outcome = collections.namedtuple("Outcome", "hit_rate loaded_pages stored_pages")


def simulate(store, requests):
    asked = matched = stored = 0
    for number, request in enumerate(requests):
        found, added = store.match(request), store.use(request)
        if number >= WARM:
            asked += SIM_PROMPT + request.asked_pages
            matched += found
            stored += added
    return Outcome(matched / asked, matched / COUNTED, stored / COUNTED)


Line = collections.namedtuple("Line", "title codec store colour dash")
LINES = [
    Line("16 bits, files", "f16", LruFromEnds, "#b3541e", ""),
    Line("4 bits, files", "turbo4", LruFromEnds, "#1f5fa8", ""),
    Line("4 bits, server", "turbo4", SampledLru, "#1f5fa8", "6 4"),
]


def simulate_all():
    """The outcome of each line with each budget, and what no store can exceed."""
    requests = make_requests(WARM + COUNTED)
    outcomes = {line: [simulate(line.store(int(budget * 1e9) // page_bytes(SIM_MODEL, line.codec)), requests)
                       for budget in BUDGETS] for line in LINES}
    return outcomes, simulate(LruFromEnds(1 << 62), requests), requests[WARM:]


def print_simulation(svg):
    outcomes, best, requests = simulate_all()
    prompts = SIM_PROMPT + sum(request.asked_pages for request in requests) / len(requests)
    print(f"{len(requests)} requests, {prompts:.1f} pages each on average; of a store without a limit "
          f"{100 * best.hit_rate:.1f} % are found")
    print("\nhit rate of tokens, %")
    print_table(["GB", *(line.title for line in LINES)],
                [[f"{budget}", *(f"{100 * outcomes[line][i].hit_rate:.1f}" for line in LINES)]
                 for i, budget in enumerate(BUDGETS)])
    print("\nfiles: MB loaded and stored per request, and pages of its prompt that are computed")
    rows = []
    for i, budget in enumerate(BUDGETS):
        row = [f"{budget}"]
        for line in LINES[:2]:
            at, page = outcomes[line][i], page_bytes(SIM_MODEL, line.codec) / 1e6
            row += [f"{at.loaded_pages * page:.0f}", f"{at.stored_pages * page:.0f}", f"{prompts - at.loaded_pages:.1f}"]
        rows.append(row)
    print_table(["GB", "16 bits loaded", "stored", "computed", "4 bits loaded", "stored", "computed"], rows)
    if svg:
        pathlib.Path(svg).write_text(draw(outcomes, best), encoding="utf-8")


# ---- Tables and the figure


def print_table(head, rows, left=0):
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        cells = [cell.ljust(width) if i < left else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 400, 62, 16, 40, 52


def x_of(budget):
    share = math.log2(budget / BUDGETS[0]) / math.log2(BUDGETS[-1] / BUDGETS[0])
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def y_of(hit_rate):
    return TOP + (1 - hit_rate) * (HEIGHT - TOP - BOTTOM)


def draw(outcomes, best):
    text = 'font-family="sans-serif" font-size="13" fill="#333"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
             '<title>Hit rate of tokens by the size of the store, at 16 and at 4 bits</title>',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    for percent in range(0, 101, 20):
        y = y_of(percent / 100)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" {text}>{percent} %</text>')
    for budget in BUDGETS:
        parts.append(f'<text x="{x_of(budget):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle" {text}>{budget}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.1f}" y="{HEIGHT - 10}" text-anchor="middle" {text}>'
                 'GB of the store</text>')
    y = y_of(best.hit_rate)
    parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#888" stroke-dasharray="2 3"/>')
    parts.append(f'<text x="{LEFT + 6}" y="{y - 5:.1f}" {text}>a store without a limit</text>')
    for i, (line, found) in enumerate(outcomes.items()):
        points = " ".join(f"{x_of(budget):.1f},{y_of(at.hit_rate):.1f}" for budget, at in zip(BUDGETS, found))
        style = f'stroke="{line.colour}" stroke-width="2.5"' + (f' stroke-dasharray="{line.dash}"' if line.dash else "")
        parts.append(f'<polyline points="{points}" fill="none" {style}/>')
        x = LEFT + i * 220
        parts.append(f'<line x1="{x}" y1="18" x2="{x + 34}" y2="18" {style}/>')
        parts.append(f'<text x="{x + 42}" y="22" {text}>{line.title}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("bytes", "load", "fleet", "hot", "down"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--rota", metavar="TOOL", help="with --bytes: compares them with what the tool says")
    parser.add_argument("--svg", metavar="FILE", help="draws the simulation's hit rates")
    asked = parser.parse_args()
    if asked.bytes:
        print_bytes(asked.rota)
    elif asked.load:
        print_load()
    elif asked.fleet:
        print_fleet()
    elif asked.hot:
        print_hot()
    elif asked.down:
        print_down()
    else:
        print_simulation(asked.svg)


if __name__ == "__main__":
    main()

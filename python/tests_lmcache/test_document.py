"""docs/lmcache.md: its Python runs, and its table is what the serde does."""

import re
import textwrap

import pytest
import torch
from conftest import SOURCE
from stores import captured_in_full, relative_errors
from test_chunks import Pair

TEXT = (SOURCE / "docs/lmcache.md").read_text()
BLOCKS = [textwrap.dedent(block) for block in re.findall(r"^ *```python\n(.*?)^ *```", TEXT, re.MULTILINE | re.DOTALL)]
ROWS = re.findall(r"^\| `(turbo\d)` \| (\d+) \| ([\d.]+) \| (\S+) \| (\S+) \|$", TEXT, re.MULTILINE)


def test_all_blocks_and_rows_are_found():
    assert len(BLOCKS) == TEXT.count("```python") == 1
    assert len(ROWS) == 6


@pytest.mark.parametrize("block", BLOCKS)
def test_python_runs(block):
    exec(compile(block, "docs/lmcache.md", "exec"), {})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_table_is_true(row):
    codec, *wanted = row
    pair, chunks, found = Pair(codec=codec), captured_in_full(), []
    for x in chunks:
        memory = pair.stored(x)
        found += pair.restored(memory, x)
        size = memory.get_size()
        memory.ref_count_down()
    keys, values = relative_errors(found, chunks)
    assert wanted == [str(size), f"{size / chunks[0].nbytes:.3f}", f"{keys:.1e}", f"{values:.1e}"]


def test_the_row_of_fp8_is_true():
    chunks = captured_in_full()
    keys, values = relative_errors([x.to(torch.float8_e4m3fn).to(x.dtype) for x in chunks], chunks)
    assert f"| LMCache's `fp8` | {chunks[0].numel()} | 0.500 | {keys:.1e} | {values:.1e} |" in TEXT

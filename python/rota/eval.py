"""`python -m rota eval`: what codecs of the KV cache do to a real model's predictions. docs/eval.md explains it."""

import argparse
import os
import shlex
import sys

from rota._eval.refused import Refused

CODECS = "f16,q8_0,q8_0+rot,q4_0,q4_0+rot,turbo8,turbo4,turbo3"


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\ntry: {self.prog} --help\n")


def _count(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is too small; wanted a number from 1 on")
    return value


_count.__name__ = "number"  # argparse names it in errors


def _parser():
    parser = _Parser(prog="rota eval", description="Say what codecs of the KV cache do to a model's predictions",
                     epilog="rota eval HuggingFaceTB/SmolLM2-135M --text book.txt --json eval.json")
    parser.add_argument("model", metavar="MODEL", help="name or folder of a Hugging Face model")
    parser.add_argument("--text", required=True, metavar="FILE", help="text that the model reads, UTF-8")
    parser.add_argument("--gguf", metavar="FILE", help="GGUF file of that model, in its folder, to read weights from")
    parser.add_argument("--tokens", type=_count, default=2048, metavar="N", help="first tokens of the text (2048)")
    parser.add_argument("--chunk", type=_count, default=128, metavar="N", help="tokens of a forward pass (128)")
    parser.add_argument("--codecs", default=CODECS, metavar="LIST",
                        help="one for K and V, or K/V, comma-separated; +rot rotates ggml's formats (%(default)s)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16", "auto"],
                        help="of weights and of the model's own cache (float32)")
    parser.add_argument("--threads", type=_count, metavar="N", help="threads of torch")
    parser.add_argument("-o", "--output", default="text", choices=["text", "md"], help="how to print the table (text)")
    parser.add_argument("--json", metavar="FILE", help="also write all numbers, for rota report")
    return parser


def _read_text(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"is no UTF-8: {error.reason}"
        raise Refused(f"{path}: {reason}; wanted a text file") from error


def _first_line(error):
    return str(error).strip().split("\n")[0]


def load(name, gguf=None, dtype="float32"):
    """Model and tokenizer, ready for evaluation."""
    import torch
    import transformers

    if (os.path.isabs(name) or name.startswith(".")) and not os.path.isdir(name):
        raise Refused(f"{name}: is no folder; wanted the name or the folder of a Hugging Face model")
    if gguf is not None and os.path.isdir(name) and not os.path.isfile(os.path.join(name, gguf)):
        raise Refused(f"{os.path.join(name, gguf)}: is not there; wanted a GGUF file in the model's folder")
    options = {} if gguf is None else {"gguf_file": gguf}
    types = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "auto": "auto"}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **options)
        model = transformers.AutoModelForCausalLM.from_pretrained(name, dtype=types[dtype], **options)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise Refused(f"{name}: {_first_line(error)}") from error
    return model.eval(), tokenizer


def first_tokens(tokenizer, text, count, name):
    """[count] ids."""
    ids = tokenizer(text, return_tensors="pt", verbose=False).input_ids[0]
    if len(ids) < count:
        raise Refused(f"{name}: has {len(ids)} tokens; wanted {count}: a longer text, or --tokens {len(ids)}")
    return ids[:count]


def evaluate(model, ids, codecs, *, chunk=128, progress=lambda name, tokens: None):
    """A dict of measurements for the model's own cache and for each codec, in that order. ids: [tokens]."""
    import torch
    import transformers

    import rota
    from rota._eval import caches
    from rota._eval.attention import own_attention
    from rota._eval.measure import Run, measure
    from rota._eval.table import CONTEXTS

    chosen = [caches.parse_codec(codec, rota.CODECS) for codec in codecs]
    own = own_attention(model)
    runs = [Run("reference", transformers.DynamicCache(config=model.config), own)]
    for codec in chosen:
        if codec.simulated:
            runs.append(Run(codec.name, caches.SimulatedCache(model.config, codec), own))
        else:
            runs.append(Run(codec.name, caches.rota_cache(model, codec), "rota"))
    try:
        measure(model, ids, runs, chunk=chunk, progress=progress)
    except (NotImplementedError, ValueError, rota.Error) as error:
        raise Refused(_first_line(error), code=4) from error

    shapes = caches.shapes_of(runs[0].cache)
    own_bits = torch.finfo(model.dtype).bits
    own_bytes = {str(context): caches.plain_bytes(shapes, context, own_bits, own_bits) for context in CONTEXTS}
    rows = [{"codec": "reference", "k": None, "v": None, "kind": "reference", "rotated": False,
             "bits_stored": own_bits, "sealed_share": None, "bytes": own_bytes, **runs[0].statistics()}]
    for codec, run in zip(chosen, runs[1:]):
        sealed = not codec.simulated and "turbo" in codec.k + codec.v
        rows.append({
            "codec": codec.name, "k": codec.k, "v": codec.v, "kind": "simulated" if codec.simulated else "rota",
            "rotated": codec.rotated, "bits_stored": caches.stored_bits(shapes, codec),
            "sealed_share": caches.sealed_share(shapes, len(ids), chunk) if sealed else None,
            "bytes": {str(context): caches.cache_bytes(shapes, codec, context) for context in CONTEXTS},
            **run.statistics(),
        })
    return rows


def _run(options, argv):
    try:
        import torch
        import transformers
    except ImportError as error:
        sys.stderr.write(f"rota eval: {error}; wanted torch and transformers: pip install 'rota-kv[transformers]'\n")
        return 2
    import rota
    from rota._eval import table
    from rota._eval.caches import parse_codec
    from rota._eval.progress import Progress

    codecs = options.codecs.split(",")
    for codec in codecs:
        parse_codec(codec, rota.CODECS)  # before a minute is spent on weights
    text = _read_text(options.text)
    if options.json and not os.path.isdir(os.path.dirname(options.json) or "."):
        raise Refused(f"{options.json}: its folder is not there; wanted a file to write")
    if options.threads:
        torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

    progress = Progress(options.tokens)
    progress.say(f"loading {options.model}")
    model, tokenizer = load(options.model, options.gguf, options.dtype)
    ids = first_tokens(tokenizer, text, options.tokens, options.text)
    rows = evaluate(model, ids, codecs, chunk=options.chunk, progress=progress)

    config = model.config.get_text_config(decoder=True)
    dtype = str(model.dtype).removeprefix("torch.")
    print(f"{options.model}{'/' + options.gguf if options.gguf else ''}, {type(model).__name__}, {dtype}, "
          f"{config.num_hidden_layers} layers")
    print(f"{options.tokens} tokens of {options.text} in chunks of {options.chunk}\n")
    print(table.text_table(rows) if options.output == "text" else table.markdown_table(rows))
    print("\n" + table.EXPLANATION)
    if options.json:
        head = {"version": rota.__version__, "command": shlex.join(["rota", "eval", *argv]),
                "build": f"torch {torch.__version__}, transformers {transformers.__version__}",
                "model": options.model, "gguf": options.gguf, "architecture": type(model).__name__, "dtype": dtype,
                "layers": config.num_hidden_layers, "text": options.text, "tokens": options.tokens,
                "chunk": options.chunk}
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(table.json_text(head, rows))
    return 0


def main(argv=None):
    """The command; returns its exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    options = _parser().parse_args(argv)
    try:
        return _run(options, argv)
    except Refused as error:
        sys.stderr.write(f"rota eval: {error}\ntry: rota eval --help\n")
        return error.code


if __name__ == "__main__":
    sys.exit(main())

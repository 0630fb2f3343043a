"""Runs one text through one model with several caches, chunk by chunk, and compares what comes out."""

import dataclasses
import math
import time

import torch

from .attention import implementation_kept, set_implementation, watched


@dataclasses.dataclass
class Run:
    """One cache with the attention that reads it, and what was seen of it so far."""

    name: str
    cache: object
    attention: str
    divergence: list = dataclasses.field(default_factory=list)  # nats, of each position
    agreed: list = dataclasses.field(default_factory=list)
    surprise: list = dataclasses.field(default_factory=list)  # nats, of each next token
    error: dict = dataclasses.field(default_factory=dict)  # layer -> [power of the error, power of the reference]
    seconds: float = 0.0

    def statistics(self):
        kld = torch.cat(self.divergence)
        layers = {layer: math.sqrt(error / power) if power else 0.0 for layer, (error, power) in self.error.items()}
        worst = max(layers, key=layers.get)
        return {
            "kld_mean": kld.mean().item(),
            "kld_standard_error": (kld.std() / math.sqrt(len(kld))).item(),
            "kld_median": kld.median().item(),
            "kld_p99": torch.quantile(kld, 0.99).item(),
            "kld_max": kld.max().item(),
            "top1": torch.cat(self.agreed).double().mean().item(),
            "perplexity": math.exp(torch.cat(self.surprise).mean().item()),
            "attention_error_mean": sum(layers.values()) / len(layers),
            "attention_error_worst": layers[worst],
            "attention_error_worst_layer": worst,
            "attention_errors": [layers[layer] for layer in sorted(layers)],
            "seconds": self.seconds,
        }


@dataclasses.dataclass
class _Reference:
    """What the model's own cache gives for one chunk. f64: divergences of 1e-9 are told apart."""

    outputs: dict
    probability: torch.Tensor
    information: torch.Tensor  # sum of p log p
    best: torch.Tensor

    @classmethod
    def of(cls, logits, outputs):
        log_probability = torch.log_softmax(logits.double(), -1)
        probability = log_probability.exp()
        return cls(outputs, probability, (probability * log_probability).sum(-1), logits.argmax(-1))


def _forward(model, run, ids):
    """Logits of all positions of the chunk, and each layer's output of attention."""
    outputs = {}

    def see(module, query, key, value, output, options):
        outputs[module.layer_idx] = output

    start = time.monotonic()
    set_implementation(model, run.attention)
    with watched(run.attention, see):
        logits = model(input_ids=ids[None], past_key_values=run.cache, use_cache=True).logits[0].float()
    run.seconds += time.monotonic() - start
    return logits, outputs


def _compare(run, logits, outputs, reference, following):
    wide = logits.double()
    total = wide.logsumexp(-1)
    cross = torch.linalg.vecdot(reference.probability, wide) - total
    # Rounding may leave it just below zero, where no divergence is.
    run.divergence.append((reference.information - cross).clamp(min=0))
    run.agreed.append(logits.argmax(-1) == reference.best)
    rows = torch.arange(len(following))
    run.surprise.append((total[rows] - wide[rows, following]))
    for layer, exact in reference.outputs.items():
        sums = run.error.setdefault(layer, [0.0, 0.0])
        sums[0] += (outputs[layer].double() - exact.double()).square().sum().item()
        sums[1] += exact.double().square().sum().item()


@torch.inference_mode()
def measure(model, ids, runs, *, chunk, progress):
    """Fills the runs. The first one is the reference, with which all, itself included, are compared.

    ids: [tokens]. All caches are in memory at once, the logits of one chunk and one cache are.
    """
    tokens = len(ids)
    with implementation_kept(model):
        for start in range(0, tokens, chunk):
            part = ids[start : start + chunk]
            following = ids[start + 1 : start + 1 + len(part)]  # none after the last token
            reference = None
            for run in runs:
                progress(run.name, start)
                logits, outputs = _forward(model, run, part)
                reference = reference or _Reference.of(logits, outputs)
                _compare(run, logits, outputs, reference, following)
    progress(None, tokens)

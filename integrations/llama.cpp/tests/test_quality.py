"""test_quality.py ROTA_EVAL MODEL TEXT: what caches do to predictions stays within bounds. `rota-eval` with its defaults
measures 3 chunks of 2,048 tokens; these are 512 tokens, of which the second half is scored."""

import json
import subprocess
import sys
import tempfile

# Mean divergence in nats, at most. The order of additions alone makes the first.
MOST = {"rota f16": 2e-6, "turbo8": 2e-5, "turbo4": 2e-3, "turbo3": 1e-2}
# How many times q4_0, of about turbo4's size, diverges as far.
BETTER_THAN_Q4_0 = 12


def main(program, model, text):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [program, "-m", model, "-f", text, "--tokens", "512", "--chunks", "1", "--no-speed"]
        command += ["--caches", "f16,q4_0,rota:f16,turbo8,turbo4,turbo3", "-o", "json", "--to", file.name]
        subprocess.run(command, check=True, timeout=900)
        rows = {row["codec"]: row for row in json.load(file)["rows"]}
    divergence = {name: row["kld_mean"] for name, row in rows.items()}
    faults = [f"{name} diverges by {divergence[name]:.1e}, more than {most:.0e}" for name, most in MOST.items()
              if not divergence[name] <= most]
    if not divergence["q4_0"] >= BETTER_THAN_Q4_0 * divergence["turbo4"]:
        faults.append(f"q4_0 diverges {divergence['q4_0'] / divergence['turbo4']:.1f} times as far as turbo4")
    if not 1e-6 < divergence["turbo8"] < divergence["turbo4"] < divergence["turbo3"]:
        faults.append("the codecs are not used")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

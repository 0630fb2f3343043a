#!/usr/bin/python3
"""Holds the JSON of real runs of `rota bench` against docs/bench.schema.json.

run.py ROTA SCHEMA; needs Debian's python3-jsonschema and a Vulkan device.
"""
import copy
import json
import subprocess
import sys
import time

from jsonschema import Draft202012Validator

EXACT = "bench attend -ctk f16,turbo8,turbo4 -ctv f16,turbo8,turbo4 -c 4096,16384 -o json"
EXACT_SECONDS = 120
SHORT = [
    "bench store -ctk bf16 -ctv f32 -c 256",
    "bench seal -ctk turbo4,turbo8 -c 256",
    "bench rope -c 64 -t 1",
    "bench attend --model gemma-3-1b -ctk turbo4 -ctv turbo3 -c 1024",
    "bench attend --device vulkan:0 -ctk turbo4 -ctv f16 --kv-heads 1 --group 2 --head-dim 32 -c 256",
]
SHORT_OPTIONS = " --rotate 1 --seconds 0.5 -o json"


def run(rota, arguments):
    done = subprocess.run([rota, *arguments.split()], capture_output=True, text=True, check=False)
    if done.returncode != 0 or done.stderr:
        sys.exit(f"rota {arguments}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def check(validator, arguments, report):
    problems = [f"{problem.json_path}: {problem.message}" for problem in validator.iter_errors(report)]
    if problems:
        sys.exit("\n".join([f"rota {arguments}: not as the schema says", *problems]))
    print(f"rota {arguments}: {len(report['rows'])} rows are as the schema says")


def spoiled(report):
    """Copies with one thing wrong, each with what it is."""

    def places(value, path=()):
        yield path
        inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
        for key, part in inner:
            yield from places(part, (*path, key))

    def at(whole, path):
        for key in path:
            whole = whole[key]
        return whole

    for path in places(report):
        value = at(report, path)
        if isinstance(value, dict):
            wrong = copy.deepcopy(report)
            at(wrong, path)["surprise"] = 1
            yield path, "has a key that no one knows", wrong
        if not path or isinstance(path[-1], int):
            continue
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        instead = {"is of another type": "fast" if is_number or isinstance(value, (dict, list)) else {}}
        if is_number:
            instead["is negative"] = -1
        for what, other in instead.items():
            wrong = copy.deepcopy(report)
            at(wrong, path[:-1])[path[-1]] = other
            yield path, what, wrong
        wrong = copy.deepcopy(report)
        del at(wrong, path[:-1])[path[-1]]
        yield path, "is missing", wrong


def main():
    rota, schema_path = sys.argv[1:]
    with open(schema_path, encoding="utf-8") as file:
        schema = json.load(file)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)

    begin = time.monotonic()
    report = run(rota, EXACT)
    seconds = time.monotonic() - begin
    check(validator, EXACT, report)
    if len(report["rows"]) != 6:
        sys.exit(f"{len(report['rows'])} rows; wanted 3 pairs of codecs at 2 lengths")
    if seconds > EXACT_SECONDS:
        sys.exit(f"it took {seconds:.0f} s; wanted at most {EXACT_SECONDS}")

    short = [(arguments, run(rota, arguments + SHORT_OPTIONS)) for arguments in SHORT]
    for arguments, made in short:
        check(validator, arguments, made)

    of_model = next(made for arguments, made in short if "--model" in arguments)
    of_model["rows"].reverse()
    if of_model["rows"][0]["scope"] != "model":
        sys.exit("the last row of a model is not of all its layers")
    for key in ("head_dim", "value_dim", "kv_heads", "group", "calls_per_sample"):
        wrong = copy.deepcopy(report)
        wrong["rows"][0][key] = None
        if validator.is_valid(wrong):
            sys.exit(f"the schema takes a layer without {key}")

    refused = 0
    for made in (report, of_model, short[-1][1]):
        for path, what, wrong in spoiled(made):
            if validator.is_valid(wrong):
                sys.exit(f"the schema takes a report of which {'.'.join(map(str, path)) or 'the whole'} {what}")
            refused += 1
    print(f"{refused} spoiled reports are refused; the long run took {seconds:.0f} s")


main()

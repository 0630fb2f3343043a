#!/usr/bin/env python3
"""Checks who includes and who names whom. Prints each breach as file:line; exits 1 if there is one."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What the files below a folder may include, by prefix. "OWN" is the file's own op, codec or backend folder, "CASE" what a
# benchmark times, wherever it lies.
ALLOWED = {
    "include/rota": ["rota/"],
    "src/core": ["core/", "rota/"],
    "src/codec": ["OWN", "codec/dense/simd.h", "codec/codecs.h", "codec/refused.h", "core/", "rota/", "rota_tables/"],
    "src/runtime": ["runtime/", "core/", "rota/"],
    "src/ops": ["OWN", "ops/selftest_pages.h", "codec/", "runtime/", "core/", "rota/", "rota_kernels/"],
    "src/cache": ["cache/", "ops/", "codec/", "runtime/", "core/", "rota/"],
    "src/page_store/c": ["OWN", "page_store/opened_sequence.h", "c/", "rota/"],
    "src/page_store": ["page_store/", "core/", "rota/"],
    "src/backend": ["OWN", "runtime/backend.h", "runtime/committed_blocks.h", "runtime/device_id.h", "runtime/engine.h", "runtime/in_flight.h", "core/", "rota/"],
    "src/c": ["c/", "rota/"],
    "tools/rota/cli": ["OWN", "rota/"],
    "tools/rota/gguf": ["OWN", "rota/"],
    "tools/rota/model": ["OWN", "gguf/", "cli/", "rota/"],
    "tools/rota/bench": ["OWN", "model/", "cli/", "CASE", "rota/"],
    "tools/rota/distort": ["OWN", "cli/", "rota/"],
    "tools/rota/estimate": ["OWN", "model/", "cli/", "rota/"],
    "tools/rota/inspect": ["OWN", "cli/", "rota/"],
    "tools/rota/report": ["OWN", "bench/fields.h", "bench/sampler.h", "cli/", "rota/"],
    "tools/rota/store": ["OWN", "cli/", "rota/"],
    "tools": [],  # a room that is not listed above
    "examples": ["OWN", "rota/"],
    "bench": ["CASE", "rota/"],
}
# Ops speak to the recorder; what stands behind it is not theirs.
FORBIDDEN = {"src/ops": ["runtime/backend.h", "runtime/device_state.h", "runtime/registry.h"]}

INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
IS_CASE = re.compile(r"\bbench_case\.|_bench_case\.")
IS_TEST = re.compile(r"(_test|_bench)\.cpp$|_reference\.h$")


def layer_of(path):
    if IS_CASE.search(path):
        return "bench"
    return next((layer for layer in ALLOWED if path.startswith(layer + "/")), None)


def own_prefixes(path):
    """How a file may name its own folder: whole, or beside it."""
    folder = path.rsplit("/", 1)[0]
    whole = folder.removeprefix("src/").removeprefix("tools/rota/") + "/"
    return (whole, "" if folder.startswith(("tools", "examples")) else None)


def includes_allowed(path, layer, target):
    if any(target.startswith(prefix) for prefix in FORBIDDEN.get(layer, [])):
        return False
    if IS_CASE.search(target):
        return "CASE" in ALLOWED[layer]
    for prefix in ALLOWED[layer]:
        if prefix != "OWN":
            if target.startswith(prefix):
                return True
            continue
        whole, beside = own_prefixes(path)
        if target.startswith(whole) or (beside is not None and "/" not in target):
            return True
    return False


def folders(path):
    return sorted(entry.name for entry in (ROOT / path).iterdir() if entry.is_dir()) if (ROOT / path).is_dir() else []


def forbidden_words():
    """An op names no backend and a backend no op. "cpu" is free: every kernel has a CPU twin."""
    backends = [name for name in folders("src/backend") if name != "cpu"] + ["spirv", "metal", "msl"]
    ops = folders("src/ops")
    return {
        "src/ops": re.compile(r"\b\w*(" + "|".join(backends) + r")\w*\b|\bVk[A-Z]\w*", re.IGNORECASE),
        "src/backend": re.compile(r"(?<!\.)\b(" + "|".join(ops) + r")(_\w+)?\b|\bops::", re.IGNORECASE),
    }


def main():
    words = forbidden_words()
    breaches = []
    files = [p for top in ("include", "src", "tools", "examples", "bench") for p in sorted((ROOT / top).rglob("*"))]
    checked = 0
    for file in files:
        path = file.relative_to(ROOT).as_posix()
        layer = layer_of(path)
        if layer is None or file.suffix not in (".h", ".cpp", ".comp", ".glsl") or IS_TEST.search(path):
            continue
        checked += 1
        for number, line in enumerate(file.read_text().splitlines(), 1):
            found = INCLUDE.match(line)
            if found and not includes_allowed(path, layer, found.group(1)):
                breaches.append(f"{path}:{number}: {layer} may not include {found.group(1)}")
            if layer in words and not found:
                named = words[layer].search(line)
                if named:
                    breaches.append(f'{path}:{number}: {layer} may not name "{named.group(0)}"')
    print("\n".join(breaches) if breaches else f"layers: {checked} files, no breach")
    return 1 if breaches or checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

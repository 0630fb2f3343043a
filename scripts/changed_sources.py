#!/usr/bin/env python3
"""changed_sources.py BUILD_FOLDER REV: sources of the build that changed since REV, or that include what did."""

import json
import pathlib
import subprocess
import sys

build, since = pathlib.Path(sys.argv[1]), sys.argv[2]
root = pathlib.Path(__file__).resolve().parent.parent
names = subprocess.run(["git", "diff", "--name-only", since], cwd=root, check=True, capture_output=True, text=True).stdout
changed = {str(root / name) for name in names.split()}

# What ninja learned while it compiled: "object: #deps ..." and a dependency per indented line.
log = subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True, capture_output=True, text=True).stdout
includes = {}
for line in log.splitlines():
    if line.startswith("    "):
        includes[target].add(str((build.resolve() / line.strip()).resolve()))
    elif ":" in line:
        target = line.split(":", 1)[0]
        includes[target] = set()

for entry in json.loads((build / "compile_commands.json").read_text()):
    if ({entry["file"]} | includes.get(entry.get("output", ""), set())) & changed:
        print(entry["file"])

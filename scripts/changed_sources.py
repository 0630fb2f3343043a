#!/usr/bin/env python3
"""changed_sources.py BUILD_FOLDER REV: the sources that changed since REV, or that include what did, once each."""

import json
import pathlib
import re
import subprocess
import sys

build, since = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
root = pathlib.Path(__file__).resolve().parent.parent
names = subprocess.run(["git", "diff", "--name-only", since], cwd=root, check=True, capture_output=True, text=True).stdout
changed = {str(root / name) for name in names.split()}

# What ninja learned while it compiled: "object: #deps ..." and a dependency per indented line.
log = subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True, capture_output=True, text=True).stdout
includes = {}
for line in log.splitlines():
    if line.startswith("    "):
        includes[target].add(str((build / line.strip()).resolve()))
    elif ":" in line:
        target = str((build / line.split(":", 1)[0]).resolve())
        includes[target] = set()

found = set()
for entry in json.loads((build / "compile_commands.json").read_text()):
    output = re.search(r" -o (\S+)", entry["command"])[1]
    included = includes.get(str((build / output).resolve()), set())
    for header in [path for path in included if path.endswith((".pch", ".gch"))]:
        included = included | includes.get(header, set())
    if ({entry["file"]} | included) & changed:
        found.add(entry["file"])
print(*sorted(found), sep="\n")

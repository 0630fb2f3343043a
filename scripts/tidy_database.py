#!/usr/bin/env python3
"""tidy_database.py BUILD_FOLDER OUTPUT_FOLDER [REV]: the compilation database of what clang-tidy reads, from a build's.

That is the library, the tool, the examples and the build's own programs, each source once, without what only g++ knows.
With REV, only sources that changed since, or that include what did. Prints how many.
"""

import json
import pathlib
import re
import subprocess
import sys

build, output = (pathlib.Path(name).resolve() for name in sys.argv[1:3])
since = sys.argv[3] if len(sys.argv) > 3 else ""
root = pathlib.Path(__file__).resolve().parent.parent
READ = re.compile(rf"{re.escape(str(root))}/(src|tools|examples|cmake)/(?!.*_(test|bench)\.cpp)")


def output_of(*command):
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def learned_includes():
    """What ninja learned while it compiled: "object: #deps ..." and a dependency per indented line."""
    includes = {}
    for line in output_of("ninja", "-C", build, "-t", "deps").splitlines():
        if line.startswith("    "):
            includes[target].add(str((build / line.strip()).resolve()))
        elif ":" in line:
            target = str((build / line.split(":", 1)[0]).resolve())
            includes[target] = set()
    return includes


def is_changed(entry, includes, changed):
    target = re.search(r" -o (\S+)", entry["command"])[1]
    return bool(({entry["file"]} | includes.get(str((build / target).resolve()), set())) & changed)


def for_clang(command):
    return re.sub(r" -(Wno-restrict|Wno-stringop-overread|[UD]_FORTIFY_SOURCE\S*)", "", command)


entries = [entry for entry in json.loads((build / "compile_commands.json").read_text()) if READ.match(entry["file"])]
if since:
    changed = {str(root / name) for name in output_of("git", "diff", "--name-only", since).split()}
    includes = learned_includes()
    entries = [entry for entry in entries if is_changed(entry, includes, changed)]
once = {entry["file"]: entry | {"command": for_clang(entry["command"])} for entry in entries}
output.mkdir(parents=True, exist_ok=True)
(output / "compile_commands.json").write_text(json.dumps(list(once.values()), indent=1))
print(len(once))

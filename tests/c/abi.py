#!/usr/bin/env python3
"""Compares the C interface of a library with its committed description, tests/c/NAME.abi.

    abi.py SOURCE_FOLDER BUILD_FOLDER CC LIBRARY NAME [--write]

NAME is "rota" or "rota-store". Programs that were built with an earlier header call a later library: what they know of
it, which is all of the header as a C compiler lays it out, must stay. So the description is of a library with every
function of the header, compiled as C; what C++ has inside does not enter. That the real library has the same symbols,
with the same versions, is compared as well. --write accepts the header as it is."""

import pathlib
import re
import subprocess
import sys

HEADERS = {"rota": "rota/c.h", "rota-store": "rota/c_store.h"}
DECLARATION = re.compile(r"^ROTA_C_API ([^;]*);", re.MULTILINE)
DESCRIBE = ["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--no-elf-needed", "--no-parameter-names",
            "--no-write-default-sizes", "--type-id-style", "hash"]


def run(*command):
    """What the command prints."""
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def described(source, folder, compiler, library, name):
    """The library with every function of the header, and its description."""
    declarations = DECLARATION.findall((source / "include" / HEADERS[name]).read_text(encoding="utf-8"))
    body = " {\n  __builtin_trap();\n}\n"
    text = f"#include <{HEADERS[name]}>\n" + "".join(declaration + body for declaration in declarations)
    (folder / f"{name}.c").write_text(text, encoding="utf-8")
    soname = re.search(r"SONAME.*\[(.*)\]", run("readelf", "-d", library))[1]
    made = folder / f"{name}.so"
    run(compiler, "-std=c11", "-g", "-O0", "-w", "-shared", "-fPIC", f"-I{source}/include", f"-I{folder.parent}/include", folder / f"{name}.c",
        f"-Wl,-soname,{soname}", f"-Wl,--version-script={source}/cmake/{name}.map", "-nostdlib", "-o", made)
    found = folder / f"{name}.abi"
    found.write_text(re.sub(r"(?<= path=')[^']*/", "", run(*DESCRIBE, made)), encoding="utf-8")  # built anywhere
    return made, found


def symbols(library):
    """Names with versions, of C alone."""
    listed = run("nm", "-D", "--with-symbol-versions", "--defined-only", library)
    return set(re.findall(r" T (rota_\w+\S*)", listed))


def main():
    source, build, compiler, library = (pathlib.Path(word) for word in sys.argv[1:5])
    name = sys.argv[5]
    folder = build / "abi"
    folder.mkdir(exist_ok=True)
    made, found = described(source, folder, compiler, library, name)
    differing = sorted(symbols(library) ^ symbols(made))
    if differing or not symbols(made):
        sys.exit("in the header or in the library, but not in both: " + " ".join(differing))
    accepted = source / f"tests/c/{name}.abi"
    if sys.argv[6:] == ["--write"]:
        accepted.write_bytes(found.read_bytes())
        return
    if not accepted.exists():
        sys.exit(f"there is no {accepted}")
    difference = subprocess.run(["abidiff", accepted, found], check=False)
    if difference.returncode != 0:
        sys.exit(f"{HEADERS[name]} is not what tests/c/{name}.abi describes; docs/versioning.md says what may change, and how to accept it")
    print(f"{len(symbols(made))} functions of {HEADERS[name]}, as described")


if __name__ == "__main__":
    main()

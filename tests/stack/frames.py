#!/usr/bin/env python3
"""frames.py BUILD_FOLDER: no function of the library has a frame that a small stack could not hold.

Reads what the compiler wrote beside each object of the library (-fstack-usage). Fails if an object has no such file, if a
frame is too large, or if its size is known only when it runs.
"""
import pathlib
import sys

MOST_BYTES = 16 << 10
FEWEST_OBJECTS = 40
SHOWN = 5


def frames_of(path):
    """(bytes, "static" or how it is not, function) of each line: place and function, bytes, kind."""
    for line in path.read_text().splitlines():
        function, size, kind = line.rsplit("\t", 2)
        yield int(size), kind, function


def main(build):
    folder = pathlib.Path(build) / "CMakeFiles" / "rota_objects.dir"
    objects = sorted(folder.rglob("*.o"))
    if len(objects) < FEWEST_OBJECTS:
        sys.exit(f"{folder} has {len(objects)} objects: the library's are elsewhere")
    usage = [path.with_suffix(".su") for path in objects]
    missing = [str(path) for path in usage if not path.exists()]
    if missing:
        sys.exit("\n".join(["The compiler said nothing about frames:", *missing]))
    frames = sorted((frame for path in usage for frame in frames_of(path)), reverse=True)
    print(f"{len(frames)} functions of {len(objects)} objects; the largest frames, in bytes:")
    for size, kind, function in frames[:SHOWN]:
        print(f"{size:7} {kind:15} {function}")
    too_large = [frame for frame in frames if frame[0] > MOST_BYTES or frame[1] == "dynamic"]
    for size, kind, function in too_large:
        print(f"{function}: {size} bytes, {kind}; at most {MOST_BYTES}, and known before it runs", file=sys.stderr)
    if too_large:
        sys.exit("What a kernel computes in belongs into its worker's scratch: runtime::CpuCall::emplace")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])

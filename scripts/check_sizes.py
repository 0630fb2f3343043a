#!/usr/bin/env python3
"""Checks that files and functions stay short. Prints each that is too long; exits 1 if there is one.

Reads code as clang-format lays it out: a body ends at the brace that stands as far to the left as the line that began
the definition. Lambdas belong to the function around them. Bodies of tests are lists of cases, and may be long.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

MOST_FILE_LINES = 500
MOST_FUNCTION_LINES = 60
FILE_FOLDERS = ("src", "tools", "integrations")
FUNCTION_FOLDERS = ("include", "src", "tools", "integrations")
SUFFIXES = (".h", ".cpp")

TEST = re.compile(r"\s*(TYPED_)?TEST(_[FP])?\(|\s*RC_GTEST(_FIXTURE)?_PROP\(")
# What a line begins with that begins no function.
NO_FUNCTION = re.compile(
    r"\s*(if|for|while|switch|catch|else|do|try|return|throw|using|static_assert|struct|class|union|enum|namespace)\b"
    r"|\s*[}\])#*/]|\s*extern \""
)
ASSIGNED = re.compile(r"[^=!<>]=[^=]")  # a variable, whatever stands in braces behind it
RAW_STRING = re.compile(r'R"(\w*)\((.*?)\)\1"', re.DOTALL)


def code_lines(text):
    """The file's lines, without what only looks like code: comments and raw strings."""
    text = RAW_STRING.sub(lambda raw: '""' + "\n" * raw.group(0).count("\n"), text)
    return [re.sub(r"\s*//.*", "", line).rstrip() for line in text.splitlines()]


def indentation(line):
    return len(line) - len(line.lstrip(" "))


def begins_function(line):
    before_parameters = re.sub(r"operator\W+\(", "operator(", line).split("(")[0]
    return "(" in line and not NO_FUNCTION.match(line) and not ASSIGNED.search(before_parameters)


def body_begin(lines, first):
    """Where the body of a function opens whose definition begins at `first`; None for a declaration or a call."""
    depth = 0
    for at in range(first, len(lines)):
        if at > first and lines[at] and indentation(lines[at]) < indentation(lines[first]):
            return None
        depth += lines[at].count("(") - lines[at].count(")")
        if depth <= 0 and lines[at].endswith("{"):
            return at
        if depth <= 0 and lines[at].endswith((";", "}")):
            return None
    return None


def functions_of(lines):
    """First and last line of each function, counted from 0."""
    at = 0
    while at < len(lines):
        begin = body_begin(lines, at) if begins_function(lines[at]) else None
        end = None
        if begin is not None:
            brace = " " * indentation(lines[at]) + "}"
            end = next((n for n in range(begin + 1, len(lines)) if lines[n] in (brace, brace + ";")), None)
        if end is None:
            at += 1
            continue
        if not TEST.match(lines[at]):
            yield at, end
        at = end + 1


def files_below(folders):
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in SUFFIXES and file.is_file():  # a folder may be named llama.cpp
                yield file


def main():
    breaches = []
    files = functions = 0
    for file in files_below(FILE_FOLDERS):
        files += 1
        count = len(file.read_text().splitlines())
        if count > MOST_FILE_LINES:
            breaches.append(f"{file.relative_to(ROOT)}: {count} lines; wanted at most {MOST_FILE_LINES}")
    for file in files_below(FUNCTION_FOLDERS):
        lines = code_lines(file.read_text())
        for first, last in functions_of(lines):
            functions += 1
            count = last - first + 1
            if count > MOST_FUNCTION_LINES:
                where = f"{file.relative_to(ROOT)}:{first + 1}"
                breaches.append(f"{where}: {count} lines; wanted at most {MOST_FUNCTION_LINES}: {lines[first].strip()}")
    print("\n".join(breaches) if breaches else f"sizes: {files} files, {functions} functions, none too long")
    return 1 if breaches or files == 0 or functions == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

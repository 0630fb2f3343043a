#!/usr/bin/env python3
"""Prints a public header as doxygen wants it: comments that precede or trail a declaration become /// and ///<.

    doxygen_filter.py HEADER

The headers keep plain comments: they are read as source far more often than as a reference. Lines keep their numbers."""

import re
import sys

COMMENT = re.compile(r"(\s*)//(?![/!]) ?(.*)$")
# A declaration or an enumerator, and a comment behind it; not the end of a scope.
TRAILED = re.compile(r"(\s*[^\s/}#].*?[;,{)\w])(\s+)//(?![/!]) ?(.*)$")
# doxygen 1.9 does not know C++20's nested inline namespaces. Nobody writes this one's name.
INLINE_NAMESPACE = re.compile(r"\brota::inline ROTA_ABI\b")
# What comments mean literally and doxygen would take for a tag or a command.
SPECIAL = re.compile(r"[<>@\\#%]")


def literal(text):
    return "".join(part if part.startswith("`") else SPECIAL.sub(r"\\\g<0>", part) for part in re.split(r"(`[^`]*`)", text))


def block_end(lines, begin):
    """The first line from `begin` on that is no comment of its own."""
    end = begin
    while end < len(lines) and COMMENT.match(lines[end]):
        end += 1
    return end


def is_declaration(line):
    return line.strip() not in ("", "}", "};") and not line.lstrip().startswith(("#", "namespace ", "}"))


def filtered(lines):
    at = 0
    while at < len(lines):
        end = block_end(lines, at)
        documents = end < len(lines) and is_declaration(lines[end])
        for line in lines[at:end]:
            indent, text = COMMENT.match(line).groups()
            yield f"{indent}/// {literal(text)}" if documents else line
        if end < len(lines):
            trailed = TRAILED.match(lines[end])
            line = f"{trailed[1]}{trailed[2]}///< {literal(trailed[3])}" if trailed else lines[end]
            yield INLINE_NAMESPACE.sub("rota", line)
        at = end + 1


def main():
    with open(sys.argv[1], encoding="utf-8") as header:
        print("\n".join(filtered(header.read().splitlines())))


if __name__ == "__main__":
    main()

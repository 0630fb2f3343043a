#!/usr/bin/env python3
"""Checks what documents refer to: files and headings of links, and the figures of tables that come from elsewhere.

    references.py SOURCE_FOLDER"""

import pathlib
import re
import sys

import markdown

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`[^`]*`")
NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,]\d+)*(?:e-?\d+)?")
FIGURES = "figures from "


def anchor(heading):
    """The name that a heading gets on the web."""
    words = re.sub(r"[^\w\- ]", "", heading.lower())
    return words.strip().replace(" ", "-")


def anchors(path):
    lines = (item.lines[0] for item in markdown.items(path) if item.kind == "line")
    return {anchor(line.lstrip("#")) for line in lines if line.startswith("#")}


def prose(path):
    """Paragraphs as one line each, since a link may be broken over two lines."""
    paragraph, begin = [], 0
    for item in markdown.items(path):
        if item.kind == "line" and item.lines[0].strip():
            begin = begin or item.line
            paragraph.append(item.lines[0].strip())
            continue
        if paragraph:
            yield begin, " ".join(paragraph)
        paragraph, begin = [], 0
    if paragraph:
        yield begin, " ".join(paragraph)


def bad_links(path):
    for line, text in prose(path):
        for target in LINK.findall(CODE.sub("", text)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, heading = target.partition("#")
            file = (path.parent / name) if name else path
            if not file.exists():
                yield f"{path}:{line}: no file {target}"
            elif heading and heading not in anchors(file):
                yield f"{path}:{line}: no heading {target}"


def bad_figures(root, path):
    sources, named = "", []
    for item in markdown.items(path):
        if item.kind == "comment" and item.text.startswith(FIGURES):
            named = item.text.removeprefix(FIGURES).split()
            sources = "\n".join((root / name).read_text(encoding="utf-8") for name in named)
            known = set(NUMBER.findall(sources))
        elif named and item.kind == "line" and item.lines[0].startswith("|"):
            for number in NUMBER.findall(item.lines[0]):
                if number not in known:
                    yield f"{path}:{item.line}: {number} is not in {' or '.join(named)}"
        else:
            named = []


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    paths = markdown.documents(root)
    complaints = [c for path in paths for c in (*bad_links(path), *bad_figures(root, path))]
    print(*complaints, sep="\n")
    print(f"{len(paths)} documents, {len(complaints)} bad references")
    return 1 if complaints else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except markdown.Bad as bad:
        sys.exit(str(bad))

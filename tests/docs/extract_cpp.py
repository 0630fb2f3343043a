#!/usr/bin/env python3
"""Makes one C++ program of the ```cpp blocks of a document, in their order, or one C program of its ```c blocks.

    extract_cpp.py DOCUMENT PROGRAM.cpp
    extract_cpp.py DOCUMENT PROGRAM.c

Blocks are the body of main(). Code that readers need not see goes into comments, and notes go before a block:

    <!-- cpp: CODE -->                  one line of code, or several after "<!-- cpp" on a line of its own
    <!-- cpp: namespace -->             the next block is outside main()
    <!-- cpp: not compiled, REASON -->  the next block is left out

#include lines go to the top, wherever they are. In C the notes begin with "c" instead of "cpp"."""

import pathlib
import sys

import markdown

HEAD = """// Made of {document} by tests/docs/extract_cpp.py.
#include <rota/rota.h>

#include <cstdio>
#include <exception>
{includes}
{outside}
namespace {{
void run() {{
{inside}
}}
}}  // namespace

int main() {{
  try {{
    run();
  }} catch (const std::exception& error) {{
    std::fprintf(stderr, "%s\\n", error.what());
    return 1;
  }}
}}
"""


C_HEAD = """// Made of {document} by tests/docs/extract_cpp.py.
#include <rota/c.h>
{includes}
{outside}
int main(void) {{
{inside}
  return 0;
}}
"""

HEADS = {"cpp": HEAD, "c": C_HEAD}


class Program:
    def __init__(self, document, language):
        self.document, self.language = document, language
        self.includes, self.outside, self.inside = [], [], []
        self.blocks, self.left_out = 0, []

    def add(self, to, line, lines):
        """Errors of the compiler name the document's line."""
        to.append(f'#line {line} "{self.document}"')
        for text in lines:
            if text.startswith("#include"):
                self.includes.append(text)
                text = ""
            to.append(text)

    def text(self):
        return HEADS[self.language].format(document=self.document, includes="\n".join(dict.fromkeys(self.includes)),
                           outside="\n".join(self.outside), inside="\n".join(self.inside))


def read(document, language="cpp"):
    program = Program(document, language)
    note = ""
    for item in markdown.items(document):
        if item.kind == "comment":
            if item.lines[0] == language:
                program.add(program.inside, item.line + 1, item.lines[1:])
            elif item.text.startswith(language + ":"):
                code = item.text.removeprefix(language + ":").strip()
                if code == "namespace" or code.startswith("not compiled, "):
                    note = code
                else:
                    program.add(program.inside, item.line, [code])
        elif item.kind == "fence" and item.language == language:
            if note.startswith("not compiled"):
                program.left_out.append(f"{document}:{item.line}: {note}")
            else:
                program.add(program.outside if note == "namespace" else program.inside, item.line, item.lines)
                program.blocks += 1
            note = ""
        elif note:
            raise markdown.Bad(f"{document}:{item.line}: \"{language}: {note}\" precedes something other than a block")
    return program


def main():
    document, target = sys.argv[1], pathlib.Path(sys.argv[2])
    target.write_text(read(document, target.suffix[1:]).text(), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except markdown.Bad as bad:
        sys.exit(str(bad))

"""What the tests of documents read of Markdown: fenced blocks, HTML comments, and all other lines."""

import dataclasses
import pathlib
import re

FENCE = re.compile(r"```(\w*)\s*$")


@dataclasses.dataclass
class Item:
    """A fenced block (its language is a string, maybe empty), a comment, or one line of something else."""

    kind: str  # "fence", "comment" or "line"
    line: int  # of its first line of content, from 1
    lines: list
    language: str = ""

    @property
    def text(self):
        return "\n".join(self.lines)


class Bad(Exception):
    """A document is not what it should be: path:line and why."""


def documents(root):
    """Every document that users or contributors read."""
    root = pathlib.Path(root)
    top = [root / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
    return [path for path in top if path.exists()] + sorted(root.glob("docs/**/*.md"))


def items(path):
    """The document's items, first to last."""
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        is_comment = lines[at].startswith("<!--")
        if not fence and not is_comment:
            yield Item("line", at + 1, [lines[at]])
            at += 1
            continue
        end = at
        if fence:
            end += 1
            while end < len(lines) and lines[end].rstrip() != "```":
                end += 1
        else:
            while end < len(lines) and not lines[end].rstrip().endswith("-->"):
                end += 1
        if end == len(lines):
            raise Bad(f"{path}:{at + 1}: has no end")
        if fence:
            yield Item("fence", at + 2, lines[at + 1 : end], fence.group(1))
        else:
            body = "\n".join(lines[at : end + 1]).strip().removeprefix("<!--").removesuffix("-->")
            yield Item("comment", at + 1, body.strip(" ").split("\n"))
        at = end + 1


def noted_fences(path, language):
    """Fences of a language, each with the notes `<!-- language: note -->` directly before it."""
    notes = []
    for item in items(path):
        if item.kind == "comment":
            note = item.text.removeprefix(f"{language}:")
            if note != item.text:
                notes.append(note.strip())
            continue
        if item.kind == "fence" and item.language == language:
            yield item, notes
        elif notes and language == "console":
            raise Bad(f"{path}:{item.line}: a note for a console block precedes something else")
        notes = []

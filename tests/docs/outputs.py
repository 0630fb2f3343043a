#!/usr/bin/env python3
"""Runs the commands of every ```console block in the documents and compares their output with the document's.

    outputs.py SOURCE_FOLDER FOLDER_OF_PROGRAMS...

A line "$ command" is run by bash; the lines up to the next one are what it prints. Notes go before a block:

    <!-- console: mask REGEX -->       what it matches depends on the machine: not compared
    <!-- console: exit N -->           its commands end with N instead of 0
    <!-- console: not run, REASON -->  cannot run here

Commands see the source's folders in a working folder of their own."""

import dataclasses
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import extract_cpp
import markdown

MASKED = "*"


@dataclasses.dataclass
class Notes:
    masks: list = dataclasses.field(default_factory=list)
    exit_code: int = 0
    not_run: str = ""


@dataclasses.dataclass
class Command:
    line: int
    text: str
    wanted: list


def read_notes(where, notes):
    result = Notes()
    for note in notes:
        word, _, rest = note.partition(" ")
        if word == "mask":
            result.masks.append(re.compile(rest))
        elif word == "exit":
            result.exit_code = int(rest)
        elif note.startswith("not run, "):
            result.not_run = note.removeprefix("not run, ")
        else:
            raise markdown.Bad(f"{where}: unknown note: {note}")
    return result


def read_commands(where, block):
    commands = []
    for number, line in enumerate(block.lines, block.line):
        if line.startswith("$ "):
            commands.append(Command(number, line[2:], []))
        elif commands:
            commands[-1].wanted.append(line)
        else:
            raise markdown.Bad(f"{where}: begins with output; wanted a line \"$ command\"")
    return commands


def masked(masks, lines):
    text = "\n".join(line.rstrip() for line in lines)
    for mask in masks:
        text = mask.sub(MASKED, text)
    return text.rstrip("\n").split("\n")


def check_masks(where, masks, block):
    """A mask that hides nothing is forgotten, or wrong."""
    for mask in masks:
        if not any(mask.search(line) for line in block.lines if not line.startswith("$ ")):
            raise markdown.Bad(f"{where}: nothing matches the mask {mask.pattern}")


def run(command, folder, environment):
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240, check=False)
    return done.returncode, done.stdout.splitlines()


def difference(where, command, notes, result):
    """Why the command's result differs from the document's; empty if it does not."""
    exit_code, found = result
    wanted, found = masked(notes.masks, command.wanted), masked(notes.masks, found)
    complaint = []
    if exit_code != notes.exit_code:
        complaint.append(f"ends with {exit_code}; wanted {notes.exit_code}")
    if wanted != found:
        complaint += difflib.unified_diff(wanted, found, "document", "command", lineterm="", n=1)
    return "\n".join([f"{where}: $ {command.text}", *complaint]) if complaint else ""


def check_no_others(path):
    """What looks like a command and its output is tested, or marked."""
    for item in markdown.items(path):
        is_other = item.kind == "fence" and item.language != "console"
        if is_other and any(line.startswith("$ ") for line in item.lines):
            raise markdown.Bad(f"{path}:{item.line}: has a line \"$ command\"; wanted ```console")


def check_blocks(root, folder, environment):
    """Runs all blocks. Returns how many commands ran, which blocks are marked, and complaints."""
    ran, marked, complaints = 0, [], []
    for path in markdown.documents(root):
        check_no_others(path)
        name = path.relative_to(root)
        for block, notes in markdown.noted_fences(path, "console"):
            where = f"{name}:{block.line}"
            notes = read_notes(where, notes)
            commands = read_commands(where, block)
            check_masks(where, notes.masks, block)
            if notes.not_run:
                marked.append(f"{where}: {notes.not_run}")
                continue
            for command in commands:
                ran += 1
                result = run(command.text, folder, environment)
                complaints.append(difference(f"{name}:{command.line}", command, notes, result))
    return ran, marked, [complaint for complaint in complaints if complaint]


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    environment = dict(os.environ, PATH=os.pathsep.join([*sys.argv[2:], os.environ["PATH"]]))
    with tempfile.TemporaryDirectory() as folder:
        for entry in root.iterdir():
            if not entry.name.startswith("."):
                (pathlib.Path(folder) / entry.name).symlink_to(entry)
        ran, marked, complaints = check_blocks(root, folder, environment)
    print(*complaints, sep="\n\n")
    print(f"{ran} commands ran, {len(complaints)} print something else; {len(marked)} blocks are marked as not run")
    print(*marked, sep="\n")
    programs = [extract_cpp.read(path, language) for path in markdown.documents(root) for language in ("cpp", "c")]
    left_out = [where for program in programs for where in program.left_out]
    print(f"{sum(program.blocks for program in programs)} C++ and C blocks are compiled; {len(left_out)} are marked as not")
    print(*left_out, sep="\n")
    return 1 if complaints or ran == 0 else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except markdown.Bad as bad:
        sys.exit(str(bad))

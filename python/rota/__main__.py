"""`python -m rota ...` and the command `rota`: the command-line tool, but for `eval`, which is Python."""

import os
import pathlib
import subprocess
import sys

import rota


def find_tool() -> pathlib.Path:
    """The program that the wheel brought."""
    name = "rota.exe" if os.name == "nt" else "rota"
    for folder in rota.__path__:
        tool = pathlib.Path(folder, "bin", name)
        if tool.is_file():
            return tool
    sys.exit(f"rota: this installation has no command-line tool: there is no bin/{name} in {', '.join(rota.__path__)}")


def main() -> int:
    words = sys.argv[1:]
    if words[:1] == ["eval"]:
        from rota.eval import main as evaluate

        return evaluate(words[1:])
    command = [str(find_tool()), *words]
    if os.name == "posix":
        os.execv(command[0], command)
    return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())

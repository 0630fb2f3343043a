"""What is installed is whole: the module, its types, and the command-line tool by both of its names."""

import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

import pytest
import rota

PACKAGE = pathlib.Path(rota.__file__).parent
COMMANDS = {
    "module": [sys.executable, "-m", "rota"],
    "command": [str(pathlib.Path(sysconfig.get_path("scripts"), "rota"))],
}


def run(command, *words):
    return subprocess.run([*command, *words], capture_output=True, text=True, timeout=120)


def test_what_is_tested_is_what_is_installed():
    assert PACKAGE == pathlib.Path(sysconfig.get_path("platlib"), "rota")


def test_library_package_and_tool_have_one_version():
    assert rota.__version__ == importlib.metadata.version("rota-kv")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_tool_has_the_librarys_version(name):
    done = run(COMMANDS[name], "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"rota {rota.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_tools_exit_code_and_words_come_through(name):
    done = run(COMMANDS[name], "no such command")
    tool = run([str(PACKAGE / "bin" / "rota")], "no such command")
    assert done.returncode == tool.returncode != 0
    assert (done.stdout, done.stderr) == (tool.stdout, tool.stderr)


def test_the_tool_finds_this_cpu():
    done = run(COMMANDS["module"], "doctor", "--selftest", "--device", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cpu" in done.stdout


def test_the_package_has_types():
    assert (PACKAGE / "py.typed").is_file()
    assert re.search(r"^(def|class) ", (PACKAGE / "_rota.pyi").read_text(), re.MULTILINE)


def test_the_licences_of_what_is_compiled_in_are_there():
    found = {file.name for file in (PACKAGE / "licenses").iterdir() if file.stat().st_size > 200}
    assert found >= {"libssl-dev", "libsodium-dev", "libsqlite3-dev", "hiredis", "libfmt-dev", "nanobind", "libcxx"}


def test_the_tool_opens_stores(tmp_path):
    done = run(COMMANDS["module"], "store", "stat", f"file:{tmp_path}/none")
    assert done.returncode != 0 and "none" in done.stderr
    done = run(COMMANDS["module"], "store", "stat", "valkeys://127.0.0.1:1")
    assert done.returncode != 0 and "127.0.0.1:1" in done.stderr


def test_a_missing_tool_is_said(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "rota", ignore=shutil.ignore_patterns("bin"))
    done = subprocess.run(
        [sys.executable, "-m", "rota", "doctor"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "no command-line tool" in done.stderr

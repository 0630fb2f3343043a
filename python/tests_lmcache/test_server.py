"""LMCache's server, as a process of its own, with the serde."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import pytest
from conftest import free_port
from stores import wait_for

LMCACHE = [sys.executable, "-c", "from lmcache.cli.main import main; main()"]  # what the script `lmcache` does
LMCACHE_WITH_ROTA = [sys.executable, "-m", "rota.lmcache"]
SERDE = {"type": "rota", "head_dim": 64}

# Valkey would show nothing more: a server starts in ten seconds.
pytestmark = pytest.mark.parametrize("server", ["redis"], indirect=True)


def adapters(port):
    store = {"type": "resp", "host": "127.0.0.1", "port": port}
    plugin = {"type": "plugin", "module_path": "rota.lmcache", "class_name": "StoreWithRota", "adapter_params": store}
    return {"resp": {**store, "serde": SERDE}, "plugin": {**plugin, "serde": SERDE}}


class Running:
    """A server until the end of a `with`."""

    def __init__(self, command, adapter, log, *more):
        self.port, self.http, self.log = free_port(), free_port(), log
        arguments = ["server", "--host", "127.0.0.1", "--port", str(self.port), "--http-host", "127.0.0.1",
                     "--http-port", str(self.http), "--l1-size-gb", "0.25", "--no-l1-use-lazy", "--eviction-policy",
                     "LRU", "--disable-observability", "--supported-transfer-mode", "engine_driven", "--l2-adapter",
                     json.dumps(adapter), *more]  # fmt: skip
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [*command, *arguments], stdout=output, stderr=output, env={**os.environ, "LMCACHE_TRACK_USAGE": "false"}
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def status(self):
        """What the server says of itself, or None once it has ended."""
        while self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/status", timeout=5) as answer:
                    return json.load(answer)
            except OSError:
                time.sleep(0.2)
        return None


def run_client(one):
    """LMCache's own client for tests: stores 512 tokens of 4 layers, 3 heads of 64, and gets them back."""
    subprocess.run(
        [*LMCACHE, "bench", "server", "--rpc-url", f"tcp://127.0.0.1:{one.port}", "--url",
         f"http://127.0.0.1:{one.http}", "--mode", "cpu", "--num-tokens", "512", "--kvcache-shape-spec",
         "(2,64,16,3,64):bfloat16:4", "--start", "0", "--end", "1", "--interval", "0.1"],
        check=True, timeout=400, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def wrapped(status):
    """All that is said of adapters with a serde."""
    return json.dumps(status).count('"serde_wrapped": true')


def test_one_server_stores_chunks_and_another_restores_them(empty, tmp_path):
    ways = adapters(empty.port)
    with Running(LMCACHE_WITH_ROTA, ways["resp"], tmp_path / "first") as one:
        assert wrapped(one.status()) == 1, one.log.read_text()[-2000:]
        run_client(one)
        assert wait_for(lambda: empty.dbsize() == 2)
        assert {empty.strlen(name) for name in empty.keys()} == {128 + 4 * 2 * 3 * (4480 + 4352)}
        assert {empty.getrange(name, 0, 7) for name in empty.keys()} == {b"ROTA-LMC"}
    with Running(LMCACHE, ways["plugin"], tmp_path / "second") as other:
        assert wrapped(other.status()) == 1, other.log.read_text()[-2000:]
        run_client(other)
        assert "2/2 retained keys (0 L1, 2 L2)" in other.log.read_text()


def test_the_command_alone_does_not_know_the_serde(server, tmp_path):
    # If this fails, LMCache has learnt to import serdes, and docs/lmcache.md may say so.
    module = json.dumps({"module_path": "rota.lmcache", "factory_name": "no_modules"})
    for more in ([], ["--server-module", module]):
        with Running(LMCACHE, adapters(server.port)["resp"], tmp_path / "log", *more) as one:
            assert one.status() is None
            assert "Unknown serde type 'rota'" in one.log.read_text()


def test_bad_options_end_the_server(server, tmp_path):
    adapter = {**adapters(server.port)["resp"], "serde": {"type": "rota"}}
    with Running(LMCACHE_WITH_ROTA, adapter, tmp_path / "log") as one:
        assert one.status() is None
        assert "option 'head_dim'" in one.log.read_text()

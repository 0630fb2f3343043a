"""Real servers for the tests of rota.lmcache: they bind to 127.0.0.1, keep nothing, and end with the tests."""

import os
import pathlib
import socket
import subprocess
import sys
import time

os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
SOURCE = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import pytest  # noqa: E402
import redis  # noqa: E402

SERVERS = {"redis": "redis-server", "valkey": str(SOURCE / "build/valkey/valkey-server")}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="session", params=SERVERS)
def server(request, tmp_path_factory):
    """A client of a running server. A missing program is a failure: apt-get install redis-server, and
    scripts/get_valkey.sh."""
    port = free_port()
    folder = tmp_path_factory.mktemp(request.param)
    command = [SERVERS[request.param], "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no",
               "--dir", str(folder)]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = redis.Redis(host="127.0.0.1", port=port)
    try:
        for _ in range(200):
            try:
                client.ping()
                break
            except redis.ConnectionError:
                time.sleep(0.05)
        found = client.info("server")
        assert ("valkey_version" in found) == (request.param == "valkey")
        client.port = port
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait()


@pytest.fixture
def empty(server):
    """The same without keys."""
    server.flushall()
    yield server
    server.flushall()


@pytest.fixture(scope="session")
def writer(server):
    """LMCache with the serde at 4 bits."""
    from stores import ROTA4, manager

    one = manager(server.port, ROTA4)
    yield one
    one.close()


@pytest.fixture(scope="session")
def reader(server):
    """Another one, with an L1 of its own."""
    from stores import ROTA4, manager

    one = manager(server.port, ROTA4)
    yield one
    one.close()

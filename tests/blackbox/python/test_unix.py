"""Unix sockets: redis-cli -s, redis-py, pymemcache, and what becomes of the files."""

import os
import socket
import stat
import subprocess
import time

import pytest
import redis
from pymemcache.client.base import Client as MemcachedClient

import servers

pytestmark = [pytest.mark.dovetail_only]

WAIT_SECONDS = 20


@pytest.fixture
def paths(tmp_path):
    return str(tmp_path / "resp.sock"), str(tmp_path / "memcached.sock")


def flags(paths, *more):
    return ["--unix-socket", paths[0], "--memcached-unix-socket", paths[1], *more]


@pytest.fixture
def both(paths, index):
    running = servers.Dovetail("--index", index, *flags(paths), threads="2")
    yield running
    assert running.stop() == 0


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_clients_of_both_protocols_share_their_keys(both, paths):
    with redis.Redis(unix_socket_path=paths[0]) as client, redis.Redis(port=both.resp_port) as other:
        memcached = MemcachedClient(paths[1])
        assert client.set("a", "x" * 300_000)
        assert other.get("a") == memcached.get("a") == b"x" * 300_000
        assert memcached.set("b", "1", noreply=False) and client.get("b") == b"1"
        pipe = client.pipeline()
        for number in range(1000):
            pipe.set(f"k{number}", number)
        assert all(pipe.execute())
        memcached.close()
    run = subprocess.run(["redis-cli", "-s", paths[0], "get", "b"], capture_output=True, text=True, check=True)
    assert run.stdout == "1\n"


@pytest.mark.index("hash")
def test_a_client_is_named_by_the_path(both, paths):
    with redis.Redis(unix_socket_path=paths[0]) as client:
        own = client.client_info()
        assert own["addr"] == own["laddr"] == f"{paths[0]}:0"
        assert client.client_list()[0]["addr"] == f"{paths[0]}:0"
        assert client.config_get("unixsocket*") == {"unixsocket": paths[0], "unixsocketperm": "700"}
        with client.monitor() as monitor:
            client.get("a")
            seen = next(command for command in monitor.listen() if command["command"] == "GET a")
            assert seen["client_type"] == "unix"
    memcached = MemcachedClient(paths[1])
    told = memcached.stats("conns")
    assert f"unix:{paths[1]}".encode() in told.values()
    memcached.close()


@pytest.mark.index("hash")
@pytest.mark.parametrize("mode, want", [(None, 0o700), ("0770", 0o770), ("666", 0o666)])
def test_the_files_have_their_mode_and_go_with_the_server(paths, mode, want):
    old_mask = os.umask(0o077)
    try:
        server = servers.Dovetail(*flags(paths, *(["--unix-mode", mode] if mode else [])))
    finally:
        os.umask(old_mask)
    assert [mode_of(path) for path in paths] == [want, want]
    assert server.stop() == 0
    assert not any(os.path.exists(path) for path in paths)


def ends_at_start(*more):
    command = [servers.binary(), "serve", "--resp", "off", "--memcached", "off", "--native", "off", "--admin", "off",
               "--memory", "64MiB", "--threads", "1", *more]
    run = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False,
                         env=servers.clean_environment())
    assert run.returncode != 0
    return run.stderr


@pytest.mark.index("hash")
def test_a_living_servers_socket_is_not_taken_and_a_dead_ones_is(both, paths):
    said = ends_at_start("--unix-socket", paths[0])
    assert f"--unix-socket {paths[0]}: another server answers there" in said
    with redis.Redis(unix_socket_path=paths[0]) as client:
        assert client.ping()
    both.process.kill()
    both.process.wait()
    assert os.path.exists(paths[0])
    again = servers.Dovetail(*flags(paths))
    with redis.Redis(unix_socket_path=paths[0]) as client:
        assert client.ping()
    assert again.stop() == 0
    both.stop = lambda: 0


@pytest.mark.index("hash")
def test_what_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "notes"
    path.write_text("mine")
    assert "there is a file that is no socket: choose another path" in ends_at_start("--unix-socket", str(path))
    assert path.read_text() == "mine"
    long = str(tmp_path / ("x" * 108))
    assert "is not a socket's path: write 1 to 107 bytes, or `off`" in ends_at_start("--unix-socket", long)
    assert "write 0000 to 0777" in ends_at_start("--unix-mode", "rwx")


@pytest.mark.index("hash")
def test_passwords_hold_and_limits_of_addresses_do_not(paths):
    server = servers.Dovetail(*flags(paths, "--requirepass", "secret", "--max-connections-per-address", "2"))
    clients = []
    for _ in range(5):
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(paths[0])
        connected.sendall(b"GET a\r\n")
        assert connected.recv(100).startswith(b"-NOAUTH")
        clients.append(connected)
    with redis.Redis(unix_socket_path=paths[0], password="secret") as client:
        assert client.ping()
    for connected in clients:
        connected.close()
    assert server.stop() == 0


@pytest.mark.index("hash")
def test_an_idle_server_with_sockets_sleeps(both, paths):
    with redis.Redis(unix_socket_path=paths[0]) as client:
        client.ping()
    ticks = os.sysconf("SC_CLK_TCK")

    def spent():
        with open(f"/proc/{both.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / ticks

    before = spent()
    time.sleep(2)
    assert spent() - before < 1, "both workers are to sleep"

"""`--warm-file`: a restart of the program keeps what is in memory."""

import os
import signal
import subprocess
import time

import pytest
import redis

import servers
import wires

pytestmark = pytest.mark.dovetail_only


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "warm")


def start(path, *flags, **options):
    return servers.start("--warm-file", path, *flags, **options)


def client_of(server):
    return redis.Redis(port=server.resp_port)


def wait_log(server, *words):
    """The log's last lines come when the process has ended."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for line in server.log:
            if all(word in line for word in words):
                return line
        time.sleep(0.01)
    raise AssertionError(f"no line with {words} in {server.log}")


def end(server, how):
    if how == "SHUTDOWN":
        with wires.RespWire(server.resp_port) as wire:
            wire.send(b"SHUTDOWN\r\n")
            assert server.process.wait(20) == 0
    else:
        assert server.stop(how) == 0


@pytest.mark.parametrize("mode", ["cache", "store"])
@pytest.mark.parametrize("kind", servers.INDEXES)
@pytest.mark.parametrize("how", [signal.SIGUSR1, signal.SIGTERM, "SHUTDOWN"])
def test_a_warm_file_keeps_the_store(path, mode, kind, how):
    flags = ("--mode", mode, "--index", kind)
    server = start(path, *flags)
    client = client_of(server)
    for number in range(500):
        client.set(f"key:{number}", b"v" * number)
    client.set("ttl", "x", px=60_000)
    client.set("gone", "x", px=100)
    client.set("large", b"L" * 3_000_000)
    client.delete("key:7")
    with wires.TextWire(server.memcached_port) as wire:
        assert wire.ask(b"set flags 77 0 3\r\nabc\r\n") == b"STORED\r\n"
        token = wire.ask(b"gets flags\r\n").split()[4]
    end(server, how)
    wait_log(server, "kept")
    time.sleep(0.2)

    server = start(path, *flags)
    client = client_of(server)
    assert client.dbsize() == 500 - 1 + 3
    for number in range(500):
        assert client.get(f"key:{number}") == (None if number == 7 else b"v" * number)
    assert 0 < client.pttl("ttl") <= 60_000
    assert client.get("gone") is None
    assert client.get("large") == b"L" * 3_000_000
    with wires.TextWire(server.memcached_port) as wire:
        assert wire.ask(b"gets flags\r\n").split()[2:5] == [b"77", b"3", token]
        assert wire.ask(b"cas flags 0 0 1 %s\r\nd\r\n" % token) == b"STORED\r\n"
    assert client.info("persistence")["dovetail_warm_items"] == 502
    assert 'dovetail_warm_items{state="kept"} 502' in server.admin("/metrics")[1]
    assert server.stop() == 0


def test_a_killed_server_leaves_nothing_that_is_believed(path):
    server = start(path)
    client_of(server).set("a", 1)
    assert server.stop() == 0
    server = start(path)
    assert client_of(server).get("a") == b"1"
    server.process.kill()
    server.process.wait()
    server = start(path)
    assert client_of(server).get("a") is None
    wait_log(server, "did not end as it should")
    assert server.stop() == 0


def test_shutdown_nosave_keeps_nothing_and_save_is_taken(path):
    server = start(path)
    client_of(server).set("a", 1)
    with wires.RespWire(server.resp_port) as wire:
        wire.send(b"SHUTDOWN SAVE\r\n")
        assert server.process.wait(20) == 0
    server = start(path)
    assert client_of(server).get("a") == b"1"
    with wires.RespWire(server.resp_port) as wire:
        wire.send(b"SHUTDOWN NOSAVE\r\n")
        assert server.process.wait(20) == 0
    server = start(path)
    assert client_of(server).get("a") is None
    assert server.stop() == 0
    assert not any("did not end as it should" in line for line in server.log)


def spoil_layout(path):
    """Another layout, with the sums that it would have; CRC-32C without its last complement."""
    with open(path, "r+b") as file:
        file.seek(-64, os.SEEK_END)
        trailer = bytearray(file.read(64))
        trailer[8] = 99
        state = 0xFFFFFFFF
        for byte in trailer[:60]:
            state ^= byte
            for _ in range(8):
                state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
        trailer[60:] = state.to_bytes(4, "little")
        file.seek(-64, os.SEEK_END)
        file.write(trailer)


def test_another_layout_empties_a_cache_and_stops_a_store(path):
    for mode in ("store", "cache"):
        server = start(path, "--mode", mode)
        client_of(server).set("a", 1)
        assert server.stop() == 0
        spoil_layout(path)
        size = os.path.getsize(path)
        if mode == "store":
            result = refused("--warm-file", path, "--mode", "store")
            assert "layout 99" in result.stderr and "remove it to begin empty" in result.stderr
            assert os.path.getsize(path) == size, "nothing was changed"
            os.remove(path)
        else:
            server = start(path)
            assert client_of(server).get("a") is None
            wait_log(server, "layout 99", "begins empty")
            assert server.stop() == 0


def with_memory(flags):
    return flags if "--memory" in flags else ("--memory", "128MiB", *flags)


def refused(*flags):
    result = subprocess.run(
        [servers.binary(), "serve", "--resp", "0", "--memcached", "off", "--native", "off",
         "--admin", "off", *with_memory(flags)],
        capture_output=True, text=True, timeout=30, env=servers.clean_environment(), cwd="/tmp",
    )
    assert result.returncode in (1, 2)
    lines = [line for line in result.stderr.splitlines() if line.startswith("dovetail: ")]
    assert len(lines) == 1, result.stderr
    return result


def test_what_cannot_be_is_refused_in_one_line(path, tmp_path):
    server = start(path)
    assert "another server has it" in refused("--warm-file", path).stderr
    assert server.stop() == 0
    assert "no regular file" in refused("--warm-file", "/dev/null").stderr
    assert "cannot open it" in refused("--warm-file", str(tmp_path / "none" / "x")).stderr
    result = refused("--warm-file", path, "--mode", "store", "--data-dir", str(tmp_path / "d"))
    assert result.returncode == 2 and "leave one out" in result.stderr


def test_a_pending_flush_all_still_comes(path):
    server = start(path)
    client_of(server).set("a", 1)
    with wires.TextWire(server.memcached_port) as wire:
        assert wire.ask(b"flush_all 3\r\n") == b"OK\r\n"
    assert server.stop() == 0
    server = start(path)
    client = client_of(server)
    assert client.get("a") == b"1"
    deadline = time.monotonic() + 20
    while client.get("a") is not None:
        assert time.monotonic() < deadline, "flush_all was forgotten"
        time.sleep(0.05)
    assert server.stop() == 0


def test_signals_that_ask_leave_the_server_running():
    server = servers.start()
    server.process.send_signal(signal.SIGUSR2)
    wait_log(server, "state", "\"worker\":0")
    wait_log(server, "state", "resident_bytes")
    assert client_of(server).ping()
    assert server.stop() == 0


def test_a_start_that_fails_loses_nothing(path, tmp_path):
    flags = ("--mode", "store")
    server = start(path, *flags)
    client_of(server).set("a", 1)
    assert server.stop() == 0
    users = tmp_path / "users"
    users.write_text("user x on +nosuch\n")
    for wrong in (
        ("--acl-file", str(users)), ("--shm", "/nonexistent/socket"),
        ("--tls-resp", "127.0.0.1:0", "--tls-cert", "/missing", "--tls-key", "/missing"),
        ("--memory", "1000GiB"),
    ):
        refused("--warm-file", path, *flags, *wrong)
    server = start(path, *flags)
    assert client_of(server).get("a") == b"1"
    assert server.stop() == 0


def test_somebody_elses_file_is_refused_and_left_alone(path, tmp_path):
    notes = tmp_path / "notes"
    notes.write_text("mine\n" * 100)
    for mode in ("cache", "store"):
        assert "no file of --warm-file" in refused("--warm-file", str(notes), "--mode", mode).stderr
    assert notes.read_text() == "mine\n" * 100
    link = tmp_path / "link"
    link.symlink_to(path)
    assert "cannot open it" in refused("--warm-file", str(link)).stderr
    server = start(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert server.stop() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs")
def test_a_file_system_that_is_too_small_is_told_at_the_start(tmp_path):
    path = str(tmp_path / "warm")
    mount = ["mount", "-t", "tmpfs", "-o", "size=200m", "none", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("nothing may be mounted here")
    try:
        server = start(path, "--mode", "store")
        client_of(server).set("a", 1)
        assert server.stop() == 0
        result = refused("--warm-file", path, "--mode", "store", "--memory", "1GiB")
        assert "cannot have the space" in result.stderr
        server = start(path, "--mode", "store")
        assert client_of(server).get("a") == b"1"
        assert server.stop() == 0
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)

"""The process: memory, idle CPU, signals, the admin port, configuration errors."""

import json
import os
import signal
import socket
import subprocess
import threading
import time

import pytest
import redis

import servers
import wires

pytestmark = pytest.mark.dovetail_only

MIB = 1 << 20
# Code, stacks, the runtime of the admin port: what a server takes besides `--memory`.
OVERHEAD_BYTES = 48 * MIB


def run(*words, environment=None):
    return subprocess.run(
        [servers.binary(), *words], capture_output=True, text=True, timeout=30,
        env={**servers.clean_environment(), **(environment or {})}, cwd="/tmp",
    )


def test_an_idle_server_hardly_uses_a_core(server, client):
    """Real time passes here: 3 s."""
    client.set("a", 1)
    time.sleep(0.5)
    before = servers.cpu_seconds(server.pid)
    time.sleep(2.5)
    used = servers.cpu_seconds(server.pid) - before
    assert used / 2.5 < 0.02, f"{used / 2.5:.2%} of a core while idle"


@pytest.mark.flags(memory="128MiB")
def test_memory_stays_under_the_cap_when_a_cache_overflows(server, client):
    value = os.urandom(4096)
    count = 3 * 128 * MIB // 4096
    for first in range(0, count, 1000):
        with client.pipeline(transaction=False) as pipe:
            for number in range(first, first + 1000):
                pipe.set(f"fill:{number}", value)
            assert all(pipe.execute())
    assert servers.resident_bytes(server.pid) < 128 * MIB + OVERHEAD_BYTES
    assert client.get(f"fill:{count - 1}") == value
    assert client.get("fill:0") is None
    assert client.info("stats")["evicted_keys"] > 0
    assert 0 < client.dbsize() < count


@pytest.mark.flags("--mode", "store", memory="64MiB")
def test_a_full_store_refuses_and_keeps_what_it_has(server, client):
    value = b"x" * 16_384
    stored = 0
    with pytest.raises(redis.OutOfMemoryError):
        while True:
            client.set(f"key:{stored}", value)
            stored += 1
            assert stored < 10_000
    assert stored > 2000
    assert client.dbsize() == stored
    assert all(client.get(f"key:{number}") == value for number in range(0, stored, 97))
    client.delete(*[f"key:{number}" for number in range(stored // 2)])
    for number in range(stored // 4):
        assert client.set(f"new:{number}", value)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_status_0(signal_number):
    server = servers.start()
    with wires.RespWire(server.resp_port) as wire:
        assert wire.ask("PING") == b"+PONG\r\n"
        assert server.stop(signal_number) == 0
        assert wire.read_to_end() == b""
    with pytest.raises(OSError):
        socket.create_connection((servers.HOST, server.resp_port), timeout=1)


def test_requests_before_the_signal_are_answered():
    server = servers.start()
    with wires.RespWire(server.resp_port) as wire:
        wire.send(wires.encode("SET", "a", "1") * 1000)
        replies = [wire.reply() for _ in range(1000)]
        assert server.stop() == 0
    assert replies == [b"+OK\r\n"] * 1000


def test_the_admin_port_answers(server, client):
    client.set("a", 1)
    client.get("a")
    assert server.admin("/healthz")[0] == 200
    assert server.admin("/readyz")[0] == 200
    status, text = server.admin("/metrics")
    assert status == 200 and "dovetail_" in text
    assert text.rstrip().endswith("# EOF")
    for line in text.splitlines():
        assert line.startswith("#") or len(line.rsplit(" ", 1)) == 2, line
    status, text = server.admin("/stats")
    assert status == 200 and isinstance(json.loads(text), dict)
    assert server.admin("/nosuch")[0] == 404


def test_a_port_in_use_is_one_line_and_status_1(server):
    taken = f"{servers.HOST}:{server.resp_port}"
    # A worker's listener shares its port only inside its own process.
    found = run("serve", "--resp", taken, "--memcached", "off", "--native", "off", "--admin", "off",
                "--memory", "64MiB", "--log", "error")
    assert found.returncode == 1
    message = [line for line in found.stderr.splitlines() if line.strip()]
    assert len(message) == 1 and taken in message[0], found.stderr


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (("serve", "--memory", "12 parsecs"), "memory"),
        (("serve", "--memory", "1MiB"), "64MiB"),
        (("serve", "--nosuch"), "--nosuch"),
        (("serve", "--mode", "both"), "cache"),
        (("serve", "--threads", "0"), "threads"),
        (("serve", "--config", "/nonexistent.toml"), "/nonexistent.toml"),
        (("serve", "--resp", "nowhere"), "resp"),
        (("bench", "memcached://127.0.0.1:1", "--workload", "ycsb-e"), "ordered index"),
        (("serve", "--index", "tree", "--lossy-index", "on"), "--index hash"),
        (("serve", "--eviction", "volatile-lru"), "s3-fifo"),
        (("serve", "--huge-pages", "yes"), "hugetlb"),
        (("bench", "--nosuch"), "--nosuch"),
        (("nosuch",), "nosuch"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(words, want):
    found = run(*words)
    assert found.returncode == 2, found.stderr
    assert found.stdout == ""
    message = [line for line in found.stderr.splitlines() if line.strip()]
    assert len(message) == 1 and want in message[0], found.stderr


def test_settings_come_from_flag_environment_and_file(tmp_path):
    path = tmp_path / "dovetail.toml"
    path.write_text('memory = "96MiB"\nthreads = 3\nmode = "store"\n')
    found = run("serve", "--config", str(path), "--threads", "1", "--print-config",
                environment={"DOVETAIL_MODE": "cache", "DOVETAIL_THREADS": "2"})
    assert found.returncode == 0, found.stderr
    settings = dict(
        line.split(" = ", 1) for line in found.stdout.splitlines() if " = " in line
    )
    value = {name: text.split("#")[0].strip() for name, text in settings.items()}
    assert (value["memory"], value["threads"], value["mode"]) == ('"96MiB"', "1", '"cache"')


def test_an_unknown_key_in_the_file_is_named_with_its_line(tmp_path):
    path = tmp_path / "dovetail.toml"
    path.write_text("threads = 1\nmemorry = 5\n")
    found = run("serve", "--config", str(path))
    assert found.returncode == 2
    assert "memorry" in found.stderr and "memory" in found.stderr and "2" in found.stderr


def test_the_load_tool_loads_the_server(server):
    found = run("bench", f"resp://{servers.HOST}:{server.resp_port}", "--keys", "2000",
                "--duration", "300ms", "--warmup", "0", "--connections", "4", "--pipeline", "8",
                "--workload", "ycsb-a", "--json", "-")
    assert found.returncode == 0, found.stderr
    report = json.loads(found.stdout)
    assert report["operations"] > 0 and report["misses"] == 0
    assert report["mismatches"] == 0 and report["errors"] == 0
    assert report["server_cpu_ns_per_op"] > 0 and report["server_pids"] == [server.pid]
    found = run("bench", f"memcached://{servers.HOST}:{server.memcached_port}", "--keys", "2000",
                "--duration", "300ms", "--warmup", "0", "--rate", "2k", "--mget", "10",
                "--json", "-")
    assert found.returncode == 0, found.stderr
    report = json.loads(found.stdout)
    assert report["misses"] == 0 and report["mismatches"] == 0 and report["errors"] == 0


@pytest.mark.index("tree")
def test_the_load_tool_scans_ranges(server, client):
    found = run("bench", f"resp://{servers.HOST}:{server.resp_port}", "--keys", "2000",
                "--duration", "300ms", "--warmup", "0", "--workload", "ycsb-e", "--json", "-")
    assert found.returncode == 0, found.stderr
    report = json.loads(found.stdout)
    assert report["operations"] > 0 and report["errors"] == 0 and report["mismatches"] == 0
    ranges = client.info("commandstats")["cmdstat_kv.range"]
    assert ranges["calls"] > 0 and ranges["failed_calls"] == 0


def test_a_load_without_a_server_is_one_line_and_status_1():
    port = servers.free_port()
    found = run("bench", f"{servers.HOST}:{port}", "--duration", "1s")
    assert found.returncode == 1
    assert f"cannot connect to {servers.HOST}:{port}: " in found.stderr
    assert "is the server running?" in found.stderr and len(found.stderr.splitlines()) == 1


def test_a_report_that_cannot_be_written_ends_the_run_before_it_starts(tmp_path):
    found = run("bench", "embedded:", "--duration", "1h", "--json", f"{tmp_path}/absent/report")
    assert found.returncode == 1
    assert "absent/report: " in found.stderr and len(found.stderr.splitlines()) == 1


def test_the_embedded_store_is_measured():
    found = run("bench", "embedded:", "--keys", "20k", "--key-size", "8", "--value-size", "8",
                "--duration", "200ms", "--warmup", "0", "--json", "-")
    assert found.returncode == 0, found.stderr
    report = json.loads(found.stdout)
    assert report["ops_per_cpu_second"] > 0 and report["misses"] == 0
    assert report["mismatches"] == 0 and report["config"]["batch"] == 32


@pytest.mark.flags(threads="2", memory="256MiB")
def test_many_clients_of_both_kinds_under_load(server):
    """Eight threads write and check their own keys over both ports."""
    failures = []

    def work(number):
        try:
            with redis.Redis(port=server.resp_port) as client:
                for step in range(400):
                    client.set(f"w{number}:{step % 50}", f"{number}:{step}")
                    found = client.get(f"w{number}:{step % 50}")
                    assert found == f"{number}:{step}".encode()
            with wires.TextWire(server.memcached_port) as wire:
                for step in range(400):
                    text = b"%d:%d" % (number, step)
                    command = b"set m%d 0 0 %d\r\n%s\r\nget m%d\r\n"
                    reply = wire.ask(command % (number, len(text), text, number))
                    want = b"STORED\r\nVALUE m%d 0 %d\r\n%s\r\nEND\r\n"
                    assert reply == want % (number, len(text), text)
        except Exception as error:  # noqa: BLE001 - any failure of a thread fails the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.flags("--idle-timeout", "1s", memory="512MiB")
def test_an_idle_client_is_closed_and_a_slow_one_is_not(server, client):
    """Real time passes here: 3 s."""
    client.set("large", b"x" * (24 * MIB))
    with (
        wires.RespWire(server.resp_port) as idle, wires.RespWire(server.resp_port) as busy,
        wires.RespWire(server.resp_port) as slow, wires.TextWire(server.memcached_port) as other,
        wires.RespWire(server.resp_port) as watching,
    ):
        assert idle.ask("PING") == b"+PONG\r\n"
        assert other.ask(b"get a\r\n") == b"END\r\n"
        assert watching.ask("MONITOR") == b"+OK\r\n"
        slow.send(b"GET large\r\n")
        taken = 0
        for _ in range(15):
            time.sleep(0.2)
            assert busy.ask("PING") == b"+PONG\r\n"
            taken += len(slow.file.read(MIB))
        assert idle.read_to_end() == b""
        assert other.read_to_end() == b""
        while taken < 24 * MIB:
            arrived = slow.file.read1(MIB)
            assert arrived, "a slow reader was cut"
            taken += len(arrived)
        assert b"PING" in watching.socket.recv(1 << 16)
        text = server.admin("/metrics")[1]
        closed = text.split('dovetail_connections_closed_total{reason="idle"} ')[1].split()[0]
        assert int(closed) >= 2
    assert client.config_get("timeout") == {"timeout": "1"}
    assert client.config_set("timeout", 0)
    with wires.RespWire(server.resp_port) as idle:
        time.sleep(1.5)
        assert idle.ask("PING") == b"+PONG\r\n"


def wait_log(server, word):
    deadline = time.monotonic() + 10
    while not any(word in line for line in server.log):
        assert time.monotonic() < deadline, f"no line with {word!r}"
        time.sleep(0.01)


def test_sighup_takes_what_is_live_or_nothing_and_names_the_rest(tmp_path):
    file = tmp_path / "dovetail.toml"
    file.write_text('max-connections = 100\nidle-timeout = "50s"\nbatch = 32\n')
    server = servers.start("--config", str(file), "--slowlog-max-len", "7")
    client = redis.Redis(port=server.resp_port)
    client.config_set("latency-monitor-threshold", 7)

    def hup(text, word):
        server.log.clear()
        file.write_text(text)
        server.process.send_signal(signal.SIGHUP)
        wait_log(server, word)

    def holds(name):
        return client.config_get(name)[name]

    hup('max-connections = 55\nidle-timeout = "90s"\nbatch = 8\nslowlog-max-len = 9\n', "new values hold")
    assert any("batch needs a restart" in line for line in server.log)
    assert (holds("maxclients"), holds("timeout"), holds("batch")) == ("55", "90", "32")
    assert holds("slowlog-max-len") == "7", "a flag wins over the file"
    assert holds("latency-monitor-threshold") == "7", "the file says nothing new of it"
    hup('max-connections = 66\nidle-timeout = "soon"\n', "stay as they were")
    assert holds("maxclients") == "55"
    hup('max-connections = 66\nhot-set = 5\n', "stay as they were")
    assert holds("maxclients") == "55", "none holds: keys are not sampled here"
    hup("max-connections = 66\n", "new values hold")
    assert (holds("maxclients"), holds("timeout")) == ("66", "0")
    hup('log = "debug"\nidle-timeout = "1500ms"\nlatency-monitor-threshold = "20ms"\n', "new values hold")
    assert (holds("log"), holds("idle-timeout"), holds("latency-monitor-threshold")) == ("debug", "1500ms", "20")
    assert server.stop() == 0


@pytest.mark.flags("--max-connections-per-address", "2")
def test_an_address_may_have_so_many_connections(server):
    with wires.RespWire(server.resp_port) as one, wires.TextWire(server.memcached_port) as two:
        assert one.ask("PING") == b"+PONG\r\n"
        assert two.ask(b"get a\r\n") == b"END\r\n"
        with wires.RespWire(server.resp_port) as third:
            assert third.read_to_end() == b"-ERR max number of clients of this address reached\r\n"
        text = server.admin("/metrics")[1]
        assert 'dovetail_connections_rejected_total{reason="max_connections_per_address"} 1' in text
        assert one.ask("CONFIG", "SET", "max-connections-per-address", "0") == b"+OK\r\n"
        with wires.RespWire(server.resp_port) as third:
            assert third.ask("PING") == b"+PONG\r\n"


def test_a_health_check_asks_the_running_server():
    def ask(*flags):
        command = [servers.binary(), "doctor", "--quick", *flags]
        return subprocess.run(command, capture_output=True, text=True, env=servers.clean_environment(), timeout=20)

    server = servers.start()
    admin = f"{servers.HOST}:{server.admin_port}"
    done = ask("--admin", admin)
    assert (done.returncode, done.stdout) == (0, "ready\n")
    assert server.stop() == 0
    done = ask("--admin", admin)
    assert done.returncode == 1 and done.stderr.startswith(f"dovetail: doctor: {admin} is not ready: ")
    assert done.stderr.count("\n") == 1
    assert ask("--admin", "off").returncode == 2


def test_the_level_of_log_lines_changes_while_the_server_runs():
    server = servers.start()
    try:
        with wires.RespWire(server.resp_port) as wire:
            for name, level, lines in [("loglevel", "warning", 0), ("log", "info", 1), ("log", "off", 0)]:
                assert wire.ask("CONFIG", "SET", name, level) == b"+OK\r\n"
                before = len(server.log)
                assert wire.ask("CONFIG", "SET", "slowlog-max-len", "7") == b"+OK\r\n"
                time.sleep(0.3)
                told = [line for line in server.log[before:] if "slowlog-max-len" in line]
                assert len(told) == lines, (level, told)
            assert b"nothing" in wire.ask("CONFIG", "GET", "loglevel")
            assert wire.ask("CONFIG", "SET", "log", "loud").endswith(b"off, error, warn, info, debug, trace\r\n")
    finally:
        assert server.stop() == 0

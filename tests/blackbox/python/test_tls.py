"""TLS by python's ssl, redis-cli and openssl: versions, client certificates, large values, pipelines, reload."""

import contextlib
import re
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest
import redis

import servers
import wires
from certificates import Certificates

pytestmark = pytest.mark.dovetail_only


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@contextlib.contextmanager
def serving(*flags, **settings):
    server = servers.Dovetail(*flags, **settings)
    try:
        line = next(line for line in server.log if '"ready"' in line)
        server.tls_resp = int(re.search(r'"tls_resp":"[^"]*:(\d+)"', line)[1])
        server.tls_memcached = int(re.search(r'"tls_memcached":"[^"]*:(\d+)"', line)[1])
        yield server
    finally:
        assert server.stop() == 0


@pytest.fixture(scope="module")
def server(certificates):
    with serving(*certificates.flags(), "--tls-ca", certificates.ca, threads="2") as running:
        yield running


def dial(server, context, port=None):
    plain = socket.create_connection((servers.HOST, port or server.tls_resp), timeout=30)
    return context.wrap_socket(plain, server_hostname=servers.HOST)


def read_exactly(connection, count):
    parts = []
    while count > 0:
        part = connection.recv(min(count, 1 << 20))
        assert part, "the connection is open"
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_values_of_all_lengths_come_back(server, certificates, version):
    with dial(server, certificates.context(version=version)) as connection:
        for length in (0, 1, 100, 16_000, 16_384, 70_000, 1 << 20, 5_000_001):
            value = bytes(range(256)) * (length // 256 + 1)
            value = value[:length]
            connection.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nv\r\n$%d\r\n%s\r\nGET v\r\n" % (length, value))
            want = b"+OK\r\n$%d\r\n%s\r\n" % (length, value)
            assert read_exactly(connection, len(want)) == want, length


def test_a_long_pipeline_is_answered_in_order(server, certificates):
    count = 30_000
    with dial(server, certificates.context()) as connection:
        asked = b"".join(b"ECHO %d\r\n" % number for number in range(count))
        threading.Thread(target=connection.sendall, args=(asked,)).start()
        want = b"".join(b"$%d\r\n%d\r\n" % (len(str(number)), number) for number in range(count))
        assert read_exactly(connection, len(want)) == want


def test_a_command_may_come_byte_by_byte_and_behind_a_large_value(server, certificates):
    with dial(server, certificates.context()) as connection:
        for byte in b"*1\r\n$4\r\nPING\r\n":
            connection.sendall(bytes([byte]))
        assert read_exactly(connection, 7) == b"+PONG\r\n"
        value = b"x" * 300_000
        tail = b"PING\r\n" * 2_000
        connection.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nw\r\n$%d\r\n%s\r\n%s" % (len(value), value, tail))
        assert read_exactly(connection, 5 + 7 * 2_000) == b"+OK\r\n" + b"+PONG\r\n" * 2_000


def test_a_slow_reader_gets_everything_at_last(server, certificates):
    with dial(server, certificates.context()) as connection:
        value = b"y" * 1_000_000
        connection.sendall(b"*3\r\n$3\r\nSET\r\n$4\r\nslow\r\n$%d\r\n%s\r\n" % (len(value), value))
        assert read_exactly(connection, 5) == b"+OK\r\n"
        connection.sendall(b"GET slow\r\n" * 20)
        time.sleep(1)
        want = b"$%d\r\n%s\r\n" % (len(value), value)
        for _ in range(20):
            assert read_exactly(connection, len(want)) == want


def test_the_end_is_said_on_both_sides(server, certificates):
    with dial(server, certificates.context()) as connection:
        connection.sendall(b"QUIT\r\n")
        assert read_exactly(connection, 5) == b"+OK\r\n"
        # An end without close_notify would raise an error here.
        connection.suppress_ragged_eofs = False
        assert connection.recv(10) == b""


def refused(server):
    found = re.search(r'dovetail_tls_handshakes_total\{result="refused"\} (\d+)', server.admin("/metrics")[1])
    return int(found[1])


def test_a_client_without_certificate_or_tls_is_cut(server, certificates):
    before = refused(server)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        with dial(server, certificates.context(with_certificate=False)) as connection:
            connection.sendall(b"PING\r\n")
            assert connection.recv(100) == b"", "no answer"
            raise ConnectionError
    with socket.create_connection((servers.HOST, server.tls_resp), timeout=10) as plain:
        plain.sendall(b"*1\r\n$4\r\nPING\r\n")
        rest = b""
        with contextlib.suppress(ConnectionError):
            while part := plain.recv(100):
                rest += part
        # An alert would look like a reply.
        assert rest == b""
    assert refused(server) >= before + 2
    with dial(server, certificates.context()) as connection:
        connection.sendall(b"PING\r\n")
        assert read_exactly(connection, 7) == b"+PONG\r\n"


def test_clients_of_redis_connect(server, certificates):
    common = {"host": servers.HOST, "port": server.tls_resp, "ssl": True, "ssl_ca_certs": certificates.ca,
              "ssl_certfile": certificates.path("client.crt"), "ssl_keyfile": certificates.path("client.key")}
    with redis.Redis(**common) as client:
        assert client.set("tls", "1") and client.get("tls") == b"1"
    command = ["redis-cli", "--tls", "-h", servers.HOST, "-p", str(server.tls_resp), "--cacert", certificates.ca,
               "--cert", certificates.path("client.crt"), "--key", certificates.path("client.key"), "GET", "tls"]
    with contextlib.suppress(FileNotFoundError):
        assert subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip() == "1"


def test_memcached_speaks_tls_too(server, certificates):
    with dial(server, certificates.context(), server.tls_memcached) as connection:
        value = b"m" * 200_000
        connection.sendall(b"set m 0 0 %d\r\n%s\r\nget m\r\n" % (len(value), value))
        want = b"STORED\r\nVALUE m 0 %d\r\n%s\r\nEND\r\n" % (len(value), value)
        assert read_exactly(connection, len(want)) == want


def test_many_connections_at_once(server, certificates):
    context = certificates.context()
    opened = [dial(server, context) for _ in range(100)]
    try:
        for connection in opened:
            connection.sendall(b"PING\r\n")
        assert all(read_exactly(connection, 7) == b"+PONG\r\n" for connection in opened)
    finally:
        for connection in opened:
            connection.close()


def shown(server, certificates):
    with dial(server, certificates.context(with_certificate=False)) as connection:
        return connection.getpeercert()["subject"][0][0][1]


def wait_for(server, text):
    deadline = time.monotonic() + 20
    while not any(text in line for line in server.log):
        assert time.monotonic() < deadline, "".join(server.log)
        time.sleep(0.05)


def test_certificates_are_read_again_and_broken_ones_are_not_taken(tmp_path):
    own = Certificates(tmp_path)
    with serving(*own.flags()) as server:
        assert shown(server, own) == "server"
        with dial(server, own.context(with_certificate=False)) as old:
            own.sign("server", "another")
            server.process.send_signal(signal.SIGHUP)
            wait_for(server, "certificates: read again")
            assert shown(server, own) == "another"
            (tmp_path / "server.crt").write_text("nothing\n")
            server.process.send_signal(signal.SIGHUP)
            wait_for(server, "certificates stay as they were: --tls-cert")
            assert shown(server, own) == "another"
            old.sendall(b"PING\r\n")
            assert read_exactly(old, 7) == b"+PONG\r\n", "a connected client stays"


def started(*flags):
    command = [servers.binary(), "serve", "--resp", "off", "--memcached", "off", "--native", "off", "--admin", "off",
               "--memory", "128MiB", "--print-config", *flags]
    return subprocess.run(command, capture_output=True, text=True, env=servers.clean_environment(), timeout=20)


def test_settings_that_do_not_fit_are_refused_in_one_line(certificates, tmp_path):
    pair = ["--tls-cert", certificates.path("server.crt"), "--tls-key", certificates.path("server.key")]
    ended = started("--tls-resp", "7001")
    assert ended.returncode == 2 and "give --tls-cert PATH and --tls-key PATH" in ended.stderr
    ended = started("--tls-resp", "7001", *pair, "--tls-auth-clients", "yes")
    assert ended.returncode == 2 and "give --tls-ca PATH" in ended.stderr
    ended = started("--tls-resp", "0.0.0.0:7001", *pair)
    assert ended.returncode == 2 and "no auth configured" in ended.stderr
    ended = started("--tls-resp", "0.0.0.0:7001", *pair, "--tls-ca", certificates.ca)
    assert ended.returncode == 0, ended.stderr


def test_a_silent_client_is_cut_off(server):
    with socket.create_connection((servers.HOST, server.tls_resp), timeout=30) as silent:
        assert silent.recv(10) == b"", "closed by the server"
    assert 'dovetail_tls_handshakes_total{result="late"} 1' in server.admin("/metrics")[1]


def until(is_so):
    for _ in range(300):
        if is_so():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come to be so within 30 s")


def buffers(server, kind):
    with redis.Redis(port=server.resp_port) as client:
        row = client.info("memory")[f"dovetail_buffers_{kind}"]
    return row["bytes"]


def test_half_a_record_is_booked_as_long_as_it_is_held(certificates):
    """The TLS library keeps it, in a vector that doubles."""
    with serving(*certificates.flags(), memory="64MiB") as server:
        context = certificates.context()
        held, record_bytes, count = [], 16 << 10, 20
        for _ in range(count):
            arrived, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
            session = context.wrap_bio(arrived, leaving, server_hostname=servers.HOST)
            plain = socket.create_connection((servers.HOST, server.tls_resp), timeout=30)
            while True:
                try:
                    session.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    plain.sendall(leaving.read())
                    arrived.write(plain.recv(1 << 16))
            plain.sendall(leaving.read())
            session.write(wires.encode("SET", "k", "v" * (record_bytes - 100)))
            record = leaving.read()
            plain.sendall(record[:-100])
            held.append((plain, record[-100:], session, arrived))
        until(lambda: buffers(server, "small") >= count * 2 * (record_bytes - 200))
        for plain, rest, session, arrived in held:
            plain.sendall(rest)
            while True:
                try:
                    assert session.read(100) == b"+OK\r\n"
                    break
                except ssl.SSLWantReadError:
                    arrived.write(plain.recv(1 << 16))
        until(lambda: buffers(server, "small") < count * record_bytes)
        for plain, *_ in held:
            plain.close()


def test_clients_that_fill_the_buffers_do_not_keep_others_from_connecting(certificates):
    """As at the port without TLS: some of those that hold most are closed, and told why."""
    with serving(*certificates.flags(), memory="64MiB", threads="1") as server:
        context = certificates.context()
        queued = wires.encode("MULTI") + b"".join(wires.encode("SET", f"k{key}", "q" * 20_000) for key in range(20))
        half = wires.encode("SET", "half", "h" * 400_000)[:-100_000]
        holders, newcomers = [], []
        try:
            for sent in [queued] * 12 + [half] * 40:
                holder = dial(server, context)
                holders.append(holder)
                holder.settimeout(0.2)
                with contextlib.suppress(OSError):
                    holder.sendall(sent)
            for _ in range(80):
                newcomer = dial(server, context)
                newcomers.append(newcomer)
                newcomer.sendall(b"PING\r\n")
                assert newcomer.recv(100) == b"+PONG\r\n"
            last_words = [last_line(holder) for holder in holders]
            assert any(b"closed the clients that hold most" in line for line in last_words), last_words
        finally:
            for connection in holders + newcomers:
                connection.close()


def last_line(connection):
    """What a client read last."""
    received = b""
    with contextlib.suppress(OSError):
        while part := connection.recv(1 << 16):
            received += part
    return received[-300:].strip().rsplit(b"\r\n", 1)[-1]

"""The doors that need certificates, in the states that clients bring about, and what --insecure says in the log."""

import time

import pytest

import servers
from certificates import Certificates
from test_tls import dial, serving

pytestmark = pytest.mark.dovetail_only

# A rule for the user default, and what the doors of RESP and memcached answer on loopback from then on.
STEPS = [
    ("CONFIG SET requirepass x", "after login", "after login"),
    ("CONFIG SET requirepass ''", "open", "open"),
    ("ACL SETUSER default -flushall", "open", "closed"),
    ("ACL SETUSER default off", "after login", "closed"),
    ("ACL SETUSER default on +@all", "open", "open"),
    ("ACL SETUSER default >x", "after login", "after login"),
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


def line(connection, ask):
    connection.sendall(ask)
    got = b""
    while not got.endswith(b"\r\n"):
        part = connection.recv(1)
        if not part:
            break
        got += part
    return got


def knock_resp(connection):
    if line(connection, b"STRLEN none\r\n") == b":0\r\n":
        return "open"
    assert line(connection, b"AUTH boss b\r\n") == b"+OK\r\n"
    assert line(connection, b"STRLEN none\r\n") == b":0\r\n"
    return "after login"


def knock_memcached(server, context):
    try:
        with dial(server, context, server.tls_memcached) as connection:
            found = line(connection, b"get k\r\n")
            if found == b"END\r\n":
                return "open"
            assert found == b"CLIENT_ERROR unauthenticated\r\n"
            assert line(connection, b"set a 0 0 3\r\nu x\r\n") == b"STORED\r\n"
            return "after login"
    except OSError:
        return "closed"  # Before the handshake: a client of TLS would not understand a line.


@pytest.mark.parametrize("wants_certificate", [False, True])
def test_ports_of_tls_answer_as_the_table_says(certificates, wants_certificate):
    flags = ["--tls-ca", certificates.ca] if wants_certificate else []
    context = certificates.context(with_certificate=wants_certificate)
    with serving(*certificates.flags(), *flags, threads="2") as server, dial(server, context) as boss:
        assert line(boss, b"ACL SETUSER boss on >b ~* +@all\r\n") == b"+OK\r\n"
        assert line(boss, b"AUTH boss b\r\n") == b"+OK\r\n"
        for rule, of_resp, of_memcached in STEPS:
            assert line(boss, rule.encode() + b"\r\n") == b"+OK\r\n", rule
            with dial(server, context) as connection:
                assert knock_resp(connection) == of_resp, rule
            assert knock_memcached(server, context) == of_memcached, rule


def test_a_wrong_password_waits_behind_tls_too_and_its_connection_goes_on(certificates):
    with serving(*certificates.flags(), "--requirepass", "x") as server:
        context = certificates.context(with_certificate=False)
        guessing = [dial(server, context) for _ in range(14)]
        for connection in guessing:
            connection.sendall(b"AUTH no\r\nAUTH x\r\n")
        with dial(server, context) as connection:
            assert line(connection, b"AUTH x\r\n") == b"+OK\r\n"
        for connection in guessing:
            assert line(connection, b"").startswith(b"-WRONGPASS")
            assert line(connection, b"") == b"+OK\r\n"
            connection.close()


def test_insecure_is_told_in_the_log_while_it_opens_something(certificates):
    pair = ["--tls-cert", certificates.path("server.crt"), "--tls-key", certificates.path("server.key")]
    server = servers.Dovetail("--tls-resp", "0.0.0.0:0", *pair, "--insecure")
    try:
        while not any("every machine that reaches these addresses" in told for told in server.log):
            assert server.is_running()
            time.sleep(0.01)
    finally:
        assert server.stop() == 0
    told = next(told for told in server.log if "every machine" in told)
    assert "tls-resp 0.0.0.0:" in told and "memcached" not in told, "what is on loopback is no matter"

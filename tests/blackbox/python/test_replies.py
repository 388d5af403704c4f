"""Replies far larger than the cap, to clients that do not read: memory stays, others are served."""

import contextlib
import os
import pathlib
import re

import pytest

import wires

MIB = 1 << 20

pytestmark = pytest.mark.dovetail_only


def peak_mib(server):
    """The most memory that the process has had at a time."""
    status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def check_beside(server, wire, cap_mib):
    """Another connection gets its own values all the while, and memory stays near the cap."""
    for number in range(300):
        assert wire.ask("SET", "other", number) == b"+OK\r\n"
        text = str(number).encode()
        assert wire.ask("GET", "other") == b"$%d\r\n%s\r\n" % (len(text), text)
    assert peak_mib(server) <= 1.05 * cap_mib + 32


def ask_without_reading(port, asks):
    """One connection for each; none of them reads."""
    stack = contextlib.ExitStack()
    for ask in asks:
        client = stack.enter_context(wires.Wire(port))
        client.socket.settimeout(5)
        # A server that does not read, and one that has closed, refuse the rest.
        with contextlib.suppress(OSError):
            client.send(ask)
    return stack


SHAPES = {
    "documents of one name": [wires.encode("COMMAND", "DOCS", *["get"] * 50_000)] * 4,
    "all documents, pipelined": [wires.encode("COMMAND", "DOCS") * 300] * 64,
    "a transaction of documents": [
        wires.encode("MULTI") + wires.encode("COMMAND", "DOCS") * 2000 + wires.encode("EXEC"),
    ] * 4,
    "flags of many keys": [wires.encode("COMMAND", "GETKEYSANDFLAGS", "MGET", *["k"] * 100_000)] * 8,
    "middle-sized values": [b"GET middle\r\n" * 1000] * 64,
    "one MGET of small values": [wires.encode("MGET", *["small"] * 20_000)] * 32,
    "payloads of large values": [b"DUMP large\r\n" * 40] * 32,
}


@pytest.mark.index("hash")
@pytest.mark.flags(memory="64MiB", threads="2")
@pytest.mark.parametrize("shape", SHAPES)
def test_replies_that_are_not_read_stay_within_the_cap(server, wire, shape):
    for key, size in [("small", 4000), ("middle", 60_000), ("large", 4 * MIB)]:
        assert wire.ask("SET", key, os.urandom(size)) == b"+OK\r\n"
    with ask_without_reading(server.resp_port, SHAPES[shape]):
        check_beside(server, wire, 64)


@pytest.mark.index("hash")
@pytest.mark.flags(memory="256MiB", threads="2")
def test_gets_of_many_large_values_stay_within_the_cap(server, wire):
    value = os.urandom(28 * MIB)
    for number in range(5):
        assert wire.ask("SET", f"k{number}", value) == b"+OK\r\n"
    keys = b" ".join(b"k%d" % (number % 5) for number in range(32))
    with ask_without_reading(server.memcached_port, [b"get %s\r\n" % keys] * 64):
        check_beside(server, wire, 256)
    with wires.Wire(server.memcached_port) as reader:
        reader.send(b"get k0 k1 k2 k3 k4\r\n")
        for number in range(5):
            assert reader.line() == b"VALUE k%d 0 %d\r\n" % (number, len(value))
            assert reader.file.read(len(value)) == value
            assert reader.line() == b"\r\n"
        assert reader.line() == b"END\r\n"

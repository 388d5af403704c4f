"""Broken, cut, oversized and random traffic: the protocol's own error, and no other client notices."""

import contextlib
import random
import socket
import time

import pytest
import redis

import servers
import wires


@pytest.fixture
def bystander(server):
    """A connection that must not notice anything."""
    with wires.RespWire(server.resp_port) as wire:
        assert wire.ask("SET", "bystander", "here") == b"+OK\r\n"
        yield wire
        assert wire.ask("GET", "bystander") == b"$4\r\nhere\r\n"


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"*1\r\n$x\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b"*x\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*2000000000\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\nGET\r\n", b"-ERR Protocol error: expected '$', got 'G'\r\n"),
        (b"*1\r\n$-1\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b"GET 'a\r\n", b"-ERR Protocol error: unbalanced quotes in request\r\n"),
        (b"a" * 70_000, b"-ERR Protocol error: too big inline request\r\n"),
        (b"*1\r\n$" + b"1" * 70_000, b"-ERR Protocol error: too big bulk count string\r\n"),
        (b"*" + b"1" * 70_000, b"-ERR Protocol error: too big mbulk count string\r\n"),
    ],
)
def test_a_broken_stream_gets_its_error_and_ends(server, bystander, data, want):
    with wires.RespWire(server.resp_port) as wire:
        wire.send(data)
        assert wire.read_to_end() == want


def test_empty_arrays_are_passed_over(wire):
    wire.send(b"*0\r\n*-1\r\n\r\n*1\r\n$4\r\nPING\r\n")
    assert wire.reply() == b"+PONG\r\n"


def test_commands_may_come_in_single_bytes(wire):
    for byte in wires.encode("SET", "slow", "value") + wires.encode("GET", "slow"):
        wire.send(bytes([byte]))
    assert wire.reply() == b"+OK\r\n"
    assert wire.reply() == b"$5\r\nvalue\r\n"


def test_a_client_that_closes_its_half_still_gets_its_answers(server, bystander):
    with wires.RespWire(server.resp_port) as wire:
        wire.send(wires.encode("SET", "half", "1") + wires.encode("GET", "half"))
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.read_to_end() == b"+OK\r\n$1\r\n1\r\n"


def test_a_cut_command_is_forgotten(server, bystander):
    for cut in range(1, len(wires.encode("SET", "cut", "value"))):
        with wires.RespWire(server.resp_port) as wire:
            wire.send(wires.encode("SET", "cut", "value")[:cut])
    assert bystander.ask("GET", "cut") == b"$-1\r\n"
    with wires.TextWire(server.memcached_port) as wire:
        wire.send(b"set cut 0 0 100\r\nonly some")
    assert bystander.ask("GET", "cut") == b"$-1\r\n"


@pytest.mark.parametrize("port_name", ["resp_port", "memcached_port"])
def test_random_bytes_disturb_no_client(server, bystander, port_name):
    generator = random.Random(1)
    alphabet = b"*$+-:0123456789\r\n\r\n getsetvalue'\"\x00\xff"
    for round_number in range(200):
        with wires.Wire(getattr(server, port_name)) as wire:
            if round_number % 2:
                data = generator.randbytes(generator.randint(1, 4000))
            else:
                data = bytes(generator.choices(alphabet, k=generator.randint(1, 4000)))
            try:
                wire.send(data)
            except (ConnectionResetError, BrokenPipeError):
                pass
    assert bystander.ask("PING") == b"+PONG\r\n"


@pytest.mark.dovetail_only
def test_a_value_beyond_the_limit_is_refused(server, bystander):
    with wires.RespWire(server.resp_port) as wire:
        size = 33 << 20
        wire.send(b"*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$%d\r\n" % size)
        for _ in range(33):
            wire.send(b"x" * (1 << 20))
        wire.send(b"\r\nPING\r\n")
        assert wire.line().startswith(b"-ERR")
        assert wire.line() == b"+PONG\r\n"
    assert bystander.ask("GET", "big") == b"$-1\r\n"


@pytest.mark.dovetail_only
def test_a_key_beyond_the_limit_is_refused(wire):
    assert wire.ask("SET", b"k" * 65_536, "v") == b"-ERR key is longer than 65535 bytes\r\n"
    assert wire.ask("PING") == b"+PONG\r\n"


@pytest.mark.dovetail_only
def test_a_client_that_never_reads_costs_bounded_memory(server, bystander):
    value = b"v" * 100_000
    assert bystander.ask("SET", "large", value) == b"+OK\r\n"
    greedy = wires.RespWire(server.resp_port)
    greedy.socket.setblocking(False)
    request = wires.encode("GET", "large") * 100
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        try:
            greedy.socket.send(request)
        except BlockingIOError:
            time.sleep(0.01)
    assert servers.resident_bytes(server.pid) < 128 << 20
    assert bystander.ask("PING") == b"+PONG\r\n"
    greedy.socket.close()


@pytest.mark.parametrize(
    "data",
    [
        b"set a 0 0 99999999999999999999\r\n", b"set a 0 0\r\n", b"set a b c d\r\n",
        b"get " + b"k" * 3000 + b"\r\n", b"\x80\x00\x00\x00", b"get\x00a\r\n",
        b"incr a 99999999999999999999999\r\n", b"x" * 3000 + b"\r\n",
    ],
)
def test_broken_text_commands_are_answered(server, bystander, data):
    with wires.TextWire(server.memcached_port) as wire:
        wire.send(data + b"\r\n")
        wire.socket.shutdown(socket.SHUT_WR)
        reply = wire.read_to_end()
        assert reply == b"" or b"ERROR" in reply


def come_in(server):
    """A connection that is served. Where another worker has to make the room, the first try is refused."""
    for _ in range(20):
        came = socket.create_connection((servers.HOST, server.resp_port), timeout=30)
        came.sendall(b"PING\r\n")
        reply = came.recv(1000)
        if reply == b"+PONG\r\n":
            return came
        assert reply.startswith(b"-ERR client buffers are full"), reply
        time.sleep(0.05)
    raise AssertionError("no room within a second")


def test_clients_that_fill_the_buffers_do_not_lock_others_out():
    """Some hold halves of commands and send a byte now and then; others are idle."""
    server = servers.Dovetail(memory="64MiB", threads="1")
    try:
        limit = redis.Redis(port=server.resp_port).info("memory")["dovetail_buffers_bodies"]["limit"]
        half_bytes = limit // 24
        halves = []
        for _ in range(24):
            half = socket.create_connection((servers.HOST, server.resp_port), timeout=30)
            half.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nz\r\n$%d\r\n" % half_bytes + b"x" * (half_bytes - 2000))
            halves.append(half)
        idle = []
        for _ in range(800):
            with contextlib.suppress(OSError):
                halves[len(idle) % len(halves)].send(b"y")
            idle.append(come_in(server))
        for half in halves:
            half.setblocking(False)
        told = []
        for half in halves:
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                told.append(half.recv(1000))
        assert 1 <= len(told) < len(halves), told
        assert all(line.startswith(b"-ERR client buffers are full") for line in told), told
    finally:
        assert server.stop() == 0

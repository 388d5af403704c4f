"""Values up to the limit of 32 MiB, over both protocols, beside small ones."""

import hashlib
import os

import pytest

import wires

MIB = 1 << 20


@pytest.mark.flags(memory="512MiB")
@pytest.mark.parametrize("size", [65_535, 65_536, MIB - 1, 4 * MIB + 1, 32 * MIB])
def test_large_values_come_back(server, client, size):
    value = os.urandom(size)
    for name in ("one", "two"):
        assert client.set(name, value) is True
    assert client.strlen("one") == size
    assert hashlib.sha256(client.get("one")).digest() == hashlib.sha256(value).digest()
    assert client.getrange("two", size - 10, -1) == value[-10:]
    assert client.append("two", b"") == size
    assert client.get("two") == value
    assert client.mget("one", "absent", "two") == [value, None, value]


@pytest.mark.flags(memory="512MiB")
def test_large_values_over_memcached(server, cache):
    value = os.urandom(20 * MIB)
    assert cache.set("large", value, noreply=False) is True
    assert cache.get("large") == value
    assert cache.get_many(["large", "absent"]) == {"large": value}


@pytest.mark.flags(memory="512MiB")
def test_a_slow_reader_of_a_large_value_holds_up_no_other(server, client):
    value = os.urandom(16 * MIB)
    client.set("large", value)
    with wires.RespWire(server.resp_port) as slow:
        slow.send(wires.encode("GET", "large"))
        assert slow.file.read(1) == b"$"
        for number in range(200):
            assert client.set("small", number) and client.get("small") == str(number).encode()
        client.set("large", b"replaced")
        assert slow.file.readline() == b"%d\r\n" % len(value)
        assert slow.file.read(len(value)) == value
    assert client.get("large") == b"replaced"


@pytest.mark.flags(memory="512MiB")
def test_a_slow_writer_of_a_large_value_holds_up_no_other(server, client):
    value = os.urandom(8 * MIB)
    request = wires.encode("SET", "large", value)
    with wires.RespWire(server.resp_port) as slow:
        for start in range(0, len(request), MIB):
            slow.send(request[start:start + MIB])
            assert client.set("small", start) and client.get("small") == str(start).encode()
        assert slow.reply() == b"+OK\r\n"
    assert client.get("large") == value


@pytest.mark.flags(memory="512MiB")
def test_many_large_values_in_one_pipeline(server, client):
    values = [os.urandom(MIB) for _ in range(40)]
    with client.pipeline(transaction=False) as pipe:
        for number, value in enumerate(values):
            pipe.set(f"v{number}", value)
        assert all(pipe.execute())
    with client.pipeline(transaction=False) as pipe:
        for number in range(len(values)):
            pipe.get(f"v{number}")
        assert pipe.execute() == values


@pytest.mark.flags("--write-policy", "d-crew", "--dispatch", "size-aware", threads="2", memory="256MiB")
def test_payloads_wait_for_their_reader_where_requests_travel(server, client):
    value = os.urandom(8 * MIB)
    client.set("large", value)
    payload = client.dump("large")
    with wires.RespWire(server.resp_port) as wire:
        wire.send(wires.encode("DUMP", "large") * 12 + wires.encode("PING"))
        for _ in range(12):
            assert wire.file.readline() == b"$%d\r\n" % len(payload)
            assert wire.file.read(len(payload) + 2) == payload + b"\r\n"
        assert wire.reply() == b"+PONG\r\n"


@pytest.mark.flags(memory="256MiB")
def test_parts_and_payloads_of_large_values_wait_for_their_reader(server, client):
    """A dozen replies are three times the client buffers."""
    value = os.urandom(8 * MIB)
    client.set("large", value)
    payload = client.dump("large")
    with wires.RespWire(server.resp_port) as wire:
        wire.send(wires.encode("DUMP", "large") * 12 + wires.encode("GETRANGE", "large", 5, -8) * 12)
        wire.send(wires.encode("GETRANGE", "large", MIB, 2 * MIB - 1) + wires.encode("PING"))
        for part in [payload] * 12 + [value[5:-7]] * 12 + [value[MIB:2 * MIB]]:
            assert wire.file.readline() == b"$%d\r\n" % len(part)
            assert wire.file.read(len(part) + 2) == part + b"\r\n"
        assert wire.reply() == b"+PONG\r\n"

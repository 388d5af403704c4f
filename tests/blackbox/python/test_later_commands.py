"""Commands that came after Redis 7.0, the version that the differential tests compare with: their
replies are those of the documentation of Redis 8.4 and Valkey 9. And dumps that travel both ways."""

import pytest

import servers
import wires

pytestmark = pytest.mark.dovetail_only

OK = b"+OK\r\n"
NULL = b"$-1\r\n"
ONE = b":1\r\n"
ZERO = b":0\r\n"
# Of `Hello world`, as Redis documents it.
DIGEST = "b6acb9d84a38ff74"


def bulk(data):
    return b"$%d\r\n%s\r\n" % (len(data), data)


def test_set_compares_values(wire):
    assert wire.ask("SET", "k", "a", "IFEQ", "x") == NULL
    assert wire.ask("SET", "k", "a", "IFNE", "x") == OK
    assert wire.ask("SET", "k", "b", "IFEQ", "x") == NULL
    assert wire.ask("SET", "k", "b", "IFEQ", "a", "EX", "1000") == OK
    assert wire.ask("SET", "k", "c", "ifne", "b") == NULL
    assert wire.ask("SET", "k", "c", "IFEQ", "b", "KEEPTTL") == OK
    assert 990 < int(wire.ask("TTL", "k")[1:]) <= 1000
    assert wire.ask("SET", "k", "d", "IFEQ", "c") == OK
    assert wire.ask("TTL", "k") == b":-1\r\n"


def test_set_answers_the_old_value_whether_it_wrote_or_not(wire):
    assert wire.ask("SET", "k", "a", "IFEQ", "x", "GET") == NULL
    assert wire.ask("EXISTS", "k") == ZERO
    assert wire.ask("SET", "k", "a", "GET", "IFNE", "x") == NULL
    assert wire.ask("SET", "k", "b", "IFEQ", "x", "GET") == bulk(b"a")
    assert wire.ask("SET", "k", "b", "IFEQ", "a", "GET") == bulk(b"a")
    assert wire.ask("GET", "k") == bulk(b"b")


def test_set_compares_digests(wire):
    wire.ask("SET", "k", "Hello world")
    assert wire.ask("DIGEST", "k") == bulk(DIGEST.encode())
    assert wire.ask("DIGEST", "absent") == NULL
    assert wire.ask("SET", "k", "v", "IFDNE", DIGEST) == NULL
    assert wire.ask("SET", "k", "v", "IFDEQ", "0" * 16) == NULL
    assert wire.ask("SET", "k", "v", "IFDEQ", DIGEST.upper()) == OK
    assert wire.ask("SET", "absent", "v", "IFDEQ", DIGEST) == NULL
    assert wire.ask("SET", "absent", "v", "IFDNE", DIGEST) == OK


@pytest.mark.parametrize(
    "words",
    [
        ("NX", "IFEQ", "a"), ("IFEQ", "a", "XX"), ("IFEQ", "a", "IFNE", "b"), ("IFEQ",),
        ("IFEQ", "a", "EX", "1", "KEEPTTL"), ("IFDEQ", "0" * 16, "IFDNE", "0" * 16),
    ],
)
def test_conditions_exclude_one_another(wire, words):
    assert wire.ask("SET", "k", "v", *words) == b"-ERR syntax error\r\n"


def test_digests_have_sixteen_digits(wire):
    wrong = b"-ERR must be exactly 16 hexadecimal characters\r\n"
    for digest in ("", "1", "0" * 15, "0" * 17, "g" * 16):
        assert wire.ask("SET", "k", "v", "IFDEQ", digest) == wrong
        assert wire.ask("DELEX", "k", "IFDNE", digest) == wrong


def test_delex_deletes_what_passes(wire):
    wire.ask("MSET", "a", "1", "b", "2", "c", "Hello world", "d", "4")
    assert wire.ask("DELEX", "a", "IFEQ", "2") == ZERO
    assert wire.ask("DELEX", "a", "IFEQ", "1") == ONE
    assert wire.ask("DELEX", "a", "IFNE", "1") == ZERO
    assert wire.ask("DELEX", "b", "IFNE", "2") == ZERO
    assert wire.ask("DELEX", "b", "IFNE", "1") == ONE
    assert wire.ask("DELEX", "c", "IFDNE", DIGEST) == ZERO
    assert wire.ask("DELEX", "c", "IFDEQ", DIGEST) == ONE
    assert wire.ask("DELEX", "d") == ONE
    assert wire.ask("DELEX", "d") == ZERO
    assert wire.ask("DELEX", "d", "IFEQ").startswith(b"-ERR wrong number of arguments")
    assert wire.ask("DELEX", "d", "IFXX", "1").startswith(b"-ERR Invalid condition.")


def test_delifeq_deletes_one_value(wire):
    wire.ask("SET", "lock", "token")
    assert wire.ask("DELIFEQ", "lock", "other") == ZERO
    assert wire.ask("DELIFEQ", "lock", "token") == ONE
    assert wire.ask("DELIFEQ", "lock", "token") == ZERO


def test_msetex_writes_all_or_nothing(wire):
    assert wire.ask("MSETEX", 2, "a", "1", "b", "2", "EX", "1000") == ONE
    assert 990 < int(wire.ask("TTL", "a")[1:]) <= 1000
    assert wire.ask("MSETEX", 2, "b", "3", "c", "4", "NX") == ZERO
    assert wire.ask("MSETEX", 2, "b", "3", "c", "4", "XX") == ZERO
    assert wire.ask("MGET", "a", "b", "c") == b"*3\r\n" + bulk(b"1") + bulk(b"2") + NULL
    assert wire.ask("MSETEX", 2, "a", "5", "b", "6", "XX", "KEEPTTL") == ONE
    assert 990 < int(wire.ask("TTL", "b")[1:]) <= 1000
    assert wire.ask("MSETEX", 1, "a", "7") == ONE
    assert wire.ask("TTL", "a") == b":-1\r\n"
    for count in ("0", "-1", "x", "9999999999"):
        assert wire.ask("MSETEX", count, "a", "1") == b"-ERR invalid numkeys value\r\n"
    assert wire.ask("MSETEX", 2, "a", "1", "b") == b"-ERR wrong number of key-value pairs\r\n"
    assert wire.ask("MSETEX", 1, "a", "1", "NX", "XX") == b"-ERR syntax error\r\n"
    keys = wire.ask("COMMAND", "GETKEYS", "MSETEX", 2, "a", "1", "b", "2", "NX")
    assert keys == b"*2\r\n" + bulk(b"a") + bulk(b"b")


def test_bitop_of_redis_8(wire):
    wire.ask("MSET", "x", "\x0f", "y", "\x05", "z", "\x03")
    for operation, sources, want in [
        ("DIFF", "xyz", b"\x08"), ("DIFF1", "zxy", b"\x0c"), ("ANDOR", "xyz", b"\x07"),
        ("ONE", "xyz", b"\x08"), ("one", "x", b"\x0f"),
    ]:
        assert wire.ask("BITOP", operation, "to", *sources) == ONE
        assert wire.ask("GET", "to") == bulk(want), operation
    few = b"-ERR BITOP DIFF must be called with at least two source keys.\r\n"
    assert wire.ask("BITOP", "diff", "to", "x") == few


def test_they_are_atomic_in_a_transaction(wire):
    for words in (
        ("MULTI",), ("SET", "k", "a", "IFNE", "b"), ("SETBIT", "k", 20, 1),
        ("BITFIELD", "k", "INCRBY", "u8", 0, 1), ("BITOP", "NOT", "n", "k"), ("LCS", "k", "n"),
        ("DELEX", "k", "IFEQ", "b\0\x08"), ("DUMP", "k"),
    ):
        wire.ask(*words)
    want = [OK, ZERO, b"*1\r\n:98\r\n", b":3\r\n", bulk(b""), ONE, NULL]
    assert wire.ask("EXEC") == b"*7\r\n" + b"".join(want)


def test_foreign_commands_say_what_is_missing(wire):
    for words, lack in [
        (("LPUSH", "k", "v"), b"lpush"), (("hset", "k", "f", "v"), b"hset"), (("EVAL", "x", 0), b"eval"),
    ]:
        reply = wire.ask(*words)
        assert reply.lower().startswith(b"-err unknown command '" + lack + b"': this server has strings only")
    wire.ask("MULTI")
    assert wire.ask("SUBSCRIBE", "c").startswith(b"-ERR unknown command 'SUBSCRIBE'")
    assert wire.ask("EXEC").startswith(b"-EXECABORT")


@pytest.mark.skipif(not servers.has_reference(), reason="redis-server is not installed")
def test_dumps_travel_both_ways(server):
    values = [
        b"", b"a", b"12", b"-300", b"1234567", b"99999999999", b"x" * 63, b"y" * 64, b"z" * 20_000,
        bytes(range(256)) * 3, b"abcd" * 5000, b"0" * 100,
    ]
    reference = servers.Reference()
    try:
        with wires.RespWire(server.resp_port) as ours, wires.RespWire(reference.resp_port) as theirs:
            for source, target in ((ours, theirs), (theirs, ours)):
                for value in values:
                    source.ask("SET", "k", value)
                    payload = source.ask("DUMP", "k").split(b"\r\n", 1)[1][:-2]
                    assert target.ask("RESTORE", "copy", 0, payload, "REPLACE") == OK
                    assert target.ask("GET", "copy") == bulk(value)
    finally:
        reference.stop()

"""String commands through redis-py, and the exact replies of their errors."""

import pytest
import redis

NOT_INTEGER = b"-ERR value is not an integer or out of range\r\n"
SYNTAX = b"-ERR syntax error\r\n"


def test_a_value_comes_back_whatever_its_bytes(client):
    for value in (b"", b"x", b"\r\n", bytes(range(256)), b"a" * 100_000):
        assert client.set("key", value) is True
        assert client.get("key") == value
        assert client.strlen("key") == len(value)
    assert client.get("absent") is None
    assert client.strlen("absent") == 0


def test_keys_are_bytes_and_may_be_empty(client):
    for key in (b"", b" ", b"\x00\xff\r\n", b"k" * 65_000):
        client.set(key, b"v")
        assert client.get(key) == b"v"


def test_decoded_responses_are_text(text_client):
    text_client.set("naïve", "日本")
    assert text_client.get("naïve") == "日本"


def test_set_takes_its_conditions(client):
    assert client.set("a", 1, xx=True) is None
    assert client.set("a", 1, nx=True) is True
    assert client.set("a", 2, nx=True) is None
    assert client.set("a", 3, xx=True) is True
    assert client.set("a", 4, get=True) == b"3"
    assert client.set("b", 5, get=True) is None
    assert client.set("b", 6, nx=True, get=True) == b"5"
    assert client.get("b") == b"5"


def test_set_takes_its_expiries(client):
    assert client.set("a", 1, ex=100) and 99 <= client.ttl("a") <= 100
    assert client.set("a", 1, px=100_000) and 99_000 <= client.pttl("a") <= 100_000
    assert client.set("a", 1, exat=4_000_000_000) and client.expiretime("a") == 4_000_000_000
    assert client.set("a", 1, pxat=4_000_000_000_123)
    assert client.pexpiretime("a") == 4_000_000_000_123
    assert client.set("a", 2, keepttl=True) and client.pexpiretime("a") == 4_000_000_000_123
    assert client.set("a", 3) and client.ttl("a") == -1


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (("SET", "a"), b"-ERR wrong number of arguments for 'set' command\r\n"),
        (("SET", "a", "1", "BAD"), SYNTAX),
        (("SET", "a", "1", "NX", "XX"), SYNTAX),
        (("SET", "a", "1", "EX"), SYNTAX),
        (("SET", "a", "1", "EX", "1", "PX", "1"), SYNTAX),
        (("SET", "a", "1", "EX", "1", "KEEPTTL"), SYNTAX),
        (("SET", "a", "1", "EX", "x"), NOT_INTEGER),
        (("SET", "a", "1", "EX", "0"), b"-ERR invalid expire time in 'set' command\r\n"),
        (("SET", "a", "1", "PX", "-5"), b"-ERR invalid expire time in 'set' command\r\n"),
        (("SETEX", "a", "0", "v"), b"-ERR invalid expire time in 'setex' command\r\n"),
        (("PSETEX", "a", "-1", "v"), b"-ERR invalid expire time in 'psetex' command\r\n"),
        (("SETEX", "a", "x", "v"), NOT_INTEGER),
        (("GET",), b"-ERR wrong number of arguments for 'get' command\r\n"),
        (("GET", "a", "b"), b"-ERR wrong number of arguments for 'get' command\r\n"),
        (("MSET", "a"), b"-ERR wrong number of arguments for 'mset' command\r\n"),
        (("MSET", "a", "1", "b"), b"-ERR wrong number of arguments for 'mset' command\r\n"),
        (("MSETNX", "a", "1", "b"), b"-ERR wrong number of arguments for 'msetnx' command\r\n"),
        (("GETEX", "a", "EX", "0"), b"-ERR invalid expire time in 'getex' command\r\n"),
        (("GETEX", "a", "PERSIST", "EX", "1"), SYNTAX),
        (("INCRBY", "a", "x"), NOT_INTEGER),
        (("INCRBY", "a", "9223372036854775808"), NOT_INTEGER),
        (("INCRBYFLOAT", "a", "x"), b"-ERR value is not a valid float\r\n"),
        (("SETRANGE", "a", "-1", "v"), b"-ERR offset is out of range\r\n"),
        (("SETRANGE", "a", "x", "v"), NOT_INTEGER),
        (("GETRANGE", "a", "x", "1"), NOT_INTEGER),
        (("NOSUCH",), b"-ERR unknown command 'NOSUCH', with args beginning with: \r\n"),
        (
            ("NoSuch", "one", "two"),
            b"-ERR unknown command 'NoSuch', with args beginning with: 'one' 'two' \r\n",
        ),
    ],
)
def test_errors_have_the_words_of_redis(wire, words, want):
    if words[0] in ("GETEX",):
        wire.ask("SET", "a", "1")
    assert wire.ask(*words) == want


def test_getex_getdel_getset_setnx(client):
    client.set("a", "v")
    assert client.getex("a", ex=50) == b"v" and 49 <= client.ttl("a") <= 50
    assert client.getex("a", persist=True) == b"v" and client.ttl("a") == -1
    assert client.getex("a", pxat=4_000_000_000_000) == b"v"
    assert client.pexpiretime("a") == 4_000_000_000_000
    assert client.getset("a", "w") == b"v" and client.ttl("a") == -1
    assert client.getdel("a") == b"w" and client.getdel("a") is None
    assert client.setnx("a", 1) is True and client.setnx("a", 2) is False
    assert client.setex("a", 50, "s") is True and 49 <= client.ttl("a") <= 50
    assert client.psetex("a", 50_000, "p") is True and 49_000 <= client.pttl("a") <= 50_000


def test_several_keys_at_once(client):
    assert client.mset({f"k{number}": number for number in range(300)}) is True
    found = client.mget([f"k{number}" for number in range(300)] + ["absent"])
    assert found == [str(number).encode() for number in range(300)] + [None]
    assert client.msetnx({"k1": "x", "new": "y"}) is False
    assert client.get("new") is None
    assert client.msetnx({"new": "y", "newer": "z"}) is True
    assert client.mget("new", "newer", "new") == [b"y", b"z", b"y"]


def test_counters(client):
    assert client.incr("n") == 1
    assert client.incrby("n", 41) == 42
    assert client.decr("n") == 41
    assert client.decrby("n", 50) == -9
    client.set("n", 2**63 - 1)
    with pytest.raises(redis.ResponseError, match="increment or decrement would overflow"):
        client.incr("n")
    for text in ("", " 1", "1 ", "+1", "01", "1.5", "x", "9223372036854775808"):
        client.set("n", text)
        with pytest.raises(redis.ResponseError, match="not an integer or out of range"):
            client.incr("n")


def test_a_counter_keeps_its_expiry(client):
    client.set("n", 1, exat=4_000_000_000)
    client.incr("n")
    client.append("n", "0")
    client.setrange("n", 0, "9")
    assert client.expiretime("n") == 4_000_000_000


@pytest.mark.parametrize(
    ("start", "step", "want"),
    [
        ("10.50", "0.1", b"10.6"),
        ("5.0e3", "2.0e2", b"5200"),
        ("0", "0.1", b"0.1"),
        ("3", "-3", b"0"),
        ("1", "1e-3", b"1.001"),
        ("-1.5", "1.5", b"0"),
        ("12345678.5", "0.25", b"12345678.75"),
    ],
)
def test_float_counters_print_as_redis_prints(client, start, step, want):
    client.set("f", start)
    assert client.execute_command("INCRBYFLOAT", "f", step) == float(want)
    assert client.get("f") == want


def test_float_counters_refuse_what_is_no_number(client):
    for text in ("abc", "", "1 2"):
        client.set("f", text)
        with pytest.raises(redis.ResponseError, match="value is not a valid float"):
            client.incrbyfloat("f", 1)
    client.set("f", "1")
    with pytest.raises(redis.ResponseError, match="NaN or Infinity"):
        client.incrbyfloat("f", "inf")


def test_append_and_ranges(client):
    assert client.append("s", "Hello") == 5
    assert client.append("s", " World") == 11
    assert client.getrange("s", 0, 4) == b"Hello"
    assert client.getrange("s", -5, -1) == b"World"
    assert client.getrange("s", 3, 100) == b"lo World"
    assert client.getrange("s", 5, 2) == b""
    assert client.getrange("absent", 0, -1) == b""
    assert client.execute_command("SUBSTR", "s", 1, 2) == b"el"
    assert client.setrange("s", 6, "Redis") == 11
    assert client.get("s") == b"Hello Redis"
    assert client.setrange("pad", 3, "x") == 4
    assert client.get("pad") == b"\x00\x00\x00x"
    assert client.setrange("none", 5, "") == 0
    assert client.exists("none") == 0

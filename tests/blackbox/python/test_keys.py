"""Commands on keys: deletion, expiry, renaming, listing."""

import time

import pytest
import redis


def test_deletion_counts_what_was_there(client):
    client.mset({"a": 1, "b": 2, "c": 3})
    assert client.exists("a", "b", "a", "absent") == 3
    assert client.touch("a", "absent") == 1
    assert client.delete("a", "absent", "a") == 1
    assert client.unlink("b", "c") == 2
    assert client.dbsize() == 0
    assert client.type("a") == b"none"
    client.set("a", 1)
    assert client.type("a") == b"string"


def test_expiries_are_set_read_and_removed(client):
    client.set("a", 1)
    assert client.ttl("a") == -1 and client.pttl("a") == -1 and client.expiretime("a") == -1
    assert client.ttl("absent") == -2 and client.pttl("absent") == -2
    assert client.expiretime("absent") == -2 and client.pexpiretime("absent") == -2
    assert client.expire("a", 100) is True and 99 <= client.ttl("a") <= 100
    assert client.pexpire("a", 90_000) is True and 89_000 <= client.pttl("a") <= 90_000
    assert client.expireat("a", 4_000_000_000) is True and client.expiretime("a") == 4_000_000_000
    assert client.pexpireat("a", 4_000_000_000_007) is True
    assert client.pexpiretime("a") == 4_000_000_000_007
    assert client.persist("a") is True and client.persist("a") is False
    assert client.expire("absent", 1) is False
    assert client.persist("absent") is False


def test_expire_conditions(client):
    client.set("a", 1)
    assert client.expire("a", 100, xx=True) is False
    assert client.expire("a", 100, gt=True) is False  # No expiry counts as infinite.
    assert client.expire("a", 100, nx=True) is True
    assert client.expire("a", 200, nx=True) is False
    assert client.expire("a", 50, gt=True) is False
    assert client.expire("a", 200, gt=True) is True
    assert client.expire("a", 300, lt=True) is False
    assert client.expire("a", 100, lt=True) is True
    assert client.expire("a", 400, xx=True) is True


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (
            ("EXPIRE", "a", "10", "NX", "XX"),
            b"-ERR NX and XX, GT or LT options at the same time are not compatible\r\n",
        ),
        (
            ("EXPIRE", "a", "10", "GT", "LT"),
            b"-ERR GT and LT options at the same time are not compatible\r\n",
        ),
        (("EXPIRE", "a", "10", "QQ"), b"-ERR Unsupported option QQ\r\n"),
        (("EXPIRE", "a", "x"), b"-ERR value is not an integer or out of range\r\n"),
        (
            ("EXPIRE", "a", "9223372036854775807"),
            b"-ERR invalid expire time in 'expire' command\r\n",
        ),
        (("RENAME", "absent", "b"), b"-ERR no such key\r\n"),
        (("RENAMENX", "absent", "b"), b"-ERR no such key\r\n"),
        (("SCAN", "x"), b"-ERR invalid cursor\r\n"),
        (("SCAN", "0", "COUNT", "0"), b"-ERR syntax error\r\n"),
        (("SCAN", "0", "COUNT", "x"), b"-ERR value is not an integer or out of range\r\n"),
        (("SCAN", "0", "MATCH"), b"-ERR syntax error\r\n"),
        (("DEL",), b"-ERR wrong number of arguments for 'del' command\r\n"),
        (("KEYS",), b"-ERR wrong number of arguments for 'keys' command\r\n"),
        (("SELECT", "99999"), b"-ERR DB index is out of range\r\n"),
        (("SELECT", "x"), b"-ERR value is not an integer or out of range\r\n"),
        (("FLUSHALL", "BAD"), b"-ERR syntax error\r\n"),
    ],
)
def test_errors_have_the_words_of_redis(wire, words, want):
    wire.ask("SET", "a", "1")
    assert wire.ask(*words) == want


def test_a_time_in_the_past_deletes(client):
    for set_past in (
        lambda: client.expire("a", -1),
        lambda: client.expireat("a", 1),
        lambda: client.pexpireat("a", 1),
        lambda: client.getex("a", exat=1),
        lambda: client.set("a", 2, pxat=1),
    ):
        client.set("a", 1)
        assert set_past()
        assert client.get("a") is None
        assert client.exists("a") == 0
        assert client.dbsize() == 0


def test_expired_keys_are_gone_everywhere(client):
    """Real time passes here: 300 ms, once for all commands."""
    for name in ("get", "incr", "append", "nx", "ttl", "rename", "mget", "scan", "keys"):
        client.set(name, 7, px=150)
    client.set("kept", 1, ex=100)
    time.sleep(0.3)
    assert client.get("get") is None
    assert client.incr("incr") == 1
    assert client.append("append", "x") == 1
    assert client.set("nx", 1, nx=True) is True
    assert client.ttl("ttl") == -2
    with pytest.raises(redis.ResponseError, match="no such key"):
        client.rename("rename", "other")
    assert client.mget("mget", "kept") == [None, b"1"]
    assert b"scan" not in set(client.scan_iter())
    assert client.keys("keys") == []
    assert client.exists("get", "ttl") == 0


def test_renaming_moves_value_and_expiry(client):
    client.set("a", "v", exat=4_000_000_000)
    client.set("b", "old")
    assert client.rename("a", "b") is True
    assert client.get("a") is None and client.get("b") == b"v"
    assert client.expiretime("b") == 4_000_000_000
    assert client.rename("b", "b") is True
    client.set("c", 1)
    assert client.renamenx("b", "c") is False
    assert client.renamenx("b", "d") is True and client.get("d") == b"v"


def test_scan_returns_every_key_once_or_more(client):
    want = {f"key:{number}".encode() for number in range(3000)}
    with client.pipeline(transaction=False) as pipe:
        for key in want:
            pipe.set(key, 1)
        pipe.execute()
    assert client.dbsize() == 3000
    for count in (1, 10, 1000, 100_000):
        if count == 1:
            cursor, batch = client.scan(0, count=1)
            assert cursor != 0 and len(batch) < 3000
            continue
        assert set(client.scan_iter(count=count)) == want
    assert set(client.keys("*")) == want


def test_scan_misses_no_key_that_stays_while_others_come_and_go(client):
    kept = {f"kept:{number}".encode() for number in range(1000)}
    for key in kept:
        client.set(key, 1)
    found, cursor, round_number = set(), 0, 0
    while True:
        cursor, batch = client.scan(cursor, count=20)
        found.update(batch)
        with client.pipeline(transaction=False) as pipe:
            for number in range(20):
                pipe.set(f"new:{round_number}:{number}", 1)
                pipe.delete(f"new:{round_number - 1}:{number}")
            pipe.execute()
        round_number += 1
        if cursor == 0:
            break
    assert kept <= found


def test_patterns_match_as_globs(client):
    client.mset({"one": 1, "two": 2, "three": 3, "a[b": 4, "a*b": 5})
    assert set(client.keys("t*")) == {b"two", b"three"}
    assert set(client.keys("?ne")) == {b"one"}
    assert set(client.keys("[a-o]*")) == {b"one", b"a[b", b"a*b"}
    assert set(client.keys("[^t]*")) == {b"one", b"a[b", b"a*b"}
    assert set(client.keys("a\\*b")) == {b"a*b"}
    assert set(client.scan_iter(match="t*")) == {b"two", b"three"}
    assert set(client.scan_iter(match="*", _type="string")) == set(client.keys())
    assert set(client.scan_iter(_type="list")) == set()


def test_random_keys_exist(client):
    assert client.randomkey() is None
    keys = {f"k{number}".encode() for number in range(20)}
    for key in keys:
        client.set(key, 1)
    drawn = {client.randomkey() for _ in range(400)}
    assert drawn <= keys and len(drawn) > 5


def test_flushing_removes_everything(client):
    for flush in (client.flushdb, client.flushall, lambda: client.flushall(asynchronous=True)):
        client.mset({f"k{number}": number for number in range(500)})
        assert flush() is True
        assert client.dbsize() == 0 and client.get("k1") is None and client.keys() == []
        assert client.set("k1", "again") and client.get("k1") == b"again"

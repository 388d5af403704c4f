"""memcached's text protocol: through pymemcache, and byte by byte."""

import time

import pytest
from pymemcache.exceptions import MemcacheClientError

import wires


def test_storage_commands(cache):
    assert cache.set("a", b"1", noreply=False) is True
    assert cache.add("a", b"2", noreply=False) is False
    assert cache.add("b", b"2", noreply=False) is True
    assert cache.replace("b", b"3", noreply=False) is True
    assert cache.replace("absent", b"3", noreply=False) is False
    assert cache.append("a", b"+", noreply=False) is True
    assert cache.prepend("a", b"-", noreply=False) is True
    assert cache.append("absent", b"+", noreply=False) is False
    assert cache.get("a") == b"-1+" and cache.get("absent") is None
    assert cache.delete("a", noreply=False) is True
    assert cache.delete("a", noreply=False) is False


def test_compare_and_swap(cache):
    cache.set("a", b"1")
    value, token = cache.gets("a")
    assert value == b"1"
    assert cache.cas("a", b"2", token, noreply=False) is True
    assert cache.cas("a", b"3", token, noreply=False) is False
    assert cache.cas("absent", b"3", token, noreply=False) is None
    assert cache.get("a") == b"2"


def test_every_change_changes_the_token(cache):
    tokens = []
    for change in (
        lambda: cache.set("a", b"1"),
        lambda: cache.incr("a", 1),
        lambda: cache.append("a", b"0"),
        lambda: cache.set("a", b"1"),
    ):
        change()
        tokens.append(cache.gets("a")[1])
    assert len(set(tokens)) == 4


def test_counters(cache):
    cache.set("n", b"10")
    assert cache.incr("n", 5) == 15
    assert cache.decr("n", 20) == 0
    assert cache.incr("absent", 1) is None
    cache.set("n", str(2**64 - 1).encode())
    assert cache.incr("n", 2) == 1
    cache.set("n", b"text")
    words = "cannot increment or decrement non-numeric value"
    with pytest.raises(MemcacheClientError, match=words):
        cache.incr("n", 1)


def test_a_counter_that_gets_shorter_keeps_its_length(text_wire):
    assert text_wire.ask(b"set n 0 0 3\r\n100\r\ndecr n 1\r\n") == b"STORED\r\n99\r\n"
    assert text_wire.ask(b"get n\r\n") == b"VALUE n 0 3\r\n99 \r\nEND\r\n"
    assert text_wire.ask(b"decr n 90\r\nincr n 1000\r\n") == b"9\r\n1009\r\n"
    assert text_wire.ask(b"get n\r\n") == b"VALUE n 0 4\r\n1009\r\nEND\r\n"


def test_hundreds_of_keys_in_one_get(cache):
    items = {f"key{number}": f"value{number}".encode() for number in range(500)}
    assert cache.set_many(items) == []
    assert cache.get_many(list(items) + ["absent"]) == items
    tokens = cache.gets_many(list(items))
    assert {key: value for key, (value, _) in tokens.items()} == items
    assert cache.delete_many(list(items)) is True
    assert cache.get_many(list(items)) == {}


def test_touch_and_get_and_touch(cache, text_wire):
    cache.set("a", b"1", expire=1000)
    assert cache.touch("a", 500, noreply=False) is True
    assert cache.touch("absent", 500, noreply=False) is False
    assert text_wire.ask(b"gat 100 a absent\r\n") == b"VALUE a 0 1\r\n1\r\nEND\r\n"
    reply = text_wire.ask(b"gats 100 a\r\n")
    assert reply.startswith(b"VALUE a 0 1 ") and reply.endswith(b"\r\n1\r\nEND\r\n")


def test_expiry_in_relative_absolute_and_past_time(cache):
    """Real time passes here: 3.2 s, once."""
    cache.set("short", b"1", expire=2)
    cache.set("absolute", b"1", expire=int(time.time()) + 1)
    cache.set("long", b"1", expire=60 * 60 * 24 * 30)
    cache.set("past", b"1", expire=-1)
    cache.set("touched", b"1", expire=2)
    cache.touch("touched", 100)
    assert cache.get("past") is None and cache.get("short") == b"1"
    time.sleep(3.2)
    assert cache.get_many(["short", "absolute", "long", "touched"]) == {
        "long": b"1", "touched": b"1"
    }


def test_flags_come_back_as_they_went(text_wire):
    assert text_wire.ask(b"set a 4294967295 0 1\r\nx\r\n") == b"STORED\r\n"
    assert text_wire.ask(b"get a\r\n") == b"VALUE a 4294967295 1\r\nx\r\nEND\r\n"
    assert text_wire.ask(b"append a 7 0 1\r\ny\r\n") == b"STORED\r\n"
    assert text_wire.ask(b"get a\r\n") == b"VALUE a 4294967295 2\r\nxy\r\nEND\r\n"


def test_noreply_says_nothing(text_wire):
    for command in (
        b"set a 0 0 1 noreply\r\n1\r\n", b"add a 0 0 1 noreply\r\n2\r\n",
        b"replace a 0 0 1 noreply\r\n3\r\n", b"append a 0 0 1 noreply\r\n4\r\n",
        b"prepend a 0 0 1 noreply\r\n5\r\n", b"incr a 1 noreply\r\n", b"decr a 1 noreply\r\n",
        b"touch a 0 noreply\r\n",
    ):
        assert text_wire.ask(command) == b"", command
    assert text_wire.ask(b"get a\r\n") == b"VALUE a 0 3\r\n534\r\nEND\r\n"
    assert text_wire.ask(b"delete a noreply\r\n") == b""
    assert text_wire.ask(b"get a\r\n") == b"END\r\n"
    assert text_wire.ask(b"verbosity 1 noreply\r\n") == b""
    assert text_wire.ask(b"flush_all noreply\r\n") == b""


@pytest.mark.parametrize(
    ("command", "want"),
    [
        (b"nosuch\r\n", b"ERROR\r\n"),
        (b"get\r\n", b"ERROR\r\n"),
        (b"\r\n", b"ERROR\r\n"),
        (b"set a\r\n", b"ERROR\r\n"),
        (b"set a x 0 1\r\n", b"CLIENT_ERROR bad command line format\r\n"),
        (b"set a 0 0 -1\r\n", b"CLIENT_ERROR bad command line format\r\n"),
        (b"get " + b"k" * 251 + b"\r\n", b"CLIENT_ERROR bad command line format\r\n"),
        (b"incr a x\r\n", b"CLIENT_ERROR invalid numeric delta argument\r\n"),
        (b"delete a 5\r\n",
         b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"),
        (b"touch a x\r\n", b"CLIENT_ERROR invalid exptime argument\r\n"),
        (b"incr absent 1\r\n", b"NOT_FOUND\r\n"),
        (b"verbosity 1\r\n", b"OK\r\n"),
        (b"flush_all\r\n", b"OK\r\n"),
        (b"flush_all 0\r\n", b"OK\r\n"),
        (b"cas a 0 0 1 5\r\nx\r\n", b"NOT_FOUND\r\n"),
        (b"cas a 0 0 1 x\r\nx\r\n", b"CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    ],
)
def test_replies_have_the_words_of_memcached(text_wire, command, want):
    assert text_wire.ask(command) == want


def test_a_body_longer_than_said_is_a_bad_chunk(text_wire):
    reply = text_wire.ask(b"set a 0 0 1\r\nxyz\r\n")
    assert reply.startswith(b"CLIENT_ERROR bad data chunk\r\n")
    assert text_wire.ask(b"get a\r\n") == b"END\r\n"


def test_keys_of_250_bytes_are_the_longest(cache):
    assert cache.set("k" * 250, b"1", noreply=False) is True
    assert cache.get("k" * 250) == b"1"


def test_flush_all_forgets_everything(cache):
    cache.set_many({f"k{number}": b"1" for number in range(200)})
    assert cache.flush_all(noreply=False) is True
    assert cache.get_many([f"k{number}" for number in range(200)]) == {}
    cache.set("k1", b"again")
    assert cache.get("k1") == b"again"


def test_a_delayed_flush_waits(text_wire):
    """Real time passes here: 2.2 s."""
    text_wire.ask(b"set a 0 0 1\r\n1\r\n")
    assert text_wire.ask(b"flush_all 2\r\n") == b"OK\r\n"
    assert text_wire.ask(b"get a\r\n") == b"VALUE a 0 1\r\n1\r\nEND\r\n"
    time.sleep(2.2)
    assert text_wire.ask(b"get a\r\n") == b"END\r\n"


def test_statistics_have_the_names_that_exporters_read(cache):
    cache.set("a", b"1")
    cache.get("a")
    cache.get("absent")
    stats = cache.stats()
    for name in (
        "pid", "uptime", "time", "version", "curr_connections", "total_connections", "cmd_get",
        "cmd_set", "get_hits", "get_misses", "bytes_read", "bytes_written", "limit_maxbytes",
        "threads", "bytes", "curr_items", "total_items", "evictions", "rusage_user",
    ):
        assert name.encode() in stats, name
    assert stats[b"get_hits"] >= 1 and stats[b"get_misses"] >= 1 and stats[b"cmd_set"] >= 1
    assert stats[b"curr_items"] == 1
    assert b"maxbytes" in cache.stats("settings")
    assert cache.version().count(b".") >= 1


def test_a_class_has_what_exporters_want(cache):
    """memcached_exporter takes the server for down where one of them is missing."""
    cache.set("key", b"value")
    cache.get("key")
    found = cache.stats("slabs")
    for name in ["get_hits", "cmd_set", "delete_hits", "incr_hits", "decr_hits", "cas_hits", "cas_badval", "touch_hits",
                 "chunk_size", "chunks_per_page", "total_pages", "total_chunks", "used_chunks", "free_chunks",
                 "free_chunks_end"]:
        assert b"1:" + name.encode() in found, name
    assert found[b"1:get_hits"] == 1 and found[b"1:cmd_set"] == 1


def test_a_reset_counts_from_nothing(text_wire):
    assert text_wire.ask(b"stats reset\r\n") == b"RESET\r\n"


def test_quit_closes(server):
    with wires.TextWire(server.memcached_port) as wire:
        wire.send(b"quit\r\n")
        assert wire.read_to_end() == b""


def test_pipelined_commands_answer_in_order(text_wire):
    commands = b"".join(
        b"set k%d 0 0 1\r\n%d\r\nget k%d\r\n" % (n, n % 10, n) for n in range(200)
    )
    want = b"".join(
        b"STORED\r\nVALUE k%d 0 1\r\n%d\r\nEND\r\n" % (n, n % 10) for n in range(200)
    )
    assert text_wire.ask(commands) == want


def test_a_value_too_large_is_refused_and_the_connection_goes_on(text_wire):
    size = 64 << 20
    text_wire.send(b"set big 0 0 %d\r\n" % size + b"x" * size + b"\r\n")
    assert text_wire.line() == b"SERVER_ERROR object too large for cache\r\n"
    assert text_wire.ask(b"set small 0 0 1\r\n1\r\n") == b"STORED\r\n"

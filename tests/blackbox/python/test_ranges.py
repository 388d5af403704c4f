"""The ordered index: KV.RANGE, walks by prefix, and the guarantee of SCAN under either index."""

import json
import random
import threading

import pytest
import redis

import servers

pytestmark = [pytest.mark.dovetail_only, pytest.mark.index(*servers.INDEXES)]
tree_only = pytest.mark.index("tree")

BINARY_KEYS = [
    b"", b"\x00", b"\x00\x00", b"\x00\xff", b"\r\n", b"(", b"+", b"-", b"[", b"[a", b"a",
    b"a\x00", b"a\x00b", b"a" * 7, b"a" * 8, b"a" * 8 + b"\x00", b"a" * 9, b"a" * 17, b"ab", b"b",
    b"\x7f", b"\x80", b"\xfe", b"\xff", b"\xff" * 8, b"\xff" * 9, b"k" * 65_535,
]


def keys_of(reply):
    return reply[::2]


def walk(client, limit, *options):
    """All keys, page by page."""
    is_reverse = "REV" in options
    start, end, found = b"-", b"+", []
    while True:
        page = client.execute_command("KV.RANGE", start, end, "LIMIT", limit, "KEYSONLY", *options)
        found += page
        if len(page) < limit:
            return found
        if is_reverse:
            end = b"(" + page[-1]
        else:
            start = b"(" + page[-1]


@pytest.mark.index("hash")
def test_the_hash_index_says_what_a_range_needs(wire):
    want = b"-ERR KV.RANGE needs the ordered index: start the server with --index tree\r\n"
    assert wire.ask("KV.RANGE", "-", "+") == want
    assert wire.ask("KV.RANGE", "+", "-", "LIMIT", "0") == want


@tree_only
def test_a_range_answers_keys_and_values_in_order(client):
    client.mset({f"k{number:03}": number for number in range(100)})
    reply = client.execute_command("KV.RANGE", "[k010", "(k013")
    assert reply == [b"k010", b"10", b"k011", b"11", b"k012", b"12"]
    assert client.execute_command("KV.RANGE", "(k010", "[k012", "KEYSONLY") == [b"k011", b"k012"]
    reverse = client.execute_command("KV.RANGE", "[k010", "(k013", "REV")
    assert reverse == [b"k012", b"12", b"k011", b"11", b"k010", b"10"]
    first = client.execute_command("KV.RANGE", "-", "+", "LIMIT", "2", "KEYSONLY")
    last = client.execute_command("KV.RANGE", "-", "+", "LIMIT", "2", "KEYSONLY", "REV")
    assert (first, last) == ([b"k000", b"k001"], [b"k099", b"k098"])
    assert len(client.execute_command("KV.RANGE", "-", "+")) == 200


@tree_only
@pytest.mark.parametrize(
    ("start", "end"),
    [("+", "-"), ("+", "+"), ("-", "-"), ("[b", "[a"), ("(a", "(a"), ("[a", "(a"), ("[x", "+")],
)
def test_empty_ranges_are_empty_arrays(wire, start, end):
    wire.ask("MSET", "a", "1", "b", "2")
    assert wire.ask("KV.RANGE", start, end) == b"*0\r\n"
    assert wire.ask("KV.RANGE", start, end, "REV") == b"*0\r\n"
    assert wire.ask("KV.RANGE", "-", "+", "LIMIT", "0") == b"*0\r\n"


@tree_only
def test_the_reply_is_the_same_array_in_resp3(wire):
    wire.ask("HELLO", "3")
    wire.ask("SET", "a", "1")
    assert wire.ask("KV.RANGE", "-", "+") == b"*2\r\n$1\r\na\r\n$1\r\n1\r\n"


@tree_only
def test_keys_of_any_bytes_stand_in_a_bound(client):
    for key in BINARY_KEYS:
        client.set(key, b"of " + key[:50])
    ordered = sorted(BINARY_KEYS)
    assert client.execute_command("KV.RANGE", "-", "+", "KEYSONLY") == ordered
    assert client.execute_command("KV.RANGE", "-", "+", "KEYSONLY", "REV") == ordered[::-1]
    for position, key in enumerate(ordered):
        up = client.execute_command("KV.RANGE", b"[" + key, "+", "KEYSONLY")
        assert up == ordered[position:]
        above = client.execute_command("KV.RANGE", b"(" + key, "+", "KEYSONLY")
        assert above == ordered[position + 1:]
        alone = client.execute_command("KV.RANGE", b"[" + key, b"[" + key)
        assert alone == [key, b"of " + key[:50]]


@tree_only
def test_every_range_is_that_of_a_sorted_list(client):
    rng = random.Random(7)
    alphabet = [b"a", b"b", b"\x00", b"\xff", b"abcdefgh"]
    keys = {b"".join(rng.choices(alphabet, k=rng.randint(0, 5))) for _ in range(400)}
    for key in keys:
        client.set(key, b"v" + key)
    for key in rng.sample(sorted(keys), 100):
        client.delete(key)
        keys.discard(key)
    ordered = sorted(keys)
    for _ in range(300):
        low, high = (b"".join(rng.choices(alphabet, k=rng.randint(0, 4))) for _ in range(2))
        marks = rng.choice([b"[", b"("]), rng.choice([b"[", b"("])
        want = [
            key for key in ordered
            if (key > low or (key == low and marks[0] == b"["))
            and (key < high or (key == high and marks[1] == b"["))
        ]
        words = ["KV.RANGE", marks[0] + low, marks[1] + high]
        if rng.random() < 0.5:
            words.append("REV")
            want.reverse()
        if rng.random() < 0.5:
            limit = rng.randint(0, 20)
            words += ["LIMIT", limit]
            want = want[:limit]
        reply = client.execute_command(*words)
        assert keys_of(reply) == want, words
        assert reply[1::2] == [b"v" + key for key in want]


@tree_only
@pytest.mark.parametrize(
    ("words", "want"),
    [
        (("a", "+"), b"-ERR min or max not valid string range item\r\n"),
        (("-", "b"), b"-ERR min or max not valid string range item\r\n"),
        (("", "+"), b"-ERR min or max not valid string range item\r\n"),
        (("-",), b"-ERR wrong number of arguments for 'kv.range' command\r\n"),
        (("-", "+", "LIMIT"), b"-ERR syntax error\r\n"),
        (("-", "+", "BAD"), b"-ERR syntax error\r\n"),
        (("-", "+", "LIMIT", "x"), b"-ERR value is not an integer or out of range\r\n"),
        (("-", "+", "LIMIT", "-1"), b"-ERR value is out of range, must be positive\r\n"),
    ],
)
def test_what_is_no_range_is_refused(wire, words, want):
    assert wire.ask("KV.RANGE", *words) == want


@tree_only
def test_a_range_in_a_transaction_sees_what_came_before_it(wire):
    for words in [("MULTI",), ("SET", "a", "1"), ("KV.RANGE", "-", "+"), ("DEL", "a")]:
        wire.ask(*words)
    wire.ask("KV.RANGE", "-", "+")
    want = b"*4\r\n+OK\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n:1\r\n*0\r\n"
    assert wire.ask("EXEC") == want


def test_command_describes_it(client):
    info = client.execute_command("COMMAND", "INFO", "KV.RANGE")
    assert "kv.range" in str(info)
    with pytest.raises(redis.ResponseError, match="no key arguments"):
        client.execute_command("COMMAND", "GETKEYS", "KV.RANGE", "-", "+")


@tree_only
@pytest.mark.flags(memory="256MiB")
def test_a_long_range_comes_whole_while_others_are_served(server, client):
    pipe = client.pipeline(transaction=False)
    for number in range(100_000):
        pipe.set(f"{number:08}", number)
    pipe.execute()
    other = redis.Redis(port=server.resp_port)
    stop, answered = threading.Event(), []

    def ask():
        while not stop.is_set():
            answered.append(other.get("00000007"))

    asking = threading.Thread(target=ask)
    asking.start()
    pipe = client.pipeline(transaction=False)
    pipe.execute_command("KV.RANGE", "-", "+")
    pipe.set("behind", "it")
    pipe.execute_command("KV.RANGE", "-", "+", "REV", "KEYSONLY")
    whole, _, reverse = pipe.execute()
    stop.set()
    asking.join()
    other.close()
    assert whole[::2] == [b"%08d" % number for number in range(100_000)]
    assert whole[1::2] == [b"%d" % number for number in range(100_000)]
    assert reverse[1:] == whole[::2][::-1] and reverse[0] == b"behind"
    assert answered and set(answered) == {b"7"}
    assert walk(client, 777) == sorted([*whole[::2], b"behind"])


@tree_only
@pytest.mark.flags(memory="64MiB")
def test_a_range_beyond_the_client_buffers_is_refused_and_harmless(client):
    for number in range(20):
        client.set(f"k{number}", b"x" * (1 << 19))
    with pytest.raises(redis.ResponseError, match="larger than the client buffers allow"):
        client.execute_command("KV.RANGE", "-", "+")
    assert len(client.execute_command("KV.RANGE", "-", "+", "KEYSONLY")) == 20
    assert len(client.execute_command("KV.RANGE", "-", "+", "LIMIT", "2")) == 4
    assert client.ping()


@tree_only
@pytest.mark.flags(memory="256MiB", threads="2")
@pytest.mark.parametrize("options", [(), ("REV",)])
def test_keys_that_stay_are_answered_once_while_others_come_and_go(server, client, options):
    stay = [b"stay:%06d" % number for number in range(0, 60_000, 3)]
    client.mset({key: key for key in stay})
    stop = threading.Event()

    def churn(seed):
        rng = random.Random(seed)
        with redis.Redis(port=server.resp_port) as writer:
            while not stop.is_set():
                pipe = writer.pipeline(transaction=False)
                for _ in range(100):
                    number = rng.randrange(60_000)
                    key = b"stay:%06d" % number
                    if number % 3 == 0:
                        pipe.set(key, key)
                    elif rng.random() < 0.5:
                        pipe.set(key + b"x" * rng.choice([0, 1, 9]), b"passing")
                    else:
                        pipe.delete(key, key + b"x", key + b"x" * 9)
                pipe.execute()

    writers = [threading.Thread(target=churn, args=(seed,)) for seed in range(2)]
    for writer in writers:
        writer.start()
    try:
        for limit in (500, 5_000, 1_000_000):
            found = walk(client, limit, *options)
            assert found == sorted(found, reverse="REV" in options)
            assert len(found) == len(set(found)), "a key came twice"
            assert set(stay) <= set(found), "a key that was there throughout is missing"
    finally:
        stop.set()
        for writer in writers:
            writer.join()


def scan_all(client, between=lambda: None, **options):
    cursor, found = 0, []
    while True:
        cursor, names = client.scan(cursor, **options)
        found += names
        if cursor == 0:
            return found
        between()


@pytest.mark.flags(memory="256MiB")
def test_scan_returns_every_key_that_stays_while_the_index_grows(client):
    stay = {b"stay:%d" % number for number in range(20_000)}
    client.mset({key: b"" for key in stay})
    added = 0

    def grow():
        nonlocal added
        if added < 400_000:
            client.mset({b"new:%d" % number: b"" for number in range(added, added + 4_000)})
            added += 4_000

    found = scan_all(client, grow, count=100)
    assert added >= 100_000, "the scan was over before the index had to grow"
    assert stay <= set(found)
    # And while it shrinks: half of the new keys go meanwhile.
    removed = 0

    def shrink():
        nonlocal removed
        if removed < added:
            client.delete(*(b"new:%d" % number for number in range(removed, removed + 4_000)))
            removed += 4_000

    assert stay <= set(scan_all(client, shrink, count=1_000))


def test_walks_by_prefix_find_the_same_keys_under_both_indexes(client):
    keys = [b"user:%d" % number for number in range(300)]
    others = [b"use", b"user", b"user;", b"uses", b"user:\xff\xff", b"User:1", b"*user:1", b"us\\er"]
    client.mset({key: b"" for key in [*keys, *others]})
    for pattern, want in [
        (b"user:*", [*keys, b"user:\xff\xff"]),
        (b"user:1?", [b"user:%d" % number for number in range(10, 20)]),
        (b"user:[12]", [b"user:1", b"user:2"]),
        (b"user", [b"user"]),
        (b"\\*user*", [b"*user:1"]),
        (b"us\\\\er", [b"us\\er"]),
        (b"*ser:\xff*", [b"user:\xff\xff"]),
        (b"nosuch*", []),
        (b"", []),
    ]:
        assert sorted(client.keys(pattern)) == sorted(want), pattern
        for count in (1, 7, 1000):
            assert sorted(set(scan_all(client, match=pattern, count=count))) == sorted(want)
        typed = scan_all(client, match=pattern, count=50, _type="string")
        assert sorted(set(typed)) == sorted(want)
        assert scan_all(client, match=pattern, count=50, _type="list") == []


@tree_only
@pytest.mark.flags(memory="256MiB")
def test_a_prefix_is_walked_without_the_rest(client):
    pipe = client.pipeline(transaction=False)
    for number in range(50_000):
        pipe.set(f"other:{number}", "")
    for number in range(30):
        pipe.set(f"user:{number}", "")
    pipe.execute()
    # All are in one answer: nothing of the rest was visited on the way.
    cursor, names = client.scan(0, match="user:*", count=31)
    assert cursor == 0 and len(names) == 30
    cursor, names = client.scan(0, match="user:*", count=10)
    assert cursor != 0 and len(names) == 10


@tree_only
def test_a_forgotten_cursor_is_told(client):
    client.mset({f"k{number}": "" for number in range(50)})
    with pytest.raises(redis.ResponseError, match="invalid cursor"):
        client.scan(123_456_789, match="k*")
    early, _ = client.scan(0, count=3)
    for _ in range(5_000):
        client.scan(0, count=2)
    with pytest.raises(redis.ResponseError, match="invalid cursor"):
        client.scan(early)


@pytest.mark.parametrize("eviction", ["fifo", "lru-approx", "s3-fifo"])
def test_a_cache_holds_its_cap_with_every_eviction(index, eviction):
    server = servers.start("--index", index, "--eviction", eviction, memory="64MiB")
    try:
        with redis.Redis(port=server.resp_port) as client:
            # Small items, so that the index has to grow within the cap as well.
            for start in range(0, 1_000_000, 10_000):
                keys = range(start, start + 10_000)
                client.mset({b"k%d" % number: b"v" * (number % 100) for number in keys})
            info = client.info("memory") | client.info("stats")
            assert info["used_memory"] <= 64 << 20
            assert info["used_memory_rss"] <= (64 << 20) + (40 << 20)
            assert info["evicted_keys"] > 0 and client.dbsize() > 50_000
            assert client.get("k999999") is not None
            assert client.config_get("eviction")["eviction"] == eviction
            assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "allkeys-lru"
        status, body = server.admin("/stats")
        store = json.loads(body)["store"]
        assert status == 200 and store["log_live_bytes"] > 0
        evicted = store["evicted_small_total"] + store["evicted_main_total"]
        assert evicted == store["evicted_by_log_total"]
        assert (store["evicted_small_total"] > 0) == (eviction == "s3-fifo")
        _, metrics = server.admin("/metrics")
        assert 'dovetail_log_space_bytes{state="live"}' in metrics
    finally:
        assert server.stop() == 0

"""`dovetail migrate`: keys of the real redis-server and memcached, and of RDB files that Redis wrote."""

import os
import pathlib
import re
import signal
import subprocess
import threading
import time

import pytest
import redis
from pymemcache.client.base import Client as MemcachedClient

import servers

pytestmark = [
    pytest.mark.dovetail_only,
    pytest.mark.index("hash"),
    pytest.mark.skipif(not servers.has_reference(), reason="redis-server and memcached are not installed"),
]


@pytest.fixture
def source():
    running = servers.Reference()
    yield running
    running.stop()


@pytest.fixture
def old(source):
    with redis.Redis(host=servers.HOST, port=source.resp_port, protocol=2) as found:
        yield found


@pytest.fixture
def old_cache(source):
    found = MemcachedClient((servers.HOST, source.memcached_port), timeout=20, no_delay=True,
                            default_noreply=False)
    yield found
    found.close()


def command(server, origin, *flags):
    if origin.startswith("memcached:"):
        to = f"memcached://{servers.HOST}:{server.memcached_port}"
    else:
        to = f"redis://{servers.HOST}:{server.resp_port}"
    return [servers.binary(), "migrate", "--from", origin, "--to", to, *flags]


def migrate(server, origin, *flags, status=0):
    done = subprocess.run(command(server, origin, *flags), capture_output=True, text=True,
                          env=servers.clean_environment(), timeout=120)
    assert done.returncode == status, done
    return done.stdout + done.stderr


def redis_url(source, suffix=""):
    return f"redis://{servers.HOST}:{source.resp_port}{suffix}"


def memcached_url(source):
    return f"memcached://{servers.HOST}:{source.memcached_port}"


@pytest.mark.flags(memory="1GiB")
def test_strings_and_their_times(server, client, source, old):
    old.set("plain", "value")
    old.set("ends", "soon", px=3_600_000)
    old.set(b"\x00\r\n key", b"\xff\x00\r\n")
    old.set("empty", "")
    old.set("large", b"x" * (20 << 20))
    old.rpush("list", 1, 2)
    old.hset("hash", "f", "v")
    old.hset("hash2", "f", "v")
    said = migrate(server, redis_url(source))
    assert "copied 5 of 8 keys" in said
    assert "3 are no strings and were skipped: 2 hash, 1 list" in said
    assert client.dbsize() == 5
    assert client.get("plain") == b"value" and client.ttl("plain") == -1
    assert client.get(b"\x00\r\n key") == b"\xff\x00\r\n"
    assert client.get("empty") == b""
    assert client.get("large") == b"x" * (20 << 20)
    assert 3_500_000 < client.pttl("ends") <= old.pttl("ends") + 1000


def test_many_keys_arrive(server, client, source, old):
    with old.pipeline(transaction=False) as pipe:
        for n in range(20_000):
            pipe.set(f"key:{n}", f"value {n}" * (n % 30))
        pipe.execute()
    said = migrate(server, redis_url(source))
    assert "copied 20000 of 20000 keys" in said
    assert client.dbsize() == 20_000
    for n in range(0, 20_000, 777):
        assert client.get(f"key:{n}") == (f"value {n}" * (n % 30)).encode()


@pytest.mark.flags("--max-item-size", "1MiB")
def test_a_value_that_the_target_does_not_take_is_left_out_and_told(server, client, source, old):
    old.mset({f"key:{n}": "v" for n in range(3000)})
    old.set("large", b"x" * (2 << 20))
    said = migrate(server, redis_url(source), status=1)
    assert "above the target's proto-max-bulk-len of 1048576" in said and "1 key was refused" in said
    assert client.dbsize() == 3000 and client.get("large") is None


def test_what_is_there_stays_unless_told(server, client, source, old):
    old.mset({"a": "old a", "b": "old b"})
    client.set("a", "new a")
    said = migrate(server, redis_url(source))
    assert "copied 1 of 2 keys" in said and "1 were there and stayed" in said
    assert client.mget("a", "b") == [b"new a", b"old b"]
    migrate(server, redis_url(source), "--replace")
    assert client.mget("a", "b") == [b"old a", b"old b"]


def test_a_dry_run_and_a_pattern(server, client, source, old):
    old.mset({"user:1": "x", "user:2": "y", "job:1": "z"})
    said = migrate(server, redis_url(source), "--dry-run")
    assert "would copy 3 of 3 keys" in said
    assert client.dbsize() == 0
    migrate(server, redis_url(source), "--match", "user:*")
    assert sorted(client.keys()) == [b"user:1", b"user:2"]


def test_databases_and_passwords(server, client, source, old):
    with redis.Redis(port=source.resp_port, db=3) as third:
        third.set("three", 3)
    old.config_set("requirepass", "a@b")
    origin = f"redis://:a%40b@{servers.HOST}:{source.resp_port}/3"
    migrate(server, origin)
    assert client.keys() == [b"three"]
    said = migrate(server, redis_url(source), status=1)
    assert "NOAUTH" in said and "write redis://[user]:password@host:port" in said


def test_what_expires_on_the_way_stays_dead(server, client, source, old):
    with old.pipeline(transaction=False) as pipe:
        for n in range(600):
            pipe.set(f"short:{n}", n, px=1500)
        pipe.execute()
    # Slow enough that the last ones have ended when their turn comes.
    said = migrate(server, redis_url(source), "--rate", "200")
    assert re.search(r"\d+ (have expired|were gone)", said), said
    time.sleep(1.6)
    assert client.dbsize() == 0 or client.keys() == []


def test_an_interrupted_copy_goes_on(server, client, source, old):
    with old.pipeline(transaction=False) as pipe:
        for n in range(5000):
            pipe.set(f"key:{n}", n)
        pipe.execute()
    running = subprocess.Popen(command(server, redis_url(source), "--rate", "2000"), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=servers.clean_environment())
    deadline = time.monotonic() + 60
    while client.dbsize() < 1000 and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    out, error = running.communicate(timeout=60)
    assert running.returncode == 1, (out, error)
    place = re.search(r"interrupted; go on with --resume (\d+)", error).group(1)
    assert 1000 <= client.dbsize() < 5000
    migrate(server, redis_url(source), "--resume", place)
    assert client.dbsize() == 5000


def test_connections_that_break_are_made_again(server, client, source, old):
    with old.pipeline(transaction=False) as pipe:
        for n in range(3000):
            pipe.set(f"key:{n}", n)
        pipe.execute()
    is_over = threading.Event()

    def cut():
        while not is_over.wait(0.3):
            old.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        said = migrate(server, redis_url(source), "--rate", "2000")
    finally:
        is_over.set()
        cutter.join()
    assert "trying again" in said
    assert client.dbsize() == 3000


def test_a_source_that_is_not_there(server):
    port = servers.free_port()
    said = migrate(server, f"redis://{servers.HOST}:{port}", status=1)
    assert f"{servers.HOST}:{port}" in said and "refused" in said


def test_usage(server):
    for flags, want in [
        (["--resume", "x"], "--resume x: a cursor of SCAN"),
        (["--rate", "0"], "0 is not in 1.."),
    ]:
        said = migrate(server, f"redis://{servers.HOST}:1", *flags, status=2)
        assert want in said
    said = migrate(server, redis_url(server), status=2)
    assert "the same server" in said


def test_memcached_with_flags_times_and_any_keys(server, client, cache, source, old_cache):
    old_cache.set("plain", b"value", flags=0)
    old_cache.raw_command(b"set flagged 12345 3600 3\r\nabc", b"\r\n")
    old_cache.raw_command(b"ms AGEgYg== 2 b F7\r\nxy", b"\r\n")
    old_cache.set("large", b"y" * (900 << 10))
    # Beyond thirty days a time is a date.
    old_cache.set("long", b"z", expire=40 * 24 * 3600 + int(time.time()))
    said = migrate(server, memcached_url(source))
    assert "copied 5 of 5 keys" in said, said
    assert cache.get("plain") == b"value"
    assert cache.get("large") == b"y" * (900 << 10)
    flagged = cache.raw_command(b"mg flagged v f t", b"abc\r\n")
    assert flagged.startswith(b"VA 3 f12345 t3"), flagged
    assert cache.raw_command(b"mg AGEgYg== b v f t", b"xy\r\n") == b"VA 2 f7 t-1\r\n"
    assert 39 * 86400 < client.ttl("long") <= 40 * 86400
    assert client.ttl("plain") == -1
    cache.set("plain", b"newer")
    said = migrate(server, memcached_url(source))
    assert "5 were there and stayed" in said
    assert cache.get("plain") == b"newer"


def test_many_keys_of_memcached(server, client, source, old_cache):
    for n in range(0, 5000, 500):
        old_cache.set_many({f"key:{i}": b"v%d" % i for i in range(n, n + 500)})
    time.sleep(0.1)
    said = migrate(server, memcached_url(source), "--match", "key:*9")
    assert "copied 500 of 5000 keys" in said and "4500 do not match" in said
    assert client.dbsize() == 500
    migrate(server, memcached_url(source))
    assert client.dbsize() == 5000


def saved(old):
    old.save()
    return pathlib.Path(old.config_get("dir")["dir"]) / "dump.rdb"


def test_an_rdb_file(server, client, old):
    old.set("plain", "hello")
    old.set("number", -70000)
    old.set("packed", "abcd" * 5000)
    old.set("ends", "later", ex=3600)
    old.set("gone", "soon", px=1)
    old.set(b"\x00\r\n", b"\xff" * 70_000)
    old.rpush("list", *range(1000))
    old.sadd("set", *range(1000))
    old.sadd("words", "a", "b")
    old.zadd("zset", {f"m{n}": n / 7 for n in range(1000)})
    old.hset("hash", mapping={f"f{n}": "x" * n for n in range(200)})
    for n in range(300):
        old.xadd("stream", {"n": n})
    old.xgroup_create("stream", "g", "0")
    old.xreadgroup("g", "c", {"stream": ">"}, count=10)
    with redis.Redis(port=old.connection_pool.connection_kwargs["port"], db=2) as second:
        second.set("elsewhere", 1)
    path = saved(old)
    said = migrate(server, f"rdb://{path}")
    assert "copied 5 of" in said
    assert "6 are no strings and were skipped: 2 set, 1 hash, 1 list, 1 stream, 1 zset" in said
    assert "1 are in other databases: --db N" in said
    for key in ["plain", "number", "packed", b"\x00\r\n"]:
        assert client.get(key) == old.get(key)
    assert 3500 < client.ttl("ends") <= 3600
    migrate(server, f"rdb://{path}", "--db", "2")
    assert client.get("elsewhere") == b"1"


def test_a_damaged_rdb_file(server, client, old, tmp_path):
    old.mset({f"key:{n}": "x" * 100 for n in range(100)})
    path = saved(old)
    bytes_ = bytearray(path.read_bytes())
    bytes_[len(bytes_) // 2] ^= 0x20
    damaged = tmp_path / "damaged.rdb"
    damaged.write_bytes(bytes_)
    said = migrate(server, f"rdb://{damaged}", status=1)
    assert "damaged" in said or "cut off" in said, said
    cut = tmp_path / "cut.rdb"
    cut.write_bytes(path.read_bytes()[:200])
    assert "cut off: it ends at byte 200" in migrate(server, f"rdb://{cut}", status=1)
    assert "No such file" in migrate(server, "rdb:///no/such/file", status=1)


def test_an_rdb_file_with_settings_of_its_own(server, client, old):
    """Without a checksum, without compression, with eviction's numbers."""
    old.config_set("rdbcompression", "no")
    old.config_set("maxmemory-policy", "allkeys-lfu")
    old.mset({f"key:{n}": "abc" * 50 for n in range(300)})
    path = saved(old)
    migrate(server, f"rdb://{path}", "--rate", "100000")
    assert client.dbsize() == 300
    assert os.path.getsize(path) > 300 * 150

"""CLIENT TRACKING: clients that keep copies are told what has changed, as by Redis, and never too late."""

import contextlib
import itertools
import os
import random
import re
import threading
import time

import pytest
import redis
from redis.cache import CacheConfig

import servers
import wires

# How many threads, and the flags that say which of them execute.
WORKERS = {"one": ("1",), "several": ("3", "--cr-threads", "3"), "routed": ("4", "--cr-threads", "2")}


@pytest.fixture(scope="module")
def reference():
    if os.environ.get("BLACKBOX_SERVE"):
        pytest.skip("threads that execute for others tell behind their replies, each by itself")
    running = servers.Reference()
    with wires.RespWire(running.resp_port) as wire:
        if b"redis_version:7.0." not in wire.ask("INFO", "server"):
            running.stop()
            pytest.skip("other versions tell other things")
    yield running
    running.stop()


INVALIDATION = b">2\r\n$10\r\ninvalidate\r\n"


def in_any_order(parts):
    """Messages that follow each other, by their bytes: RENAME names its keys in another order."""
    for is_message, run in itertools.groupby(parts, lambda part: part.startswith(INVALIDATION)):
        yield from sorted(run) if is_message else run


class Talk:
    """Some connections of a server; what each of them hears, in bytes, with its ids as names."""

    def __init__(self, port, names):
        self.wires = {name: wires.RespWire(port) for name in names}
        self.ids = {}
        for name, wire in self.wires.items():
            if name.isupper():
                wire.ask("HELLO", "3")
            self.ids[name] = int(wire.ask("CLIENT", "ID")[1:-2])
        self.wires["w"].ask("FLUSHALL")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for wire in self.wires.values():
            wire.close()

    def heard(self, name, reply_count=0):
        """So many replies, and everything that has come before the answer to a PING; what changed by one
        command in any order."""
        wire, parts = self.wires[name], []
        while reply_count > 0:
            parts.append(wire.reply())
            reply_count -= not parts[-1].startswith(INVALIDATION)
        wire.send(wires.encode("PING", "the end"))
        while True:
            part = wire.reply()
            if part in (b"$7\r\nthe end\r\n", b"*2\r\n$4\r\npong\r\n$7\r\nthe end\r\n"):
                return b"".join(in_any_order(parts))
            parts.append(part)

    def step(self, line):
        """`A: GET k | GET j` sends a pipeline; `A:` closes. What all have heard."""
        (name, _, rest), reply_count = line.partition(":"), 0
        if rest.strip() == "":
            self.wires.pop(name).close()
            time.sleep(0.1)
        else:
            commands = [[self.word(word) for word in command.split()] for command in rest.split("|")]
            self.wires[name].send(b"".join(wires.encode(*words) for words in commands))
            reply_count = len(commands)
        told = {}
        for other in [name, *sorted(set(self.wires) - {name})]:
            if other in self.wires:
                told[other] = self.named(self.heard(other, reply_count if other == name else 0))
        return told

    def word(self, word):
        if word == "''":
            return ""
        return str(self.ids[word[1:]]) if word.startswith("@") else word

    def named(self, heard):
        """What is said without the numbers of clients and of versions."""
        names = {b"%d" % number: name.encode() for name, number in self.ids.items()}

        def shown(found):
            return found[1] + b":@" + names.get(found[2], found[2]) + b"\r\n"

        heard = re.sub(rb"(redirect\r\n|redir-broken\r\n|id\r\n)?:(\d+)\r\n", lambda it: shown(it) if it[1] else it[0], heard)
        return re.sub(rb"version\r\n\$\d+\r\n[0-9.]+", b"version", heard)


def compare(subject, reference, script):
    names = sorted({line.partition(":")[0] for line in script} | {"w"})
    names += sorted({word[1:] for line in script for word in line.split() if word[0] == "@"} - set(names))
    with Talk(subject.resp_port, names) as left, Talk(reference.resp_port, names) as right:
        for line in script:
            found, want = left.step(line), right.step(line)
            assert found == want, line


ERRORS = """
CLIENT TRACKING|CLIENT TRACKING foo|CLIENT TRACKING ON foo|CLIENT TRACKING ON REDIRECT|CLIENT TRACKING ON REDIRECT x
CLIENT TRACKING ON REDIRECT -1|CLIENT TRACKING ON REDIRECT 0|CLIENT TRACKING ON REDIRECT 99999
CLIENT TRACKING ON REDIRECT @w REDIRECT @w|CLIENT TRACKING ON PREFIX|CLIENT TRACKING ON PREFIX a
CLIENT TRACKING ON BCAST OPTIN|CLIENT TRACKING ON BCAST OPTOUT|CLIENT TRACKING ON OPTIN OPTOUT
CLIENT TRACKING OFF foo|CLIENT TRACKING OFF PREFIX a|CLIENT TRACKING OFF OPTIN OPTOUT|CLIENT TRACKING OFF REDIRECT 99999
CLIENT TRACKING OFF|CLIENT CACHING|CLIENT CACHING YES|CLIENT CACHING foo|CLIENT GETREDIR|CLIENT GETREDIR x
CLIENT TRACKINGINFO|CLIENT TRACKINGINFO x
CLIENT TRACKING ON|CLIENT GETREDIR|CLIENT TRACKINGINFO|CLIENT CACHING YES|CLIENT CACHING NO|CLIENT CACHING foo
CLIENT TRACKING ON OPTIN|CLIENT TRACKING ON OPTOUT|CLIENT TRACKING ON OPTIN OPTOUT|CLIENT TRACKING ON BCAST
CLIENT TRACKING ON BCAST OPTIN|CLIENT TRACKING ON PREFIX a|CLIENT CACHING YES|CLIENT TRACKINGINFO|PING|CLIENT TRACKINGINFO
CLIENT CACHING NO|CLIENT TRACKING ON NOLOOP|CLIENT TRACKINGINFO|CLIENT TRACKING ON OPTOUT|CLIENT CACHING NO
CLIENT TRACKINGINFO|CLIENT CACHING YES|CLIENT TRACKING ON REDIRECT @w|CLIENT TRACKINGINFO
CLIENT TRACKING ON|CLIENT GETREDIR|CLIENT TRACKING OFF|CLIENT TRACKINGINFO
CLIENT TRACKING ON BCAST|CLIENT TRACKING ON|CLIENT TRACKING ON OPTIN|CLIENT TRACKING ON BCAST PREFIX a
CLIENT TRACKINGINFO|CLIENT CACHING YES|CLIENT TRACKING OFF
CLIENT TRACKING ON BCAST PREFIX foo PREFIX foobar|CLIENT TRACKING ON BCAST PREFIX foo PREFIX foo
CLIENT TRACKING ON BCAST PREFIX foo PREFIX bar|CLIENT TRACKINGINFO|CLIENT TRACKING ON BCAST PREFIX foob
CLIENT TRACKING ON BCAST PREFIX fo|CLIENT TRACKING ON BCAST PREFIX foo|CLIENT TRACKING ON BCAST PREFIX ''
CLIENT TRACKING ON BCAST PREFIX a PREFIX b|CLIENT TRACKINGINFO|RESET|CLIENT TRACKINGINFO|CLIENT TRACKING ON NOLOOP OPTIN
"""


def test_prefixes_are_named_by_their_bytes(subject, reference):
    for prefix, other in [(b"a\xff", b"a\xff\xfe"), (b"a\0b", b"a\0"), (b"a\r\nb", b"a"), (b"", b"\xc3(")]:
        with wires.RespWire(subject.resp_port) as ours, wires.RespWire(reference.resp_port) as theirs:
            ours.ask("HELLO", "3"), theirs.ask("HELLO", "3")
            together = ("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", prefix, "PREFIX", other)
            assert ours.ask(*together) == theirs.ask(*together)
            for words in (together[:6], together[:4] + together[6:]):
                assert ours.ask(*words) == theirs.ask(*words)


@pytest.mark.parametrize("reader", ["a", "A"])
def test_redis_answers_the_same(subject, reference, reader):
    commands = [command for line in ERRORS.strip().splitlines() for command in line.split("|")]
    compare(subject, reference, [f"{reader}: {command}" for command in commands])


READS = """
GET k|EXISTS k|TTL k|PTTL k|EXPIRETIME k|STRLEN k|TYPE k|OBJECT ENCODING k|DUMP k|TOUCH k|GETRANGE k 0 1
SUBSTR k 0 1|GETEX k|GETBIT k 1|BITCOUNT k|BITPOS k 1|BITFIELD_RO k GET u8 0|BITFIELD k GET u8 0|LCS k k|MGET k|MGET j k
PING|WATCH k|UNWATCH|KEYS *|SCAN 0|RANDOMKEY|DBSIZE|GET|GET k j|GETDEL nokey|PING k|ECHO k|EXISTS j l k
"""

WRITES = """
SET k 1|SET k 1 NX|SET k 1 XX|SET j 1|SETNX k 1|GETSET k 2|SET k 3 GET|SET k 4 KEEPTTL|SET k 5 EX 1000|PERSIST k|PERSIST k
GETEX k|GETEX k EX 1000|GETEX k PERSIST|EXPIRE k 1000|EXPIRE k 1000 NX|PEXPIRE k 1000000|EXPIREAT k 4000000000
EXPIRE nokey 1000|TOUCH k|APPEND k x|SETRANGE k 0 a|GETRANGE k 0 1|INCR k|SET k 7|INCR k|INCRBY k 5|DECR k|DECRBY k 1
INCRBYFLOAT k 1.5|SETBIT k 1 0|SETBIT k 1 1|DEL k|DEL k|UNLINK k|SET k 1|UNLINK k|SET k 1|GETDEL k|GETDEL k|MSET j 1 k 2
MSETNX k 1 l 1|COPY k q|COPY j k|COPY j k REPLACE|RENAME k k2|SET k 1|RENAMENX k k2|RENAMENX k k3|SET k 1|EXPIRE k -1
SETEX k 1000 v|PSETEX k 1000000 v|BITOP AND k j j|BITOP NOT k j|BITFIELD k SET u8 0 1|BITFIELD k INCRBY u8 0 1
FLUSHDB|SET k 1|FLUSHALL|SET k 1|FLUSHALL ASYNC|GET k|NOSUCH k|SET k
"""


def commands_of(text):
    return [command for line in text.strip().splitlines() for command in line.split("|")]


def test_the_same_reads_are_remembered(subject, reference):
    script = ["A: CLIENT TRACKING ON"]
    for command in commands_of(READS):
        script += [f"A: {command}", "w: SET k 10"]
    compare(subject, reference, script)


@pytest.mark.parametrize("writer", ["w", "A"])
def test_the_same_changes_are_told(subject, reference, writer):
    script = ["A: CLIENT TRACKING ON"]
    for command in commands_of(WRITES):
        script += ["A: MGET k j l k2 k3 q", f"{writer}: {command}"]
    compare(subject, reference, script)


SCRIPTS = {
    "once": ["A: GET k", "w: SET k 1", "w: SET k 2", "A: SET k 3", "A: GET k", "A: SET k 4", "A: SET k 5"],
    "pipelines": [
        "A: GET k | SET k 5 | GET k | SET k 5 | DEL k", "A: SET k 1 | GET k", "w: SET k 1 | SET k 2 | DEL k",
        "A: MGET a b a", "w: MSET a 1 b 2 c 3", "A: MGET a b", "w: DEL b a", "A: GET k | FLUSHALL | GET k", "w: SET k 1",
    ],
    "several": ["A: CLIENT TRACKING ON", "B: CLIENT TRACKING ON", "A: GET k", "B: MGET k j", "w: SET k 1", "w: SET j 1"],
    "multi": [
        "A: MULTI | GET k | MGET i j | EXEC", "w: MSET k 1 i 1", "w: MULTI | SET j 1 | SET j 2 | EXEC",
        "A: MULTI | GET k | DISCARD", "w: SET k 1",
        "A: GET k", "A: MULTI | SET k 1 | SET k 2 | EXEC", "A: GET k", "A: MULTI | GET j | FLUSHALL | EXEC", "w: SET j 1",
        "A: GET k", "A: MULTI | SET k 1 | CLIENT TRACKINGINFO | EXEC", "w: SET k 2", "A: CLIENT TRACKING OFF",
        "A: MULTI | CLIENT TRACKING ON | GET k | EXEC", "w: SET k 3", "A: WATCH k", "A: MULTI | GET k | EXEC", "w: SET k 1",
    ],
    "optin": [
        "A: CLIENT TRACKING OFF | CLIENT TRACKING ON OPTIN", "A: GET k", "w: SET k 1",
        "A: CLIENT CACHING YES | GET k | GET j", "w: MSET k 1 j 1", "A: CLIENT CACHING YES | PING | GET k", "w: SET k 1",
        "A: CLIENT CACHING YES | MULTI | GET k | GET j | EXEC | GET l", "w: MSET k 1 j 1 l 1",
        "A: MULTI | CLIENT CACHING YES | GET k | GET j | EXEC | GET l", "w: MSET k 1 j 1 l 1",
        "A: CLIENT CACHING YES | CLIENT GETNAME | GET k", "w: SET k 1", "A: CLIENT CACHING YES | NOSUCH | GET k", "w: SET k 1",
        "A: CLIENT CACHING YES | GET | GET k", "w: SET k 1", "A: CLIENT CACHING YES | CLIENT NOSUCH | GET k", "w: SET k 1",
        "A: CLIENT CACHING YES | SET k 1 | GET k", "w: SET k 1", "A: CLIENT CACHING YES | CLIENT TRACKINGINFO | GET k", "w: DEL k",
    ],
    "optout": [
        "A: CLIENT TRACKING OFF | CLIENT TRACKING ON OPTOUT", "A: GET k", "w: SET k 1",
        "A: CLIENT CACHING NO | GET k | GET j", "w: MSET k 1 j 1",
        "A: CLIENT CACHING NO | MULTI | GET k | EXEC | GET j", "w: MSET k 1 j 1",
    ],
    "noloop": [
        "A: CLIENT TRACKING ON NOLOOP", "B: CLIENT TRACKING ON", "A: GET k", "B: GET k", "A: SET k 1",
        "A: GET j", "w: SET j 1", "A: GET j", "A: FLUSHALL",
    ],
    "off": [
        "A: GET k", "A: CLIENT TRACKING OFF", "w: SET k 1", "A: GET k", "A: CLIENT TRACKING ON", "w: SET k 1",
        "A: GET k | RESET", "w: SET k 2", "A: HELLO 3 | CLIENT TRACKING ON | GET k", "w: SET k 3",
    ],
    "broadcast": [
        "A: CLIENT TRACKING OFF | CLIENT TRACKING ON BCAST", "w: SET k 1", "w: MSET b 1 a 2 k 3", "w: SET z 1 | SET y 1 | SET z 2",
        "A: SET z 1 | SET y 1 | GET z", "w: DEL nope", "w: FLUSHALL", "w: MULTI | SET b 1 | SET a 1 | EXEC",
        "B: CLIENT TRACKING ON BCAST PREFIX foo PREFIX bar", "w: MSET foo1 1 bar1 1 baz1 1 foo0 1",
        "C: CLIENT TRACKING ON BCAST NOLOOP PREFIX foo", "C: SET foo1 1 | SET foo2 2 | SET baz 1", "w: SET foo1 1",
        "B: SET foo1 1 | FLUSHALL | SET foo3 1", "B: MULTI | SET foo1 2 | SET bar3 2 | EXEC | PING",
        "B: CLIENT TRACKING ON BCAST PREFIX q", "w: MSET q1 1 foo1 2", "B: CLIENT TRACKING OFF", "w: MSET q1 1 foo1 2",
        "B: CLIENT TRACKINGINFO", "B: CLIENT TRACKING ON BCAST PREFIX q", "B: CLIENT TRACKING ON BCAST", "w: SET zz 1",
        "B: CLIENT TRACKINGINFO", "B: CLIENT TRACKING ON BCAST PREFIX r", "w: SET q1 1",
    ],
    "versions": [
        "A: GET k", "A: HELLO 2", "w: SET k 1", "A: HELLO 3", "w: SET k 1", "A: GET k", "w: SET k 1",
        "a: CLIENT TRACKING ON", "a: GET k", "w: SET k 1", "w: FLUSHALL",
    ],
    "redirected": [
        "A: CLIENT TRACKING ON REDIRECT @T", "A: MGET k j", "w: SET k 1", "w: FLUSHALL", "A: GET k", "A: SET k 1",
        "a: CLIENT TRACKING ON REDIRECT @T", "a: GET k", "w: SET k 1", "w: FLUSHALL", "A: CLIENT TRACKING ON REDIRECT @A",
        "A: GET k", "w: SET k 1", "B: CLIENT TRACKING ON BCAST REDIRECT @T PREFIX k", "w: MSET k 1 k2 2 j 1",
        "A: CLIENT TRACKING ON REDIRECT @t", "A: GET k", "w: SET k 1", "t: HELLO 3", "A: GET k", "w: SET k 1",
    ],
    "published": [
        "t: SUBSCRIBE", "t: SUBSCRIBE __redis__:invalidate", "a: CLIENT TRACKING ON REDIRECT @t", "a: MGET k j", "w: SET k 1",
        "w: MSET k 1 j 1", "w: FLUSHALL", "t: GET k", "t: get k j", "t: PING", "t: PING hi", "t: CLIENT ID", "t: MULTI", "t: HELLO 3",
        "t: nosuch", "t: SUBSCRIBE __redis__:invalidate", "t: UNSUBSCRIBE", "t: UNSUBSCRIBE",
        "t: UNSUBSCRIBE __redis__:invalidate", "t: GET k", "a: GET k", "w: SET k 1", "a: GET k",
        "t: SUBSCRIBE __redis__:invalidate", "w: SET k 1", "A: CLIENT TRACKING ON REDIRECT @t", "A: GET k", "w: SET k 1",
        "w: FLUSHALL", "t: RESET", "t: PING | GET k", "a: GET k", "w: SET k 1",
        "t: MULTI | SUBSCRIBE __redis__:invalidate | UNSUBSCRIBE | EXEC", "t: GET k",
        "T: SUBSCRIBE __redis__:invalidate | GET k", "A: CLIENT TRACKING ON REDIRECT @T", "A: GET k", "w: SET k 1",
        "T: UNSUBSCRIBE a", "T: UNSUBSCRIBE", "A: GET k", "w: SET k 1",
    ],
    "broken": [
        "a: CLIENT TRACKING ON REDIRECT @t", "a: GET k", "t:", "w: SET k 1", "a: CLIENT TRACKINGINFO",
        "a: CLIENT TRACKING ON REDIRECT @T", "a: CLIENT TRACKINGINFO", "a: GET k", "w: SET k 1",
    ],
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_redis_tells_the_same(subject, reference, name):
    compare(subject, reference, ["A: CLIENT TRACKING ON", *SCRIPTS[name]])


def start(workers):
    threads, *flags = WORKERS[workers]
    return servers.start(*flags, threads=threads)


class Copies:
    """A client that keeps what it reads by the protocol's rules, on a socket of its own."""

    def __init__(self, port, *options):
        self.wire = wires.RespWire(port)
        self.wire.ask("HELLO", "3")
        assert self.wire.ask("CLIENT", "TRACKING", "ON", *options) == b"+OK\r\n"
        self.kept = {}
        self.dropped = 0

    def take(self):
        """The next reply; what is pushed before it drops copies."""
        while True:
            reply = self.wire.reply()
            if not reply.startswith(b">"):
                return reply
            self.dropped += 1
            if reply.endswith(b"_\r\n"):
                self.kept.clear()
                continue
            words = reply.split(b"\r\n")
            for key in words[5::2]:
                self.kept.pop(key, None)

    def read(self, keys):
        """Reads in one pipeline what is not kept."""
        missing = [key for key in keys if key not in self.kept]
        self.wire.send(b"".join(wires.encode("GET", key) for key in missing))
        for key in missing:
            self.kept[key] = self.take()

    def drain(self):
        self.wire.send(wires.encode("PING", "the end"))
        assert self.take() == b"$7\r\nthe end\r\n"


KEYS = [b"key:%d" % number for number in range(20)]


def write_much(server, seed, until):
    """Changes keys in every way that there is."""
    chance = random.Random(seed)
    with wires.RespWire(server.resp_port) as resp, wires.TextWire(server.memcached_port) as text:
        count = 0
        while not until.is_set():
            key, other, number = chance.choice(KEYS), chance.choice(KEYS), chance.randrange(1000)
            commands = [
                ("SET", key, number), ("SET", key, "x" * 100), ("DEL", key), ("APPEND", key, "y"), ("RENAME", key, other),
                ("COPY", key, other, "REPLACE"), ("GETDEL", key), ("SET", key, number, "PX", 5), ("MSET", key, 1, other, 2),
                ("GETEX", key, "PX", 5), ("SETRANGE", key, 3, "z"), ("BITOP", "NOT", key, other), ("SETNX", key, number),
            ]
            kind = chance.randrange(10)
            if kind < 6:
                batch = chance.sample(commands, 3)
                resp.send(b"".join(wires.encode(*command) for command in batch))
                for _ in batch:
                    resp.reply()
            elif kind == 6:
                batch = chance.sample(commands, 3)
                lines = [("MULTI",), *batch, ("EXEC",)]
                resp.send(b"".join(wires.encode(*command) for command in lines))
                for _ in lines:
                    resp.reply()
            elif kind < 9:
                value = b"%d" % number
                text.ask(chance.choice([
                    b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value), b"incr %s 1\r\n" % key,
                    b"delete %s\r\n" % key, b"append %s 0 0 1\r\n7\r\n" % key, b"ms %s 2\r\nab\r\n" % key,
                    b"md %s\r\n" % key, b"ma %s N0 J5\r\n" % key,
                ]))
            elif count % 50 == 0:
                resp.ask("FLUSHALL")
            count += 1


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("options", [(), ("NOLOOP",), ("BCAST",), ("BCAST", "PREFIX", "key:")], ids=lambda words: " ".join(words) or "read")
def test_no_copy_is_outdated(workers, options):
    server = start(workers)
    try:
        readers = [Copies(server.resp_port, *options) for _ in range(3)]
        for part in range(4):
            until = threading.Event()
            writers = [threading.Thread(target=write_much, args=(server, 10 * part + number, until)) for number in range(3)]
            for writer in writers:
                writer.start()
            chance = random.Random(part)
            ends_at = time.monotonic() + 1
            while time.monotonic() < ends_at:
                for reader in readers:
                    reader.read(chance.sample(KEYS, 8))
            until.set()
            for writer in writers:
                writer.join()
            with wires.RespWire(server.resp_port) as wire:
                while b":0\r\n" != wire.ask("EXISTS", "never"):
                    pass
                time.sleep(0.05)  # What is to expire has expired, and is noticed soon.
                deadline = time.monotonic() + 10
                for reader in readers:
                    while True:
                        reader.drain()
                        now = {key: wire.ask("GET", key) for key in reader.kept}
                        kept = {key: value.replace(b"_", b"$-1") for key, value in reader.kept.items()}
                        if kept == now or time.monotonic() > deadline:
                            break
                    assert kept == now
        assert all(reader.dropped > 0 for reader in readers)
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("workers", WORKERS)
def test_what_has_no_room_in_the_table_is_told(workers):
    server = start(workers)
    try:
        reader = Copies(server.resp_port)
        with wires.RespWire(server.resp_port) as wire:
            assert wire.ask("CONFIG", "SET", "tracking-table-max-keys", "5") == b"+OK\r\n"
            reader.read(KEYS)
            reader.drain()
            assert len(reader.kept) == 5
            info = wire.ask("INFO")
            for line in (b"tracking_clients:1", b"tracking_total_keys:5", b"tracking_total_items:5"):
                assert b"\r\n%s\r\n" % line in info
            wire.ask("MSET", *(word for key in KEYS for word in (key, "new")))
            reader.drain()
            assert reader.kept == {}
            assert b"\r\ntracking_total_keys:0\r\n" in wire.ask("INFO", "stats")
        page = server.admin("/metrics")[1]
        page = page.decode() if isinstance(page, bytes) else page
        assert "dovetail_tracking_clients 1" in page
        assert "dovetail_tracking_invalidations_total 20" in page
    finally:
        assert server.stop() == 0


def forgets_all(reader):
    """What has changed is told sooner or later, and no client is cut off."""
    deadline = time.monotonic() + 20
    while reader.kept and time.monotonic() < deadline:
        reader.drain()
    return not reader.kept


@contextlib.contextmanager
def telling_why(server, wire):
    """Where a connection ends: what the server has said to it, and in its log."""
    try:
        yield
    except OSError as error:
        time.sleep(0.5)
        with contextlib.suppress(OSError):
            error.add_note(f"unread: {wire.socket.recv(1 << 16)!r}")
        error.add_note("the server's log:\n" + "".join(server.log))
        raise


@pytest.mark.parametrize("workers", WORKERS)
def test_one_write_of_much_cuts_no_client_off(workers):
    """More than has room between threads, or in an output, is told as one change of everything."""
    server = start(workers)
    try:
        keys = [b"burst:%025d" % number for number in range(1000)]
        readers = [Copies(server.resp_port) for _ in range(40)]
        for reader in readers:
            reader.read(keys)
        many = [b"many:%045d" % number for number in range(20_000)]
        one = Copies(server.resp_port)
        one.read(many)
        with wires.RespWire(server.resp_port) as writer, telling_why(server, writer):
            for some in (keys, many):
                assert writer.ask("MSET", *(word for key in some for word in (key, "new"))) == b"+OK\r\n"
            assert all(forgets_all(reader) for reader in [one, *readers])
            # And goes on being told of single keys.
            readers[0].read(keys[:2])
            writer.ask("SET", keys[0], "newer")
            deadline = time.monotonic() + 20
            while keys[0] in readers[0].kept and time.monotonic() < deadline:
                readers[0].drain()
            assert list(readers[0].kept) == [keys[1]]
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("workers", WORKERS)
def test_a_client_that_does_not_read_is_told_once_and_costs_little(workers):
    threads, *flags = WORKERS[workers]
    server = servers.start(*flags, threads=threads, memory="64MiB")
    try:
        slow = [Copies(server.resp_port, "BCAST") for _ in range(10)]
        good = Copies(server.resp_port, "BCAST")
        keys = [b"%0200d" % number for number in range(500)]
        with wires.RespWire(server.resp_port) as writer:
            for turn in range(40):
                writer.send(b"".join(wires.encode("SET", key, turn) for key in keys))
                assert [writer.reply() for _ in keys] == [b"+OK\r\n"] * len(keys)
                good.drain()
        with open(f"/proc/{server.pid}/status") as status:
            resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
        assert resident < 110 << 10, "the cap, a twentieth and 32 MiB"
        for reader in slow:
            reader.kept = {keys[0]: b"old"}
            assert forgets_all(reader)
    finally:
        assert server.stop() == 0


def test_prefixes_count_to_the_cap():
    server = servers.start(memory="64MiB")
    try:
        refused = []
        for number in range(40):
            wire = wires.RespWire(server.resp_port)
            prefixes = [word for part in range(8) for word in ("PREFIX", b"%d-%d-" % (number, part) + b"x" * 250_000)]
            refused.append((wire.ask("CLIENT", "TRACKING", "ON", "BCAST", *prefixes), wire))
        replies = {reply for reply, _ in refused}
        assert b"-ERR the prefixes have no room in the client buffers\r\n" in replies
        with open(f"/proc/{server.pid}/status") as status:
            resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
        assert resident < 110 << 10
    finally:
        assert server.stop() == 0


def test_a_refused_command_uses_up_client_caching(subject, reference):
    """Redis forgets CLIENT CACHING behind each command, also one that the user may not send."""
    heard = []
    for server in (subject, reference):
        with wires.RespWire(server.resp_port) as admin, wires.RespWire(server.resp_port) as client:
            admin.ask("FLUSHALL")
            admin.ask("ACL", "SETUSER", "u", "on", "nopass", "+@all", "-bitcount", "~a*")
            client.ask("HELLO", "3", "AUTH", "u", "x")
            replies = []
            for refused in (("GET", "k"), ("BITCOUNT", "a1")):
                client.ask("CLIENT", "TRACKING", "ON", "OPTOUT")
                client.ask("CLIENT", "CACHING", "NO")
                replies.append(client.ask(*refused)[:7])
                client.ask("GET", "a1")
                admin.ask("SET", "a1", len(replies))
                client.send(wires.encode("PING"))
                replies += [client.reply(), client.reply()]
            admin.ask("ACL", "DELUSER", "u")
            heard.append(replies)
    assert heard[0] == heard[1]


def test_a_subscriber_is_not_idle():
    server = servers.start(threads="2")
    try:
        with wires.RespWire(server.resp_port) as writer, wires.RespWire(server.resp_port) as listener:
            writer.ask("CONFIG", "SET", "timeout", "1")
            told = Copies(server.resp_port, "BCAST")
            client_id = listener.ask("CLIENT", "ID")[1:-2]
            listener.ask("SUBSCRIBE", "__redis__:invalidate")
            writer.ask("CLIENT", "TRACKING", "ON", "BCAST", "REDIRECT", client_id)
            for number in range(8):
                writer.ask("SET", "k", number)
                time.sleep(0.4)
            for _ in range(8):
                assert told.wire.reply().startswith(b">2")
                assert listener.reply().startswith(b"*3")
            told.drain()
            assert listener.ask("PING") == b"*2\r\n$4\r\npong\r\n$0\r\n\r\n"
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("workers", WORKERS)
def test_redis_py_keeps_copies_and_drops_them(workers):
    server = start(workers)
    try:
        reader = redis.Redis(port=server.resp_port, protocol=3, cache_config=CacheConfig(), decode_responses=True)
        writer = redis.Redis(port=server.resp_port, decode_responses=True)
        writer.mset({"a": "1", "b": "2"})
        assert [reader.get("a"), reader.get("a"), reader.mget("a", "b")] == ["1", "1", ["1", "2"]]
        cache = reader.get_cache()
        assert cache.size == 2
        for number in range(200):
            writer.set("a", number)
            deadline = time.monotonic() + 10
            while reader.get("a") != str(number) and time.monotonic() < deadline:
                pass
            assert reader.get("a") == str(number)
        writer.flushall()
        assert writer.get("a") is None
        reader.ping()
        assert reader.get("b") is None
        reader.close()
        writer.close()
    finally:
        assert server.stop() == 0

"""The same random commands to Dovetail and to a reference server: every reply byte for byte.

A difference prints the seed, the number of the command and both replies; `run` below replays it.
"""

import random

import pytest

import servers
import wires

pytestmark = [
    pytest.mark.dovetail_only,
    pytest.mark.skipif(
        not servers.has_reference(),
        reason="redis-server or memcached is not installed: nothing to compare with",
    ),
]

SEEDS = range(8)
COMMANDS_PER_SEED = 1500


@pytest.fixture(scope="module", params=servers.INDEXES)
def subject(request):
    running = servers.Dovetail("--index", request.param)
    yield running
    running.stop()


FAR = 4_000_000_000
INTEGERS = [
    "0", "1", "-1", "7", "100", "-5", "9223372036854775807", "-9223372036854775808",
    "9223372036854775808", "", "x", "1.5", " 1", "+3", "007",
]
FLOATS = ["0.5", "-2.25", "0.1", "1e20", "-123456789.123456789", "1e3", "5.0e-1", "100", "x", "", "nan", "inf", " 1", "5.", ".5"]
VALUES = ["", "v", "10", "-3", "1.5", "hello world", "a" * 40, "9223372036854775807", "x" * 300]
SECONDS = [str(FAR), str(FAR + 7), "100000000000", "0", "-1", "x", "9223372036854775807"]
OPTIONS = ["NX", "XX", "GET", "KEEPTTL", "nx", "BAD", "EX", "PX", "EXAT", "PXAT", "PERSIST"]


class Resp:
    """Random RESP commands on few keys, so that they meet each other's results."""

    KEYS = ["a", "b", "c", "d", "e{t}", ""]
    GETEX_OPTIONS = [
        [], ["PERSIST"], ["EXAT", str(FAR)], ["PXAT", str(FAR * 1000)], ["KEEPTTL"], ["BAD"],
        ["EX"], ["PERSIST", "EXAT", str(FAR)], ["EX", "0"], ["PX", "-1"], ["EXAT", "x"],
        ["PX", "9223372036854775807"],
    ]

    def __init__(self, seed):
        self.random = random.Random(seed)

    def key(self):
        return self.random.choice(self.KEYS)

    def pick(self, values):
        return self.random.choice(values)

    def keys(self):
        return [self.key() for _ in range(self.random.randint(0, 4))]

    def set_options(self):
        words = []
        for _ in range(self.random.choice([0, 0, 1, 1, 2, 3])):
            option = self.pick(OPTIONS)
            words.append(option)
            if option in ("EXAT", "PXAT") and self.random.random() < 0.9:
                # Never a time that has passed: Redis counts such a key in DBSIZE for a while.
                far = FAR if option == "EXAT" else FAR * 1000
                words.append(self.pick([str(far), str(far + 5), "0", "-1", "x"]))
            elif option in ("EX", "PX"):
                words.append(self.pick(["0", "-1", "x", "9223372036854775807"]))
        return words

    def command(self):
        key, pick = self.key, self.pick
        return self.random.choice([
            lambda: ["GET", key()],
            lambda: ["GET", key()],
            lambda: ["SET", key(), pick(VALUES)],
            lambda: ["SET", key(), pick(VALUES), *self.set_options()],
            lambda: ["GETEX", key(), *pick(self.GETEX_OPTIONS)],
            lambda: ["GETDEL", key()],
            lambda: ["GETSET", key(), pick(VALUES)],
            lambda: ["SETNX", key(), pick(VALUES)],
            lambda: ["SETEX", key(), pick(["0", "-1", "x"]), pick(VALUES)],
            lambda: ["PSETEX", key(), pick(["0", "-1", "x"]), pick(VALUES)],
            lambda: ["MGET", *self.keys()],
            lambda: ["MSET", *[word for name in self.keys() for word in (name, pick(VALUES))]],
            lambda: ["MSET", *self.keys()],
            lambda: ["MSETNX", *[word for name in self.keys() for word in (name, pick(VALUES))]],
            lambda: [pick(["INCR", "DECR"]), key()],
            lambda: [pick(["INCRBY", "DECRBY"]), key(), pick(INTEGERS)],
            lambda: ["INCRBYFLOAT", "float", pick(FLOATS)],
            lambda: ["SET", "float", pick(["1.5", "-3", "0.25", "x", "5e2"])],
            lambda: ["APPEND", key(), pick(VALUES)],
            lambda: ["STRLEN", key()],
            lambda: [pick(["GETRANGE", "SUBSTR"]), key(), pick(INTEGERS), pick(INTEGERS)],
            lambda: ["SETRANGE", key(), pick(["0", "3", "50", "-1", "x"]), pick(VALUES)],
            lambda: [pick(["DEL", "UNLINK", "EXISTS", "TOUCH"]), *self.keys()],
            lambda: ["TYPE", key()],
            lambda: ["EXPIREAT", key(), pick(SECONDS), *self.expire_options()],
            lambda: ["PEXPIREAT", key(), pick([str(FAR * 1000), "1", "x"]), *self.expire_options()],
            lambda: [pick(["EXPIRE", "PEXPIRE"]), key(), pick(["0", "-1", "x", INTEGERS[6]])],
            lambda: [pick(["EXPIRETIME", "PEXPIRETIME"]), key()],
            lambda: ["PERSIST", key()],
            lambda: [pick(["RENAME", "RENAMENX"]), key(), key()],
            lambda: ["DBSIZE"],
            lambda: ["SELECT", pick(["0", "x", "-1", "100000"])],
            lambda: ["ECHO", pick(VALUES)],
            lambda: ["PING", *self.keys()[:2]],
            lambda: ["HELLO", pick(["1", "x"])],
            lambda: [pick(["MULTI", "EXEC", "DISCARD"])],
            lambda: [pick(["WATCH", "UNWATCH"])],
            lambda: [pick(["GET", "SET", "DEL", "EXPIRE", "SCAN", "KEYS", "MGET"])],
            lambda: [pick(["NOSUCH", "get", "gEt"]), *self.keys()],
        ])()

    def expire_options(self):
        return [self.pick(["NX", "XX", "GT", "LT", "nx", "BAD"]) for _ in
                range(self.random.choice([0, 0, 1, 1, 2]))]


@pytest.mark.parametrize("seed", SEEDS)
def test_redis_gives_the_same_replies(subject, reference, seed):
    commands = Resp(seed)
    with wires.RespWire(subject.resp_port) as left, wires.RespWire(reference.resp_port) as right:
        for wire in (left, right):
            wire.ask("HELLO", 2 + seed % 2)
            wire.ask("FLUSHALL")
        for number in range(COMMANDS_PER_SEED):
            words = commands.command()
            found, want = left.ask(*words), right.ask(*words)
            assert found == want, f"seed {seed}, command {number}: {words}"
        for wire in (left, right):
            wire.ask("RESET")
        for key in Resp.KEYS:
            assert left.ask("GET", key) == right.ask("GET", key)
            assert left.ask("PEXPIRETIME", key) == right.ask("PEXPIRETIME", key)


# Containers list subcommands, in another order (each of these is compared by itself); what came with
# Redis 7.2, 8.4 and 8.6 and with Valkey 9, and KV.RANGE, which is ours.
DESCRIBED_OTHERWISE = {
    b"client", b"cluster", b"command", b"config", b"memory", b"object", b"client|setinfo",
    b"client|no-touch", b"cluster|myshardid", b"waitaof", b"kv.range", b"slowlog", b"latency",
    b"hotkeys|list",
    b"acl", b"module", b"hotkeys", b"hotkeys|get", b"hotkeys|start", b"hotkeys|stop", b"hotkeys|reset",
    b"hotkeys|help", b"delex", b"delifeq", b"digest", b"msetex",
}


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_describes_commands_the_same(subject, reference, protocol):
    with wires.RespWire(subject.resp_port) as left, wires.RespWire(reference.resp_port) as right:
        if b"redis_version:7.0." not in right.ask("INFO", "server"):
            pytest.skip("other versions describe commands in other words")
        names = left.ask("COMMAND", "LIST").split(b"\r\n")[2::2]
        assert b"get" in names
        for wire in (left, right):
            wire.ask("HELLO", protocol)
        for name in sorted(set(names) - DESCRIBED_OTHERWISE):
            found, want = left.ask("COMMAND", "INFO", name), right.ask("COMMAND", "INFO", name)
            assert found == want, name


INLINE = [
    b"PING\r\n", b"SET a 'x y'\r\n", b"GET a\r\n", b"SET b \"\\x41\\n\"\r\n", b"GET b\n",
    b"  GET   a  \r\n", b"nosuch a b\r\n", b"SET a\r\n", b"GET 'a'\r\n", b"GET \"a\"\r\n",
    b"ECHO ''\r\n", b"ECHO \"it's\"\r\n", b"ECHO 'it\\'s'\r\n",
]


def test_redis_reads_inline_commands_the_same(subject, reference):
    with wires.RespWire(subject.resp_port) as left, wires.RespWire(reference.resp_port) as right:
        for data in INLINE:
            left.send(data)
            right.send(data)
            assert left.reply() == right.reply(), data


BROKEN = [
    b"*1\r\n$x\r\n", b"*1\r\n$-5\r\n", b"*x\r\n", b"*99999999999\r\n", b"*1\r\nGET\r\n",
    b"*2\r\n$3\r\nGET\r\n:1\r\n", b"GET 'unbalanced\r\n", b"GET \"x\"y\r\n",
    b"*1\r\n$999999999999\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$99999999999\r\n", b"x" * 70_000, b"*" + b"1" * 70_000,
    b"*1\r\n$" + b"1" * 70_000,
]


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_redis_ends_broken_streams_the_same(subject, reference, number):
    replies = []
    for port in (subject.resp_port, reference.resp_port):
        with wires.RespWire(port) as wire:
            wire.send(b"*1\r\n$4\r\nPING\r\n" + BROKEN[number])
            replies.append(wire.read_to_end())
    assert replies[0] == replies[1]


class Text:
    """Random memcached commands on few keys."""

    KEYS = [b"a", b"b", b"c", b"k" * 250, b"k" * 251]
    # Sums do not wrap: whether the reference pads a shortened number depends on what read it last.
    NUMBERS = [b"0", b"1", b"5", b"18446744073709551616", b"-1", b"x"]

    def __init__(self, seed):
        self.random = random.Random(seed)

    def command(self):
        pick = self.random.choice
        key = pick(self.KEYS[:3] * 5 + self.KEYS)
        noreply = pick([b"", b"", b"", b" noreply"])
        value = pick([b"", b"1", b"10", b"text", b"99999", b"v" * 300])
        flags = pick([b"0", b"0", b"5", b"4294967295", b"4294967301", b"-1", b"x"])
        expiry = pick([b"0", b"0", b"0", b"-1", b"2000000000", b"x"])
        length = b"%d" % len(value)
        store = pick([b"set", b"set", b"add", b"replace", b"append", b"prepend"])
        return pick([
            lambda: b"%s %s %s %s %s%s\r\n%s\r\n" % (
                store, key, flags, expiry, length, noreply, value),
            lambda: b"get %s\r\n" % b" ".join(pick(self.KEYS) for _ in range(pick([1, 1, 3]))),
            lambda: b"get a b c\r\n",
            # Not `decr`, which shortens numbers too.
            lambda: b"incr %s %s%s\r\n" % (key, pick(self.NUMBERS), noreply),
            lambda: b"delete %s%s\r\n" % (key, pick([noreply, b" 0", b" 1"])),
            lambda: b"touch %s %s%s\r\n" % (key, expiry, noreply),
            lambda: b"gat %s %s\r\n" % (pick([b"0", b"2000000000", b"-1"]), key),
            lambda: b"cas %s %s %s %s 999999999%s\r\n%s\r\n" % (
                key, flags, expiry, length, noreply, value),
            lambda: pick([
                b"verbosity 1\r\n", b"verbosity\r\n", b"nosuch\r\n", b"get\r\n", b"set a\r\n",
                b"incr a\r\n", b"touch a\r\n", b"\r\n", b"flush_all\r\n", b"flush_all noreply\r\n",
                b"gat\r\n", b"gat 0\r\n", b"delete\r\n", b"flush_all x\r\n",
            ]),
        ])()


@pytest.mark.parametrize("seed", SEEDS)
def test_memcached_gives_the_same_replies(subject, reference, seed):
    commands = Text(seed)
    left, right = wires.TextWire(subject.memcached_port), wires.TextWire(reference.memcached_port)
    with left, right:
        assert left.ask(b"flush_all\r\n") == right.ask(b"flush_all\r\n")
        for number in range(COMMANDS_PER_SEED):
            command = commands.command()
            found, want = left.ask(command), right.ask(command)
            assert found == want, f"seed {seed}, command {number}: {command}"

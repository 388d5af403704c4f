"""The meta commands of memcached: by hand, and random ones beside the real server."""

import base64
import random
import re
import time

import pytest

import servers
import wires

needs_reference = pytest.mark.skipif(
    not servers.has_reference(),
    reason="redis-server or memcached is not installed: nothing to compare with",
)
pytestmark = pytest.mark.dovetail_only
SEEDS = range(6)
COMMANDS_PER_SEED = 1500


@pytest.fixture
def wire(subject):
    with wires.TextWire(subject.memcached_port) as wire:
        wire.ask(b"flush_all\r\n")
        yield wire


def test_what_is_asked_for_is_answered_in_that_order(wire):
    assert wire.ask(b"ms k 5 F7 T0 O1 k\r\nhello\r\n") == b"HD O1 kk\r\n"
    assert wire.ask(b"mg k v s f t k Oabc\r\n") == b"VA 5 s5 f7 t-1 kk Oabc\r\nhello\r\n"
    assert wire.ask(b"mg k\r\n") == b"HD\r\n"
    assert wire.ask(b"mg none v k O9\r\n") == b"EN kk O9\r\n".replace(b"kk", b"knone")
    assert wire.ask(b"md k q\r\nmg k q\r\nmn\r\n") == b"MN\r\n"


def test_a_binary_key_is_one_key_with_its_bytes(wire):
    key = base64.b64encode(b"a b\r\n\0")
    assert wire.ask(b"ms %s 2 b k\r\nhi\r\n" % key) == b"HD k%s b\r\n" % key
    assert wire.ask(b"mg %s b v k\r\n" % key) == b"VA 2 k%s b\r\nhi\r\n" % key
    assert wire.ask(b"md %s b\r\n" % key) == b"HD\r\n"
    assert wire.ask(b"mg !!! b v\r\n") == b"CLIENT_ERROR error decoding key\r\n"
    plain = base64.b64encode(b"plain")
    assert wire.ask(b"ms %s 1 b\r\nx\r\n" % plain) == b"HD\r\n"
    assert wire.ask(b"get plain\r\n").startswith(b"VALUE plain 0 1\r\n")


def test_one_client_wins_what_is_missing_and_what_is_stale(wire):
    assert wire.ask(b"mg k s v N30 t\r\n") == b"VA 0 s0 t30 W\r\n\r\n"
    assert wire.ask(b"mg k s v N30\r\n") == b"VA 0 s0 Z\r\n\r\n"
    assert wire.ask(b"ms k 3 T0\r\nnew\r\n") == b"HD\r\n"
    assert wire.ask(b"mg k v N30\r\n") == b"VA 3\r\nnew\r\n"
    assert wire.ask(b"md k I T30\r\n") == b"HD\r\n"
    assert wire.ask(b"mg k v\r\n") == b"VA 3 X W\r\nnew\r\n"
    assert wire.ask(b"mg k v\r\n") == b"VA 3 Z X\r\nnew\r\n"
    assert wire.ask(b"get k\r\n") == b"VALUE k 0 3\r\nnew\r\nEND\r\n"
    assert wire.ask(b"ms k 5\r\nnewer\r\n") == b"HD\r\n"
    assert wire.ask(b"mg k v R30\r\n") == b"VA 5\r\nnewer\r\n", "it has no end"
    assert wire.ask(b"ms k 1 T20\r\nx\r\nmg k R20\r\nmg k R21\r\nmg k R21\r\n") == (
        b"HD\r\nHD\r\nHD W\r\nHD Z\r\n")


def test_a_token_guards_and_an_older_one_may_leave_a_stale_value(wire):
    def token():
        return re.search(rb" c(\d+)", wire.ask(b"mg k c\r\n")).group(1)

    first = re.search(rb"c(\d+)", wire.ask(b"ms k 1 c\r\na\r\n")).group(1)
    assert first == token()
    assert wire.ask(b"ms k 1 C%s\r\nb\r\n" % first) == b"HD\r\n"
    assert wire.ask(b"ms k 1 C%s\r\nc\r\n" % first) == b"EX\r\n"
    assert wire.ask(b"md k C%s q\r\n" % first) == b"EX\r\n"
    assert wire.ask(b"ms k 1 C%s I c\r\nd\r\n" % first)[:2] == b"HD"
    assert wire.ask(b"mg k v\r\n") == b"VA 1 X W\r\nd\r\n"
    assert wire.ask(b"ms none 1 C1\r\na\r\n") == b"NF\r\n"
    assert wire.ask(b"md k C%s\r\n" % token()) == b"HD\r\n"


def test_a_client_may_give_the_token(wire):
    """As memcached 1.6.45 answers; 1.6.18 does not know E."""
    largest = b"%d" % (2**64 - 1)
    assert wire.ask(b"ms k 1 E1000000 c\r\na\r\n") == b"HD c1000000\r\n"
    assert wire.ask(b"mg k c v\r\ngets k\r\n") == b"VA 1 c1000000\r\na\r\nVALUE k 0 1 1000000\r\na\r\nEND\r\n"
    assert wire.ask(b"me k\r\n").split()[4] == b"cas=1000000"
    assert wire.ask(b"cas k 0 0 1 999999\r\nb\r\nmd k C999999\r\n") == b"EXISTS\r\nEX\r\n"
    assert wire.ask(b"ms k 1 C1000000 E%s c\r\nb\r\n" % largest) == b"HD c%s\r\n" % largest
    # It says nothing of the value, its length or its time, and stays while that is the same.
    assert wire.ask(b"touch k 100\r\nmg k v c t s\r\n") == b"TOUCHED\r\nVA 1 c%s t100 s1\r\nb\r\n" % largest
    assert wire.ask(b"ms k 1 MA E5 c\r\nc\r\nms k 1 MP E6 c\r\na\r\nms k 1 ME E7 c\r\nx\r\n") == (
        b"HD c5\r\nHD c6\r\nNS c0\r\n")
    assert wire.ask(b"get k\r\nmg k c\r\n") == b"VALUE k 0 3\r\nabc\r\nEND\r\nHD c6\r\n"
    # An older token, by the order of those that were given, leaves a stale value.
    assert wire.ask(b"ms k 1 C4 I E8 c\r\nd\r\nmg k v c s\r\n").startswith(b"HD c8\r\nVA 1 c8 s1 X W\r\nd\r\n")
    assert wire.ask(b"md k I E9 C8\r\nmg k c v\r\n").startswith(b"HD\r\nVA 1 c9 v"[:-2])
    assert wire.ask(b"ma n N0 J98 E10 c v\r\nma n E11 c v\r\nma n D5 E12 c v\r\n") == (
        b"VA 2 c10\r\n98\r\nVA 2 c11\r\n99\r\nVA 3 c12\r\n104\r\n")
    assert wire.ask(b"mg none N0 E13 c v\r\nmg none c\r\n") == b"VA 0 c13 W\r\n\r\nHD c13 Z\r\n"
    # Any other write gives one of the server's.
    assert wire.ask(b"set k 0 0 1\r\nx\r\nincr n 1\r\nms none 1\r\ny\r\n") == b"STORED\r\n105\r\nHD\r\n"
    for key in (b"k", b"n", b"none"):
        assert int(wire.ask(b"mg %s c\r\n" % key).split()[1][1:]) not in (9, 12, 13)
    assert wire.ask(b"ms k 1 Ex\r\na\r\n") == b"CLIENT_ERROR bad token in command line format\r\n"


def test_modes_of_ms_and_ma(wire):
    assert wire.ask(b"ms k 1 MR\r\na\r\nms k 1 MA\r\na\r\nms k 1 ME\r\na\r\nms k 1 ME\r\nb\r\n") == (
        b"NS\r\nNS\r\nHD\r\nNS\r\n")
    assert wire.ask(b"ms k 1 MA\r\nz\r\nms k 1 MP\r\n0\r\nmg k v\r\n") == b"HD\r\nHD\r\nVA 3\r\n0az\r\n"
    assert wire.ask(b"ms new 2 MA N0 F3\r\nhi\r\nmg new v f\r\n") == b"HD\r\nVA 2 f3\r\nhi\r\n"
    assert wire.ask(b"ma n\r\nma n N0 J10 v\r\nma n v\r\nma n MD D4 v\r\n") == (
        b"NF\r\nVA 2\r\n10\r\nVA 2\r\n11\r\nVA 1\r\n7\r\n")
    assert wire.ask(b"ma k\r\n") == b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"


def test_md_x_leaves_an_empty_item(wire):
    assert wire.ask(b"ms k 3 F5\r\nabc\r\nmd k x\r\nmg k v f\r\n") == b"HD\r\nHD\r\nVA 0 f0\r\n\r\n"
    assert wire.ask(b"md k x I\r\nmg k v\r\n") == b"HD\r\nVA 0 X W\r\n\r\n"


def test_marks_are_gone_with_the_value_whatever_writes_it(wire):
    assert wire.ask(b"ms k 1\r\n1\r\nmd k I\r\nset k 0 0 1\r\n2\r\nmg k v\r\n") == (
        b"HD\r\nHD\r\nSTORED\r\nVA 1\r\n2\r\n")
    assert wire.ask(b"md k I\r\ntouch k 0\r\nmg k v\r\n") == b"HD\r\nTOUCHED\r\nVA 1 X W\r\n2\r\n"


def test_whether_and_when_an_item_was_read(wire):
    assert wire.ask(b"ms k 2\r\nhi\r\n") == b"HD\r\n"
    assert wire.ask(b"mg k h l\r\nmg k l h\r\nmg k h v\r\n") == b"HD h0 l0\r\nHD l0 h1\r\nVA 2 h1\r\nhi\r\n"
    time.sleep(2.1)
    assert re.fullmatch(rb"HD h1 l[23]\r\n", wire.ask(b"mg k h l u\r\n")), "u counts for nothing"
    assert re.fullmatch(rb"ME k exp=-1 la=[23] cas=\d+ fetch=yes cls=1 size=\d+\r\n", wire.ask(b"me k\r\n"))
    assert re.fullmatch(rb"HD h1 l[23]\r\n", wire.ask(b"mg k h l\r\n"))
    assert wire.ask(b"mg k h l\r\n") in (b"HD h1 l0\r\n", b"HD h1 l1\r\n")
    dumped = wire.ask(b"lru_crawler metadump all\r\n")
    found = re.search(rb"key=k exp=-1 la=(\d+) cas=\d+ fetch=yes ", dumped)
    assert abs(int(found[1]) - time.time()) < 3
    assert wire.ask(b"ms k 2\r\nho\r\nmg k h l\r\n") == b"HD\r\nHD h0 l0\r\n", "a new value was not read"


@pytest.mark.parametrize("value", [b"10", b"12345678"])
@pytest.mark.parametrize("key", [b"k", b"8 bytes!".replace(b" ", b"-")])
def test_what_counts_as_a_read_and_what_does_not(subject, wire, key, value):
    reads = [b"get %s\r\n", b"gets %s\r\n", b"gat 0 %s\r\n", b"touch %s 100\r\n", b"mg %s q\r\nmn\r\n", b"mg %s T30\r\n"]
    others = [b"mg %s u v\r\n", b"me %s\r\n", b"incr %s 1\r\n", b"ma %s\r\n", b"add %s 0 0 1\r\n1\r\n", b"md %s I\r\n",
              b"md %s C1\r\n", b"mg none v\r\n" + b"md %s C2\r\n"]
    fetched = re.compile(rb"fetch=(yes|no)")

    def is_fetched():
        return fetched.search(wire.ask(b"me %s\r\n" % key))[1] == b"yes"

    for command, want in [(it, True) for it in reads] + [(it, False) for it in others]:
        assert wire.ask(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value)) == b"STORED\r\n"
        assert not is_fetched()
        wire.ask(command % key)
        assert is_fetched() == want, command
        wire.ask(b"get %s\r\n" % key)
        wire.ask(b"md %s I\r\nincr %s 1\r\n" % (key, key))
        assert is_fetched(), "marks and counts leave it"
        wire.ask(b"append %s 0 0 1\r\n1\r\n" % key)
        assert not is_fetched(), "append makes a new value"


def test_idle_time_is_told_to_redis_clients_and_their_reads_count(subject, wire):
    with wires.RespWire(subject.resp_port) as resp:
        assert resp.ask("SET", "k", "v") == b"+OK\r\n"
        assert wire.ask(b"mg k h u\r\n") == b"HD h0\r\n"
        time.sleep(2.2)
        for _ in range(2):
            assert resp.ask("OBJECT", "IDLETIME", "k") in (b":2\r\n", b":3\r\n"), "to look is not to use"
        assert resp.ask("OBJECT", "ENCODING", "k") == b"$6\r\nembstr\r\n"
        assert wire.ask(b"mg k h u\r\n") == b"HD h0\r\n"
        assert resp.ask("GET", "k") == b"$1\r\nv\r\n"
        # Whole seconds of the clock are told: one may begin between the two commands.
        assert resp.ask("OBJECT", "IDLETIME", "k") in (b":0\r\n", b":1\r\n")
        assert wire.ask(b"mg k h u\r\n") == b"HD h1\r\n"
        assert resp.ask("OBJECT", "IDLETIME", "none") == b"$-1\r\n"
        assert resp.ask("MULTI") == b"+OK\r\n"
        resp.ask("OBJECT", "IDLETIME", "k")
        assert resp.ask("EXEC") in (b"*1\r\n:0\r\n", b"*1\r\n:1\r\n")


class Random:
    """Random meta commands on few keys; a token is each server's own last one of the key."""

    KEYS = [b"a", b"b", b"c", base64.b64encode(b"d e")]

    def __init__(self, seed):
        self.random = random.Random(seed)

    def flags(self, *letters):
        chosen = [letter for letter in letters if self.random.random() < 0.25]
        self.random.shuffle(chosen)
        words = [self.random.choice(self.TOKENS.get(letter, [letter])) for letter in chosen]
        if self.random.random() < 0.03:
            words.append(self.random.choice(words + [b"y", b"Z1", b"\x7f", b"b", b"F", b"Tx", b"MMM"]))
        return b" ".join(words)

    TOKENS = {
        b"T": [b"T0", b"T0", b"T2000000000", b"T9000", b"T-1"],
        b"N": [b"N0", b"N9000"],
        b"R": [b"R0", b"R30", b"R9999"],
        b"O": [b"O1", b"Oopaque", b"O" + b"x" * 31],
        b"F": [b"F0", b"F5", b"F4294967295"],
        b"C": [b"C<cas>", b"C<cas>", b"C1"],
        b"M": [b"MS", b"ME", b"MA", b"MP", b"MR", b"MX"],
        b"m": [b"MI", b"MD", b"M+", b"M-", b"MZ"],
        b"J": [b"J13", b"Jx"],
        b"D": [b"D1", b"D100000", b"Dx"],
        b"L": [b"O" + b"x" * 32],
        # Not a time that has passed, at which the reference recaches what is gone.
        b"Z": [b"T0", b"T9000"],
    }

    def command(self):
        return self.counting() if self.random.random() < 0.25 else self.storing()

    def counting(self):
        """On a key of its own: whether counting clears marks depends on which client read the number of late."""
        pick, key = self.random.choice, b"n"
        value = pick([b"", b"1", b"10", b"text"])
        return key, pick([
            # T of a number that has become longer goes to the old item of the reference.
            lambda: b"ma n c %s\r\n" % self.flags(b"k", b"O", b"q", b"v", b"t", b"C", b"N", b"J", b"D", b"m"),
            lambda: b"ma n c v N0 J5\r\n",
            lambda: b"ms n %d c\r\n%s\r\n" % (len(value), value),
            lambda: b"mg n c t\r\n",
            lambda: b"md n q\r\n",
        ])()

    def storing(self):
        pick = self.random.choice
        key = pick(self.KEYS)
        binary = b" b" if key == self.KEYS[-1] else b""
        value = pick([b"", b"1", b"10", b"text", b"v" * 300])
        return key, pick([
            # An item that the reference made by N does not know that its key is binary.
            lambda: b"mg %s%s c %s\r\n" % (key, binary, self.flags(
                b"s", b"v", b"f", b"t", b"O", b"q", b"N", b"R", b"Z", b"u", *([] if binary else [b"k"]))),
            lambda: b"mg %s%s c v\r\n" % (key, binary),
            lambda: b"ms %s %d%s c %s\r\n%s\r\n" % (key, len(value), binary, self.flags(
                b"k", b"O", b"q", b"F", b"T", b"M", b"L"), value),
            lambda: b"ms %s %d%s c C<cas> %s\r\n%s\r\n" % (key, len(value), binary, self.flags(
                b"k", b"O", b"q", b"F", b"Z", b"I", b"I", b"M"), value),
            lambda: b"ms %s %d%s c\r\n%s\r\n" % (key, len(value), binary, value),
            lambda: b"md %s%s %s\r\n" % (key, binary, self.flags(
                b"k", b"O", b"q", b"C", b"I", b"T", b"L")),
            lambda: b"md %s%s I q\r\n" % (key, binary),
            lambda: b"me %s\r\n" % key,
            lambda: pick([
                b"mg\r\n", b"ms\r\n", b"md\r\n", b"ma\r\n", b"me\r\n", b"mn\r\n", b"mx\r\n", b"ms a\r\n",
                b"ms a x\r\n", b"ms a -1\r\n", b"mg %s v\r\n" % (b"k" * 251), b"ms a 3\r\nabcde\r\n",
                b"mg a v v\r\n", b"mg a" + b" s" * 19 + b"\r\n", b"ms a 1" + b" s" * 19 + b"\r\n",
                b"md a G1\r\n", b"mg a G1\r\n", b"set a 0 0 1\r\n1\r\n", b"get a b c\r\n",
            ]),
        ])()


def comparable(reply):
    """Without tokens, and without seconds that are left, which may be counted a tick apart."""
    reply = re.sub(rb" c[1-9]\d*(?=[ \r])", b" c#", reply)
    reply = re.sub(rb" t\d+(?=[ \r])", b" t#", reply)
    return re.sub(rb"^ME (\S+) exp=.*", rb"ME \1", reply)


@needs_reference
@pytest.mark.parametrize("seed", SEEDS)
def test_memcached_gives_the_same_replies(subject, reference, seed):
    commands = Random(seed)
    wires_of = wires.TextWire(subject.memcached_port), wires.TextWire(reference.memcached_port)
    tokens = {}, {}
    with wires_of[0], wires_of[1]:
        assert [wire.ask(b"flush_all\r\n") for wire in wires_of] == [b"OK\r\n"] * 2
        for number in range(COMMANDS_PER_SEED):
            key, command = commands.command()
            replies = []
            for wire, known in zip(wires_of, tokens):
                reply = wire.ask(command.replace(b"<cas>", known.get(key, b"7")))
                token = re.match(rb"(?:HD|VA \d+)(?: \S+)*? c([1-9]\d*)", reply)
                if token:
                    known[key] = token.group(1)
                replies.append(comparable(reply))
            assert replies[0] == replies[1], f"seed {seed}, command {number}: {command}"


def test_keys_are_listed_for_tools(wire):
    assert wire.ask(b"set a 0 0 1\r\nx\r\nms YSBi 1 b\r\nx\r\n") == b"STORED\r\nHD\r\n"
    facts = wire.ask(b"lru_crawler metadump all\r\n").splitlines()
    assert sorted(line.split()[0] for line in facts[:-1]) == [b"key=a", b"key=a%20b"]
    assert re.fullmatch(rb"key=\S+ exp=-1 la=\d+ cas=\d+ fetch=no cls=1 size=\d+", facts[0])
    assert facts[-1] == b"END"
    gets = wire.ask(b"lru_crawler mgdump hash\r\n").splitlines()
    assert sorted(gets[:-1]) == [b"mg YSBi b", b"mg a"] and gets[-1] == b"EN"


@needs_reference
def test_what_is_not_here_is_refused_in_memcacheds_words(subject, reference):
    lines = [
        b"cache_memlimit x", b"cache_memlimit 7", b"cache_memlimit 4000000000", b"cache_memlimit",
        b"slabs x", b"slabs", b"lru_crawler", b"lru_crawler x", b"stats detail", b"stats detail x",
        b"stats cachedump", b"stats cachedump 1", b"stats cachedump x 1", b"stats cachedump 1 -1",
        b"stats cachedump 64 1", b"stats cachedump 2 5", b"stats cachedump 0 0 x",
        b"stats detail off", b"verbosity 1", b"mn x", b"watch x", b"watch fetchers x", b"shutdown", b"shutdown x",
        b"refresh_certs",
    ]
    with wires.TextWire(subject.memcached_port) as left, wires.TextWire(reference.memcached_port) as right:
        for line in lines:
            assert left.ask(line + b"\r\n") == right.ask(line + b"\r\n"), line
        for line in [b"slabs reassign 1 2", b"lru_crawler crawl all"]:
            assert left.ask(line + b"\r\n").startswith(b"CLIENT_ERROR "), line
        assert left.ask(b"cache_memlimit 900000000\r\n").startswith(b"MEMLIMIT_ADJUST_FAILED ")


@needs_reference
def test_older_tools_list_keys_by_class(subject, reference):
    seen = []
    for port in (subject.memcached_port, reference.memcached_port):
        with wires.TextWire(port) as wire:
            wire.ask(b"flush_all\r\n")
            wire.ask(b"set a 0 0 1\r\nx\r\nset b 0 0 3\r\nxyz\r\nms YSBi 1 b\r\nx\r\n")
            lines = wire.ask(b"stats cachedump 1 0\r\n").splitlines()
            assert lines[-1] == b"END"
            seen.append(sorted(lines[:-1]))
            assert wire.ask(b"stats cachedump 1 1\r\n").count(b"ITEM ") == 1
    assert seen[0] == seen[1] == [b"ITEM a [1 b; 0 s]", b"ITEM b [3 b; 0 s]"]


def test_meta_commands_are_counted(wire):
    before = stats(wire)
    wire.ask(b"ms k 1\r\nx\r\nmg k\r\nmg none\r\nmd k\r\nma n N0\r\nmn\r\n")
    after = stats(wire)
    grown = {name: int(after[name]) - int(before[name]) for name in before if after[name].isdigit()}
    assert grown["cmd_meta"] == 6 and grown["cmd_set"] == 1
    assert (grown["get_hits"], grown["get_misses"], grown["delete_hits"]) == (1, 1, 1)


def stats(wire):
    lines = wire.ask(b"stats\r\n").decode().splitlines()
    return dict(line.split(" ", 2)[1:] for line in lines if line.startswith("STAT "))


def test_users_of_the_auth_file_log_in_by_a_set(tmp_path):
    users = tmp_path / "users"
    users.write_text("alice:secret\nbob:two words\n")
    running = servers.Dovetail("--auth-file", str(users))
    try:
        with wires.TextWire(running.memcached_port) as wire:
            wire.send(b"mg k v\r\nset x 0 0 8\r\nbob word\r\nset x 0 0 13\r\nbob two words\r\nmg k v\r\n")
            wants = [b"CLIENT_ERROR unauthenticated", b"CLIENT_ERROR authentication failure", b"STORED", b"EN"]
            for want in wants:
                assert wire.line().rstrip() == want
        with wires.RespWire(running.resp_port) as redis:
            assert redis.ask("PING"), "the file concerns memcached alone"
    finally:
        running.stop()

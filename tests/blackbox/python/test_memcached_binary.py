"""memcached's binary protocol: by hand, and random requests beside the real server."""

import os
import random
import signal
import socket
import struct
import subprocess
import time

import pytest

import servers
import wires
from wires import packet

needs_reference = pytest.mark.skipif(
    not servers.has_reference(),
    reason="redis-server or memcached is not installed: nothing to compare with",
)
pytestmark = pytest.mark.dovetail_only
SEEDS = range(6)
ROUNDS_PER_SEED = 500

GET, SET, ADD, REPLACE, DELETE, INCREMENT, DECREMENT, QUIT, FLUSH, GETQ = range(10)
NOOP, VERSION, GETK, GETKQ, APPEND, PREPEND, STAT, SETQ, ADDQ, REPLACEQ = range(10, 20)
DELETEQ, INCREMENTQ, DECREMENTQ, QUITQ, FLUSHQ, APPENDQ, PREPENDQ = range(20, 27)
TOUCH, GAT, GATQ = range(0x1C, 0x1F)
LIST_MECHS, SASL_AUTH, SASL_STEP, GATK, GATKQ = range(0x20, 0x25)
NOT_FOUND, EXISTS, TOO_LARGE, INVALID, NOT_STORED, NOT_NUMERIC = range(1, 7)
AUTH_ERROR, AUTH_CONTINUE, UNKNOWN = 0x20, 0x21, 0x81
FAR = 4_000_000_000


@pytest.fixture
def wire(subject):
    with wires.BinaryWire(subject.memcached_port) as wire:
        wire.ask(packet(FLUSHQ))
        yield wire


def store(opcode, key, value, *, flags=0, exptime=0, **more):
    return packet(opcode, key, value, struct.pack(">II", flags, exptime), **more)


def count(opcode, key, delta, initial=0, exptime=0xFFFFFFFF, **more):
    return packet(opcode, key, b"", struct.pack(">QQI", delta, initial, exptime), **more)


def touch(opcode, key, exptime, **more):
    return packet(opcode, key, b"", struct.pack(">I", exptime), **more)


def test_what_one_protocol_writes_the_others_read(subject, wire):
    (stored,) = wire.ask(store(SET, b"k", b"hello", flags=7, opaque=b"\0\1\2\3"))
    assert (stored.opcode, stored.status, stored.opaque) == (SET, 0, b"\0\1\2\3") and stored.cas
    with wires.TextWire(subject.memcached_port) as text:
        assert text.ask(b"gets k\r\n") == b"VALUE k 7 5 %d\r\nhello\r\nEND\r\n" % stored.cas
        assert text.ask(b"set k 1 0 2\r\nhi\r\n") == b"STORED\r\n"
    (found,) = wire.ask(packet(GETK, b"k"))
    assert (found.extras, found.key, found.value) == (b"\0\0\0\1", b"k", b"hi")
    with wires.RespWire(subject.resp_port) as resp:
        assert resp.ask("GET", "k") == b"$2\r\nhi\r\n"


def test_quiet_requests_tell_only_the_unusual(wire):
    responses = wire.ask(
        store(SETQ, b"k", b"1") + packet(GETQ, b"none") + packet(GETKQ, b"none") + packet(GETKQ, b"k")
        + store(ADDQ, b"k", b"2", opaque=b"add!") + packet(APPENDQ, b"k", b"0") + packet(GETQ, b"k")
        + count(INCREMENTQ, b"k", 1) + packet(DELETEQ, b"none") + packet(DELETEQ, b"k"))
    told = [(it.opcode, it.status, it.value) for it in responses]
    assert told == [
        (GETKQ, 0, b"1"), (ADDQ, EXISTS, b"Data exists for key."), (GETQ, 0, b"10"),
        (DELETEQ, NOT_FOUND, b"Not found"),
    ]
    assert responses[1].opaque == b"add!"


def test_a_token_guards_every_change(wire):
    (stored,) = wire.ask(store(SET, b"k", b"5"))
    wrong, right = {"cas": stored.cas + 9}, {"cas": stored.cas}
    for request in [
        store(SET, b"k", b"x", **wrong), store(ADD, b"k", b"x", **wrong), store(REPLACE, b"k", b"x", **wrong),
        packet(APPEND, b"k", b"x", **wrong), packet(DELETE, b"k", **wrong), count(INCREMENT, b"k", 1, **wrong),
    ]:
        assert [it.status for it in wire.ask(request)] == [EXISTS]
    (counted,) = wire.ask(count(INCREMENT, b"k", 7, **right))
    assert counted.value == struct.pack(">Q", 12) and counted.cas != stored.cas
    (joined,) = wire.ask(packet(PREPEND, b"k", b"1", cas=counted.cas))
    assert [it.status for it in wire.ask(packet(DELETE, b"k", **right))] == [EXISTS]
    assert [it.status for it in wire.ask(packet(DELETE, b"k", cas=joined.cas))] == [0]
    assert [it.status for it in wire.ask(store(SET, b"k", b"x", cas=joined.cas))] == [NOT_FOUND]


def test_a_count_begins_with_its_initial_value(wire):
    assert [it.status for it in wire.ask(count(INCREMENT, b"n", 1))] == [NOT_FOUND]
    begun = wire.ask(count(DECREMENT, b"n", 1, initial=2**64 - 1, exptime=0) + packet(GET, b"n"))
    assert [it.value for it in begun] == [b"\xff" * 8, b"18446744073709551615"]
    wrapped = wire.ask(count(INCREMENT, b"n", 3) + count(DECREMENT, b"n", 2**64 - 1))
    assert [it.value for it in wrapped] == [struct.pack(">Q", 2), bytes(8)]
    # An item that is never to be seen is told all the same.
    past = wire.ask(count(INCREMENT, b"gone", 1, initial=77, exptime=2592001) + packet(GET, b"gone"))
    assert [(it.status, it.value) for it in past] == [(0, struct.pack(">Q", 77)), (NOT_FOUND, b"Not found")]


def test_a_value_may_come_in_pieces_and_be_too_large(wire):
    large = random.Random(5).randbytes(3 << 20)
    data = store(SET, b"big", large) + packet(GET, b"big")
    for start in range(0, len(data), 300_001):
        wire.send(data[start:start + 300_001])
    assert wire.response().status == 0 and wire.response().value == large
    too_large = store(SET, b"big", bytes(40 << 20)) + packet(GET, b"big")
    assert [it.status for it in wire.ask(too_large)] == [TOO_LARGE, NOT_FOUND]


def test_a_client_of_another_protocol_is_closed(subject):
    with wires.BinaryWire(subject.memcached_port) as wire:
        assert wire.ask(packet(VERSION))[0].value == b"1.6.18"
        wire.send(b"get key with 24 bytes...\r\n")
        assert wire.response() is None
    with wires.BinaryWire(subject.memcached_port) as wire:
        assert [it.status for it in wire.ask(packet(GET))] == [INVALID]
        assert wire.response() is None


def test_stats_have_groups(wire):
    general = {it.key: it.value for it in wire.ask(packet(STAT))}
    assert general[b"version"] == b"1.6.18" and general.pop(b"") == b""
    assert {it.key for it in wire.ask(packet(STAT, b"settings"))} >= {b"maxbytes", b"binding_protocol", b""}
    assert b":addr" in b"".join(it.key for it in wire.ask(packet(STAT, b"conns")))
    assert [it.key for it in wire.ask(packet(STAT, b"reset"))] == [b""]
    assert [it.status for it in wire.ask(packet(STAT, b"nonsense"))] == [NOT_FOUND]


class Random:
    """Random requests on few keys; tokens are each server's own last ones of the key."""

    KEYS = [b"a", b"b", b"n", b"\0 \r\n\xff", b"k" * 250]

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.number = 0

    def round(self):
        """Some requests, each as the function of a server's tokens that makes it, and its key."""
        # What has been touched has another token here, and the same one there.
        self.touched = set()
        # A count of an item that the reference still has to send is made in a copy, without padding.
        self.read = set()
        return [self.request() for _ in range(self.random.choice([1, 1, 2, 9]))]

    def request(self):
        pick = self.random.choice
        self.number += 1
        more = {"opaque": struct.pack(">I", self.number)}
        key = pick(self.KEYS)
        value = pick([b"", b"1", b"10", b"text", b"v" * 300, b" 7", b"4611686018427387904"])
        exptime = pick([0, 0, 90_000, FAR])
        # A stored number of 2**63 and more the reference takes for none where a byte behind it, of
        # another item in memory that it uses again, is a minus: such numbers have a test of their own.
        initial = pick([0, 5, 2**62])
        end = pick([0xFFFFFFFF, 0, FAR])
        delta, huge = pick([0, 1, 7]), pick([0, 1, 7, 2**63, 2**64 - 1])
        gone = pick([0, 0, 90_000, FAR, 2_592_001])
        guard = pick([0, 0, 0, 1, "token", "token", "token"])
        kinds = [
            lambda cas: packet(NOOP, **more),
            lambda cas: store(store_op, key, value, flags=flags, exptime=exptime, cas=cas, **more),
            lambda cas: store(store_op, key, value, flags=flags, exptime=exptime, cas=cas, **more),
            lambda cas: packet(join_op, key, value, cas=cas, **more),
            lambda cas: packet(delete_op, key, cas=cas, **more),
            lambda cas: other,
            lambda cas: count(count_op, key, huge if is_down else delta, initial, end, cas=cas, **more),
            lambda cas: packet(pick_op, key, **more),
            lambda cas: touch(touch_op, key, gone, cas=cas, **more),
        ]
        make = pick(kinds)
        if make in kinds[-2:]:
            self.read.add(key)
        if make is kinds[-1]:
            self.touched.add(key)
        if make is kinds[-3] and key in self.read:
            make = kinds[0]
        if key in self.touched:
            guard = 0
        pick_op, store_op = pick([GET, GETQ, GETK, GETKQ]), pick([SET, ADD, REPLACE, SETQ, ADDQ, REPLACEQ])
        join_op, delete_op = pick([APPEND, PREPEND, APPENDQ, PREPENDQ]), pick([DELETE, DELETEQ])
        count_op = pick([INCREMENT, DECREMENT, INCREMENTQ, DECREMENTQ])
        is_down = count_op in (DECREMENT, DECREMENTQ)
        touch_op, flags = pick([TOUCH, GAT, GATQ, GATK, GATKQ]), pick([0, 5, 2**32 - 1])
        other = pick([
            packet(NOOP, **more), packet(VERSION, **more), packet(STAT, b"reset", **more),
            packet(STAT, b"detail dump", **more), packet(STAT, b"detail_x", **more), packet(STAT, b"nonsense", **more),
            packet(FLUSH, **more), packet(FLUSHQ, **more), packet(FLUSH, extras=bytes(4), **more),
            # Behind an unknown request with extras or a key the reference loses its place.
            packet(0x1B, value=b"abcd", **more), packet(0x40, **more), packet(0xFF, value=b"xyz", **more),
            packet(LIST_MECHS, **more), packet(SASL_AUTH, b"PLAIN", b"\0a\0b", **more),
        ])

        def made(tokens):
            return make(tokens.get(key, 9) if guard == "token" else guard)

        return key, made

    def last(self):
        """What ends a connection."""
        more = {"opaque": b"last"}
        return self.random.choice([
            packet(QUIT, **more), packet(QUITQ, **more), packet(GET, **more), packet(GET, b"k" * 251, **more),
            packet(SET, b"k", b"v", bytes(4), **more), packet(VERSION, b"k", **more),
            packet(INCREMENT, b"k", b"", bytes(8), **more), packet(FLUSH, extras=bytes(3), **more),
            packet(GET, b"key", body=2, **more), packet(GET, b"key", b"value", **more),
            packet(TOUCH, b"k", **more), packet(NOOP, extras=b"x", **more), packet(STAT, extras=b"abcd", **more),
            packet(GET, b"k" * 300, body=1, **more),
        ])


def comparable(response):
    return response._replace(cas=bool(response.cas))


def send_in_pieces(wire, data, cuts):
    for start, end in zip([0, *cuts], [*cuts, len(data)]):
        wire.send(data[start:end])


@needs_reference
@pytest.mark.parametrize("seed", SEEDS)
def test_memcached_gives_the_same_responses(subject, reference, seed):
    requests = Random(seed)
    ports = subject.memcached_port, reference.memcached_port
    for port in ports:
        with wires.BinaryWire(port) as wire:
            wire.ask(packet(FLUSH))
    wires_of, tokens = [wires.BinaryWire(port) for port in ports], ({}, {})
    for number in range(ROUNDS_PER_SEED):
        made = requests.round()
        last = requests.last() if requests.random.random() < 0.05 else b""
        cuts_at = sorted(requests.random.random() for _ in range(requests.random.choice([0, 0, 1, 5])))
        replies = []
        for wire, known in zip(wires_of, tokens):
            data = b"".join(make(known) for _, make in made) + last
            send_in_pieces(wire, data, [int(at * len(data)) for at in cuts_at])
            responses = wire.ask(b"") if not last else list(iter(wire.response, None))
            remember(known, responses, made, requests.number)
            replies.append([comparable(response) for response in responses])
        assert replies[0] == replies[1], f"seed {seed}, round {number}: {data}"
        if last:
            for wire in wires_of:
                wire.close()
            wires_of = [wires.BinaryWire(port) for port in ports]
    for wire in wires_of:
        wire.close()


def remember(known, responses, made, number):
    """The tokens that responses tell, by the key of the request with their opaque."""
    first = number - len(made) + 1
    for response in responses:
        index = struct.unpack(">I", response.opaque)[0] - first
        if response.cas and 0 <= index < len(made):
            known[made[index][0]] = response.cas


def test_users_of_the_auth_file_log_in_by_sasl(tmp_path):
    users = tmp_path / "users"
    users.write_text("alice:secret\n")
    running = servers.Dovetail("--auth-file", str(users))
    try:
        with wires.BinaryWire(running.memcached_port) as wire:
            wire.send(packet(GET, b"k"))
            refused = wire.response()
            assert (refused.status, refused.value) == (AUTH_ERROR, b"Auth failure.")
            assert wire.response() is None, "a stranger is closed"
        with wires.BinaryWire(running.memcached_port) as wire:
            wire.send(packet(LIST_MECHS) + packet(VERSION))
            assert [wire.response().value for _ in range(2)] == [b"PLAIN", b"1.6.18"]
            for mechanism, message in [
                (b"PLAIN", b"\0alice\0wrong"), (b"PLAIN", b"alice"), (b"PLAIN", b"bob\0alice\0secret"),
                (b"CRAM-MD5", b"\0alice\0secret"),
            ]:
                wire.send(packet(SASL_AUTH, mechanism, message))
                assert wire.response().status == AUTH_ERROR
            wire.send(packet(SASL_STEP, b"PLAIN", b"\0alice\0secret"))
            assert wire.response().status == AUTH_ERROR, "nothing was begun"
            wire.send(packet(SASL_AUTH, b"PLAIN") + packet(SASL_STEP, b"PLAIN", b"\0alice\0secret"))
            assert [wire.response().status for _ in range(2)] == [AUTH_CONTINUE, 0]
            assert [it.status for it in wire.ask(store(SET, b"k", b"v") + packet(GET, b"k"))] == [0, 0]
            wire.send(packet(SASL_AUTH, b"PLAIN", b"\0alice\0secret"))
            assert wire.response().value == b"Authenticated"
    finally:
        running.stop()


@pytest.fixture
def sasl_reference(tmp_path):
    """The real server with SASL, and no user that it would let in; its port."""
    (tmp_path / "memcached.conf").write_text("mech_list: plain\npwcheck_method: auxprop\nauxprop_plugin: sasldb\n")
    port = servers.free_port()
    command = ["memcached", "-S", "-l", servers.HOST, "-p", str(port), "-u", "root"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = subprocess.Popen(command, env={**os.environ, "SASL_CONF_PATH": str(tmp_path)}, **quiet)
    try:
        wait_until(lambda: running.poll() is not None or is_listening(port))
        if running.poll() is not None:
            pytest.skip("memcached cannot start with SASL here")
        yield port
    finally:
        running.terminate()
        running.wait()


def is_listening(port):
    with socket.socket() as probe:
        return probe.connect_ex((servers.HOST, port)) == 0


@needs_reference
def test_strangers_are_told_the_same(sasl_reference):
    running = servers.Dovetail("--requirepass", "no user has it")
    try:
        pick = random.Random(11).choice
        requests = [
            packet(LIST_MECHS), packet(VERSION), packet(SASL_AUTH, b"PLAIN"), packet(SASL_AUTH, b"plain", b"\0a\0b"),
            packet(SASL_AUTH, b"PLAIN", b"\0a\0b\0"), packet(SASL_AUTH, b"PLAIN", b"\0a"), packet(SASL_STEP, b"PLAIN"),
            packet(SASL_STEP, b"PLAIN", b"\0a\0b"), packet(SASL_AUTH, b"NONE", b"x"), packet(SASL_AUTH, b"m" * 33, b"x"),
        ]
        ends = [
            packet(GET, b"k"), packet(NOOP), packet(0x77, b"k"), store(SET, b"k", b"v"), packet(SASL_AUTH),
            packet(VERSION, b"k"), packet(GET, b"k" * 251), packet(SASL_AUTH, b"k" * 251, b"x"), packet(GET, b"k", body=0),
        ]
        for end in ends:
            asked = [pick(requests) for _ in range(6)]
            told = []
            for port in (running.memcached_port, sasl_reference):
                with wires.BinaryWire(port) as wire:
                    told.append([])
                    for request in asked:
                        wire.send(request)
                        told[-1].append(wire.response())
                    wire.send(end)
                    told[-1] += iter(wire.response, None)
            assert told[0] == told[1], (asked, end)
    finally:
        running.stop()


def wait_until(is_so):
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_auth_file_is_read_anew_at_sighup(tmp_path):
    users = tmp_path / "users"
    users.write_text("alice:old\n")
    running = servers.Dovetail("--auth-file", str(users))
    try:
        with wires.BinaryWire(running.memcached_port) as early:
            early.send(packet(SASL_AUTH, b"PLAIN", b"\0alice\0old"))
            assert early.response().status == 0
            for text, line in [("alice\n", "users of before stay"), ("alice:new\n", "are read anew")]:
                users.write_text(text)
                running.process.send_signal(signal.SIGHUP)
                wait_until(lambda: any(line in logged for logged in running.log))
            assert [it.status for it in early.ask(packet(GET, b"k"))] == [NOT_FOUND], "a client that is in stays in"
        with wires.BinaryWire(running.memcached_port) as wire:
            wire.send(packet(SASL_AUTH, b"PLAIN", b"\0alice\0old") + packet(SASL_AUTH, b"PLAIN", b"\0alice\0new"))
            assert [wire.response().status for _ in range(2)] == [AUTH_ERROR, 0]
    finally:
        running.stop()


def test_a_password_alone_is_anybodys_of_sasl():
    running = servers.Dovetail("--requirepass", "secret")
    try:
        with wires.BinaryWire(running.memcached_port) as wire:
            wire.send(packet(SASL_AUTH, b"PLAIN", b"\0who\0ever") + packet(SASL_AUTH, b"PLAIN", b"\0who\0secret"))
            assert [wire.response().status for _ in range(2)] == [AUTH_ERROR, 0]
    finally:
        running.stop()

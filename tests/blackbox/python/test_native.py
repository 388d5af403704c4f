"""The native protocol byte by byte, by a client that was written from its page."""

import os

import pytest
import redis

import native_wire as native
import servers
from native_wire import GET, OK, SET, NativeWire, request

pytestmark = [pytest.mark.dovetail_only, pytest.mark.flags(native=f"{servers.HOST}:0", threads="2")]
TAG_KEY = bytes(range(16))


@pytest.fixture
def peer(server):
    with NativeWire(server.native_port) as found:
        yield found


def test_the_examples_of_the_page_hold():
    assert native.siphash_2_4(TAG_KEY, bytes(range(15))) == 0xA129CA6149BE45E5
    body = (request(GET, b"user:1000", flags=native.WANT_VERSION, number=7)
            + request(SET, b"a", b"hello", flags=native.ONCE, number=42))
    wire = NativeWire(1, TAG_KEY)
    wire.session, wire._frames, wire.floor = 0x1122334455667788, 8, 40
    frame = wire.frame(native.REQUESTS, body, steering=3)
    assert len(frame) == 88 and frame[24:32].hex(" ") == "71 99 37 8b ea 87 3b 15"
    assert native.short_key_hash(b"user:1000", 7) == 0xB4E0975C7A3B0B70
    assert native.short_key_hash(b"user:1000", 91) >> 58 == 3


def test_every_op_answers_as_the_page_says(peer):
    assert peer.read(native.PING).status == OK
    assert peer.read(GET, b"a").status == native.MISS
    version = peer.write(SET, b"a", b"1", flags=native.WANT_VERSION, client_flags=7).version
    wanted = native.WANT_VERSION | native.WANT_FLAGS | native.WANT_EXPIRY
    found = peer.read(GET, b"a", flags=wanted)
    assert (found.value, found.version) == (b"1", version)
    assert (found.client_flags, found.expiry) == (7, None)
    other = peer.write(SET, b"a", b"2", mode=3, version=version + 1)
    assert (other.status, other.version) == (native.VERSION_MISMATCH, version)
    assert peer.write(SET, b"a", b"2", mode=3, version=version).status == OK
    assert peer.write(SET, b"a", b"3", mode=1).status == native.NOT_STORED
    assert peer.write(SET, b"none", b"3", mode=2).status == native.NOT_STORED
    assert peer.write(native.INCR, b"a", delta=-5).number == -3
    assert peer.write(native.INCR, b"a", delta=-(1 << 63)).status == native.OUT_OF_RANGE
    assert peer.write(native.APPEND, b"t", b"cd").number == 2
    assert peer.write(native.PREPEND, b"t", b"ab").number == 4
    assert peer.write(native.INCR, b"t", delta=1).status == native.NOT_A_NUMBER
    length = peer.read(GET, b"t", flags=native.NO_VALUE)
    assert (length.number, length.value) == (4, b"")
    assert peer.write(native.DELETE, b"t").status == OK
    assert peer.write(native.DELETE, b"t").status == native.MISS


def test_expiries_are_set_kept_and_taken_away(peer):
    expiry = 4_000_000_000_000
    peer.write(SET, b"k", b"5", expiry=expiry)
    peer.write(native.INCR, b"k", delta=1)
    assert peer.read(GET, b"k", flags=native.WANT_EXPIRY).expiry == expiry
    peer.write(SET, b"k", b"6", flags=native.KEEP_EXPIRY)
    assert peer.read(GET, b"k", flags=native.WANT_EXPIRY).expiry == expiry
    peer.write(native.TOUCH, b"k")
    assert peer.read(GET, b"k", flags=native.WANT_EXPIRY).expiry is None
    assert peer.write(SET, b"k", b"7", expiry=1).status == OK
    assert peer.read(GET, b"k").status == native.MISS


def test_requests_of_one_frame_take_effect_in_their_order(peer):
    replies = peer.exchange(
        request(SET, b"k", b"1", flags=native.ONCE, number=0), request(GET, b"k", number=1 << 31))
    assert [reply.status for reply in replies] == [OK, OK]
    assert replies[1].value == b"1"


def test_a_frame_that_is_sent_again_changes_nothing(peer):
    frame = peer.frame(native.REQUESTS, request(native.INCR, b"n", flags=native.ONCE, delta=1))
    for _ in range(50):
        peer.send(frame)
    answers = [peer.receive().replies()[0].number for _ in range(2)]
    assert answers == [1, 1]
    while peer.receive():
        pass
    assert peer.read(GET, b"n").value == b"1"
    peer.floor = peer.next_write = 1
    peer.read(native.PING)
    peer.send(frame)
    assert peer.receive() is None, "below the floor there is no answer"


def test_large_values_go_in_parts(server, peer, client):
    value = os.urandom(100_001)
    assert peer.push(b"large", value).status == OK
    assert client.get(b"large") == value
    assert peer.get_whole(b"large") == value


def test_ranges_go_on_behind_any_key(server, peer, client):
    if peer.features == 0:
        assert peer.read(native.RANGE, mode=0x10, limit=1).status == native.NO_ORDER
        return
    lengths = (1, 700, 1300, 3000)
    keys = sorted(b"%d" % index + b"x" * length for index in range(4) for length in lengths)
    for key in keys:
        client.set(key, b"value")
    keys = [key for key in keys if len(key) < 3000]
    for limit in (1, 2, 100):
        found, start, mode = [], b"", 0x10
        while True:
            page = peer.read(native.RANGE, start, mode=mode, limit=limit)
            assert page.status == OK
            found += [key for key, _ in page.items()]
            if not page.flags & native.GOES_ON:
                break
            start, mode = page.key or found[-1], 0x14
        assert found == keys


def test_what_is_not_understood_is_said_so_and_the_rest_is_answered(peer):
    messages = [request(99, b"k", number=1), request(GET, b"k", flags=0x40, number=2),
                request(native.INCR, b"k", number=3), request(GET, b"k", number=4)]
    statuses = [reply.status for reply in peer.exchange(*messages)]
    assert statuses == [native.UNSUPPORTED, native.UNSUPPORTED, native.MALFORMED, native.MISS]


def test_no_stranger_gets_more_than_he_sent(server):
    stranger = NativeWire(server.native_port)
    stranger.session = 1234
    for datagram in (stranger.hello(0, 5), stranger.hello(77, 5),
                     stranger.frame(native.REQUESTS, request(GET, b"k"))):
        stranger.send(datagram)
        answer = stranger.receive()
        assert answer.kind in (native.CHALLENGE, native.REFUSAL)
        assert native.HEADER_BYTES + len(answer.body) <= len(datagram)
    for datagram in (stranger.hello(0, 5)[:120], stranger.frame(native.BYE), b"", os.urandom(1400)):
        stranger.send(datagram)
        assert stranger.receive() is None


def test_cut_and_changed_frames_do_no_harm(server, peer):
    peer.write(SET, b"k", b"v")
    good = peer.frame(native.REQUESTS, request(SET, b"k", b"w" * 100, flags=native.ONCE, number=1))
    for length in range(len(good)):
        peer.send(good[:length])
    for at in range(native.HEADER_BYTES, native.HEADER_BYTES + 24):
        for byte in (0, 1, 0x7F, 0xFF):
            peer.send(good[:at] + bytes([byte]) + good[at + 1:])
    while peer.receive():
        pass
    with NativeWire(server.native_port) as other:
        assert other.read(native.PING).status == OK


def test_only_clients_with_the_key_are_heard(tmp_path):
    key_file = tmp_path / "key"
    key_file.write_text(TAG_KEY.hex() + "\n")
    running = servers.start("--native-key-file", str(key_file), native=f"{servers.HOST}:0")
    try:
        with NativeWire(running.native_port, TAG_KEY) as friend:
            assert friend.write(SET, b"k", b"v").status == OK
            frame = friend.frame(native.REQUESTS, request(GET, b"k"))
            for bit in range(0, len(frame) * 8, 7):
                changed = bytearray(frame)
                changed[bit // 8] ^= 1 << bit % 8
                friend.send(bytes(changed))
            assert friend.receive() is None
        for key in (None, bytes(16)):
            stranger = NativeWire(running.native_port, key)
            stranger.send(stranger.hello(0, 5))
            assert stranger.receive() is None
        with redis.Redis(port=running.resp_port) as client:
            assert client.get("k") == b"v"
    finally:
        running.stop()


def test_writes_that_another_worker_executed_are_on_the_disk_when_they_are_answered(tmp_path):
    flags = (
        "--mode", "store", "--data-dir", str(tmp_path), "--durability", "fsync",
        "--write-policy", "erew", "--dispatch", "key-hash",
    )
    server = servers.start(*flags, native=f"{servers.HOST}:0", threads="3")
    with NativeWire(server.native_port) as peer:
        assert peer.push(b"long", b"v" * 5000).status == OK
        first = peer.next_write
        for start in range(0, 200, 20):
            writes = (
                request(SET, b"k%d" % number, b"%d" % number, flags=native.ONCE, number=first + number)
                for number in range(start, start + 20)
            )
            assert {reply.status for reply in peer.exchange(*writes)} == {OK}
        server.process.kill()
        server.process.wait()
    server = servers.start(*flags, native=f"{servers.HOST}:0", threads="3")
    with NativeWire(server.native_port) as peer:
        for number in range(200):
            assert peer.read(GET, b"k%d" % number).value == b"%d" % number
        assert peer.get_whole(b"long") == b"v" * 5000
    assert server.stop() == 0

"""memcached over UDP: frames beside the real memcached, garbage, and what may be answered."""

import contextlib
import re
import select
import socket
import struct
import subprocess
import tempfile
import time

import pytest

import servers
import wires

pytestmark = pytest.mark.dovetail_only
needs_reference = pytest.mark.skipif(
    not servers.has_reference(),
    reason="redis-server or memcached is not installed: nothing to compare with",
)
HEADER = struct.Struct("!HHHH")
PART_BYTES = 1392
# Each asks for one key by one command: of several, memcached answers each by itself (docs/formats/memcached-text.md).
SAME_AS_MEMCACHED = [
    b"get k\r\n", b"gets none\r\n", b"get big\r\n", b"set u 5 0 3\r\nabc\r\n", b"get u\r\n", b"add u 0 0 1\r\nx\r\n",
    b"append u 0 0 1\r\nx\r\n", b"incr n 5\r\n", b"incr n x\r\n", b"decr n 1\r\n", b"delete u\r\n", b"delete u\r\n",
    b"touch k 100\r\n", b"gat 100 k\r\n", b"version\r\n", b"verbosity 1\r\n", b"\xff\x00\x01\r\n", b"garbage\r\n", b"get\r\n",
    b"mg k v\r\n", b"mg none v\r\n", b"mg k s t f Oabc\r\n", b"ms m 2\r\nhi\r\n", b"mg m v k\r\n", b"md m\r\n", b"ma n D3 v\r\n", b"mn\r\n",
    b"set u 0 0 3\r\nabcde", b"get " + b"k" * 251 + b"\r\n",
]


class Datagrams:
    """Asks from one socket; an answer is put together from its parts."""

    def __init__(self, port):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self.socket.connect((servers.HOST, port))
        self.last_id = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, datagram):
        self.socket.send(datagram)

    def next(self, seconds=5.0):
        """The next datagram; None: none came."""
        return self.socket.recv(1 << 16) if select.select([self.socket], [], [], seconds)[0] else None

    def ask(self, request, sequence=0, reserved=0):
        """The reply as one, and its datagrams."""
        self.last_id = (self.last_id * 7 + 301) % (1 << 16)
        self.send(HEADER.pack(self.last_id, sequence, 1, reserved) + request)
        datagrams, parts = [], {}
        while True:
            datagram = self.next()
            assert datagram is not None, (request[:60], parts)
            request_id, sequence, count, reserved = HEADER.unpack(datagram[:8])
            assert request_id == self.last_id and reserved == 0
            assert sequence < count and sequence not in parts
            datagrams.append(datagram)
            parts[sequence] = datagram[8:]
            if len(parts) == count:
                return b"".join(parts[at] for at in range(count)), datagrams

    def is_silent(self, datagram):
        """Whether nothing is answered to it: what is answered behind it comes first."""
        self.send(datagram)
        return self.ask(b"version\r\n")[0].startswith(b"VERSION ")


@contextlib.contextmanager
def serving(*flags, **settings):
    port = free_udp_port()
    server = servers.Dovetail("--udp-port", str(port), *flags, **settings)
    try:
        server.udp_port = port
        yield server
    finally:
        assert server.stop() == 0


def free_udp_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((servers.HOST, 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module", params=["1", "2", "routed"])
def server(request):
    routed = ("--write-policy", "d-crew", "--dispatch", "size-aware") if request.param == "routed" else ()
    threads = "2" if request.param == "routed" else request.param
    with serving("--udp-reply-factor", "0", *routed, threads=threads) as running:
        yield running


@pytest.fixture
def udp(server):
    with Datagrams(server.udp_port) as datagrams:
        yield datagrams


@pytest.fixture
def text(server):
    with wires.TextWire(server.memcached_port) as wire:
        yield wire


def metric(server, name):
    return int(re.search(rf"^{re.escape(name)} (\d+)$", server.admin("/metrics")[1], re.M)[1])


def drops(server):
    return {reason: metric(server, f'dovetail_udp_drops_total{{reason="{reason}"}}') for reason in ("short", "several")}


def test_both_ways_lead_to_the_same_keys(udp, text):
    assert udp.ask(b"set k 7 0 5\r\nhello\r\n")[0] == b"STORED\r\n"
    text.send(b"get k\r\n")
    assert [text.line() for _ in range(3)] == [b"VALUE k 7 5\r\n", b"hello\r\n", b"END\r\n"]
    assert udp.ask(b"get k\r\n", sequence=3, reserved=9)[0] == b"VALUE k 7 5\r\nhello\r\nEND\r\n"


def test_a_long_reply_comes_in_full_datagrams_that_are_numbered(udp):
    value = bytes(at * 7 % 251 for at in range(50_000))
    assert udp.ask(b"set long 0 0 50000\r\n" + value + b"\r\n")[0] == b"STORED\r\n"
    for _ in range(5):
        reply, datagrams = udp.ask(b"get long\r\n")
        assert reply == b"VALUE long 0 50000\r\n" + value + b"\r\nEND\r\n"
        assert [len(datagram) for datagram in datagrams[:-1]] == [8 + PART_BYTES] * (len(datagrams) - 1)
        assert len(datagrams) == -(-len(reply) // PART_BYTES)


def test_several_commands_and_keys_are_one_reply(udp):
    for at in range(40):
        assert udp.ask(b"set key%d 0 0 100\r\n" % at + b"%0100d" % at + b"\r\n")[0] == b"STORED\r\n"
    keys = b" ".join(b"key%d" % at for at in range(40))
    want = b"".join(b"VALUE key%d 0 100\r\n%0100d\r\n" % (at, at) for at in range(40)) + b"END\r\n"
    assert udp.ask(b"get " + keys + b"\r\n")[0] == want
    assert udp.ask(b"set n 0 0 1\r\n1\r\nincr n 1\r\nget n\r\nmn\r\n")[0] == b"STORED\r\n2\r\nVALUE n 0 1\r\n2\r\nEND\r\nMN\r\n"
    assert udp.ask(b"mg key1 v q\r\nmg none v q\r\nmn\r\n")[0] == b"VA 100\r\n%0100d\r\nMN\r\n" % 1


def soon_answers(udp, request, want):
    """Datagrams have no order where threads send each other work."""
    deadline = time.monotonic() + 10
    while (found := udp.ask(request)[0]) != want and time.monotonic() < deadline:
        time.sleep(0.01)
    return found == want


def test_what_is_told_not_to_be_answered_is_not(udp):
    framed = HEADER.pack(9, 0, 1, 0)
    assert udp.is_silent(framed + b"set quiet 0 0 2 noreply\r\nhi\r\n")
    assert soon_answers(udp, b"get quiet\r\n", b"VALUE quiet 0 2\r\nhi\r\nEND\r\n")
    assert udp.is_silent(framed + b"delete quiet noreply\r\n")
    assert soon_answers(udp, b"get quiet\r\n", b"END\r\n")


def test_what_is_no_request_is_dropped_and_counted(server, udp):
    before = drops(server)
    assert udp.is_silent(b"")  # The kernel tells of nothing.
    for datagram in (b"abc", b"\0\1\0\0\0\1\0\0"):
        assert udp.is_silent(datagram)
    for count in (0, 2, 3, 65535):
        assert udp.is_silent(HEADER.pack(1, 0, count, 0) + b"get k\r\n")
    want = {"short": before["short"] + 2, "several": before["several"] + 4}
    deadline = time.monotonic() + 10
    # Another worker may have answered what was asked behind them.
    while (after := drops(server)) != want and time.monotonic() < deadline:
        time.sleep(0.01)
    assert after == want


def test_what_is_not_whole_is_forgotten_with_its_datagram(udp):
    framed = HEADER.pack(1, 0, 1, 0)
    for cut in (b"g", b"get k", b"set half 0 0 10\r\nabc", b"\x80\x0a\0\0", b"\x80" + b"\xff" * 40, b"x" * 1000, b"quit\r\n"):
        assert udp.is_silent(framed + cut), cut
    assert udp.ask(b"get half\r\n")[0] == b"END\r\n"


def test_the_binary_protocol_comes_by_datagram_too(udp):
    assert udp.ask(b"set bin 0 0 3\r\nabc\r\n")[0] == b"STORED\r\n"
    get = struct.pack("!BBHBBHIIQ", 0x80, 0x00, 3, 0, 0, 0, 3, 0xABCD, 0) + b"bin"
    reply = udp.ask(get)[0]
    assert reply[:2] == b"\x81\0" and reply[12:16] == b"\0\0\xab\xcd" and reply[-3:] == b"abc"
    noop = struct.pack("!BBHBBHIIQ", 0x80, 0x0A, 0, 0, 0, 0, 0, 0, 0)
    assert udp.ask(noop)[0][:2] == b"\x81\x0a"


def test_garbage_ends_nothing(server, udp):
    state = 12345
    for round_at in range(2000):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        body = state.to_bytes(8, "big") * (1 + state % 30)
        heads = [b"", HEADER.pack(1, 0, 1, 0), HEADER.pack(1, 0, 1, 0) + b"\x80", HEADER.pack(1, 0, 1, 0) + b"get "]
        udp.send(heads[round_at % 4] + body)
    while udp.next(0.2) is not None:
        pass
    assert udp.ask(b"version\r\n")[0].startswith(b"VERSION ")
    assert server.is_running()


def test_no_answer_draws_an_answer(server, udp):
    """A forged sender would couple two servers."""
    for request in SAME_AS_MEMCACHED + [b"FOO\r\n", b"\x81" + bytes(23)]:
        reply = request if request[:1] in b"F\x81" else udp.ask(request)[0]
        assert udp.is_silent(HEADER.pack(7, 0, 1, 0) + reply), reply


def test_a_client_that_asks_for_nodes_is_told_where_connections_go(server, udp):
    assert b"127.0.0.1|127.0.0.1|%d\n" % server.memcached_port in udp.ask(b"config get cluster\r\n")[0]


def test_stats_tell_the_port(server, text):
    text.send(b"stats settings\r\n")
    lines = iter(text.line, b"END\r\n")
    assert b"STAT udpport %d\r\n" % server.udp_port in list(lines)


def test_nothing_is_answered_beyond_the_factor():
    with serving("--udp-reply-factor", "3") as server, Datagrams(server.udp_port) as udp:
        assert udp.ask(b"set k 0 0 400\r\n" + b"x" * 400 + b"\r\n")[0] == b"STORED\r\n"
        refused = b"SERVER_ERROR reply beyond udp-reply-factor: use TCP\r\n"
        assert udp.ask(b"get k\r\n")[0] == refused and len(refused) + 8 <= 64
        assert udp.ask(b"stats\r\n")[0] == refused
        assert udp.ask(b"get k%s\r\n" % (b" n" * 70))[0] == b"VALUE k 0 400\r\n" + b"x" * 400 + b"\r\nEND\r\n"
        get = struct.pack("!BBHBBHIIQ", 0x80, 0x00, 1, 0, 0, 0, 1, 7, 0) + b"k"
        reply = udp.ask(get)[0]
        assert reply[6:8] == b"\0\3" and reply[24:] == b"Too large."
        assert metric(server, 'dovetail_udp_refused_replies_total{reason="reply_factor"}') == 3


def test_a_password_that_is_set_later_closes_it():
    with serving() as server, Datagrams(server.udp_port) as udp, wires.RespWire(server.resp_port) as resp:
        assert udp.ask(b"set k 0 0 1\r\nx\r\n")[0] == b"STORED\r\n"
        assert resp.ask("CONFIG", "SET", "requirepass", "secret") == b"+OK\r\n"
        udp.send(HEADER.pack(1, 0, 1, 0) + b"get k\r\n")
        assert udp.next(0.5) is None
        assert metric(server, 'dovetail_udp_drops_total{reason="auth"}') == 1


@pytest.mark.parametrize("flags, why", [
    (["--requirepass", "x"], "refused beside --requirepass"),
    (["--memcached", "off"], "there is no address for it"),
    (["--memcached", "0.0.0.0:0"], "refused"),
])
def test_it_is_refused_where_it_would_be_open(flags, why):
    command = [servers.binary(), "serve", "--native", "off", "--udp-port", "11211", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, cwd=tempfile.gettempdir(),
                           env=servers.clean_environment(), check=False)
    assert ended.returncode == 2 and why in ended.stderr


@needs_reference
def test_the_real_memcached_answers_the_same_datagrams(server, udp):
    tcp_port, udp_port = servers.free_port(), free_udp_port()
    command = ["memcached", "-l", servers.HOST, "-p", str(tcp_port), "-U", str(udp_port), "-u", "root"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        servers.wait_port(tcp_port)
        with Datagrams(udp_port) as reference:
            setup = [b"flush_all\r\n", b"set k 1 0 5\r\nhello\r\n", b"set n 0 0 2\r\n10\r\n", b"set big 0 0 6000\r\n" + b"x" * 6000 + b"\r\n"]
            for request in setup + SAME_AS_MEMCACHED:
                found, want = udp.ask(request)[1], reference.ask(request)[1]
                if not request.startswith(b"gets"):
                    strip = [(HEADER.unpack(it[:8])[1:], it[8:]) for it in want]
                    assert [(HEADER.unpack(it[:8])[1:], it[8:]) for it in found] == strip, request[:60]
    finally:
        process.terminate()
        process.wait()

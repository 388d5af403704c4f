"""A native client over UDP, written from docs/formats/native.md alone, and the hashes it needs."""

import os
import socket
import struct

HELLO, CHALLENGE, WELCOME, REQUESTS, REPLIES, REFUSAL, BYE = range(1, 8)
PING, GET, PULL, SET, DELETE, INCR, APPEND, PREPEND, TOUCH, RANGE = range(1, 11)
OK, MISS, NOT_STORED, VERSION_MISMATCH, NOT_A_NUMBER, OUT_OF_RANGE, TOO_LARGE = range(7)
UNSUPPORTED, MALFORMED, CHANGED, PART_TAKEN, OUTSIDE_WINDOW, NO_ORDER, MOVED = range(9, 16)
ONCE, WANT_VERSION, WANT_FLAGS, WANT_EXPIRY, NO_VALUE, KEEP_EXPIRY, GOES_ON = (
    0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x80)
ANY_WORKER = 65535
HEADER_BYTES = 32
MASK = (1 << 64) - 1
TRIES = 40
# The longest frame that this client takes.
FRAME_MAX_BYTES = 1400

_REQUEST_WORDS = {"expiry": (0x01, "<Q"), "ttl": (0x02, "<Q"), "version": (0x04, "<Q"),
                  "client_flags": (0x08, "<Q"), "delta": (0x10, "<q"), "part": (0x20, "<Q"),
                  "limit": (0x40, "<Q")}
_REPLY_WORDS = [("version", "<Q"), ("client_flags", "<Q"), ("expiry", "<Q"), ("number", "<q"),
                ("part", "<Q")]


def _rotated(word, count):
    return ((word << count) | (word >> (64 - count))) & MASK


def siphash_2_4(key, text):
    """SipHash as its authors publish it."""
    k0, k1 = struct.unpack("<QQ", key)
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

    def rounds(count):
        nonlocal v0, v1, v2, v3
        for _ in range(count):
            v0, v2 = (v0 + v1) & MASK, (v2 + v3) & MASK
            v1, v3 = _rotated(v1, 13) ^ v0, _rotated(v3, 16) ^ v2
            v0 = _rotated(v0, 32)
            v2, v0 = (v2 + v1) & MASK, (v0 + v3) & MASK
            v1, v3 = _rotated(v1, 17) ^ v2, _rotated(v3, 21) ^ v0
            v2 = _rotated(v2, 32)

    whole_bytes = len(text) // 8 * 8
    last = int.from_bytes(text[whole_bytes:], "little") | (len(text) & 255) << 56
    for word in [*(word for (word,) in struct.iter_unpack("<Q", text[:whole_bytes])), last]:
        v3 ^= word
        rounds(2)
        v0 ^= word
    v2 ^= 0xFF
    rounds(4)
    return v0 ^ v1 ^ v2 ^ v3


_SECRETS = [0x2D358DCCAA6C78A5, 0x8BB84B93962EACC9, 0x4B33A62ED433D4A3, 0x4D5A2DA51DE1AA47,
            0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x90ED1765281C388C]


def _mix(a, b):
    product = a * b
    return product & MASK ^ product >> 64


def _premix(word, index):
    word ^= _mix(word ^ _SECRETS[2], _SECRETS[index])
    for shift, bit in ((48, 63), (24, 31), (0, 0)):
        if word >> shift & 0xFFFF == 0:
            word |= 1 << bit
    return word


def short_key_hash(key, welcome_seed):
    """The page's hash, of keys of 8 to 16 bytes, whose way through rapidhash is the shortest."""
    assert 8 <= len(key) <= 16
    seed = _premix(welcome_seed, 0)
    s0 = _premix(seed, 0)
    s1 = _premix(s0, 1)
    seed ^= len(key)
    a = int.from_bytes(key[:8], "little") ^ s1
    b = int.from_bytes(key[-8:], "little") ^ seed
    product = a * b
    a, b = product & MASK, product >> 64
    return _mix(a ^ 0xAAAAAAAAAAAAAAAA, b ^ s1 ^ len(key))


def padded(text):
    return text + bytes(-len(text) % 8)


def request(op, key=b"", value=b"", *, flags=0, mode=0, number=0, **words):
    """One message of a frame of requests."""
    mask, encoded = 0, b""
    for name, (bit, layout) in _REQUEST_WORDS.items():
        if name in words:
            mask |= bit
            encoded += struct.pack(layout, words[name])
    head = struct.pack("<BBHHBBII", op, flags, mask, len(key), mode, 0, number, len(value))
    return padded(head + encoded + key + value)


def part(offset, total):
    return offset | total << 32


class Reply:
    """One message of a frame of replies."""

    def __init__(self, body, at):
        self.status, self.flags, mask, key_len, mode, zero, self.number_of, value_len = (
            struct.unpack_from("<BBHHBBII", body, at))
        assert (mode, zero) == (0, 0)
        at += 16
        for bit, (name, layout) in enumerate(_REPLY_WORDS):
            found = None
            if mask >> bit & 1:
                (found,) = struct.unpack_from(layout, body, at)
                at += 8
            setattr(self, name, found)
        assert mask < 1 << len(_REPLY_WORDS)
        self.key, self.value = body[at:at + key_len], body[at + key_len:at + key_len + value_len]
        at += key_len + value_len
        self.end = at + -at % 8
        assert body[at:self.end] == bytes(self.end - at), "padding is zeros"

    def items(self):
        """The items of a range: key, and value or None where it was left out."""
        found, at = [], 0
        while at < len(self.value):
            key_len, flags, value_len = struct.unpack_from("<HHI", self.value, at)
            key_end = at + 8 + key_len
            end = key_end if flags & 1 else key_end + value_len
            value = None if flags & 1 else self.value[key_end:end]
            found.append((self.value[at + 8:key_end], value))
            at = end + -end % 8
        return found


class Frame:
    """A frame that arrived."""

    def __init__(self, datagram, key):
        (magic, version, self.kind, _, units, self.session, self.number, self.answered, tag) = (
            struct.unpack_from("<2sBBHHQIIQ", datagram))
        assert (magic, version) == (b"DV", 1)
        self.body = datagram[HEADER_BYTES:units * 8]
        assert tag == (siphash_2_4(key, datagram[:24] + self.body) if key else 0)

    def replies(self):
        assert self.kind == REPLIES
        found, at = [], 0
        while at < len(self.body):
            found.append(Reply(self.body, at))
            at = found[-1].end
        return found


class NativeWire:
    """One session. Every frame is sent again until each of its requests is answered."""

    def __init__(self, port, key=None):
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.settimeout(0.25)
        self._socket.connect(("127.0.0.1", port))
        self._key = key
        self._frames = self._reads = 0
        self.session = self.floor = self.next_write = 0

    def __enter__(self):
        return self.open()

    def __exit__(self, *_):
        self.send(self.frame(BYE))
        self._socket.close()

    def frame(self, kind, body=b"", *, steering=ANY_WORKER):
        self._frames += 1
        answered = self.floor if kind == REQUESTS else 0
        head = struct.pack("<2sBBHHQII", b"DV", 1, kind, steering,
                           (HEADER_BYTES + len(body)) // 8, self.session, self._frames, answered)
        tag = siphash_2_4(self._key, head + body) if self._key else 0
        return head + struct.pack("<Q", tag) + body

    def send(self, datagram):
        self._socket.send(datagram)

    def receive(self):
        """The next frame; None: nothing comes."""
        try:
            return Frame(self._socket.recv(65536), self._key)
        except TimeoutError:
            return None

    def hello(self, cookie, nonce):
        body = struct.pack("<BBHIQQQ", 1, 1, 0, FRAME_MAX_BYTES, cookie, nonce, 0) + bytes(64)
        return self.frame(HELLO, body)

    def open(self):
        nonce, cookie = int.from_bytes(os.urandom(8), "little"), 0
        for _ in range(TRIES):
            self.send(self.hello(cookie, nonce))
            answer = self.receive()
            if answer and answer.kind == CHALLENGE:
                cookie, again = struct.unpack_from("<QQ", answer.body)
                assert again == nonce
            elif answer and answer.kind == WELCOME:
                (_, self.steering_bits, self.worker_count, self.frame_max_bytes, again, self.seed,
                 self.once_window, _, _, self.value_max_bytes, self.features) = (
                    struct.unpack_from("<BBHIQQIIIIQ", answer.body))
                assert again == nonce
                self.session = answer.session
                return self
        raise TimeoutError("no session")

    def exchange(self, *requests):
        """The replies, in the requests' order."""
        wanted = [struct.unpack_from("<I", message, 8)[0] for message in requests]
        found = {}
        for _ in range(TRIES):
            left = (message for message, name in zip(requests, wanted) if name not in found)
            self.send(self.frame(REQUESTS, b"".join(left)))
            while len(found) < len(wanted) and (answer := self.receive()):
                replies = (reply for reply in answer.replies() if reply.number_of in wanted)
                found.update((reply.number_of, reply) for reply in replies)
            if len(found) == len(wanted):
                return [found[name] for name in wanted]
        raise TimeoutError("no answer")

    def read(self, op, key=b"", value=b"", **fields):
        self._reads += 1
        return self.exchange(request(op, key, value, number=1 << 31 | self._reads, **fields))[0]

    def write(self, op, key=b"", value=b"", *, flags=0, **fields):
        number, self.next_write = self.next_write, self.next_write + 1
        message = request(op, key, value, flags=flags | ONCE, number=number, **fields)
        reply = self.exchange(message)[0]
        self.floor = self.next_write
        return reply

    def push(self, key, value, part_bytes=1024):
        """A set in parts, one after the other; the last answer."""
        number, self.next_write = self.next_write, self.next_write + 1
        for offset in range(0, len(value), part_bytes):
            piece = value[offset:offset + part_bytes]
            where = part(offset, len(value))
            message = request(SET, key, piece, flags=ONCE, number=number, part=where)
            reply = self.exchange(message)[0]
        self.floor = self.next_write
        return reply

    def get_whole(self, key):
        first = self.read(GET, key)
        if first.part is None:
            return first.value
        value, total = first.value, first.part >> 32
        while len(value) < total:
            where = part(len(value), total - len(value))
            reply = self.read(PULL, key, version=first.version, part=where)
            assert (reply.status, reply.part) == (OK, part(len(value), total))
            value += reply.value
        return value

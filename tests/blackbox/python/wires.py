"""Raw sockets that read exactly one reply at a time and hand back its bytes."""

import socket
import struct
import typing

from servers import HOST

TIMEOUT_SECONDS = 20


class Wire:
    """A connection without a client library between the test and the bytes."""

    def __init__(self, port, timeout=TIMEOUT_SECONDS):
        self.socket = socket.create_connection((HOST, port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def line(self):
        return self.file.readline()

    def read_to_end(self):
        """Everything until the server closes; a reset counts as a close."""
        chunks = []
        try:
            while chunk := self.file.read1(1 << 16):
                chunks.append(chunk)
        except ConnectionResetError:
            pass
        return b"".join(chunks)


def encode(*words):
    """One command as an array of bulk strings."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


class RespWire(Wire):
    """Speaks RESP; `ask` returns the reply's bytes, headers and all."""

    def ask(self, *words):
        self.send(encode(*words))
        return self.reply()

    def reply(self):
        head = self.line()
        if not head:
            raise ConnectionError("closed by the server")
        kind, rest = head[:1], head[1:-2]
        if kind in b"$=" and rest != b"-1":
            return head + self.file.read(int(rest) + 2)
        if kind in b"*~>" and rest != b"-1":
            return head + b"".join(self.reply() for _ in range(int(rest)))
        if kind == b"%":
            return head + b"".join(self.reply() for _ in range(2 * int(rest)))
        return head


class TextWire(Wire):
    """Speaks memcached text and meta; a `version` behind each command marks the end of its reply."""

    # Lines with a data block behind them: which word says how long it is.
    BLOCKS = {b"VALUE": 3, b"VA": 1}

    def ask(self, data):
        self.send(data + b"version\r\n")
        reply = b""
        while True:
            line = self.line()
            if not line or line.startswith(b"VERSION "):
                return reply
            reply += line
            words = line.split()
            if words and words[0] in self.BLOCKS:
                reply += self.file.read(int(words[self.BLOCKS[words[0]]]) + 2)


BINARY_HEADER = struct.Struct(">BBHBBHI4sQ")


def packet(opcode, key=b"", value=b"", extras=b"", *, opaque=b"opaq", cas=0, body=None):
    """A request of memcached's binary protocol; `body` is a length that is not the true one."""
    length = len(extras) + len(key) + len(value) if body is None else body
    header = BINARY_HEADER.pack(0x80, opcode, len(key), len(extras), 0, 0, length, opaque, cas)
    return header + extras + key + value


class Response(typing.NamedTuple):
    opcode: int
    status: int
    opaque: bytes
    cas: int
    extras: bytes
    key: bytes
    value: bytes


class BinaryWire(Wire):
    """Speaks memcached's binary protocol; a noop behind what is asked marks the end of the replies."""

    MARK = b"\xff\xfeMK"

    def ask(self, data):
        """All responses to `data`, up to the server's closing."""
        self.send(data + packet(0x0a, opaque=self.MARK))
        responses = []
        while (response := self.response()) and response.opaque != self.MARK:
            responses.append(response)
        return responses

    def response(self):
        """None: the server has closed."""
        try:
            head = self.file.read(BINARY_HEADER.size)
            if len(head) < BINARY_HEADER.size:
                return None
            magic, opcode, key_len, extras_len, kind, status, length, opaque, cas = BINARY_HEADER.unpack(head)
            assert (magic, kind) == (0x81, 0), head
            body = self.file.read(length)
        except ConnectionResetError:
            return None
        rest = body[extras_len:]
        return Response(opcode, status, opaque, cas, body[:extras_len], rest[:key_len], rest[key_len:])

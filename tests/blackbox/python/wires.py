"""Raw sockets that read exactly one reply at a time and hand back its bytes."""

import socket

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

#!/usr/bin/env python3
"""Changes the memory of a running server twenty times while clients write and read.

Prints, for a cache and a store: errors other than promised ones, the longest answer of a client that
reads one key at a time, and the resident size ten seconds after the last change. Exit status 1: an
error, or more than 1.05 times the cap plus 32 MiB.

    contrib/measure/resize.py target/release/dovetail --low 600 --high 2000
"""

import argparse
import json
import socket
import subprocess
import sys
import threading
import time

MIB = 1 << 20


def start(binary, mode, low):
    process = subprocess.Popen(
        [binary, "serve", "--memory", f"{low}MiB", "--mode", mode, "--threads", "2", "--resp", "0",
         "--memcached", "0", "--native", "off", "--admin", "off", "--log-format", "json"],
        stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        record = json.loads(line)
        if record["msg"] == "ready":
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, int(record["resp"].rsplit(":", 1)[1])
    sys.exit("the server did not start")


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def line(self, command):
        self.socket.sendall(command.encode() + b"\r\n")
        return self.file.readline().decode().strip()


def resident_mib(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


class Load:
    def __init__(self, port, keys, value_bytes):
        self.port, self.keys, self.value = port, keys, b"v" * value_bytes
        self.ending, self.wrong, self.longest_ms, self.waits = False, [], 0.0, []
        self.stored = 0
        self.threads = [threading.Thread(target=self.write, args=(n,)) for n in range(2)]
        self.threads.append(threading.Thread(target=self.probe))
        for thread in self.threads:
            thread.start()

    def write(self, number):
        client, at = Client(self.port), number
        while not self.ending:
            batch = []
            for _ in range(50):
                at = (at + 7919) % self.keys
                key = b"%08d" % at
                batch.append(b"*3\r\n$3\r\nSET\r\n$8\r\n%s\r\n$%d\r\n%s\r\n" % (key, len(self.value), self.value))
            client.socket.sendall(b"".join(batch))
            for _ in batch:
                answer = client.file.readline()
                if answer != b"+OK\r\n":
                    self.wrong.append(answer)
                self.stored += 1

    def probe(self):
        client = Client(self.port)
        while not self.ending:
            began = time.perf_counter()
            if client.line("GET nothing") != "$-1":
                self.wrong.append("GET")
            wait_ms = (time.perf_counter() - began) * 1000
            self.waits.append(wait_ms)
            self.longest_ms = max(self.longest_ms, wait_ms)
            time.sleep(0.0005)

    def end(self):
        self.ending = True
        for thread in self.threads:
            thread.join()


def measure(args, mode):
    process, port = start(args.binary, mode, args.low)
    admin = Client(port)
    # A store's items must fit the least size; a cache's do not.
    fit = args.low * MIB * (0.4 if mode == "store" else 4) / (args.value_bytes + 60)
    failed = False
    try:
        assert admin.line(f"CONFIG SET maxmemory {args.high}mb") == "+OK"
        load = Load(port, int(fit), args.value_bytes)
        time.sleep(args.seconds)
        still = (len(load.waits), sorted(load.waits)[-1])
        load.waits.clear()
        for turn in range(20):
            size = args.low if turn % 2 == 0 else args.high
            answer = admin.line(f"CONFIG SET maxmemory {size}mb")
            if answer != "+OK":
                load.wrong.append(answer)
            time.sleep(args.seconds / 4)
        waits = sorted(load.waits)
        answer = admin.line(f"CONFIG SET maxmemory {args.low}mb")
        time.sleep(10)
        size_mib, allowed_mib = resident_mib(process), args.low * 1.05 + 32
        load.end()
        failed = bool(load.wrong) or size_mib > allowed_mib
        print(f"{mode}: {load.stored} sets, wrong {load.wrong[:3]}; longest GET {still[1]:.1f} ms before, "
              f"{waits[-1]:.1f} ms in {len(waits)} while it changes, p99.9 {waits[len(waits) * 999 // 1000]:.1f} ms; "
              f"10 s later {size_mib:.0f} MiB of {args.low} (allowed {allowed_mib:.0f})")
    finally:
        process.terminate()
        process.wait()
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--low", type=int, default=256, help="MiB")
    parser.add_argument("--high", type=int, default=1024, help="MiB")
    parser.add_argument("--value-bytes", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    failed = [measure(args, mode) for mode in ["cache", "store"]]
    sys.exit(1 if any(failed) else 0)


if __name__ == "__main__":
    main()

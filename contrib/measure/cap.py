#!/usr/bin/env python3
"""Resident memory of a server under 200 connections with values of 1 byte to 4 MiB, slow readers and
slow writers among them; and of idle connections, with what they cost of a core.

    contrib/measure/cap.py target/release/dovetail [--seconds 60] [--mode store] [--threads 2]
    contrib/measure/cap.py target/release/dovetail --idle 10000

Prints the largest resident size, and by how much it is above `--memory`. Exit status 1: more than 1.05
times that and 32 MiB were resident. Needs Python 3.11 and nothing else.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import time

MIB = 1 << 20
HOST = "127.0.0.1"
KEYS = 4000
VALUE_MAX = 4 * MIB
FIXED = 32 * MIB
NOISE = random.Random(7).randbytes(VALUE_MAX)


def start(binary, *flags):
    command = [
        binary, "serve", "--resp", f"{HOST}:0", "--memcached", "off", "--native", "off",
        "--admin", "off", "--log-format", "json", *flags,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        fields = json.loads(line)
        if fields.get("msg") == "ready":
            return process, int(fields["resp"].rsplit(":", 1)[1])
    sys.exit("the server did not start")


def status_bytes(pid, name):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def command(*words):
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)])


def size_of(draw):
    """As many of each order of magnitude."""
    return int(2 ** draw.uniform(0, 22))


class Counts:
    def __init__(self):
        self.done, self.errors, self.cut = 0, 0, 0


async def reply(reader):
    head = await reader.readline()
    if not head:
        raise ConnectionResetError
    if head[:1] == b"$" and head[1:2] != b"-":
        left = int(head[1:]) + 2
        while left:
            left -= len(await reader.read(min(left, MIB)) or [0] * left)
    return head


async def ordinary(port, number, until, counts):
    draw = random.Random(number)
    while time.monotonic() < until:
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            while time.monotonic() < until:
                key = b"key:%d" % draw.randrange(KEYS)
                if draw.random() < 0.6:
                    size = size_of(draw)
                    at = draw.randrange(VALUE_MAX - size + 1)
                    writer.write(command(b"SET", key, NOISE[at:at + size]))
                else:
                    writer.write(command(b"GET", key))
                await writer.drain()
                counts.errors += (await reply(reader)).startswith(b"-")
                counts.done += 1
        except ConnectionError:
            counts.cut += 1
        writer.close()


async def slow_reader(port, number, until, counts):
    """Asks for much, and takes a kilobyte at a time."""
    draw = random.Random(number)
    while time.monotonic() < until:
        reader, writer = await asyncio.open_connection(HOST, port, limit=4096)
        try:
            writer.write(b"".join(command(b"GET", b"key:%d" % draw.randrange(KEYS)) for _ in range(100)))
            while time.monotonic() < until:
                if not await reader.read(1024):
                    break
                await asyncio.sleep(0.1)
        except ConnectionError:
            counts.cut += 1
        writer.transport.abort()


async def slow_writer(port, number, until, counts):
    """Sends a large value a kilobyte at a time."""
    draw = random.Random(number)
    while time.monotonic() < until:
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            size = VALUE_MAX - draw.randrange(MIB)
            writer.write(b"*3\r\n$3\r\nSET\r\n$1\r\ns\r\n$%d\r\n" % size)
            for at in range(0, size, 1024):
                writer.write(NOISE[at:at + 1024])
                await writer.drain()
                await asyncio.sleep(0.01)
                if time.monotonic() > until or reader.at_eof():
                    break
        except ConnectionError:
            counts.cut += 1
        writer.transport.abort()


async def watch(pid, until, sizes):
    while time.monotonic() < until:
        sizes.append(status_bytes(pid, "VmRSS:"))
        await asyncio.sleep(0.02)


async def load(pid, port, seconds, connections):
    until, counts, sizes = time.monotonic() + seconds, Counts(), []
    kinds = [slow_reader] * (connections // 10) + [slow_writer] * (connections // 10)
    kinds += [ordinary] * (connections - len(kinds))
    tasks = [kind(port, number, until, counts) for number, kind in enumerate(kinds)]
    # A thread that waits for a reply when the time is over is cut.
    waiting = asyncio.gather(watch(pid, until, sizes), *tasks, return_exceptions=True)
    try:
        await asyncio.wait_for(waiting, seconds + 5)
    except TimeoutError:
        pass
    return counts, sizes


def measure_cap(args):
    process, port = start(
        args.binary, "--memory", f"{args.memory_mib}MiB", "--mode", args.mode, "--threads", args.threads,
    )
    counts, sizes = asyncio.run(load(process.pid, port, args.seconds, args.connections))
    high = status_bytes(process.pid, "VmHWM:")
    process.terminate()
    process.wait()
    cap = args.memory_mib * MIB
    allowed = cap * 1.05 + FIXED
    print(f"{counts.done} requests, {counts.errors} errors, {counts.cut} connections cut by the server")
    print(f"resident: {high / MIB:.1f} MiB at most, {max(sizes) / MIB:.1f} in {len(sizes)} samples; "
          f"--memory {args.memory_mib}MiB, allowed {allowed / MIB:.1f}")
    return high <= allowed


async def hold(port, count, seconds, pid):
    await asyncio.sleep(3)  # Log memory is made resident ahead of the writers.
    before = status_bytes(pid, "VmRSS:")
    streams = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(command(b"PING"))
        streams.append((reader, writer))
    for reader, _ in streams:
        assert await reader.readline() == b"+PONG\r\n"
    await asyncio.sleep(2)
    after, cpu, began = status_bytes(pid, "VmRSS:"), cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)
    used = (cpu_seconds(pid) - cpu) / (time.monotonic() - began)
    return (after - before) / count, used


def measure_idle(args):
    wanted = args.idle + 1000
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    process, port = start(args.binary, "--memory", f"{args.memory_mib}MiB", "--threads", args.threads,
                          "--max-connections", str(args.idle + 10))
    each, used = asyncio.run(hold(port, args.idle, args.seconds, process.pid))
    process.terminate()
    process.wait()
    print(f"{args.idle} idle connections: {each:.0f} bytes each, {used:.3%} of a core over {args.seconds} s")
    return each < 2048 and used < 0.005


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--memory-mib", type=int, default=256)
    parser.add_argument("--mode", default="cache")
    parser.add_argument("--threads", default="auto")
    parser.add_argument("--idle", type=int, default=0)
    args = parser.parse_args()
    sys.exit(0 if (measure_idle(args) if args.idle else measure_cap(args)) else 1)


if __name__ == "__main__":
    main()

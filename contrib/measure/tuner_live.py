#!/usr/bin/env python3
"""How long a running server's tuner takes from a change of its load to the end of its search.

Usage: tuner_live.py DOVETAIL [ROUNDS]

Each round has a server of its own with two threads and `--tuner on`, and a client at 500 requests a
second that keeps it awake. It is loaded with values of 8 bytes and uniform keys, then with values of
1 KiB and keys by Zipf's law with exponent 1.25, for 8 seconds each. A load begins when /stats, asked
every 10 ms, first shows its requests; the decision log's own times say when a search began and ended.
"""
import json
import signal
import subprocess
import sys
import time
import urllib.request

RESP, ADMIN = "127.0.0.1:26479", "127.0.0.1:26480"
LOAD = ["--workload", "ycsb-a", "--keys", "100k", "--threads", "2", "--connections", "32",
        "--pipeline", "16", "--warmup", "0s", "--duration", "8s"]
FACES = {
    "uniform, 8 B": ["--distribution", "uniform", "--value-size", "8"],
    "Zipf 1.25, 1 KiB": ["--distribution", "zipf:1.25", "--value-size", "1024"],
}


def stats():
    with urllib.request.urlopen(f"http://{ADMIN}/stats") as answer:
        return json.load(answer)


def bench(dovetail, server, arguments):
    command = [dovetail, "bench", f"resp://{RESP}", "--server-pid", str(server.pid)]
    return subprocess.Popen(command + arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def begin_of(load, patience_s=10):
    """When so many more requests than the trickle's were first seen."""
    last = stats()["commands_total"]
    until = time.time() + patience_s
    while time.time() < until and load.poll() is None:
        time.sleep(0.01)
        now = stats()["commands_total"]
        if now - last > 1000:
            return time.time()
        last = now
    raise SystemExit("the load never came")


def told(since_ms):
    entries = stats()["manager"]["decision_log"]
    return [entry for entry in entries if entry["controller"] == "tuner" and entry["at_ms"] >= since_ms]


def main():
    dovetail, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2
    for number in range(rounds):
        measure(dovetail, number)


def measure(dovetail, number):
    flags = ["--resp", RESP, "--admin", ADMIN, "--memcached", "off", "--native", "off",
             "--memory", "512m", "--threads", "2", "--tuner", "on", "--log", "off"]
    server = subprocess.Popen([dovetail, "serve"] + flags, stdout=subprocess.DEVNULL)
    time.sleep(1)
    trickle = bench(dovetail, server, ["--workload", "get", "--keys", "1k", "--connections", "1",
                                       "--rate", "500", "--duration", "600s", "--warmup", "0s"])
    time.sleep(2)
    try:
        for name, face in FACES.items():
            load = bench(dovetail, server, LOAD + ["--no-populate"] + face)
            began = begin_of(load)
            load.wait()
            report(number, name, began, told(began * 1000 - 20))
        entries = stats()["manager"]["decision_log"]
        print("decision log:")
        for entry in entries:
            print(f"  {entry['at_ms'] % 10**8 / 1000:10.3f} {entry['controller']:9} {entry['change']}: "
                  f"{entry['reason']}" + (f" ({entry['count']} times)" if entry["count"] > 1 else ""))
    finally:
        trickle.terminate()
        server.send_signal(signal.SIGTERM)
        server.wait()


def report(number, name, began, entries):
    seen = next((entry for entry in entries if entry["change"] == "a search begins"), None)
    ends = [entry for entry in entries
            if seen and entry["at_ms"] > seen["at_ms"]
            and (entry["change"].endswith(" stay") or entry["change"].startswith("from "))]
    searches = sum(1 for entry in entries if entry["change"] == "a search begins")
    if seen is None:
        print(f"round {number}, {name}: no search began in 8 s")
        return
    seen_s = seen["at_ms"] / 1000 - began
    done_s = (ends[0]["at_ms"] - seen["at_ms"]) / 1000 if ends else float("nan")
    print(f"round {number}, {name}: seen after {seen_s:.2f} s ({seen['reason']}), done {done_s:.2f} s "
          f"later ({ends[0]['change'] if ends else 'never'}); {searches} searches in 8 s")


main()

"""What operators ask of memcached's port: the stream of events, the end, certificates, which nodes there are."""

import re
import time
import urllib.parse

import pytest

import servers
import test_tls
import wires

pytestmark = pytest.mark.dovetail_only
needs_reference = pytest.mark.skipif(
    not servers.has_reference(),
    reason="redis-server or memcached is not installed: nothing to compare with",
)
LINE = re.compile(rb"ts=\d+\.\d+ gid=(\d+) type=(\S+) (.*)\n")
COMMANDS = [
    b"set k 5 0 3\r\nabc\r\n", b"get k\r\n", b"get none k\r\n", b"gets k\r\n", b"add k 0 0 1\r\nx\r\n", b"replace zz 0 0 1\r\nx\r\n",
    b"append k 0 0 1\r\nx\r\n", b"prepend k 0 0 1\r\nx\r\n", b"cas k 0 0 1 9999999\r\nx\r\n", b"cas nn 0 0 1 1\r\nx\r\n", b"delete k\r\n",
    b"delete k\r\n", b"set n 0 100 2\r\n10\r\n", b"incr n 1\r\n", b"decr n 1\r\n", b"incr zz 1\r\n", b"touch n 200\r\n", b"touch zz 1\r\n",
    b"gat 10 n\r\n", b"gat 10 zz\r\n", b"mg n v\r\n", b"mg zz v\r\n", b"mg vv v N30\r\n", b"ms m 2 T90\r\nhi\r\n", b"ms m 2 ME\r\nhi\r\n",
    b"md m\r\n", b"md m\r\n", b"ma n\r\n", b"ma zz\r\n", b"me n\r\n", b"mn\r\n", b"ms YSVi 2 b\r\nhi\r\n", b"mg YSVi b v\r\n", b"version\r\n",
    b"ms m 1 MA\r\n!\r\n", b"ms p 1 T90\r\nx\r\n", b"ms p 1 MA\r\ny\r\n", b"ms p 1 MR\r\nz\r\n", b"ms p 1 C1\r\nz\r\n",
]


class Watcher(wires.Wire):
    """A connection that watches."""

    def __init__(self, port, topics=b""):
        super().__init__(port)
        self.send(b"watch " + topics + b"\r\n")
        assert self.line() == b"OK\r\n"

    def event(self):
        """What stands behind time and number: type and facts, keys as they are."""
        line = self.line()
        found = LINE.fullmatch(line)
        assert found, line
        facts = dict(word.split(b"=", 1) for word in found[3].split())
        if b"key" in facts:
            facts[b"key"] = urllib.parse.unquote_to_bytes(facts[b"key"])
        return int(found[1]), found[2], facts

    def is_silent(self, seconds=0.3):
        self.socket.settimeout(seconds)
        try:
            return not self.socket.recv(1)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(wires.TIMEOUT_SECONDS)


@pytest.fixture(scope="module", params=["1", "routed"])
def server(request):
    routed = ("--write-policy", "d-crew", "--dispatch", "size-aware") if request.param == "routed" else ()
    running = servers.Dovetail(*routed, memory="64MiB", threads="2" if routed else "1")
    yield running
    assert running.stop() == 0


def ask(server, *commands):
    with wires.TextWire(server.memcached_port) as wire:
        return [wire.ask(command) for command in commands]


def soon(condition):
    """A round or two later."""
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def test_looks_and_stores_are_told_in_order(server):
    with Watcher(server.memcached_port, b"fetchers mutations") as watcher:
        ask(server, b"set a%20b 0 0 3\r\nabc\r\nget a%20b nothing\r\n")
        events = [watcher.event() for _ in range(4)]
        assert [gid for gid, *_ in events] == sorted(gid for gid, *_ in events)
        kinds = [(kind, facts[b"key"], facts[b"status"], facts[b"size"]) for _, kind, facts in events]
        assert kinds == [
            (b"item_get", b"a%20b", b"not_found", b"0"), (b"item_store", b"a%20b", b"stored", b"3"),
            (b"item_get", b"a%20b", b"found", b"3"), (b"item_get", b"nothing", b"not_found", b"0"),
        ]
        with wires.RespWire(server.resp_port) as resp:
            assert resp.ask("GET", "a%20b") == b"$3\r\nabc\r\n"
        assert watcher.event()[2][b"key"] == b"a%20b", "whichever client looks"


def test_each_of_pipelined_sets_of_one_key_is_told(server):
    with Watcher(server.memcached_port, b"fetchers mutations") as watcher:
        ask(server, b"set hot 0 0 14\r\nlonger than 8.\r\n" * 40)
        kinds = [watcher.event()[1] for _ in range(80)]
        assert kinds == [b"item_get", b"item_store"] * 40


def test_a_watcher_is_shown_what_it_asked_for_and_hears_nothing_else(server):
    with Watcher(server.memcached_port, b"deletions") as deletions, Watcher(server.memcached_port, b"rawcmds") as none:
        deletions.send(b"version\r\nget a\r\n")
        ask(server, b"set gone 0 0 2\r\nhi\r\nget gone\r\ndelete gone\r\ndelete gone\r\n")
        _, kind, facts = deletions.event()
        assert (kind, facts[b"key"], facts[b"cmd"], facts[b"size"]) == (b"deleted", b"gone", b"delete", b"2")
        assert deletions.is_silent() and none.is_silent()
    ask(server, b"get gone\r\n")
    assert ask(server, b"watch nothing\r\n", b"watch fetchers nothing\r\n") == [b"ERROR\r\n"] * 2


def test_connections_are_told(server):
    with Watcher(server.memcached_port, b"connevents") as watcher:
        with wires.TextWire(server.memcached_port) as wire:
            wire.ask(b"version\r\n")
            port = str(wire.socket.getsockname()[1]).encode()
        # Threads that route tell in no order between them, and of connections of earlier tests that close now.
        told = {}
        while len(told) < 2:
            _, kind, facts = watcher.event()
            if facts[b"rport"] == port:
                assert kind not in told
                told[kind] = facts
        assert told[b"conn_close"][b"reason"] == b"normal" and told[b"conn_new"][b"rip"] == b"127.0.0.1"


def test_threads_that_only_poll_tell_of_all_connections():
    server = servers.start("--cr-threads", "2", threads="4")
    try:
        with Watcher(server.memcached_port, b"connevents") as watcher:
            for _ in range(12):
                with wires.TextWire(server.memcached_port) as wire:
                    wire.ask(b"version\r\n")
            kinds = sorted(watcher.event()[1] for _ in range(24))
            assert kinds == [b"conn_close"] * 12 + [b"conn_new"] * 12
    finally:
        assert server.stop() == 0


def test_evictions_are_told_with_what_was_known_of_them(server):
    with Watcher(server.memcached_port, b"evictions") as watcher, wires.TextWire(server.memcached_port) as wire:
        wire.ask(b"flush_all\r\n")
        for at in range(1500):
            wire.ask(b"set evict%d 0 0 60000\r\n" % at + b"x" * 60000 + b"\r\n")
        _, kind, facts = watcher.event()
        assert kind == b"eviction" and facts[b"key"].startswith(b"evict") and facts[b"size"] == b"60000"
        assert (facts[b"fetch"], facts[b"ttl"], facts[b"clsid"]) == (b"no", b"-1", b"1") and facts[b"la"].isdigit()
        wire.ask(b"flush_all\r\n")


def test_a_watcher_that_does_not_read_is_told_how_much_it_missed(server):
    with Watcher(server.memcached_port, b"fetchers") as watcher, wires.TextWire(server.memcached_port) as wire:
        key = b"k" * 250
        for _ in range(120):
            wire.ask((b"get " + b" ".join([key] * 40) + b"\r\n") * 25)
        count = skipped = 0
        watcher.socket.settimeout(2)
        try:
            while line := watcher.file.readline():
                if line.startswith(b"skipped="):
                    skipped += int(line[8:])
                else:
                    assert LINE.fullmatch(line)
                    count += 1
                if count % 1000 == 0:
                    wire.ask(b"get one\r\n")
        except TimeoutError:
            pass
        assert count > 1000 and skipped > 1000
        assert server.is_running()


@needs_reference
def test_the_real_memcached_tells_the_same(server):
    reference = servers.Reference()

    def events(port):
        with Watcher(port, b"fetchers mutations") as watcher, wires.TextWire(port) as wire:
            for command in [b"flush_all\r\n", *COMMANDS, b"get end\r\n"]:
                wire.ask(command)
            told = []
            while not told or told[-1][1].get(b"key") != b"end":
                _, kind, facts = watcher.event()
                # Slabs and descriptors are each server's own.
                told.append((kind, {name: facts[name] for name in facts if name not in (b"clsid", b"cfd")}))
            return told
    try:
        assert events(server.memcached_port) == events(reference.memcached_port)
    finally:
        reference.stop()


@needs_reference
def test_what_noreply_hides_and_how_numbers_are_read(server):
    reference = servers.Reference()
    lines = [b"watch x noreply", b"refresh_certs noreply", b"stats cachedump 4294967297 1", b"stats cachedump 1 4294967296"]
    try:
        for line in lines:
            for port in (server.memcached_port, reference.memcached_port):
                with wires.TextWire(port) as wire:
                    wire.ask(b"flush_all\r\n")
            ours, wanted = (ask(it, line + b"\r\nversion\r\n") for it in (server, reference))
            assert ours == wanted, line
    finally:
        reference.stop()


def test_stats_count_lines_and_watchers(server):
    def told():
        found = {}
        for line in ask(server, b"stats\r\n")[0].splitlines():
            words = line.split()
            if words[1:] and words[1].startswith(b"log_w"):
                found[words[1]] = int(words[2])
        return found
    before = told()
    assert before[b"log_watchers"] == 0
    with Watcher(server.memcached_port, b"mutations") as watcher:
        ask(server, b"set counted 0 0 1\r\nx\r\n")
        watcher.event()
        after = told()
    assert after[b"log_watchers"] == 1 and after[b"log_watcher_skipped"] == before[b"log_watcher_skipped"]
    for name in (b"log_watcher_sent", b"log_worker_written"):
        assert after[name] > before[name]
    assert b"STAT shutdown_command no\r\n" in ask(server, b"stats settings\r\n")[0]


def test_an_open_server_names_itself_as_its_only_node(server):
    found = ask(server, b"config get cluster\r\n")[0]
    nodes = b"1\n127.0.0.1|127.0.0.1|%d\n" % server.memcached_port
    assert found == b"CONFIG cluster 0 %d\r\n%s\r\nEND\r\n" % (len(nodes), nodes)


def test_shutdown_ends_a_server_that_was_told_so(server):
    assert ask(server, b"shutdown\r\n") == [b"ERROR: shutdown not enabled\r\n"]
    ending = servers.Dovetail("--enable-shutdown", "on")
    assert ask(ending, b"shutdown now\r\n") == [b"CLIENT_ERROR invalid shutdown mode\r\n"]
    with wires.Wire(ending.memcached_port) as wire:
        wire.send(b"shutdown\r\n")
        assert wire.read_to_end() == b""
    soon(lambda: not ending.is_running())
    assert ending.process.wait() == 0


def test_certificates_are_read_again(server, tmp_path):
    assert ask(server, b"refresh_certs\r\n") == [b"Error TLS not enabled\r\n"]
    certificates = test_tls.Certificates(tmp_path)
    with test_tls.serving(*certificates.flags()) as running:
        assert ask(running, b"refresh_certs\r\n") == [b"OK\r\n"]
        (tmp_path / "server.crt").write_text("nothing")
        refused = ask(running, b"refresh_certs\r\n")[0]
        assert refused.startswith(b"Error ") and refused.count(b"\r\n") == 1

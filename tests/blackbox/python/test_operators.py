"""Commands of operators beside Debian's redis-server: shapes and errors byte for byte, where the content is not ours.

What differs and why is in docs/formats/resp.md.
"""

import socket

import pytest
import redis

import servers
import wires

SAME = [
    ["SLOWLOG"], ["SLOWLOG", "GET", "-2"], ["SLOWLOG", "GET", "x"], ["SLOWLOG", "LEN", "x"], ["SLOWLOG", "foo"],
    ["SLOWLOG", "RESET"],
    ["LATENCY"], ["LATENCY", "LATEST"], ["LATENCY", "HISTORY"], ["LATENCY", "HISTORY", "x"], ["LATENCY", "RESET"],
    ["LATENCY", "RESET", "x", "y"], ["LATENCY", "GRAPH", "x"], ["LATENCY", "HISTOGRAM", "nosuch"], ["LATENCY", "foo"],
    ["CLIENT", "GETREDIR"], ["CLIENT", "TRACKINGINFO"], ["CLIENT", "TRACKING", "off"], ["CLIENT", "TRACKING", "foo"],
    ["CLIENT", "CACHING", "yes"], ["CLIENT", "UNBLOCK", "99"], ["CLIENT", "UNBLOCK", "x"],
    ["CLIENT", "UNBLOCK", "1", "ERROR"], ["CLIENT", "UNBLOCK", "1", "foo"], ["CLIENT", "KILL", "ID", "x"],
    ["CLIENT", "KILL", "foo", "bar"], ["CLIENT", "KILL", "TYPE", "foo"], ["CLIENT", "KILL", "USER", "nobody"],
    ["CLIENT", "KILL", "1.2.3.4:5"], ["CLIENT", "KILL", "ADDR", "1.2.3.4:5"], ["CLIENT", "LIST", "ID", "999999"],
    ["CLIENT", "LIST", "TYPE", "pubsub"], ["CLIENT", "LIST", "TYPE", "foo"], ["CLIENT", "LIST", "foo"],
    ["CLIENT", "NO-EVICT", "on"], ["CLIENT", "NO-EVICT", "foo"], ["CLIENT", "PAUSE", "x"],
    ["CLIENT", "PAUSE", "1", "foo"], ["CLIENT", "PAUSE", "-1"], ["CLIENT", "UNPAUSE"], ["CLIENT", "REPLY", "foo"],
    ["MEMORY", "USAGE", "nosuch"], ["MEMORY", "PURGE"], ["MEMORY", "foo"], ["MEMORY", "STATS", "x"],
    ["MEMORY", "USAGE", "a", "SAMPLES"], ["MEMORY", "USAGE", "a", "SAMPLES", "-1"],
    ["BGSAVE", "foo"], ["BGSAVE", "a", "b"], ["SAVE", "x"], ["LASTSAVE", "x"], ["BGREWRITEAOF", "x"],
    ["SWAPDB", "a", "b"], ["SWAPDB", "0", "a"], ["SWAPDB", "0", "0"], ["SWAPDB", "0", "99"], ["MOVE", "a", "b"],
    ["MOVE", "a", "0"], ["MOVE", "a", "99"], ["LOLWUT", "VERSION", "x"], ["REPLICAOF", "NO", "ONE"],
    ["REPLICAOF", "a"], ["MODULE", "LIST"], ["MODULE", "foo"], ["MONITOR", "x"], ["DEBUG"],
    ["DEBUG", "SLEEP", "0"], ["ROLE", "x"],
    ["COMMAND", "GETKEYSANDFLAGS", "SET", "a", "b"], ["COMMAND", "GETKEYSANDFLAGS", "SET", "a", "b", "GET"],
    ["COMMAND", "GETKEYSANDFLAGS", "MSET", "a", "1", "b", "2"], ["COMMAND", "GETKEYSANDFLAGS", "FOO", "a"],
    ["COMMAND", "GETKEYSANDFLAGS", "PING", "a"], ["COMMAND", "GETKEYSANDFLAGS", "RENAME", "a", "b"],
    ["COMMAND", "GETKEYSANDFLAGS", "GET"], ["COMMAND", "GETKEYS", "MGET", "a", "b"],
    ["CONFIG", "SET", "slowlog-max-len", "-1"], ["CONFIG", "SET", "slowlog-log-slower-than", "x"],
    ["CONFIG", "SET", "slowlog-max-len", "5", "nosuch", "1"], ["CONFIG", "GET", "slowlog-max-len"],
    ["CONFIG", "SET", "loglevel", "x"], ["CONFIG", "SET", "loglevel", "VERBOSE"], ["CONFIG", "GET", "loglevel"],
    ["CONFIG", "SET", "loglevel", "notice"], ["CONFIG", "GET", "loglevel"],
    ["CONFIG", "SET", "slowlog-max-len", "-1", "SLOWLOG-max-len", "1"], ["CONFIG", "SET", "slowlog-max-len", "x", "nosuch", "1"],
    ["CONFIG", "SET", "latency-monitor-threshold", "100000"], ["CONFIG", "GET", "latency-monitor-threshold"],
    ["CONFIG", "GET", "appendonly"], ["CONFIG", "GET", "timeout"], ["CONFIG", "GET", "tcp-keepalive"],
    ["ACL"], ["ACL", "WHOAMI"], ["ACL", "USERS"], ["ACL", "LIST"], ["ACL", "GETUSER", "default"],
    ["ACL", "GETUSER", "nobody"], ["ACL", "CAT"], ["ACL", "CAT", "foo"], ["ACL", "GENPASS", "0"],
    ["ACL", "GENPASS", "x"], ["ACL", "GENPASS", "5000"], ["ACL", "DELUSER", "default"], ["ACL", "DELUSER", "x"],
    ["ACL", "LOG", "RESET"], ["ACL", "LOG", "x"], ["ACL", "LOG"], ["ACL", "DRYRUN", "default", "get", "a"],
    ["ACL", "DRYRUN", "nobody", "get", "a"], ["ACL", "DRYRUN", "default", "nosuch"],
    ["ACL", "DRYRUN", "default", "get"], ["ACL", "foo"], ["ACL", "CAT", "x", "y"], ["acl", "cAt", "string", "y"],
    ["ACL", "GENPASS", "1", "2"], ["ACL", "LOG", "1", "2"], ["SLOWLOG", "Get", "1", "2"],
    ["CLIENT", "PAUSE", "1", "WRITE", "x"], ["client", "UNBLOCK", "1", "ERROR", "x"],
]

# Rows of COMMAND and entries of COMMAND DOCS that are equal.
DOCUMENTED = [
    "get", "set", "getex", "getdel", "getset", "setnx", "setex", "psetex", "mget", "mset", "msetnx", "incr", "decr",
    "incrby", "decrby", "incrbyfloat", "append", "strlen", "getrange", "substr", "setrange", "del", "unlink", "exists",
    "type", "touch", "expire", "pexpire", "expireat", "pexpireat", "expiretime", "pexpiretime", "ttl", "pttl",
    "persist", "rename", "renamenx", "copy", "keys", "scan", "ping", "echo", "select", "auth", "hello", "watch",
    "swapdb", "move", "psync", "failover", "replicaof", "bgsave", "lolwut", "flushall", "shutdown", "wait", "info",
]
ROWS = [
    *DOCUMENTED, "slowlog|get", "slowlog|len", "slowlog|reset", "latency|histogram", "latency|latest", "memory|stats",
    "memory|doctor", "memory|purge", "debug", "monitor", "save", "bgrewriteaof", "sync", "replconf", "slaveof",
    "module|list", "client|tracking", "client|unblock", "client|getredir", "command|getkeysandflags",
]


@pytest.fixture(scope="module")
def pair():
    if servers.is_reference_run() or not servers.has_reference():
        pytest.skip("redis-server is not installed: nothing to compare with")
    ours, reference = servers.Dovetail("--enable-debug-command", "yes"), servers.Reference("--enable-debug-command")
    yield ours, reference
    ours.stop()
    reference.stop()


@pytest.mark.parametrize("protocol", [2, 3])
def test_shapes_and_errors_are_those_of_redis(pair, protocol):
    with wires.RespWire(pair[0].resp_port) as ours, wires.RespWire(pair[1].resp_port) as reference:
        for wire in (ours, reference):
            wire.ask("HELLO", protocol)
        for words in SAME:
            if words[0] == "DEBUG" and len(words) > 1:
                assert ours.ask(*words) == b"+OK\r\n"
                continue
            assert ours.ask(*words) == reference.ask(*words), words


def raw_connection(port):
    return redis.Connection(host=servers.HOST, port=port, protocol=2)


def ask(connection, *words):
    connection.send_command(*words)
    return connection.read_response()


def pairs(flat):
    return dict(zip(flat[::2], flat[1::2], strict=True))


def plain(argument):
    """An entry of COMMAND DOCS' arguments, by names."""
    found = pairs(argument)
    if b"arguments" in found:
        found[b"arguments"] = [plain(part) for part in found[b"arguments"]]
    return found


def test_arguments_of_common_commands_are_told_as_redis_tells_them(pair):
    ours, reference = (raw_connection(server.resp_port) for server in pair)
    for name in DOCUMENTED:
        told, wanted = (pairs(ask(side, "COMMAND", "DOCS", name)[1]) for side in (ours, reference))
        for field in (b"since", b"group"):
            assert told[field] == wanted[field], name
        wanted_arguments = [plain(argument) for argument in wanted.get(b"arguments", [])]
        assert [plain(argument) for argument in told.get(b"arguments", [])] == wanted_arguments, name


def test_rows_of_commands_are_those_of_redis(pair):
    ours, reference = (raw_connection(server.resp_port) for server in pair)
    for name in ROWS:
        [told], [wanted] = (ask(side, "COMMAND", "INFO", name) for side in (ours, reference))
        assert told[:2] == wanted[:2], name
        # Of flags and categories the order is not said.
        assert sorted(told[2]) == sorted(set(wanted[2]) - {b"movablekeys"}), name
        assert told[3:6] == wanted[3:6], name
        assert sorted(told[6]) == sorted(wanted[6]), name


def test_a_slow_command_is_in_the_log_with_its_client(server):
    with redis.Redis(port=server.resp_port, protocol=2, client_name="tester") as client:
        client.config_set("slowlog-log-slower-than", 0)
        client.slowlog_reset()
        client.keys("nothing*")
        client.config_set("slowlog-log-slower-than", -1)
        entries = client.slowlog_get(10)
        found = [entry for entry in entries if entry["command"] == b"KEYS nothing*"]
        assert len(found) == 1
        assert found[0]["client_name"] == b"tester" and found[0]["duration"] >= 0
        assert client.slowlog_len() == len(entries)


def test_debug_is_refused_unless_it_was_allowed(wire):
    reply = wire.ask("DEBUG", "SLEEP", "0")
    assert reply.startswith(b"-ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\"")


def test_a_monitor_sees_commands_and_no_passwords(server):
    with wires.RespWire(server.resp_port) as watcher, wires.RespWire(server.resp_port) as client:
        assert watcher.ask("MONITOR") == b"+OK\r\n"
        client.ask("SET", "a", b'x\x00"')
        client.ask("AUTH", "me", "secret")
        client.ask("CONFIG", "GET", "save")
        client.ask("GET", "a")
        lines = [watcher.reply() for _ in range(3)]
        assert lines[0].endswith(b'] "SET" "a" "x\\x00\\""\r\n') and lines[0].startswith(b"+1")
        assert lines[1].endswith(b'] "AUTH" "(redacted)" "(redacted)"\r\n')
        assert lines[2].endswith(b'] "GET" "a"\r\n')


def test_a_monitor_that_does_not_read_is_cut_off(server):
    with socket.create_connection((servers.HOST, server.resp_port)) as watcher:
        watcher.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        watcher.sendall(b"MONITOR\r\n")
        assert watcher.recv(5) == b"+OK\r\n"
        with redis.Redis(port=server.resp_port, protocol=2) as client:
            value = "v" * 60_000
            for _ in range(400):
                client.set("a", value)
                if not any(entry["flags"] == "O" for entry in client.client_list()):
                    break
            else:
                pytest.fail("a monitor that has not read 24 MB is still connected")
            assert client.get("a") == value.encode()


@pytest.mark.flags("--mode", "store")
def test_saving_without_a_directory_is_refused_in_one_line(wire):
    for words in (["SAVE"], ["BGSAVE"], ["BGREWRITEAOF"]):
        assert wire.ask(*words).startswith(b"-ERR nothing is kept on a disk: start the server with --mode store --data-dir")


def test_saving_with_a_directory_is_a_commit(tmp_path):
    server = servers.Dovetail("--mode", "store", "--data-dir", str(tmp_path), "--durability", "none")
    try:
        with redis.Redis(port=server.resp_port, protocol=2) as client:
            client.set("a", "1")
            assert client.save() is True
            before = client.lastsave()
            assert client.bgsave() is True
            assert client.lastsave() >= before
            assert client.config_get("appendonly") == {"appendonly": "yes"}
            assert client.info("persistence")["aof_buffer_length"] >= 0
    finally:
        server.stop()


def test_memory_is_described(client):
    client.set("a", "x" * 1000)
    stats = client.memory_stats()
    assert stats["keys.count"] == 1 and stats["dataset.bytes"] >= 1000
    assert client.execute_command("MEMORY DOCTOR").decode().endswith("\n")
    assert client.memory_purge() is True


def test_latency_of_commands_is_told(client):
    client.set("a", "1")
    for _ in range(5):
        client.get("a")
    reply = client.execute_command("LATENCY", "HISTOGRAM", "get")
    assert reply[0] == b"get"
    found = pairs(reply[1])
    assert found[b"calls"] == 5 and found[b"histogram_usec"][-1] == 5
    statistics = client.info("commandstats")["cmdstat_get"]
    assert statistics["calls"] == 5 and statistics["usec_per_call"] > 0
    percentiles = client.info("latencystats")["latency_percentiles_usec_get"]
    assert percentiles["p50"] <= percentiles["p99"] <= percentiles["p99.9"]


def test_failed_logins_are_told(client):
    with pytest.raises(redis.AuthenticationError):
        client.execute_command("AUTH", "somebody", "wrong")
    [entry] = client.acl_log()
    # The client tries again by itself.
    assert (entry["username"], entry["reason"]) == ("somebody", "auth") and entry["count"] >= 1
    assert client.acl_whoami() == "default" and len(client.acl_genpass()) == 64
    assert client.acl_log_reset()


@pytest.mark.flags("--requirepass", "abc")
def test_the_password_is_shown_as_its_digest(server):
    with redis.Redis(port=server.resp_port, protocol=2, password="abc") as client:
        digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        assert client.acl_list() == [f"user default on #{digest} ~* &* +@all"]

"""Clients of Redis Cluster as they are, redis-cli, and memcached clients of any node, against a cluster."""

import contextlib
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest
import redis
from pymemcache.client.base import Client as MemcachedClient
from pymemcache.exceptions import MemcacheError, MemcacheServerError, MemcacheUnexpectedCloseError
from redis.cluster import ClusterNode, LoadBalancingStrategy, RedisCluster

import clusters
import native_wire as native
import servers
import wires
from native_wire import MOVED, OK, NativeWire, request

pytestmark = pytest.mark.dovetail_only


@pytest.fixture(scope="module")
def cluster():
    """One for all tests that break nothing: to start one takes seconds."""
    running = clusters.Cluster()
    yield running
    assert running.stop() == [0, 0, 0]


@pytest.fixture(params=[2, 3])
def client(request, cluster):
    with connect(cluster, protocol=request.param) as found:
        yield found


def connect(cluster, **settings):
    nodes = [ClusterNode(servers.HOST, port) for port in cluster.resp_ports]
    return RedisCluster(startup_nodes=nodes, **settings)


def test_keys_of_all_slots_are_found(client):
    for number in range(500):
        assert client.set(f"key:{number}", number)
    assert [client.get(f"key:{number}") for number in range(500)] == [b"%d" % n for n in range(500)]
    assert client.delete(*(f"key:{number}" for number in range(500))) == 500


def test_the_client_knows_all_nodes(client, cluster):
    assert {node.port for node in client.get_nodes()} == set(cluster.resp_ports)
    assert {node.port for node in client.get_primaries()} <= set(cluster.resp_ports)
    covered = sum(end - start + 1 for start, end in client.cluster_slots())
    assert covered == 16_384


def test_commands_on_several_keys_of_a_tag(client):
    assert client.mset({"{tag}a": 1, "{tag}b": 2})
    assert client.mget("{tag}a", "{tag}b", "{tag}absent") == [b"1", b"2", None]
    with pytest.raises(redis.exceptions.RedisClusterException):
        client.mset({"a": 1, "b": 2})
    assert client.delete("{tag}a", "{tag}b") == 2


def test_keys_of_several_slots_by_the_clients_own_means(client):
    names = [f"spread:{number}" for number in range(64)]
    assert client.mset_nonatomic(dict.fromkeys(names, "v"))
    assert client.mget_nonatomic(names) == [b"v"] * 64


def test_pipelines_go_to_all_nodes(client):
    pipeline = client.pipeline()
    for number in range(300):
        pipeline.set(f"pipe:{number}", number)
        pipeline.incr(f"pipe:{number}")
    assert pipeline.execute() == [answer for number in range(300) for answer in (True, number + 1)]


def test_a_transaction_of_one_slot(client):
    client.delete("{t}n", "{t}m")
    with client.pipeline(transaction=True) as transaction:
        transaction.incr("{t}n")
        transaction.incrby("{t}m", 5)
        assert transaction.execute() == [1, 5]


def test_increments_of_many_threads_add_up(cluster):
    with connect(cluster) as setup:
        setup.delete("sum")

    def add():
        with connect(cluster) as own:
            for _ in range(200):
                own.incr("sum")

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with connect(cluster) as reader:
        assert int(reader.get("sum")) == 800


def test_reads_of_several_keys_see_all_of_a_write_or_none(cluster):
    keys = [b"{whole}%d" % number for number in range(7)]
    with connect(cluster) as own:
        port = own.get_node_from_key("{whole}0").port
    is_over = threading.Event()

    def write(seed):
        with wires.RespWire(port) as wire:
            for number in range(seed, 1 << 30, 10):
                pairs = [word for key in keys for word in (key, b"%04d" % (number % 10_000))]
                wire.send(wires.encode("MSET", *pairs) * 10)
                assert [wire.line() for _ in range(10)] == [b"+OK\r\n"] * 10
                if is_over.is_set():
                    break

    def read(halves):
        reply_bytes = len(b"*7\r\n") + 7 * len(b"$4\r\n0000\r\n")
        with wires.RespWire(port) as wire:
            for _ in range(3000):
                wire.send(wires.encode("MGET", *keys) * 10)
                replies = wire.file.read(10 * reply_bytes)
                for start in range(0, len(replies), reply_bytes):
                    words = replies[start : start + reply_bytes].split(b"\r\n")[2::2]
                    if len(set(words)) != 1:
                        halves.append(words)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(4)]
    with wires.RespWire(port) as wire:
        wire.ask("MSET", *[word for key in keys for word in (key, "0000")])
    halves = []
    readers = [threading.Thread(target=read, args=(halves,)) for _ in range(2)]
    for thread in threads + readers:
        thread.start()
    for thread in readers:
        thread.join()
    is_over.set()
    for thread in threads:
        thread.join()
    assert not halves


def test_reads_of_copies(cluster):
    """READONLY connections to the nodes with a copy; the lag is short."""
    with connect(cluster, load_balancing_strategy=LoadBalancingStrategy.ROUND_ROBIN) as reader:
        reader.set("copied", "v")
        assert reader.wait(2, 5000, target_nodes=reader.get_node_from_key("copied")) == 2
        assert {reader.get("copied") for _ in range(12)} == {b"v"}


def test_values_of_a_mebibyte(client):
    value = bytes(range(256)) * 4096
    assert client.set("large", value)
    assert client.get("large") == value
    client.delete("large")


def test_errors_keep_their_words(cluster):
    ports = iter(cluster.resp_ports)
    with redis.Redis(host=servers.HOST, port=next(ports)) as one:
        with pytest.raises(redis.exceptions.ClusterCrossSlotError):
            one.execute_command("MSET", "a", 1, "b", 2)
        with pytest.raises(redis.exceptions.ResponseError, match="SELECT is not allowed in cluster mode"):
            one.execute_command("SELECT", 1)
    refused = 0
    for port in cluster.resp_ports:
        with redis.Redis(host=servers.HOST, port=port) as one:
            try:
                one.execute_command("GET", "foo")
            except redis.exceptions.MovedError as moved:
                assert moved.slot_id == 12_182
                refused += 1
    assert refused == 2


def test_memcached_clients_may_ask_any_node(cluster):
    for number, node in enumerate(cluster.nodes):
        asked = cluster.nodes[(number + 1) % 3]
        writer = MemcachedClient((servers.HOST, node.memcached_port), timeout=20, no_delay=True)
        reader = MemcachedClient((servers.HOST, asked.memcached_port), timeout=20, no_delay=True)
        for key in range(50):
            assert writer.set(f"m{number}:{key}", str(key), noreply=False)
        names = [f"m{number}:{key}" for key in range(50)]
        assert reader.get_many(names) == {name: str(key).encode() for key, name in enumerate(names)}
        assert reader.incr(names[7], 35) == 42
        value, version = writer.gets(names[7])
        assert value == b"42"
        assert reader.cas(names[7], "43", version, noreply=False)
        assert writer.cas(names[7], "44", version, noreply=False) is False
        writer.close()
        reader.close()


@pytest.fixture(scope="module")
def parted():
    """Each key is on one of three servers only."""
    running = clusters.Cluster(copies=1)
    yield running
    assert running.stop() in ([0, 0, 0], [0, 0])


@pytest.mark.parametrize("count", [2, 100, 3000])
def test_a_get_of_several_keys_finds_those_of_all_nodes(parted, count):
    writer = MemcachedClient((servers.HOST, parted.nodes[0].memcached_port), timeout=20, no_delay=True)
    names = [f"many{count}:{key}" for key in range(count)]
    values = {name: name.encode() * 3 for name in names[::2]}
    assert writer.set_many(values, noreply=False) == []
    for node in parted.nodes:
        reader = MemcachedClient((servers.HOST, node.memcached_port), timeout=20, no_delay=True)
        assert reader.get_many(names) == values
        assert reader.gets_many(names).keys() == values.keys()
        reader.close()
    writer.close()


def test_gets_of_several_keys_keep_their_place_in_a_pipeline(parted):
    with connected(parted.nodes[1]) as raw:
        sent, wanted = b"", b""
        for round in range(20):
            names = [b"pipe:%d:%d" % (round, key) for key in range(100)]
            for name in names:
                sent += b"set %s 7 0 5\r\nhello\r\n" % name
                wanted += b"STORED\r\n"
            verb = b"gat 100 " if round % 3 == 0 else b"get "
            sent += verb + b" ".join(names) + b" absent\r\nversion\r\n get  absent   nothing \n"
            wanted += b"".join(b"VALUE %s 7 5\r\nhello\r\n" % name for name in names)
            wanted += b"END\r\nVERSION 1.6.18\r\nEND\r\n"
            sent += b"delete %s\r\nget %s %s\r\nmn\r\n" % (names[0], names[0], names[1])
            wanted += b"DELETED\r\nVALUE %s 7 5\r\nhello\r\nEND\r\nMN\r\n" % names[1]
        raw.sendall(sent)
        assert read_exactly(raw, len(wanted)) == wanted


def test_a_large_get_of_several_keys_comes_whole(parted):
    client = MemcachedClient((servers.HOST, parted.nodes[2].memcached_port), timeout=60, no_delay=True)
    values = {f"big:{key}": bytes([key]) * (1 << 20) for key in range(30)}
    assert client.set_many(values, noreply=False) == []
    assert get_many_uncut(client, list(values)) == values
    client.close()


def test_writes_of_a_pipeline_end_in_their_order_though_the_long_ones_wait_for_memory(cluster):
    names = [f"order:{number}" for number in range(12)]
    long = b"x" * 1_000_000
    for node in cluster.nodes:
        with socket.create_connection((servers.HOST, node.memcached_port), timeout=60) as raw:
            for _ in range(3):
                lines = [b"set %b 0 0 %d\r\n%b\r\nset %b 0 0 2\r\nhi\r\n" % (name, len(long), long, name)
                         for name in (name.encode() for name in names)]
                sending = threading.Thread(target=raw.sendall, args=(b"".join(lines),))
                sending.start()
                stored = b"STORED\r\n" * (2 * len(names))
                assert read_exactly(raw, len(stored)) == stored
                sending.join()
                raw.sendall(b"get " + " ".join(names).encode() + b"\r\n")
                wanted = b"".join(b"VALUE %b 0 2\r\nhi\r\n" % name.encode() for name in names) + b"END\r\n"
                assert read_exactly(raw, len(wanted)) == wanted


def test_writes_of_a_group_without_room_are_refused_whole_and_not_done(client):
    """`-OOM` in the reply to an EXEC, or to an MSET, means that the write was not done."""
    long = b"x" * 1_000_000
    for command in ("MSET", "MSETNX"):
        names = [f"{{whole}}:{command}:{number}" for number in range(10)]
        pairs = [part for name in names for part in (name, long)]
        try:
            client.execute_command(command, *pairs)
            assert client.exists(*names) == len(names)
        except redis.exceptions.OutOfMemoryError:
            assert client.exists(*names) == 0
        client.delete(*names)
    client.set("{told}:log", long)
    for count, why in ((30, "larger than max-atomic-size"), (9, "maxmemory"), (2, None)):
        with client.pipeline(transaction=True) as transaction:
            for number in range(count):
                transaction.append("{told}:log", b"<%d>" % number)
            if why:
                with pytest.raises(redis.exceptions.ResponseError, match=why):
                    transaction.execute()
                assert client.get("{told}:log") == long
            else:
                assert transaction.execute() == [len(long) + 3, len(long) + 6]
    with client.pipeline(transaction=True) as transaction:
        for _ in range(40):
            transaction.strlen("{told}:log").exists("{told}:log")
        assert transaction.execute() == [client.strlen("{told}:log"), 1] * 40, "numbers need no room"
    client.delete("{told}:log")


def test_a_transaction_answers_with_the_long_value_that_it_deletes(client):
    """Its reply has room by what was booked before the transaction ran."""
    long = b"x" * 3_100_000
    client.set("{told}:taken", long)
    with client.pipeline(transaction=True) as transaction:
        transaction.set("{told}:new", long).getdel("{told}:taken")
        assert transaction.execute() == [b"OK", long]
    client.delete("{told}:new")


def test_replies_known_at_once_take_no_form_of_a_get_before_them(cluster):
    """`MOVED` lies where the part of a memcached get lay."""
    keys = b" ".join(b"none%d" % i for i in range(100))
    writes = b"".join(b"*3\r\n$3\r\nSET\r\n$6\r\nk%05d\r\n$1\r\nv\r\n" % i for i in range(3000))
    for node in cluster.nodes:
        with socket.create_connection((servers.HOST, node.memcached_port)) as gets, \
                socket.create_connection((servers.HOST, node.resp_port)) as sets:
            answers, replies = gets.makefile("rb"), sets.makefile("rb")
            for _ in range(3):
                gets.sendall(b"get %s\r\n" % keys)
                sets.sendall(writes)
                assert answers.readline() == b"END\r\n"
                lines = {replies.readline().split()[0] for _ in range(3000)}
                assert lines <= {b"+OK", b"-MOVED"}
            gets.sendall(b"mn\r\n")
            assert answers.readline() == b"MN\r\n", "nothing more was answered"


def test_clients_that_read_nothing_are_cut_off_and_others_get_their_replies(parted):
    address = (servers.HOST, parted.nodes[2].memcached_port)
    client = MemcachedClient(address, timeout=60, no_delay=True)
    values = {f"unread:{key}": bytes([key]) * (1 << 20) for key in range(30)}
    assert client.set_many(values, noreply=False) == []
    line = b"get " + " ".join(values).encode() + b"\r\n"
    silent = []
    for _ in range(6):
        raw = socket.create_connection(address, timeout=60)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.sendall(b"version\r\n" * 40)  # Short replies: more are asked for at a time.
        read_exactly(raw, len(b"VERSION 1.6.18\r\n") * 40)
        raw.sendall(line)
        silent.append(raw)
    for _ in range(3):
        assert get_many_at_last(client, list(values)) == values
    for raw in silent:
        raw.close()
    client.close()


def get_many_at_last(client, names):
    """While others hold all the room there is, large replies may be refused; that does not last."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return client.get_many(names)
        except (MemcacheError, OSError):
            assert time.monotonic() < deadline
            client.close()
            time.sleep(0.5)


def get_many_uncut(client, names):
    """Asks again where the connection was cut: by a lease that ended while the reply was on its way, or begun."""
    for _ in range(5):
        try:
            return client.get_many(names)
        except MemcacheUnexpectedCloseError:
            client.close()
        except MemcacheServerError as told:
            assert "send it again" in str(told)
            client.close()
        time.sleep(1)
    return client.get_many(names)


def test_what_a_dead_node_had_is_told_at_the_end_of_the_reply():
    running = clusters.Cluster(copies=1)
    try:
        client = MemcachedClient((servers.HOST, running.nodes[0].memcached_port), timeout=60, no_delay=True)
        names = [f"part:{key}" for key in range(60)]
        assert client.set_many({name: "v" for name in names}, noreply=False) == []
        assert len(client.get_many(names)) == 60
        client.close()
        running.kill(2)
        with connected(running.nodes[0]) as raw:
            raw.settimeout(60)
            line = ("get " + " ".join(names) + "\r\nversion\r\n").encode()
            raw.sendall(line)
            reply = b""
            while not reply.endswith(b"VERSION 1.6.18\r\n"):
                received = raw.recv(1 << 16)
                assert received, reply
                reply += received
            *values, last, _ = reply.decode().splitlines()
            assert last.startswith("SERVER_ERROR ") and 2 < len(values) < 120
            assert all(line.startswith("VALUE part:") for line in values[::2])
    finally:
        running.stop()


def connected(node):
    return socket.create_connection((servers.HOST, node.memcached_port), timeout=20)


def read_exactly(raw, length):
    received = b""
    while len(received) < length:
        part = raw.recv(1 << 20)
        assert part, f"closed after {received[-100:]}"
        received += part
    return received


def test_a_flush_of_all_primaries_leaves_nothing(client):
    names = [f"flushed:{number}" for number in range(200)]
    for name in names:
        assert client.set(name, "v")
    assert client.flushall()
    assert [client.get(name) for name in names] == [None] * 200
    assert client.dbsize() == 0 and client.keys("*") == []
    assert client.set(names[0], "again") and client.get(names[0]) == b"again"
    assert client.flushdb()
    assert client.get(names[0]) is None


def test_binary_clients_may_ask_any_node(cluster):
    """Quiet requests too: what they tell comes from wherever it was found out, in the order of the questions."""
    keys = [b"binary-%d" % number for number in range(10)]
    ports = [node.memcached_port for node in cluster.nodes]
    with wires.BinaryWire(ports[0]) as first, wires.BinaryWire(ports[1]) as second, wires.BinaryWire(ports[2]) as third:
        flags_and_time = struct.pack(">II", 5, 0)
        stored = first.ask(b"".join(wires.packet(0x01, key, key.upper(), flags_and_time) for key in keys))
        assert [(it.status, bool(it.cas)) for it in stored] == [(0, True)] * len(keys)
        asked = b"".join(wires.packet(0x0D, key) + wires.packet(0x0D, b"no-" + key) for key in keys)
        found = second.ask(asked)
        assert [(it.key, it.value, it.extras[-1]) for it in found] == [(key, key.upper(), 5) for key in keys]
        missed = third.ask(b"".join(wires.packet(0x0C, b"no-" + key, opaque=b"%04d" % at) for at, key in enumerate(keys)))
        assert [(it.status, it.key, it.opaque) for it in missed] == [
            (1, b"no-" + key, b"%04d" % at) for at, key in enumerate(keys)]
        guarded = [(it.cas + at % 2, key) for at, (it, key) in enumerate(zip(found, keys))]
        replaced = third.ask(b"".join(wires.packet(0x11, key, b"7", flags_and_time, cas=cas) for cas, key in guarded))
        assert [it.status for it in replaced] == [2] * (len(keys) // 2), "another token"
        count = struct.pack(">QQI", 3, 40, 0)
        counted = second.ask(b"".join(wires.packet(0x05, b"count-" + key, b"", count) * 2 for key in keys))
        assert [it.value[-1] for it in counted] == [40, 43] * len(keys)
        tried = first.ask(b"".join(wires.packet(0x05, key, b"", count) for key in keys))
        assert [it.status for it in tried] == [0, 6] * (len(keys) // 2)


def test_flush_all_of_memcached_empties_every_node(cluster):
    writer = MemcachedClient((servers.HOST, cluster.nodes[0].memcached_port), timeout=20, no_delay=True)
    other = MemcachedClient((servers.HOST, cluster.nodes[1].memcached_port), timeout=20, no_delay=True)
    names = [f"mf:{key}" for key in range(100)]
    for name in names:
        assert writer.set(name, "v", noreply=False)
    assert other.flush_all(noreply=False)
    assert writer.get_many(names) == {}
    assert writer.set(names[0], "again", noreply=False)
    assert other.flush_all(delay=1, noreply=False)
    assert other.get(names[0]) == b"again"
    deadline = time.monotonic() + 30
    while writer.get(names[0]) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    writer.close()
    other.close()


@pytest.mark.skipif(not shutil.which("redis-cli"), reason="redis-cli is not installed")
def test_redis_cli_flushes_all_primaries(cluster):
    with connect(cluster) as client:
        assert client.set("one", 1) and client.set("two", 2) and client.set("three", 3)
        node = f"{servers.HOST}:{cluster.resp_ports[0]}"
        command = ["redis-cli", "--cluster", "call", "--cluster-only-masters", node, "FLUSHALL"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
        assert said.count("OK") >= len(client.get_primaries()), said
        assert [client.get(name) for name in ("one", "two", "three")] == [None] * 3


@pytest.mark.skipif(not shutil.which("redis-cli"), reason="redis-cli is not installed")
def test_redis_cli_follows(cluster):
    def cli(*words):
        command = ["redis-cli", "-c", "-h", servers.HOST, "-p", str(cluster.resp_ports[0]), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()

    for number in range(12):
        assert cli("SET", f"cli:{number}", str(number)) == "OK"
        assert cli("GET", f"cli:{number}") == str(number)
    nodes = cli("CLUSTER", "NODES").splitlines()
    assert len(nodes) == 3 and sum("myself" in line for line in nodes) == 1
    assert "cluster_state:ok" in cli("CLUSTER", "INFO")


def test_a_killed_node_loses_nothing():
    """What was answered is there after a node was killed, while it is away, and after it is back."""
    running = clusters.Cluster()
    try:
        with connect(running) as client:
            for number in range(300):
                client.set(f"kept:{number}", number)
            wanted = [b"%d" % number for number in range(300)]
            running.kill(0)
            assert [again(client.get, f"kept:{number}") for number in range(300)] == wanted
            for number in range(300):
                again(client.set, f"kept:{number}", number + 1)
            running.start(0)
            running.wait_whole()
            assert [again(client.get, f"kept:{n}") for n in range(300)] == [b"%d" % (n + 1) for n in range(300)]
    finally:
        running.stop()


def test_writes_of_a_pipeline_end_in_their_order_though_their_node_pauses():
    """The paused node leaves; a node that has asked it becomes the primary itself, and asks again in order."""
    running = clusters.Cluster(lease="500ms")
    try:
        names = [b"paused:%d" % number for number in range(48)]
        with connected(running.nodes[1]) as raw:
            for name in names:
                raw.sendall(b"set %b 0 0 1\r\n0\r\n" % name)
                assert read_exactly(raw, 8) == b"STORED\r\n"
        running.nodes[0].process.send_signal(signal.SIGSTOP)
        asking = [connected(running.nodes[1]) for _ in names]
        try:
            for raw, name in zip(asking, names):
                sets = b"".join(b"set %b 0 0 1\r\n%d\r\n" % (name, value) for value in (1, 2))
                raw.sendall(sets + b"get %b\r\n" % name)
            time.sleep(1.2)
        finally:
            running.nodes[0].process.send_signal(signal.SIGCONT)
        for raw, name in zip(asking, names):
            with raw, raw.makefile("rb") as lines:
                first, second, head = (lines.readline() for _ in range(3))
                seen = lines.readline() if head.startswith(b"VALUE ") else b"2\r\n"
            if second == b"STORED\r\n":
                assert (seen, last_value(running.nodes[1], name)) == (b"2\r\n", b"2\r\n"), (name, first, head)
    finally:
        running.stop()


def test_writes_of_a_pipeline_end_in_their_order_though_their_node_has_just_started():
    """The first of them come before the node knows which node serves which shard."""
    running = clusters.Cluster()
    try:
        for round_number in range(3):
            running.kill(0)
            running.start(0)
            names = [b"early:%d:%d" % (round_number, number) for number in range(24)]
            asking = [connected(running.nodes[0]) for _ in names]
            for value in range(12):
                for raw, name in zip(asking, names):
                    raw.sendall(b"set %b 0 0 2\r\n%02d\r\n" % (name, value))
            for raw, name in zip(asking, names):
                with raw, raw.makefile("rb") as lines:
                    replies = {lines.readline() for _ in range(12)}
                if replies == {b"STORED\r\n"}:
                    assert last_value(running.nodes[1], name) == b"11\r\n", name
            running.wait_whole()
    finally:
        running.stop()


def last_value(node, name):
    """A get that no node could serve in time is sent again."""
    for _ in range(10):
        with connected(node) as raw, raw.makefile("rb") as lines:
            raw.sendall(b"get %b\r\n" % name)
            head = lines.readline()
            if not head.startswith(b"SERVER_ERROR "):
                assert head.startswith(b"VALUE "), (name, head)
                return lines.readline()
    raise AssertionError(f"{name} cannot be read: {head}")


def test_a_read_that_a_move_of_its_shard_overtakes_is_answered():
    running = clusters.Cluster()
    try:
        with connect(running) as client:
            for number in range(40):
                client.set(f"moving:{number}", "v")
        ended, told = threading.Event(), []

        def read(node):
            with connected(node) as raw, raw.makefile("rb") as lines:
                count = 0
                while not ended.is_set():
                    raw.sendall(b"get moving:%d\r\n" % (count % 40))
                    reply = lines.readline()
                    if not reply:
                        return told.append(f"closed after {count} reads")
                    if reply.startswith(b"VALUE "):
                        lines.readline()
                        reply = lines.readline()
                    if not reply.startswith((b"END", b"SERVER_ERROR this ")):
                        return told.append(reply)
                    count += 1

        elsewhere = (
            redis.exceptions.MovedError, redis.exceptions.ExecAbortError,
            redis.exceptions.ClusterDownError,
        )

        def read_at_once(port):
            never = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
            with redis.Redis(port=port, retry=never) as client:
                count = 0
                while not ended.is_set():
                    key = f"moving:{count % 40}"
                    try:
                        client.pipeline(transaction=True).get(key).strlen(key).execute()
                    except elsewhere:
                        pass
                    except redis.exceptions.RedisError as error:
                        return told.append(f"{error!r} after {count} transactions")
                    count += 1

        readers = [threading.Thread(target=read, args=[node]) for node in running.nodes for _ in range(2)]
        readers += [threading.Thread(target=read_at_once, args=[port]) for port in running.resp_ports]
        for reader in readers:
            reader.start()
        names = [node["node"] for node in running.status()["nodes"]]
        moved = sum(running.move(at % 16, names[at % 3]) for at in range(150))
        ended.set()
        for reader in readers:
            reader.join()
        assert told == [] and moved > 10
    finally:
        running.stop()


def test_a_native_write_that_a_node_has_executed_is_not_said_to_have_moved():
    """Its client would send it to the node that has the key now: it would be done twice."""
    running = clusters.Cluster(native=f"{servers.HOST}:0")
    try:
        key = b"counter"
        with redis.Redis(port=running.resp_ports[0]) as client:
            shard = client.execute_command("CLUSTER", "KEYSLOT", key) // (16_384 // 16)
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(NativeWire(node.native_port)) for node in running.nodes]

            def add(peer):
                """A write whose answer its client has not got, as far as the node knows."""
                number, peer.next_write = peer.next_write, peer.next_write + 1
                return request(native.INCR, key, flags=native.ONCE, number=number, delta=1)

            owner, first = next(
                (peer, message) for peer, message in ((peer, add(peer)) for peer in peers)
                if peer.exchange(message)[0].status == OK)
            status = running.status()
            primary = next(one["primary"] for one in status["shards"] if one["shard"] == shard)
            assert running.move(shard, next(node["node"] for node in status["nodes"] if node["node"] != primary))
            # A read waits for the move: a write in the middle of it may have no known outcome, and no answer.
            deadline = time.monotonic() + 5
            while owner.read(native.GET, key).status != MOVED:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert owner.exchange(add(owner))[0].status == MOVED
            repeated = owner.exchange(first)[0]
            assert (repeated.status, repeated.number) == (OK, 1)
    finally:
        running.stop()


def again(command, *words, times=50):
    """Both commands here may be sent twice."""
    for left in reversed(range(times)):
        try:
            return command(*words)
        except (redis.exceptions.RedisError, OSError):
            if not left:
                raise

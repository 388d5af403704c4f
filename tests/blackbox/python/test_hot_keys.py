"""HOTKEYS in both shapes: Valkey's from what is sampled all the time, Redis 8.6's from a session."""

import json
import time

import pytest
import redis
from redis.commands.core import HotkeysMetricsTypes as Metric

import servers
import wires

pytestmark = [pytest.mark.dovetail_only, pytest.mark.index("hash")]

WAIT_SECONDS = 20
ROUTED = pytest.mark.flags("--cr-threads", "1", threads="2")


def in_pipelines(client, count):
    for _ in range(count):
        pipe = client.pipeline(transaction=False)
        for number in range(100):
            pipe.get("hot" if number % 4 else f"cold:{number}")
        pipe.execute()


@pytest.fixture(params=[2, 3])
def hot(request, server):
    with redis.Redis(port=server.resp_port, protocol=request.param) as client:
        yield client


def sampled(client):
    """What is asked for most, once somebody has counted it."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        in_pipelines(client, 20)
        found = client.execute_command("HOTKEYS GET")
        if found or time.monotonic() > deadline:
            return found


def check_sampled(client):
    assert client.execute_command("HOTKEYS GET") == []
    found = sampled(client)
    assert found[0][b"key"] == b"hot" and found[0][b"db"] == 0
    assert set(found[0]) == {b"key", b"db", b"qps"}
    assert [entry[b"qps"] for entry in found] == sorted((entry[b"qps"] for entry in found), reverse=True)


def test_without_a_session_keys_are_those_that_are_sampled_all_the_time(hot):
    if hot.connection_pool.connection_kwargs["protocol"] == 2:
        hot.response_callbacks.clear()
        assert hot.execute_command("HOTKEYS GET") == []
        found = sampled(hot)
        assert found[0][:2] == [b"key", b"hot"] and found[0][2::2] == [b"db", b"qps"]
    else:
        check_sampled(hot)


@ROUTED
def test_between_threads_they_are_sampled_as_well(server):
    with redis.Redis(port=server.resp_port, protocol=3) as client:
        check_sampled(client)


@pytest.mark.flags("--hot-set", "off")
def test_nothing_is_sampled_if_it_is_off_and_a_session_counts_all_the_same(hot):
    in_pipelines(hot, 10)
    assert hot.execute_command("HOTKEYS GET") == []
    hot.hotkeys_start(metrics=[Metric.CPU])
    hot.get("a")
    [report] = hot.hotkeys_get()
    assert report[b"by-cpu-time-us"][:1] in ([b"a"], [])


def counted(report, name):
    flat = report[name]
    return dict(zip(flat[::2], flat[1::2], strict=True))


def check_session(client):
    assert client.hotkeys_start(metrics=[Metric.CPU, Metric.NET], count=2) == b"OK"
    value = "x" * 1000
    client.set("large", value)
    for _ in range(50):
        client.get("large")
    for _ in range(10):
        client.get("nothing")
    client.set("small", "1")
    [running] = client.hotkeys_get()
    assert running[b"tracking-active"] == 1 and running[b"sample-ratio"] == 1
    assert client.hotkeys_stop() == b"OK"
    assert client.hotkeys_stop() is None
    client.get("large")
    [report] = client.hotkeys_get()
    assert report[b"tracking-active"] == 0
    assert report[b"selected-slots"] == [[0, 16383]]
    assert report[b"collection-start-time-unix-ms"] > 1_700_000_000_000
    assert set(report) == {
        b"tracking-active", b"sample-ratio", b"selected-slots", b"all-commands-all-slots-us",
        b"net-bytes-all-commands-all-slots", b"collection-start-time-unix-ms", b"collection-duration-ms",
        b"total-cpu-time-user-ms", b"total-cpu-time-sys-ms", b"total-net-bytes", b"by-cpu-time-us", b"by-net-bytes",
    }
    # SET: its command and +OK; GET: its command, and $1000 with the value.
    one_set = len(b"*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$1000\r\n") + 1002 + 5
    one_get = len(b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n") + 7 + 1002
    one_miss = len(b"*2\r\n$3\r\nGET\r\n$7\r\nnothing\r\n") + 5
    assert counted(report, b"by-net-bytes") == {b"large": one_set + 50 * one_get, b"nothing": 10 * one_miss}
    assert report[b"total-net-bytes"] >= one_set + 50 * one_get + 10 * one_miss
    assert list(counted(report, b"by-cpu-time-us"))[0] == b"large"
    assert client.hotkeys_reset() == b"OK"


def test_a_session_counts_time_and_bytes_as_redis_tells_them(hot):
    check_session(hot)


@ROUTED
def test_it_does_so_where_requests_travel_between_threads(server):
    with redis.Redis(port=server.resp_port) as client:
        check_session(client)


def test_one_session_runs_at_a_time_and_ends_by_itself(hot):
    hot.hotkeys_start(metrics=[Metric.NET], duration=1)
    with pytest.raises(redis.ResponseError, match="^hotkey tracking session already in progress$"):
        hot.hotkeys_start(metrics=[Metric.NET])
    with pytest.raises(redis.ResponseError, match="^hotkey tracking session in progress, stop tracking first$"):
        hot.hotkeys_reset()
    deadline = time.monotonic() + WAIT_SECONDS
    while hot.hotkeys_get()[0][b"tracking-active"] and time.monotonic() < deadline:
        time.sleep(0.05)
    [report] = hot.hotkeys_get()
    assert report[b"tracking-active"] == 0 and report[b"collection-duration-ms"] == 1000
    assert b"by-cpu-time-us" not in report and b"total-cpu-time-user-ms" not in report
    assert hot.hotkeys_stop() is None
    assert hot.hotkeys_start(metrics=[Metric.NET]) == b"OK", "another may begin in its place"
    hot.hotkeys_stop()
    hot.hotkeys_reset()


def test_one_command_of_so_many_is_looked_at(hot):
    hot.hotkeys_start(metrics=[Metric.NET], sample_ratio=10)
    for _ in range(40):
        hot.mget(*["a"] * 20)
    [report] = hot.hotkeys_get()
    one = len(b"*21\r\n$4\r\nMGET\r\n") + 20 * (len(b"$1\r\na\r\n") + len(b"$-1\r\n"))
    assert report[b"sample-ratio"] == 10
    assert 0 < report[b"total-net-bytes"] < 20 * one
    assert report[b"total-net-bytes"] % one == 0


@pytest.mark.parametrize("words, error", [
    (["START"], "METRICS parameter is required"),
    (["START", "METRICS", "3", "CPU"], "METRICS count must be > 0 and <= 2"),
    (["START", "METRICS", "1", "CPU", "SLOTS", "1", "0"], "SLOTS parameter cannot be used in non-cluster mode"),
    (["START", "METRICS", "1", "CPU", "COUNT", "0"], "COUNT must be between 1 and 64"),
    (["GET", "x"], "wrong number of arguments for 'hotkeys\\|get' command"),
    (["LIST", "TEXT"], "syntax error"),
    ([], "wrong number of arguments for 'hotkeys' command"),
])
def test_errors(client, words, error):
    with pytest.raises(redis.ResponseError, match=f"^{error}$"):
        client.execute_command("HOTKEYS", *words)


def test_all_that_is_known_is_listed_as_json(hot):
    sampled(hot)
    hot.hotkeys_start(metrics=[Metric.CPU, Metric.NET])
    hot.set("a", "1")
    hot.get("a")
    found = json.loads(hot.execute_command("HOTKEYS LIST JSON"))
    assert found["sampled"][0]["key"] == "hot" and 0 < found["sampled"][0]["share_ratio"] <= 1
    [entry] = [entry for entry in found["session"]["by-net-bytes"] if entry["key"] == "a"]
    assert (entry["reads"], entry["writes"]) == (1, 1)
    hot.hotkeys_stop()
    hot.hotkeys_reset()
    assert json.loads(hot.execute_command("HOTKEYS LIST JSON"))["session"] is None


@pytest.mark.flags(memory="64MiB")
def test_a_session_takes_its_room_from_the_clients_buffers(server):
    with redis.Redis(port=server.resp_port) as client:
        assert client.hotkeys_start(metrics=[Metric.CPU, Metric.NET], count=64) == b"OK"
        client.hotkeys_stop()
        client.hotkeys_reset()
    status, text = server.admin("/stats")
    assert status == 200 and servers.HOST and json.loads(text)


@pytest.mark.flags("--requirepass", "secret")
def test_strangers_are_not_counted(server):
    with redis.Redis(port=server.resp_port, password="secret", protocol=2) as client:
        client.set("known", "x" * 100)
        client.execute_command("HOTKEYS", "START", "METRICS", "2", "CPU", "NET")
        with wires.RespWire(server.resp_port) as stranger:
            for _ in range(50):
                assert stranger.ask("GET", "secretly").startswith(b"-NOAUTH")
        for _ in range(50):
            client.get("known")
        found = str(client.execute_command("HOTKEYS GET"))
        assert "known" in found and "secretly" not in found


@pytest.mark.flags("--requirepass", "secret")
def test_what_a_user_may_not_do_is_not_counted(server):
    with redis.Redis(port=server.resp_port, password="secret", protocol=2) as client:
        client.execute_command("ACL", "SETUSER", "few", "on", ">pw", "~known", "+get")
        client.set("known", "x" * 100)
        client.execute_command("HOTKEYS", "START", "METRICS", "1", "NET")
        with redis.Redis(port=server.resp_port, username="few", password="pw", protocol=2) as few:
            for _ in range(50):
                assert few.get("known")
                with pytest.raises(redis.exceptions.NoPermissionError):
                    few.get("hidden")
        found = str(client.execute_command("HOTKEYS GET"))
        assert "known" in found and "hidden" not in found


def test_a_session_is_no_use_of_what_it_measures(client, text_wire):
    client.set("k", "v1")
    client.execute_command("HOTKEYS", "START", "METRICS", "1", "NET")
    client.set("k", "v2")
    client.set("k", "v3")
    client.execute_command("HOTKEYS", "STOP")
    assert text_wire.ask(b"mg k u h\r\n") == b"HD h0\r\n"


@pytest.mark.flags("--max-item-size", "1KiB")
def test_bytes_of_refused_values_are_no_keys(client, text_wire):
    body = b"get alice-123\r\n" * 20_000
    for _ in range(10):
        reply = text_wire.ask(b"set k 0 0 %d\r\n" % len(body) + body + b"\r\n")
        assert reply.startswith(b"SERVER_ERROR object too large")
        time.sleep(0.02)
    assert "alice" not in str(client.execute_command("HOTKEYS GET"))

"""Starts with the data of an earlier server, in a data directory or a warm file, and what refuses them."""

import re
import subprocess

import pytest
import redis

import servers

pytestmark = pytest.mark.dovetail_only


def refused(*flags, threads="1"):
    result = subprocess.run(
        [servers.binary(), "serve", "--resp", "0", "--memcached", "off", "--admin", "off",
         "--threads", threads, *flags],
        capture_output=True, text=True, timeout=30, env=servers.clean_environment(), cwd="/tmp",
    )
    assert result.returncode == 1, result
    lines = [line for line in result.stderr.splitlines() if line.startswith("dovetail: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.mark.parametrize("way", ["--data-dir", "--warm-file"])
@pytest.mark.parametrize("kind,count,length", [("hash", 5000, 20_000), ("tree", 600_000, 100)])
def test_too_little_memory_names_the_one_that_would_do(tmp_path, way, kind, count, length):
    flags = ("--mode", "store", "--index", kind, way, str(tmp_path / "kept"))
    server = servers.start(*flags, memory="160MiB", threads="1")
    pipe = redis.Redis(port=server.resp_port).pipeline(transaction=False)
    for number in range(count):
        pipe.set(f"key:{number}", b"v" * length)
        if number % 1000 == 999:
            pipe.execute()
    assert server.stop() == 0
    said = refused(*flags, "--memory", "64MiB")
    named = re.search(r"does not fit into --memory 64MiB: give --memory (\d+MiB)", said)
    assert named, said
    server = servers.start(*flags, memory=named.group(1), threads="1")
    client = redis.Redis(port=server.resp_port)
    assert client.dbsize() == count and client.strlen("key:7") == length
    assert server.stop() == 0


def test_a_full_store_takes_deletes_when_it_starts_with_more_threads(tmp_path):
    flags = ("--mode", "store", "--data-dir", str(tmp_path))
    server = servers.start(*flags, memory="64MiB", threads="1")
    client, count, is_full = redis.Redis(port=server.resp_port), 0, False
    while not is_full:
        pipe = client.pipeline(transaction=False)
        for number in range(count, count + 1000):
            pipe.set(f"key:{number}", b"v" * 1000)
        replies = pipe.execute(raise_on_error=False)
        is_full = not all(reply is True for reply in replies)
        count += 1000
    assert server.stop() == 0
    said = refused(*flags, "--memory", "64MiB", threads="6")
    named = re.search(r"does not fit into --memory 64MiB: give --memory (\d+MiB)", said)
    assert named, said
    server = servers.start(*flags, memory=named.group(1), threads="6")
    clients = [redis.Redis(port=server.resp_port) for _ in range(24)]
    assert [client.delete(f"key:{at}") for at, client in enumerate(clients)] == [1] * 24
    assert server.stop() == 0


def fill(flags, value):
    """Fills a store until it refuses, and kills it; returns the keys."""
    server = servers.start(*flags, "--index", "tree", memory="64MiB", threads="1")
    client, keys = redis.Redis(port=server.resp_port), []
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        while True:
            client.set(f"key:{len(keys)}", value)
            keys.append(f"key:{len(keys)}")
    server.process.kill()
    server.process.wait(20)
    return keys


def delete_all(keys, flags, memory):
    server = servers.start(*flags, "--index", "hash", memory=memory, threads="2")
    client = redis.Redis(port=server.resp_port)
    assert [client.delete(key) for key in keys] == [1] * len(keys)
    assert server.stop() == 0


def test_a_full_store_that_could_never_delete_is_refused(tmp_path):
    """Another index and one thread more leave the deletes of this one no segment, and values that
    are longer than a segment leave none with room."""
    flags = ("--mode", "store", "--data-dir", str(tmp_path))
    keys = fill(flags, b"v" * 1_000_000)
    said = refused(*flags, "--memory", "64MiB", "--index", "hash", threads="2")
    named = re.search(r"does not fit into --memory 64MiB: give --memory (\d+)MiB, or", said)
    assert named and int(named.group(1)) > 64, said
    delete_all(keys, flags, f"{named.group(1)}MiB")


def test_deletes_in_a_full_store_have_the_room_that_an_earlier_life_left(tmp_path):
    flags = ("--mode", "store", "--data-dir", str(tmp_path))
    delete_all(fill(flags, b"v" * 200_000), flags, "64MiB")


def check(path):
    return subprocess.run(
        [servers.binary(), "check", str(path)], capture_output=True, text=True, timeout=30,
        env=servers.clean_environment(),
    )


def in_use(path, *flags):
    server = servers.start("--mode", "store", "--data-dir", str(path), *flags)
    redis.Redis(port=server.resp_port).set("a", 1)
    assert server.stop() == 0


@pytest.mark.parametrize("way", ["cut", "zeros", "gone"])
def test_a_log_that_is_lost_is_not_taken_for_a_new_one(tmp_path, way):
    in_use(tmp_path)
    log = tmp_path / "log"
    kept = log.read_bytes()
    if way == "gone":
        log.unlink()
    else:
        log.write_bytes(b"" if way == "cut" else bytes(100_000))
    for flags in ((), ("--recover-damaged",)):
        said = refused("--memory", "64MiB", "--mode", "store", "--data-dir", str(tmp_path), *flags)
        assert "the directory was in use" in said and "put its log back" in said
    assert log.exists() == (way != "gone"), "nothing was changed"
    checked = check(tmp_path)
    assert checked.returncode == 1 and "the directory was in use" in checked.stderr
    log.write_bytes(kept)
    server = servers.start("--mode", "store", "--data-dir", str(tmp_path))
    assert redis.Redis(port=server.resp_port).get("a") == b"1"
    assert server.stop() == 0


def test_a_checkpoint_says_that_the_directory_was_in_use(tmp_path):
    in_use(tmp_path, "--checkpoint", "1h")
    (tmp_path / "LOCK").write_bytes(b"")
    (tmp_path / "log").write_bytes(b"")
    said = refused("--memory", "64MiB", "--mode", "store", "--data-dir", str(tmp_path))
    assert "the directory was in use" in said


def test_an_empty_log_in_a_directory_that_was_never_used_is_told(tmp_path):
    (tmp_path / "LOCK").write_bytes(b"")
    (tmp_path / "log").write_bytes(b"")
    checked = check(tmp_path)
    assert checked.returncode == 1 and "its log is empty" in checked.stderr
    server = servers.start("--mode", "store", "--data-dir", str(tmp_path))
    assert any("its log is empty" in line and "begins anew" in line for line in server.log)
    redis.Redis(port=server.resp_port).set("a", 1)
    assert server.stop() == 0
    assert check(tmp_path).returncode == 0


@pytest.mark.parametrize("key", ["data-dir", "warm-file", "tls-cert", "cluster"])
def test_an_empty_path_is_no_path_that_was_left_out(tmp_path, key):
    toml = tmp_path / "d.toml"
    toml.write_text(f'{key} = ""\n')
    variable = "DOVETAIL_" + key.upper().replace("-", "_")
    for flags, environment in (
        ((f"--{key}", ""), {}), ((), {variable: ""}), (("--config", str(toml)), {}),
    ):
        result = subprocess.run(
            [servers.binary(), "serve", "--resp", "0", "--mode", "store", *flags],
            capture_output=True, text=True, timeout=30,
            env={**servers.clean_environment(), **environment},
        )
        assert result.returncode == 2 and result.stderr.count("\n") == 1, result
        assert "it is empty: write" in result.stderr

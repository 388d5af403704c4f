"""`dovetail backup`: copies of a data directory while its server is written to."""

import subprocess
import threading
import tomllib

import pytest
import redis

import servers

pytestmark = [pytest.mark.dovetail_only, pytest.mark.index("hash")]


def dovetail(*words, status=0):
    done = subprocess.run([servers.binary(), *words], capture_output=True, text=True,
                          env=servers.clean_environment(), timeout=120)
    assert done.returncode == status, done
    return done.stdout + done.stderr


def start(path, memory="64MiB"):
    return servers.start("--mode", "store", "--data-dir", str(path), memory=memory)


class Writers:
    """Threads that count keys up; what was acknowledged last is in `counts`."""

    def __init__(self, server, count, value_bytes):
        self.counts = [0] * count
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(server, n, value_bytes)) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def _write(self, server, n, value_bytes):
        filler = "x" * value_bytes
        with redis.Redis(port=server.resp_port, protocol=2) as client:
            while not self._is_over.is_set():
                number = self.counts[n] + 1
                # Twenty keys of each writer, written over again and again: the log is cleaned.
                with client.pipeline(transaction=False) as pipe:
                    for key in range(20):
                        pipe.set(f"{n}:{key}", f"{number}:{filler}")
                    pipe.delete(f"{n}:gone:{number - 1}")
                    pipe.set(f"{n}:gone:{number}", number)
                    pipe.execute()
                self.counts[n] = number

    def stop(self):
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def test_a_copy_into_the_data_directory_is_refused(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for inside in (data, data / "copy", data / "a" / "b"):
        said = dovetail("backup", "--data-dir", str(data), "--to", str(inside), status=2)
        assert "it lies in the data directory; name one outside of" in said
    assert list(data.iterdir()) == []


@pytest.mark.parametrize("value_bytes", [20, 60_000])
def test_a_copy_under_load_has_what_was_acknowledged_before(tmp_path, value_bytes):
    server = start(tmp_path / "data")
    writers = None
    try:
        with redis.Redis(port=server.resp_port, protocol=2) as client:
            client.set("first", "value", ex=3600)
        writers = Writers(server, 4, value_bytes)
        copies = []
        for n in range(4):
            before = list(writers.counts)
            said = dovetail("backup", "--data-dir", str(tmp_path / "data"), "--to", str(tmp_path / f"copy-{n}"))
            assert "whole by its check" in said
            copies.append((before, list(writers.counts)))
        writers.stop()
    finally:
        if writers:
            writers.stop()
        server.stop()
    for n, (before, after) in enumerate(copies):
        assert "damaged          0" in dovetail("check", str(tmp_path / f"copy-{n}"))
        copy = start(tmp_path / f"copy-{n}")
        try:
            with redis.Redis(port=copy.resp_port, protocol=2, decode_responses=True) as client:
                assert client.get("first") == "value" and 3000 < client.ttl("first") <= 3600
                for writer, (low, high) in enumerate(zip(before, after)):
                    for key in range(20):
                        found = client.get(f"{writer}:{key}")
                        number = int(found.split(":")[0]) if found else 0
                        # One more may be under way when the copy has been made.
                        assert low <= number <= high + 1, (writer, key, low, number, high)
                    # What was deleted before stays deleted.
                    assert client.exists(*[f"{writer}:gone:{n}" for n in range(max(0, low - 5), low)] or ["-"]) == 0
        finally:
            copy.stop()


def test_where_a_copy_may_lie(tmp_path):
    server = start(tmp_path / "data")
    try:
        dovetail("backup", "--data-dir", str(tmp_path / "data"), "--to", str(tmp_path / "copy"))
        said = dovetail("backup", "--data-dir", str(tmp_path / "data"), "--to", str(tmp_path / "copy"), status=1)
        assert "has a log already; give an empty directory" in said
        # Another server has its own locked.
        other = start(tmp_path / "other")
        try:
            said = dovetail("backup", "--data-dir", str(tmp_path / "data"), "--to", str(tmp_path / "other"), status=1)
            assert "another server has it" in said
        finally:
            other.stop()
    finally:
        server.stop()
    said = dovetail("backup", "--data-dir", str(tmp_path / "none"), "--to", str(tmp_path / "copy-2"), status=1)
    assert "log: No such file" in said
    # A directory that no server has is copied too.
    dovetail("backup", "--data-dir", str(tmp_path / "data"), "--to", str(tmp_path / "copy-3"))


@pytest.mark.parametrize("shell,mark", [("bash", "_dovetail()"), ("zsh", "#compdef dovetail"), ("fish", "complete -c dovetail")])
def test_completions_know_the_commands(tmp_path, shell, mark):
    text = dovetail("completions", shell)
    assert mark in text
    for word in ("migrate", "backup", "data-dir"):
        assert word in text
    if shell == "bash":
        script = tmp_path / "dovetail"
        script.write_text(text)
        subprocess.run(["bash", "-n", str(script)], check=True)


def test_man_pages_of_every_command(tmp_path):
    dovetail("man", str(tmp_path / "man"))
    names = {path.name for path in (tmp_path / "man").iterdir()}
    assert {"dovetail.1", "dovetail-serve.1", "dovetail-migrate.1", "dovetail-backup.1"} <= names
    assert ".SH" in (tmp_path / "man" / "dovetail-serve.1").read_text()


def test_the_package_names_files_that_are_there():
    root = servers.repository()
    manifest = tomllib.loads((root / "crates/dovetail/Cargo.toml").read_text())
    package = manifest["package"]["metadata"]["deb"]
    script = (root / "contrib/deb/build.sh").read_text()
    for source, _, _ in package["assets"]:
        if "target/" in source:
            # Made by the script.
            assert source.replace("../../", "").replace("/*.1", "").removeprefix("target/release/") in script, source
        else:
            assert (root / "crates/dovetail" / source).is_file(), source
    units = root / "crates/dovetail" / package["systemd-units"]["unit-scripts"]
    assert (units / f"{package['systemd-units']['unit-name']}.service").is_file()
    subprocess.run(["bash", "-n", str(root / "contrib/deb/build.sh")], check=True)


def test_a_server_does_not_start_on_an_interrupted_backup(tmp_path):
    path = tmp_path / "copy"
    path.mkdir()
    (path / "log.new").write_bytes(b"half of one")
    said = dovetail("serve", "--resp", "0", "--memcached", "off", "--native", "off", "--admin", "off", "--memory",
                    "64MiB", "--mode", "store", "--data-dir", str(path), status=1)
    assert "log.new is a backup that was interrupted" in said

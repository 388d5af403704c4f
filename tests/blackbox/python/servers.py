"""Starts and stops the servers under test: Dovetail, and the reference servers beside it."""

import contextlib
import json
import os
import pathlib
import queue
import random
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

HOST = "127.0.0.1"
INDEXES = ("hash", "tree")
# What a test runs with that does not say: the second index answers the same, so that one suffices
# where keys have no order; BLACKBOX_INDEXES=all runs everything with both.
DEFAULT_INDEXES = INDEXES if os.environ.get("BLACKBOX_INDEXES") == "all" else INDEXES[:1]
START_SECONDS = 20
STOP_SECONDS = 20


def repository():
    return pathlib.Path(__file__).resolve().parents[3]


def binary():
    """The binary under test: DOVETAIL_BIN, or what a build of this checkout left behind."""
    named = os.environ.get("DOVETAIL_BIN")
    if named:
        return named
    for profile in ("release", "debug"):
        path = repository() / "target" / profile / "dovetail"
        if path.exists():
            return str(path)
    raise FileNotFoundError("set DOVETAIL_BIN, or run `cargo build --release`")


def clean_environment():
    """The caller's environment without settings that would reach the server."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("DOVETAIL_")}
    return {**kept, "NO_COLOR": "1"}


def with_wanted(command):
    """The command with the flags of BLACKBOX_SERVE in the place of its own: so the whole suite holds
    the server to the same answers however it divides its work."""
    wanted = shlex.split(os.environ.get("BLACKBOX_SERVE", ""))
    for name, value in zip(wanted[::2], wanted[1::2], strict=True):
        if name in command:
            place = command.index(name)
            del command[place:place + 2]
        command += [name, value]
    return command


class Dovetail:
    """One running server; its ports are free ones that it chose itself."""

    def __init__(self, *flags, memory="128MiB", threads="1", native="off"):
        command = [
            binary(), "serve", "--resp", f"{HOST}:0", "--memcached", f"{HOST}:0",
            "--native", native, "--admin", f"{HOST}:0", "--memory", memory, "--threads", threads,
            "--log-format", "json", *flags,
        ]
        self.process = subprocess.Popen(
            with_wanted(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=clean_environment(), cwd=tempfile.gettempdir(), text=True,
        )
        self.log = []
        self._lines = queue.Queue()
        threading.Thread(target=self._read_log, daemon=True).start()
        try:
            ready = self._wait_ready()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        self.resp_port = port_of(ready["resp"])
        self.memcached_port = port_of(ready["memcached"])
        self.native_port = port_of(ready["native"])
        self.admin_port = port_of(ready["admin"])

    @property
    def pid(self):
        return self.process.pid

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)
            self._lines.put(line)
        self._lines.put(None)

    def _wait_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                line = self._lines.get(timeout=max(0.1, deadline - time.monotonic()))
            except queue.Empty:
                raise RuntimeError("the server is not ready:\n" + "".join(self.log)) from None
            if line is None:
                raise RuntimeError("the server ended at start:\n" + "".join(self.log))
            with contextlib.suppress(ValueError):
                fields = json.loads(line)
                if fields.get("msg") == "ready":
                    return fields

    def admin(self, path):
        """Status and body of a GET on the admin port."""
        url = f"http://{HOST}:{self.admin_port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def is_running(self):
        return self.process.poll() is None

    def stop(self, signal_number=15):
        """Sends the signal; returns the exit status."""
        if self.is_running():
            self.process.send_signal(signal_number)
        try:
            return self.process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def port_of(address):
    return None if address == "off" else int(address.rsplit(":", 1)[1])


class Reference:
    """Debian's redis-server and memcached, with the face of `Dovetail`."""

    def __init__(self, *_flags, **_settings):
        self._directory = tempfile.mkdtemp(prefix="reference-")
        self._processes = []
        self.resp_port = free_port()
        self.memcached_port = free_port()
        redis = [
            "redis-server", "--port", str(self.resp_port), "--bind", HOST, "--save", "",
            "--appendonly", "no", "--dir", self._directory, "--proto-max-bulk-len", "512mb",
        ]
        memcached = [
            "memcached", "-l", HOST, "-p", str(self.memcached_port), "-m", "256", "-I", "32m",
            # What moves items in the background holds them for a moment, and a number that is held
            # is counted in a copy: whether a shortened one is padded would be a matter of luck.
            "-u", "root", "-o", "no_lru_maintainer",
        ]
        for command in (redis, memcached):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            self._processes.append(subprocess.Popen(command, **quiet))
        for port in (self.resp_port, self.memcached_port):
            wait_port(port)
        self.pid = self._processes[0].pid

    def is_running(self):
        return all(process.poll() is None for process in self._processes)

    def stop(self, signal_number=15):
        for process in self._processes:
            process.send_signal(signal_number)
            process.wait(timeout=STOP_SECONDS)
        shutil.rmtree(self._directory, ignore_errors=True)
        return 0


def has_reference():
    return all(shutil.which(name) for name in ("redis-server", "memcached"))


def free_port():
    """A port below those that the kernel gives to connections: none takes it until it is used."""
    while True:
        port = random.randrange(15000, 30000)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
                return port
            except OSError:
                continue


def wait_port(port):
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def is_reference_run():
    """DOVETAIL_REFERENCE=1 runs the command tests against the reference servers instead: a test
    that fails there asks for something that Redis or memcached does not do."""
    return os.environ.get("DOVETAIL_REFERENCE") == "1"


def start(*flags, **settings):
    kind = Reference if is_reference_run() else Dovetail
    return kind(*flags, **settings)


def resident_bytes(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            if line.startswith("Rss:"):
                return int(line.split()[1]) * 1024
    raise ValueError("smaps_rollup has no Rss line")


def cpu_seconds(pid):
    """Run time of all threads, in user space and in the kernel."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9

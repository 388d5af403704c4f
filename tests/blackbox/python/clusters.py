"""A cluster of three servers and a manager, whose config store is a folder."""

import json
import subprocess
import tempfile
import time

import servers

WHOLE_SECONDS = 60


class Cluster:
    """Three running servers; each may be killed and started again."""

    def __init__(self, *flags, nodes=3, copies=3, lease="1s", native="off"):
        self._copies = copies
        self._native = native
        self._folder = tempfile.TemporaryDirectory(prefix="cluster-")
        self._config_store = f"file://{self._folder.name}"
        self._flags = flags
        command = [
            servers.binary(), "cm", "--config-store", self._config_store, "--shards", "16", "--rebalance", "off",
            "--listen", f"{servers.HOST}:{servers.free_port()}", "--lease", lease, "--session", "3s",
            "--copies", str(copies), "--min-copies", str(min(copies, 2)), "--first-nodes", str(nodes),
        ]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._manager = subprocess.Popen(command, env=servers.clean_environment(), **quiet)
        self.peers = [servers.free_port() for _ in range(nodes)]
        self.nodes = [None] * nodes
        try:
            for index in range(nodes):
                self.start(index)
            self.wait_whole()
        except BaseException:
            self.stop()
            raise

    def start(self, index):
        self.nodes[index] = servers.Dovetail(
            "--cluster", self._config_store, "--peer", f"{servers.HOST}:{self.peers[index]}", *self._flags,
            native=self._native,
        )

    def kill(self, index):
        self.nodes[index].process.kill()
        self.nodes[index].process.wait()

    @property
    def resp_ports(self):
        return [node.resp_port for node in self.nodes]

    def move(self, shard, node_name):
        """Asks for a shard's primary to be at a node; whether the manager took that up."""
        command = [
            servers.binary(), "cluster", "move", str(shard), node_name, "--config-store", self._config_store,
        ]
        return subprocess.run(command, capture_output=True, timeout=30).returncode == 0

    def status(self):
        command = [servers.binary(), "cluster", "status", "--json", "--config-store", self._config_store]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30)
        return json.loads(answer.stdout)["status"] if answer.returncode == 0 else None

    def wait_whole(self):
        """Until every shard has as many copies as it is to have."""
        deadline = time.monotonic() + WHOLE_SECONDS
        while True:
            status = self.status()
            if status and status["is_committed"] and len(status["nodes"]) == len(self.nodes):
                if all(shard["full_copies"] == self._copies and not shard["joining"] for shard in status["shards"]):
                    return
            assert time.monotonic() < deadline, f"not whole: {status}"
            time.sleep(0.05)

    def stop(self):
        """Exit statuses of what was still running."""
        running = [node for node in self.nodes if node and node.is_running()]
        statuses = [node.stop() for node in running]
        self._manager.terminate()
        self._manager.wait(timeout=servers.STOP_SECONDS)
        self._folder.cleanup()
        return statuses

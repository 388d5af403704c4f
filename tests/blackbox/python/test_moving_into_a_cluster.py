"""`dovetail migrate` into a cluster: each key to the node that has its slot, also after a failover."""

import os
import signal
import subprocess
import time

import pytest
import redis
from redis.cluster import ClusterNode, RedisCluster

import clusters
import servers

pytestmark = [
    pytest.mark.dovetail_only,
    pytest.mark.index("hash"),
    pytest.mark.skipif(not servers.has_reference(), reason="redis-server is not installed"),
]

KEYS = {f"key:{number}": f"value {number}" for number in range(3000)}


@pytest.fixture
def old():
    source = servers.Reference()
    with redis.Redis(host=servers.HOST, port=source.resp_port, protocol=2) as found:
        found.mset(KEYS)
        found.set("short", "x", ex=1000)
        found.url = f"redis://{servers.HOST}:{source.resp_port}"
        yield found
    source.stop()


@pytest.fixture
def cluster():
    running = clusters.Cluster()
    yield running
    running.stop()


def start(old, cluster, *flags):
    target = f"redis://{servers.HOST}:{cluster.resp_ports[0]}"
    command = [servers.binary(), "migrate", "--from", old.url, "--to", target, *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=servers.clean_environment(), **pipes)


def check_whole(cluster, index):
    node = ClusterNode(servers.HOST, cluster.resp_ports[index])
    with RedisCluster(startup_nodes=[node]) as client:
        for key, value in KEYS.items():
            assert client.get(key) == value.encode(), key
        assert 900 < client.ttl("short") <= 1000


def test_each_key_finds_its_node(old, cluster):
    copying = start(old, cluster)
    said, errors = copying.communicate(timeout=120)
    assert copying.returncode == 0, errors
    assert "3001" in said.replace(",", ""), said
    check_whole(cluster, 1)
    # Once more: what is there stays.
    again = start(old, cluster)
    said, errors = again.communicate(timeout=120)
    assert again.returncode == 0 and "3001" in said.replace(",", ""), said + errors


@pytest.mark.parametrize("dead", [0, 1])
def test_a_node_that_dies_meanwhile(old, cluster, dead):
    """Also the one that was named: others are known by then."""
    copying = start(old, cluster, "--rate", "1000")
    time.sleep(1)
    os.kill(cluster.nodes[dead].process.pid, signal.SIGKILL)
    cluster.nodes[dead].process.wait()
    said, errors = copying.communicate(timeout=120)
    assert copying.returncode == 0, said + errors
    check_whole(cluster, 2)

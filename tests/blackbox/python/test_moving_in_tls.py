"""`dovetail migrate` by TLS: rediss:// of the real redis-server, and our own ports of both protocols."""

import re
import subprocess

import pytest
import redis
from pymemcache.client.base import Client as MemcachedClient

import servers
from certificates import Certificates

pytestmark = [pytest.mark.dovetail_only, pytest.mark.index("hash")]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def encrypted(certificates):
    """One of ours, by TLS; certificates are asked for."""
    running = servers.Dovetail(*certificates.flags(), "--tls-ca", certificates.ca)
    line = next(line for line in running.log if '"ready"' in line)
    running.tls_resp = int(re.search(r'"tls_resp":"[^"]*:(\d+)"', line)[1])
    running.tls_memcached = int(re.search(r'"tls_memcached":"[^"]*:(\d+)"', line)[1])
    yield running
    assert running.stop() == 0


@pytest.fixture
def redis_by_tls(certificates, tmp_path):
    if not servers.has_reference():
        pytest.skip("redis-server is not installed")
    port, clear = servers.free_port(), servers.free_port()
    command = [
        "redis-server", "--port", str(clear), "--tls-port", str(port), "--bind", servers.HOST, "--save", "",
        "--dir", str(tmp_path), "--tls-cert-file", certificates.path("server.crt"),
        "--tls-key-file", certificates.path("server.key"), "--tls-ca-cert-file", certificates.ca,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    servers.wait_port(port)
    servers.wait_port(clear)
    yield port, clear
    process.terminate()
    process.wait(timeout=20)


def migrate(origin, target, *flags, status=0):
    command = [servers.binary(), "migrate", "--from", origin, "--to", target, *flags]
    done = subprocess.run(command, capture_output=True, text=True, env=servers.clean_environment(), timeout=120)
    assert done.returncode == status, done
    return done.stdout + done.stderr


def shown(certificates):
    return ["--tls-ca", certificates.ca, "--tls-cert", certificates.path("client.crt"),
            "--tls-key", certificates.path("client.key")]


def test_redis_by_tls_on_both_sides(redis_by_tls, encrypted, certificates):
    port, clear = redis_by_tls
    with redis.Redis(port=clear) as old:
        old.mset({f"key:{number}": "v" * number for number in range(3000)})
        old.set("large", b"x" * (3 << 20), ex=1000)
    origin, target = f"rediss://localhost:{port}", f"rediss://{servers.HOST}:{encrypted.tls_resp}"
    migrate(origin, target, *shown(certificates))
    with redis.Redis(port=encrypted.resp_port, protocol=2) as new:
        assert new.dbsize() == 3001
        assert new.get("key:2999") == b"v" * 2999
        assert new.strlen("large") == 3 << 20 and 990 < new.ttl("large") <= 1000


def test_memcached_by_tls(encrypted, certificates, server, cache):
    old = MemcachedClient((servers.HOST, encrypted.memcached_port))
    for number in range(500):
        old.set(f"key:{number}", f"value {number}", flags=number, noreply=False)
    old.close()
    origin = f"memcacheds://{servers.HOST}:{encrypted.tls_memcached}"
    migrate(origin, f"memcached://{servers.HOST}:{server.memcached_port}", *shown(certificates))
    assert cache.get("key:499") == b"value 499"


def test_a_server_with_an_unknown_certificate_is_not_spoken_to(redis_by_tls, server, certificates, tmp_path):
    port, clear = redis_by_tls
    target = f"redis://{servers.HOST}:{server.resp_port}"
    by_tls = f"rediss://{servers.HOST}:{port}"
    # No client waits for what cannot become right.
    assert "UnknownIssuer; --tls-ca FILE" in migrate(by_tls, target, status=1)
    other = Certificates(tmp_path)
    assert "--tls-ca FILE" in migrate(by_tls, target, "--tls-ca", other.ca, status=1)
    no_file = str(tmp_path / "none")
    assert f"--tls-ca {no_file}: " in migrate(by_tls, target, "--tls-ca", no_file, status=1)
    said = migrate(by_tls, target, "--tls-ca", certificates.ca, status=1)
    assert "--tls-cert and --tls-key name what to show" in said
    said = migrate(f"rediss://{servers.HOST}:{clear}", target, *shown(certificates), status=1)
    assert "is this the port that speaks it?" in said


def test_usage(server, certificates):
    target = f"redis://{servers.HOST}:{server.resp_port}"
    said = migrate(f"redis://{servers.HOST}:1", target, "--tls-ca", certificates.ca, status=2)
    assert "for rediss:// and memcacheds://" in said
    said = migrate(f"rediss://{servers.HOST}:1", target, "--tls-cert", certificates.ca, status=2)
    assert "--tls-key" in said

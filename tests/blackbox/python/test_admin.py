"""The admin port: TLS, logins, keys, names of others, and clients that do not read."""

import base64
import json
import os
import socket
import ssl
import subprocess
import urllib.error
import urllib.request

import pytest
import redis

import servers
from certificates import Certificates

pytestmark = pytest.mark.dovetail_only


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


def get(port, path, login=None, host=None, context=None):
    """Status and body."""
    request = urllib.request.Request(f"{'https' if context else 'http'}://{servers.HOST}:{port}{path}")
    if login:
        request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    if host:
        request.add_header("Host", host)
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def make_hot(port, password=None):
    with redis.Redis(port=port, password=password) as client:
        pipeline = client.pipeline(transaction=False)
        for _ in range(20_000):
            pipeline.get("secret-name")
        pipeline.execute()


def test_keys_are_shown_after_a_login_only():
    server = servers.Dovetail("--requirepass", "pw", "--admin-show-keys", "on")
    try:
        with redis.Redis(port=server.resp_port, password="pw") as client:
            client.execute_command("ACL", "SETUSER", "prom", "on", ">pw", "+info")
            client.execute_command("ACL", "SETUSER", "get", "on", ">pw", "~*", "+get")
        make_hot(server.resp_port, "pw")
        shown = {}
        for login in (None, "prom:pw", "default:pw"):
            for path in ("/", "/stats", "/metrics"):
                status, text = get(server.admin_port, path, login)
                assert status == 200
                shown[login] = shown.get(login, False) or "secret-name" in text
        assert not shown[None] and not shown["prom:pw"]
        hot = json.loads(get(server.admin_port, "/stats", "default:pw")[1])["hot_set"]["keys"]
        assert shown["default:pw"] == bool(hot)
        assert get(server.admin_port, "/stats", "default:no")[0] == 401
        assert get(server.admin_port, "/stats", "get:pw")[0] == 403
    finally:
        server.stop()


def test_tls_top_and_the_health_check(certificates, tmp_path):
    flags = ["--admin-tls", "on", "--tls-cert", certificates.path("server.crt"), "--tls-key", certificates.path("server.key")]
    server = servers.Dovetail(*flags, "--requirepass", "pw")
    try:
        context = ssl.create_default_context(cafile=certificates.ca)
        assert get(server.admin_port, "/healthz", context=context) == (200, "ok\n")
        assert get(server.admin_port, "/stats", "default:pw", context=context)[0] == 200
        plain = socket.create_connection((servers.HOST, server.admin_port), timeout=10)
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not plain.recv(100).startswith(b"HTTP")
        address = f"{servers.HOST}:{server.admin_port}"
        environment = {**os.environ, "DOVETAIL_ADMIN_PASSWORD": "pw"}
        top = [servers.binary(), "top", "--once", "--admin", address]
        for trusted in (certificates.ca, certificates.path("server.crt")):
            seen = subprocess.run([*top, "--tls-ca", trusted], env=environment, capture_output=True, timeout=30)
            assert seen.returncode == 0, seen.stderr
        wrong = subprocess.run(top, capture_output=True, timeout=30)
        assert wrong.returncode != 0 and b"--tls-ca" in wrong.stderr
        ready = subprocess.run([servers.binary(), "doctor", "--quick", "--admin", address, *flags], capture_output=True,
                               timeout=30)
        assert (ready.returncode, ready.stdout) == (0, b"ready\n"), ready.stderr
    finally:
        server.stop()


def test_names_of_others_are_refused():
    server = servers.Dovetail("--admin-hosts", "cache.example")
    try:
        for host in ("localhost", "cache.example", f"{servers.HOST}:{server.admin_port}"):
            assert get(server.admin_port, "/healthz", host=host)[0] == 200
        for host in ("evil.example", "localhost.evil.example", "192.0.2.1"):
            status, text = get(server.admin_port, "/stats", host=host)
            assert status == 421 and "--admin-hosts" in text
    finally:
        server.stop()


def test_clients_that_do_not_read_keep_no_one_out():
    server = servers.Dovetail()
    flood = b"GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000
    readers = []
    try:
        for _ in range(200):
            reader = socket.create_connection((servers.HOST, server.admin_port), timeout=10)
            reader.setblocking(False)
            readers.append(reader)
            try:
                reader.send(flood)
            except BlockingIOError:
                pass
            if len(readers) % 20 == 0:
                assert get(server.admin_port, "/healthz") == (200, "ok\n")
                assert get(server.admin_port, "/readyz") == (200, "ready\n")
    finally:
        for reader in readers:
            reader.close()
        server.stop()

"""ACL users beside Debian's redis-server, byte for byte; and what only we have: the file's errors,
memcached's port under a restricted default user, connections that end with their user.
"""

import contextlib
import signal
import socket
import subprocess
import time

import pytest
import redis

import servers

pytestmark = pytest.mark.dovetail_only
both = pytest.mark.skipif(not servers.has_reference(), reason="redis-server is not installed")


class Client:
    """One raw RESP connection."""

    def __init__(self, port):
        self.socket = socket.create_connection((servers.HOST, port), timeout=10)
        self.file = self.socket.makefile("rb")

    def close(self):
        self.file.close()
        self.socket.close()

    def send(self, *words):
        raw = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(raw)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in raw]
        self.socket.sendall(b"".join(parts))

    def reply(self):
        line = self.file.readline()
        if not line:
            return b""
        kind, body = line[:1], line[1:-2]
        if kind == b"$" and int(body) >= 0:
            return line + self.file.read(int(body) + 2)
        if kind in b"*~%" and int(body) > 0:
            count = int(body) * (2 if kind == b"%" else 1)
            return line + b"".join(self.reply() for _ in range(count))
        return line

    def ask(self, *words):
        self.send(*words)
        return self.reply()


@contextlib.contextmanager
def client(port):
    opened = Client(port)
    try:
        yield opened
    finally:
        opened.close()


SETUP = [
    "ACL SETUSER u on >pw ~a* %R~r* %W~w* +@read +set +mset +copy +rename +config|get +acl|whoami"
    " +multi +exec +watch",
    "ACL SETUSER off off >pw +@all ~*",
    "ACL SETUSER nobody on nopass",
    "ACL SETUSER two on nopass +get ~a (+set ~b) (+@all %R~r*)",
    "ACL SETUSER first on nopass +select|0 ~*",
    "ACL SETUSER safe on nopass +@all -@dangerous ~* &*",
]

#: After a log-in as each of these users.
COMMANDS = [
    "GET a1", "GET b", "GET w1", "SET r1 x", "SET a1 x", "MSET a1 1 b 2", "DEL a1", "COPY r1 w2",
    "COPY w1 w2", "COPY r1 r2", "SET w1 x GET", "SET w1 x", "CONFIG SET slowlog-max-len 128", "CONFIG",
    "CONFIG nosuch", "nosuch a b", "GET", "DEL", "ACL WHOAMI", "ACL LIST", "CLIENT ID x", "MULTI",
    "GET b", "EXEC", "MULTI", "DEL a", "GET a1", "EXEC", "OBJECT ENCODING b", "OBJECT HELP x",
    "STRLEN w1", "EXISTS w1", "GETEX a1 EX 3", "WATCH b", "WATCH w1", "MEMORY USAGE b",
    "SET r1 x BAD", "SELECT 0", "SET b 1", "GET r1", "KEYS nosuch*", "RENAME a b",
    "EXPIRE r1 10 NX XX", "FLUSHALL", "PING", "ECHO hi", "INCR a5", "APPEND w3 x", "GETRANGE w3 0 1",
]


@pytest.fixture(scope="module")
def subject():
    running = servers.Dovetail()
    yield running
    running.stop()


def told(port, words):
    with client(port) as connection:
        return [(line, connection.ask(*line.split(" "))) for line in words]


@both
@pytest.mark.parametrize("user", ["u", "nobody", "two", "first", "safe"])
def test_what_users_may_do_is_what_redis_lets_them(reference, subject, user):
    lines = ["FLUSHALL", *SETUP, "ACL LOG RESET", f"AUTH {user} pw", *COMMANDS]
    if user == "first":
        lines.append("SELECT 1")
    want, got = told(reference.resp_port, lines), told(subject.resp_port, lines)
    for (line, expected), (_, found) in zip(want, got, strict=True):
        # The memory of an item is each server's own.
        if line not in ("ACL LIST", "MEMORY USAGE b"):
            assert found == expected, f"{user}: {line}"


LOG_LINES = ["AUTH u wrong", "AUTH u wrong", "AUTH off pw", "HELLO 3 AUTH u no", "AUTH u pw", "GET b", "DEL a",
             "MULTI", "GET b", "DISCARD", "COPY a1 b"]


def pairs(entry):
    """A map of RESP2."""
    if isinstance(entry, dict):
        return {key if isinstance(key, bytes) else key.encode(): value for key, value in entry.items()}
    return dict(zip(entry[::2], entry[1::2], strict=True))


@both
def test_the_log_of_refusals_is_that_of_redis(reference, subject):
    def entries(port):
        told(port, [*SETUP, "ACL LOG RESET"])
        told(port, LOG_LINES)
        with redis.Redis(port=port) as operator:
            found = operator.execute_command("ACL", "LOG", "20")
        # Redis keeps the spelling of the command that failed.
        keep = (b"count", b"reason", b"context", b"object", b"username")
        return [{key: entry[key] for key in keep} for entry in map(pairs, found)]

    assert entries(subject.resp_port) == entries(reference.resp_port)


RULES = [
    "on", "off", ">p", "<p", "<nop", "#12", "nopass", "resetpass", "~a", "~b*", "%R~r", "%W~r", "%RW~x", "%Z~a", "~a b",
    "allkeys", "resetkeys", "&ch", "&*", "allchannels", "resetchannels", "+@all", "-@all", "+@read", "-@dangerous", "+get",
    "+config|get", "+config|nosuch", "+config|get|x", "+nosuch", "+@foo", "+select|0", "-select", "foo", "(+get ~x)", "(+get",
    "~y)", "clearselectors", "reset", "", "skip-sanitize-payload", "sanitize-payload",
]


@both
def test_each_rule_is_answered_and_shown_as_by_redis(reference, subject):
    with client(reference.resp_port) as want, client(subject.resp_port) as got:
        for rule in RULES:
            for first in ([], ["allkeys"], ["+get"], ["&*", ">p"]):
                asked = ["ACL", "DELUSER", "rules"]
                assert got.ask(*asked) == want.ask(*asked)
                asked = ["ACL", "SETUSER", "rules", "reset", *first, rule]
                assert got.ask(*asked) == want.ask(*asked), asked
                if (rule[:1] == "-" and rule != "-@all") or (first == ["+get"] and rule[:1] == "+"):
                    continue  # Redis 7.0 shows fewer words, categories first: docs/compatibility.md.
                asked = ["ACL", "GETUSER", "rules"]
                assert got.ask(*asked) == want.ask(*asked), (first, rule)
        for asked in (["ACL", "SETUSER", "a b"], ["ACL", "SETUSER", "z", "(+get", "~a"], ["ACL", "DELUSER", "default"],
                      ["ACL", "DELUSER", "rules", "nosuch"], ["ACL", "GETUSER", "nosuch"], ["ACL", "SAVE"], ["ACL", "LOAD"],
                      ["ACL", "CAT"], ["ACL", "CAT", "nosuch"], ["ACL", "GENPASS", "0"], ["ACL", "NOSUCH"],
                      ["ACL", "LOG", "x"], ["ACL", "DRYRUN", "nosuch", "get", "a"], ["ACL", "DRYRUN", "u", "nosuch"],
                      ["ACL", "DRYRUN", "u", "get", "b"], ["ACL", "DRYRUN", "u", "del", "a"], ["ACL", "DRYRUN", "u", "get"],
                      ["ACL", "DRYRUN", "u", "get", "a"]):
            assert got.ask(*asked) == want.ask(*asked), asked


def test_lines_read_as_redis_writes_them(subject):
    with client(subject.resp_port) as connection:
        connection.ask("ACL", "SETUSER", "line", "reset", "on", ">p", "~a*", "%R~b", "&c", "+@read", "-get", "(+set ~d)")
        found = connection.ask("ACL", "LIST")
    digest = b"148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940"
    want = b"user line on sanitize-payload #" + digest + b" ~a* %R~b resetchannels &c -@all +@read -get (~d resetchannels -@all +set)"
    assert want in found


def test_a_change_holds_for_connections_that_are_open():
    server = servers.Dovetail(threads="2")
    try:
        with client(server.resp_port) as admin, client(server.resp_port) as guest, client(server.resp_port) as other:
            admin.ask("ACL", "SETUSER", "guest", "on", ">p", "~*", "+@all")
            for connection in (guest, other):
                assert connection.ask("AUTH", "guest", "p") == b"+OK\r\n"
                assert connection.ask("SET", "a", "1") == b"+OK\r\n"
            admin.ask("ACL", "SETUSER", "guest", "-set")
            for connection in (guest, other):
                assert connection.ask("SET", "a", "2").startswith(b"-NOPERM this user has no permissions to run the 'set'")
                assert connection.ask("GET", "a") == b"$1\r\n1\r\n"
            assert b"user=guest" in admin.ask("CLIENT", "LIST", "ID", *[str(i) for i in range(1, 20)])
            # Queued, and forbidden before EXEC.
            assert guest.ask("MULTI") == b"+OK\r\n"
            assert guest.ask("GET", "a") == b"+QUEUED\r\n"
            admin.ask("ACL", "SETUSER", "guest", "-get")
            assert guest.ask("EXEC") == (
                b"*1\r\n-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. "
                b"This command is no longer allowed for the following reason: no permission to execute the command or subcommand\r\n")
            assert admin.ask("ACL", "DELUSER", "guest") == b":1\r\n"
            assert guest.reply() == b"" and other.reply() == b"", "both are closed"
            # A password that comes later keeps out later clients.
            assert admin.ask("CONFIG", "SET", "requirepass", "secret") == b"+OK\r\n"
            assert admin.ask("PING") == b"+PONG\r\n"
            with client(server.resp_port) as late:
                assert late.ask("GET", "a") == b"-NOAUTH Authentication required.\r\n"
                assert late.ask("AUTH", "secret") == b"+OK\r\n"
                assert late.ask("ACL", "WHOAMI") == b"$7\r\ndefault\r\n"
        assert not any("secret" in line for line in server.log)
    finally:
        server.stop()


def test_a_file_of_users_is_read_saved_and_loaded(tmp_path):
    path = tmp_path / "users.acl"
    path.write_text("user default on >admin ~* &* +@all\nuser app on >app ~app:* +@all -@dangerous\n")
    server = servers.Dovetail("--acl-file", str(path))
    try:
        with redis.Redis(port=server.resp_port, username="default", password="admin") as admin, \
                redis.Redis(port=server.resp_port, username="app", password="app") as app:
            assert app.set("app:1", "x") and app.acl_whoami() == "app"
            with pytest.raises(redis.exceptions.NoPermissionError):
                app.set("other", "x")
            admin.acl_setuser("later", enabled=True, nopass=True, keys=["*"], commands=["+get"])
            assert admin.acl_save()
            lines = path.read_text().splitlines()
            assert [line.split()[1] for line in lines] == ["app", "default", "later"]
            path.write_text("user app on\nuser app on\n")
            with pytest.raises(redis.exceptions.ResponseError, match="Duplicate user 'app' found on line 2"):
                admin.acl_load()
            assert app.get("app:1") == b"x"
            path.write_text("\n".join(line for line in lines if " app " not in line) + "\n")
            assert admin.acl_load()
            with pytest.raises(redis.exceptions.ConnectionError):
                app.connection_pool.get_connection("PING").disconnect()
                redis.Redis(port=server.resp_port, username="app", password="app").ping()
        with socket.create_connection((servers.HOST, server.memcached_port), timeout=10) as guest:
            guest.sendall(b"get a\r\n")
            assert guest.recv(100) == b"CLIENT_ERROR unauthenticated\r\n"
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("reload", ["SIGHUP", "ACL LOAD"])
def test_a_password_of_config_set_outlives_a_file_that_is_read_again(tmp_path, reload):
    path = tmp_path / "users"
    path.write_text("user other on >pass ~* +@all\n")
    server = servers.start("--acl-file", str(path))
    with client(server.resp_port) as admin:
        assert admin.ask("CONFIG", "SET", "requirepass", "secret") == b"+OK\r\n"
        if reload == "SIGHUP":
            server.process.send_signal(signal.SIGHUP)
            while not any("read again" in line for line in server.log):
                time.sleep(0.01)
        else:
            assert admin.ask("ACL", "LOAD") == b"+OK\r\n"
        with client(server.resp_port) as stranger:
            assert stranger.ask("GET", "a").startswith(b"-NOAUTH")
            assert stranger.ask("AUTH", "secret") == b"+OK\r\n"
    assert server.stop() == 0


def test_a_file_that_is_wrong_does_not_start_a_server(tmp_path):
    path = tmp_path / "users.acl"
    path.write_text("user default on nopass ~* +@all\n\nuser app on +nosuch\n")
    command = [servers.binary(), "serve", "--acl-file", str(path), "--resp", "127.0.0.1:0", "--memcached", "off",
               "--admin", "off", "--memory", "128MiB"]
    ended = subprocess.run(command, capture_output=True, text=True, env=servers.clean_environment(), timeout=20)
    assert ended.returncode != 0
    want = f"--acl-file {path}: line 3: the rule '+nosuch': Unknown command or category name in ACL"
    assert want in ended.stderr, ended.stderr


def test_users_of_redis_conf_become_a_file_of_users(tmp_path):
    conf, users = tmp_path / "redis.conf", tmp_path / "users.acl"
    conf.write_text('maxclients 50\nuser default off\nuser "app" on >se#cret ~app:* +@read -keys\n')
    command = [servers.binary(), "config", "import", str(conf)]
    plain = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "line 2: user: users stand in a file of their own: say which by --acl-file PATH" in plain.stdout
    assert "se#cret" not in plain.stdout + plain.stderr
    assert 'mode = "store"' in plain.stdout, "no policy is noeviction"
    run = subprocess.run([*command, "--acl-file", str(users)], capture_output=True, text=True, check=True)
    assert f'acl-file = "{users}"' in run.stdout and "se#cret" not in run.stdout + run.stderr
    assert users.stat().st_mode & 0o777 == 0o600
    again = subprocess.run([*command, "--acl-file", str(users)], capture_output=True, text=True, check=False)
    assert again.returncode != 0 and "cannot be written" in again.stderr, "no file is overwritten"
    server = servers.Dovetail("--acl-file", str(users))
    with client(server.resp_port) as app:
        assert app.ask("GET", "app:1").startswith(b"-NOAUTH")
        assert app.ask("AUTH", "app", "se#cret") == b"+OK\r\n"
        assert app.ask("GET", "app:1") == b"$-1\r\n"
        assert app.ask("KEYS", "*").startswith(b"-NOPERM")
        assert app.ask("SET", "app:1", "x").startswith(b"-NOPERM")
    assert server.stop() == 0


def test_a_default_user_that_may_not_do_everything_closes_memcached():
    server = servers.Dovetail()
    try:
        with client(server.resp_port) as admin, \
                socket.create_connection((servers.HOST, server.memcached_port), timeout=10) as open_before:
            open_before.sendall(b"set a 0 0 1\r\nx\r\n")
            assert open_before.recv(100) == b"STORED\r\n"
            admin.ask("ACL", "SETUSER", "root", "on", ">r", "+@all", "~*")
            admin.ask("ACL", "SETUSER", "default", "-@all", "+get", "+acl")
            open_before.sendall(b"get a\r\n")
            assert open_before.recv(100) == b"CLIENT_ERROR unauthenticated\r\n"
            assert admin.ask("SET", "a", "y").startswith(b"-NOPERM")
            assert admin.ask("AUTH", "root", "r") == b"+OK\r\n"
            admin.ask("ACL", "SETUSER", "default", "+@all")
            open_before.sendall(b"get a\r\n")
            assert open_before.recv(100) == b"VALUE a 0 1\r\nx\r\nEND\r\n"
    finally:
        server.stop()


def test_no_key_and_no_value_is_in_the_log():
    marked = "MARKEDKEY7391"
    server = servers.Dovetail("-v", "-v", "--slowlog-log-slower-than", "0")
    try:
        with client(server.resp_port) as connection:
            connection.ask("ACL", "SETUSER", "guest", "on", ">" + marked, "~x", "+get")
            connection.ask("SET", marked, marked)
            for words in (["INCR", marked], ["GET", marked, marked], [marked, marked], ["SET", marked, marked, "BAD"],
                          ["EXPIRE", marked, "x"], ["EVAL", marked, "1", marked], ["AUTH", "guest", marked + "x"],
                          ["AUTH", marked, marked], ["CONFIG", "SET", marked, marked], ["CLIENT", "SETNAME", marked + " x"],
                          ["CONFIG", "SET", "requirepass", marked], ["AUTH", "guest", marked], ["GET", marked],
                          ["DEL", marked]):
                connection.ask(*words)
            connection.socket.sendall(b"*1\r\n$x" + marked.encode() + b"\r\n")
            assert connection.reply().startswith(b"-ERR Protocol error")
        with socket.create_connection((servers.HOST, server.memcached_port), timeout=10) as other:
            other.sendall(f"get {marked}\r\nset {marked} 0 0 x\r\n{marked}\r\n".encode())
            other.recv(1000)
        for path in ("/metrics", "/stats"):
            assert marked not in server.admin(path)[1]
    finally:
        server.stop()
    assert server.log, "there is a log"
    assert not [line for line in server.log if marked in line]

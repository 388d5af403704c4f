"""What a client library says before its first command, and what it asks about the server."""

import pytest
import redis

import wires


def test_inline_commands(wire):
    wire.send(b"PING\r\n")
    assert wire.reply() == b"+PONG\r\n"
    wire.send(b"SET  inline   'a b'\r\nGET inline\r\n\r\nECHO \"x\\n\"\n")
    assert wire.reply() == b"+OK\r\n"
    assert wire.reply() == b"$3\r\na b\r\n"
    assert wire.reply() == b"$2\r\nx\n\r\n"


def test_ping_and_echo(client, wire):
    assert client.ping() is True
    assert client.echo("hello") == b"hello"
    assert wire.ask("PING", "text") == b"$4\r\ntext\r\n"
    assert wire.ask("ECHO") == b"-ERR wrong number of arguments for 'echo' command\r\n"


def test_hello_switches_protocols(wire):
    assert wire.ask("HELLO", "3").startswith(b"%7\r\n$6\r\nserver\r\n")
    assert wire.ask("GET", "absent") == b"_\r\n"
    assert wire.ask("HELLO", "2").startswith(b"*14\r\n$6\r\nserver\r\n")
    assert wire.ask("GET", "absent") == b"$-1\r\n"
    assert wire.ask("HELLO", "4") == b"-NOPROTO unsupported protocol version\r\n"
    want = b"-ERR Protocol version is not an integer or out of range\r\n"
    assert wire.ask("HELLO", "x") == want
    assert wire.ask("HELLO", "3", "BAD") == b"-ERR Syntax error in HELLO option 'BAD'\r\n"


def test_the_third_protocol_through_redis_py(server):
    with redis.Redis(port=server.resp_port, protocol=3, decode_responses=True) as client:
        client.set("a", "v", ex=100)
        assert client.get("a") == "v" and client.get("absent") is None
        assert client.mget("a", "absent") == ["v", None]
        assert client.incrbyfloat("f", 1.5) == 1.5
        assert "a" in set(client.scan_iter())
        with client.pipeline() as pipe:
            assert pipe.set("b", 1).incr("b").execute() == [True, 2]


@pytest.mark.flags("--requirepass", "secret")
@pytest.mark.dovetail_only
def test_a_password_is_asked_for(server):
    with wires.RespWire(server.resp_port) as wire:
        assert wire.ask("GET", "a") == b"-NOAUTH Authentication required.\r\n"
        assert wire.ask("HELLO", "3").startswith(b"-NOAUTH HELLO must be called with the client ")
        wrong = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
        assert wire.ask("AUTH", "bad") == wrong
        assert wire.ask("AUTH", "nobody", "secret") == wrong
        assert wire.ask("AUTH", "secret") == b"+OK\r\n"
        assert wire.ask("GET", "a") == b"$-1\r\n"
    for protocol in (2, 3):
        with redis.Redis(port=server.resp_port, password="secret", protocol=protocol) as client:
            assert client.ping() is True
        with redis.Redis(
            port=server.resp_port, username="default", password="secret", protocol=protocol
        ) as client:
            assert client.ping() is True
        with redis.Redis(port=server.resp_port, password="no", protocol=protocol) as client:
            with pytest.raises(redis.AuthenticationError):
                client.ping()


@pytest.mark.flags("--requirepass", "secret")
@pytest.mark.dovetail_only
def test_what_is_no_command_is_said_before_the_password_is_asked_for(server):
    with wires.RespWire(server.resp_port) as wire:
        assert wire.ask("GET") == b"-ERR wrong number of arguments for 'get' command\r\n"
        unknown = b"-ERR unknown command 'NOSUCH', with args beginning with: 'a' \r\n"
        assert wire.ask("NOSUCH", "a") == unknown
        assert wire.ask("CLIENT", "NOSUCH") == b"-ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP.\r\n"
        no_auth = b"NOAUTH Authentication required.\r\n"
        assert wire.ask("SET", "a", "b", "EX", "x") == b"-" + no_auth
        assert wire.ask("EXEC") == b"-EXECABORT Transaction discarded because of: " + no_auth
        assert wire.ask("AUTH", "secret") == b"+OK\r\n"
        assert wire.ask("MULTI") == b"+OK\r\n" and wire.ask("RESET") == b"+RESET\r\n"
        assert wire.ask("EXEC") == b"-EXECABORT Transaction discarded because of: " + no_auth


def test_others_are_listed_as_they_are(client, server):
    with wires.RespWire(server.resp_port) as other:
        other.ask("CLIENT", "SETNAME", "other")

        def listed():
            (found,) = [it for it in client.client_list() if it["name"] == "other"]
            return found["flags"], found["multi"], found["resp"]

        assert listed() == ("N", "-1", "2")
        other.ask("HELLO", "3")
        assert other.ask("MULTI") == b"+OK\r\n" and listed() == ("x", "0", "3")
        other.ask("GET", "a")
        assert listed() == ("x", "1", "3")
        other.ask("EXEC")
        assert listed() == ("N", "-1", "3")
        other.ask("MULTI")
        other.ask("DISCARD")
        other.ask("HELLO", "2")
        assert listed() == ("N", "-1", "2")
    own = client.client_info()
    assert own["cmd"] == "client|info"


def test_a_killed_client_is_gone_for_the_next_command(wire, server):
    for _ in range(20):
        with wires.RespWire(server.resp_port) as victim:
            number = victim.ask("CLIENT", "ID")[1:-2]
            kill = wires.encode("CLIENT", "KILL", "ID", number)
            wire.send(kill + kill + wires.encode("CLIENT", "LIST", "ID", number))
            assert [wire.reply() for _ in range(3)] == [b":1\r\n", b":0\r\n", b"$0\r\n\r\n"]


def test_a_password_where_none_is_set(wire):
    want = (
        b"-ERR AUTH <password> called without any password configured for the default user. "
        b"Are you sure your configuration is correct?\r\n"
    )
    assert wire.ask("AUTH", "secret") == want


def test_client_names_and_ids(client):
    assert client.client_getname() is None
    assert client.client_setname("tester") is True
    assert client.client_getname() == "tester"
    assert client.client_id() > 0
    info = client.client_info()
    assert info["name"] == "tester" and int(info["id"]) == client.client_id()
    assert any(entry["name"] == "tester" for entry in client.client_list())
    with pytest.raises(redis.ResponseError, match="cannot contain spaces"):
        client.client_setname("two words")
    assert client.execute_command("CLIENT", "NO-EVICT", "on") in (True, b"OK")


def test_commands_describe_themselves(client, wire):
    assert client.command_count() >= 50
    described = client.command()
    assert described["get"]["arity"] == 2 and described["set"]["arity"] == -3
    assert wire.ask("COMMAND", "INFO", "get", "nosuch").endswith(b"-1\r\n")
    assert client.command_getkeys("MSET", "a", "1", "b", "2") == ["a", "b"]


def test_select_reset_quit(server, wire):
    assert wire.ask("SELECT", "0") == b"+OK\r\n"
    assert wire.ask("MULTI") == b"+OK\r\n"
    assert wire.ask("RESET") == b"+RESET\r\n"
    assert wire.ask("PING") == b"+PONG\r\n"
    assert wire.ask("QUIT") == b"+OK\r\n"
    assert wire.read_to_end() == b""


def test_info_and_configuration(client):
    info = client.info()
    assert info["redis_version"].startswith("7.")
    assert info["connected_clients"] >= 1
    client.set("a", 1)
    client.set("b", 1, ex=100)
    keyspace = client.info("keyspace")["db0"]
    assert keyspace["keys"] == 2 and keyspace["expires"] == 1
    assert "maxmemory" in client.config_get("maxmemory*")
    assert set(client.config_get("maxmemory", "save")) >= {"maxmemory"}
    seconds, microseconds = client.time()
    assert seconds > 1_700_000_000 and 0 <= microseconds < 1_000_000


def test_connections_do_not_see_each_other_s_state(server):
    with redis.Redis(port=server.resp_port) as one, redis.Redis(port=server.resp_port) as two:
        one.client_setname("one")
        with one.pipeline() as pipe:
            pipe.set("shared", 1)
            assert two.get("shared") is None
            pipe.execute()
        assert two.get("shared") == b"1"
        assert two.client_getname() is None


def test_many_connections_at_once(server):
    clients = [wires.RespWire(server.resp_port) for _ in range(300)]
    for number, wire in enumerate(clients):
        wire.send(wires.encode("SET", f"c{number}", number) + wires.encode("GET", f"c{number}"))
    for number, wire in enumerate(clients):
        digits = str(number).encode()
        assert wire.reply() == b"+OK\r\n"
        assert wire.reply() == b"$%d\r\n%s\r\n" % (len(digits), digits)
        wire.close()


@pytest.mark.flags("--max-connections", "5")
@pytest.mark.dovetail_only
def test_a_connection_too_many_is_told_so(server):
    kept = [wires.RespWire(server.resp_port) for _ in range(5)]
    for wire in kept:
        assert wire.ask("PING") == b"+PONG\r\n"
    with wires.RespWire(server.resp_port) as wire:
        assert wire.read_to_end() == b"-ERR max number of clients reached\r\n"
    kept.pop().close()
    for wire in kept:
        assert wire.ask("PING") == b"+PONG\r\n"
        wire.close()


@pytest.mark.dovetail_only
def test_both_ports_serve_the_same_items(client, cache):
    """Writes are waited for: without a reply, the other connection may be served first."""
    client.set("from-resp", "value")
    assert cache.get("from-resp") == b"value"
    cache.set("from-memcached", b"other", expire=100, noreply=False)
    assert client.get("from-memcached") == b"other"
    assert 98 <= client.ttl("from-memcached") <= 100
    client.delete("from-memcached")
    assert cache.get("from-memcached") is None
    cache.set("n", b"5", noreply=False)
    assert client.incr("n") == 6 and cache.incr("n", 4) == 10

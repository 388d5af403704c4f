"""Pipelines, transactions and the order of replies."""

import threading

import pytest
import redis

import wires


@pytest.mark.parametrize("transaction", [True, False])
def test_a_pipeline_answers_in_order(client, transaction):
    with client.pipeline(transaction=transaction) as pipe:
        for number in range(500):
            pipe.set(f"k{number}", number)
            pipe.get(f"k{number}")
            pipe.incr("sum")
        replies = pipe.execute()
    assert replies[0::3] == [True] * 500
    assert replies[1::3] == [str(number).encode() for number in range(500)]
    assert replies[2::3] == list(range(1, 501))


@pytest.mark.parametrize("transaction", [True, False])
def test_an_error_in_a_pipeline_leaves_the_rest_alone(client, transaction):
    with client.pipeline(transaction=transaction) as pipe:
        pipe.set("a", "text").incr("a").set("b", 1)
        replies = pipe.execute(raise_on_error=False)
    assert replies[0] is True and replies[2] is True
    assert isinstance(replies[1], redis.ResponseError)
    assert client.get("b") == b"1"


def test_writes_are_seen_by_later_reads_of_the_pipeline(wire):
    words = []
    for number in range(200):
        words.append(wires.encode("SET", "same", number))
        words.append(wires.encode("GET", "same"))
    wire.send(b"".join(words))
    for number in range(200):
        digits = str(number).encode()
        assert wire.reply() == b"+OK\r\n"
        assert wire.reply() == b"$%d\r\n%s\r\n" % (len(digits), digits)


def test_transactions_queue_and_execute(wire):
    assert wire.ask("MULTI") == b"+OK\r\n"
    assert wire.ask("SET", "a", "1") == b"+QUEUED\r\n"
    assert wire.ask("INCR", "a") == b"+QUEUED\r\n"
    assert wire.ask("GET", "absent") == b"+QUEUED\r\n"
    assert wire.ask("EXEC") == b"*3\r\n+OK\r\n:2\r\n$-1\r\n"
    assert wire.ask("MULTI") == b"+OK\r\n"
    assert wire.ask("EXEC") == b"*0\r\n"
    assert wire.ask("MULTI") == b"+OK\r\n"
    assert wire.ask("SET", "a", "9") == b"+QUEUED\r\n"
    assert wire.ask("DISCARD") == b"+OK\r\n"
    assert wire.ask("GET", "a") == b"$1\r\n2\r\n"


def test_transaction_errors_have_the_words_of_redis(wire):
    assert wire.ask("EXEC") == b"-ERR EXEC without MULTI\r\n"
    assert wire.ask("DISCARD") == b"-ERR DISCARD without MULTI\r\n"
    assert wire.ask("MULTI") == b"+OK\r\n"
    assert wire.ask("MULTI") == b"-ERR MULTI calls can not be nested\r\n"
    assert wire.ask("WATCH", "a") == b"-ERR WATCH inside MULTI is not allowed\r\n"
    assert wire.ask("NOSUCH").startswith(b"-ERR unknown command 'NOSUCH'")
    want = b"-EXECABORT Transaction discarded because of previous errors.\r\n"
    assert wire.ask("EXEC") == want
    assert wire.ask("MULTI") == b"+OK\r\n"
    assert wire.ask("GET").startswith(b"-ERR wrong number of arguments for 'get' command")
    assert wire.ask("EXEC") == want


def test_a_watched_key_that_changes_cancels(server):
    with redis.Redis(port=server.resp_port) as one, redis.Redis(port=server.resp_port) as two:
        one.set("a", 1)
        with one.pipeline() as pipe:
            pipe.watch("a")
            two.set("a", 2)
            pipe.multi()
            pipe.set("a", 3)
            with pytest.raises(redis.WatchError):
                pipe.execute()
        assert one.get("a") == b"2"
        with one.pipeline() as pipe:
            pipe.watch("a", "absent")
            assert pipe.get("a") == b"2"
            pipe.multi()
            pipe.set("a", 3)
            assert pipe.execute() == [True]
        with one.pipeline() as pipe:
            pipe.watch("absent")
            two.set("absent", 1)
            pipe.unwatch()
            pipe.multi()
            pipe.set("a", 4)
            assert pipe.execute() == [True]


def test_watched_creation_and_deletion_count_as_changes(server):
    with redis.Redis(port=server.resp_port) as one, redis.Redis(port=server.resp_port) as two:
        for before, change in (
            (None, lambda: two.set("w", 1)),
            ("1", lambda: two.delete("w")),
            ("1", lambda: two.flushall()),
            ("1", lambda: two.incr("w")),
            ("1", lambda: two.expire("w", 100)),
        ):
            one.delete("w")
            if before is not None:
                one.set("w", before)
            with one.pipeline() as pipe:
                pipe.watch("w")
                change()
                pipe.multi()
                pipe.set("x", 1)
                with pytest.raises(redis.WatchError):
                    pipe.execute()


def test_counting_under_watch_loses_nothing(server):
    """Optimistic locking by four threads: the sum is exact."""

    def count():
        with redis.Redis(port=server.resp_port) as client:
            for _ in range(50):
                def step(pipe):
                    value = int(pipe.get("sum") or 0)
                    pipe.multi()
                    pipe.set("sum", value + 1)
                client.transaction(step, "sum")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with redis.Redis(port=server.resp_port) as client:
        assert client.get("sum") == b"200"


@pytest.mark.flags(threads="2")
def test_transactions_are_seen_whole(server):
    """A writer moves two keys together; MGET and MULTI never see them apart (K11)."""
    stop = threading.Event()

    def write():
        with redis.Redis(port=server.resp_port) as client:
            number = 0
            while not stop.is_set():
                number += 1
                client.mset({"left": number, "right": number})
                with client.pipeline() as pipe:
                    pipe.set("left", -number).set("right", -number).execute()

    with redis.Redis(port=server.resp_port) as client:
        client.mset({"left": 0, "right": 0})
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(1500):
                left, right = client.mget("left", "right")
                assert left == right
                with client.pipeline() as pipe:
                    left, right = pipe.get("left").get("right").execute()
                assert left == right
        finally:
            stop.set()
            writer.join()

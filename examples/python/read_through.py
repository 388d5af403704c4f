"""A read-through cache: redis-py writes, pymemcache reads the same key.

    pip install redis pymemcache
    python examples/python/read_through.py
"""

import json
import time

import redis
from pymemcache.client.base import Client as Memcached

REDIS = redis.Redis(host="127.0.0.1", port=6379)
MEMCACHED = Memcached(("127.0.0.1", 11211))
LIFETIME_SECONDS = 60


def slow_lookup(user_id: int) -> dict:
    """What the cache saves: a query that takes its time."""
    time.sleep(0.2)
    return {"id": user_id, "name": f"user {user_id}"}


def user(user_id: int) -> dict:
    """From the cache, or from the slow source and then into the cache."""
    key = f"user:{user_id}"
    cached = REDIS.get(key)
    if cached is not None:
        return json.loads(cached)
    found = slow_lookup(user_id)
    REDIS.set(key, json.dumps(found), ex=LIFETIME_SECONDS)
    return found


if __name__ == "__main__":
    for attempt in ("miss", "hit"):
        started = time.perf_counter()
        user(7)
        print(f"{attempt}: {1000 * (time.perf_counter() - started):.1f} ms")
    print("the same key over memcached:", MEMCACHED.get("user:7"))
    print("seconds left:", REDIS.ttl("user:7"))

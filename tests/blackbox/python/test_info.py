"""INFO beside Debian's redis-server: the same names, the same counts of errors, the same reset."""

import time

import pytest
import redis

import servers
import wires

pytestmark = [pytest.mark.dovetail_only]

# What Redis 7.0 tells and this server does not: docs/compatibility.md says why.
MISSING = {
    "redis_build_id", "atomicvar_api", "gcc_version", "client_recent_max_input_buffer",
    "client_recent_max_output_buffer", "used_memory_startup", "allocator_allocated", "allocator_active",
    "allocator_resident", "used_memory_lua", "used_memory_vm_eval", "used_memory_lua_human",
    "used_memory_scripts_eval", "number_of_cached_scripts", "number_of_functions", "number_of_libraries",
    "used_memory_vm_functions", "used_memory_vm_total", "used_memory_vm_total_human", "used_memory_functions",
    "used_memory_scripts", "used_memory_scripts_human", "allocator_frag_ratio", "allocator_frag_bytes",
    "allocator_rss_ratio", "allocator_rss_bytes", "rss_overhead_ratio", "rss_overhead_bytes",
    "mem_replication_backlog", "mem_total_replication_buffers", "mem_cluster_links", "lazyfreed_objects",
    "current_cow_peak", "current_cow_size", "current_cow_size_age", "current_fork_perc",
    "current_save_keys_processed", "current_save_keys_total", "rdb_saves", "rdb_last_cow_size",
    "rdb_last_load_keys_expired", "rdb_last_load_keys_loaded", "aof_last_rewrite_time_sec",
    "aof_current_rewrite_time_sec", "aof_rewrites", "aof_rewrites_consecutive_failures", "aof_last_cow_size",
    "module_fork_in_progress", "module_fork_last_cow_size", "total_net_repl_input_bytes",
    "total_net_repl_output_bytes", "instantaneous_input_repl_kbps", "instantaneous_output_repl_kbps", "sync_full",
    "sync_partial_ok", "sync_partial_err", "expired_stale_perc", "expired_time_cap_reached_count",
    "expire_cycle_cpu_milliseconds", "total_eviction_exceeded_time", "current_eviction_exceeded_time",
    "pubsubshard_channels", "migrate_cached_sockets", "slave_expires_tracked_keys", "active_defrag_hits",
    "active_defrag_misses", "active_defrag_key_hits", "active_defrag_key_misses", "total_active_defrag_time",
    "current_active_defrag_time", "dump_payload_sanitizations", "total_reads_processed", "total_writes_processed",
    "io_threaded_reads_processed", "io_threaded_writes_processed", "reply_buffer_shrinks", "reply_buffer_expands",
    "used_cpu_sys_main_thread", "used_cpu_user_main_thread",
}

# Each with its error, and others without.
TRAFFIC = [
    ["SET", "a", "1"], ["GET", "a"], ["GET"], ["GET", "a", "b"], ["SET", "a"], ["SET", "a", "1", "FOO"],
    ["SET", "text", "x"], ["INCR", "text"], ["INCRBYFLOAT", "text", "1"], ["nonsense"], ["nonsense", "more"],
    ["CONFIG", "foo"], ["CONFIG", "SET", "nosuch", "1"], ["EXPIRE", "a", "x"], ["SETRANGE", "a", "-1", "x"],
    ["EXEC"], ["MULTI"], ["GET"], ["EXEC"], ["HELLO", "9"], ["AUTH", "nobody", "wrong"], ["RENAME", "nosuch", "x"],
    ["ACL", "SETUSER", "few", "on", ">pw", "~few:*", "+get", "+auth"], ["AUTH", "few", "pw"], ["SET", "few:1", "x"],
    ["GET", "other"], ["GET", "few:1"],
]
# By a user that may do all.
REFUSED_LATE = [["SET", "there", "1"], ["GETEX", "there", "EX", "0"], ["OBJECT", "FREQ", "there"], ["GETEX", "there"]]


@pytest.fixture(scope="module")
def pair():
    if servers.is_reference_run() or not servers.has_reference():
        pytest.skip("redis-server is not installed: nothing to compare with")
    ours, reference = servers.Dovetail(), servers.Reference()
    yield ours, reference
    ours.stop()
    reference.stop()


def info(server, *sections):
    # Without redis-py, whose CLIENT SETINFO is an error in Redis 7.0.
    with wires.RespWire(server.resp_port) as wire:
        return wire.ask("INFO", *sections).split(b"\r\n", 1)[1].decode()


def told(server, section):
    text = info(server, section)
    lines = [line.split(":", 1) for line in text.split("\r\n") if line and not line.startswith("#")]
    return dict(lines)


def reset(server):
    with wires.RespWire(server.resp_port) as wire:
        assert wire.ask("CONFIG", "RESETSTAT") == b"+OK\r\n"


def drive(server):
    with wires.RespWire(server.resp_port) as wire:
        for words in REFUSED_LATE:
            wire.ask(*words)
    with wires.RespWire(server.resp_port) as wire:
        for words in TRAFFIC:
            wire.ask(*words)


def counts(server):
    """Errors by code, and calls, rejected and failed ones of the commands that were driven."""
    errors = told(server, "errorstats")
    commands = {}
    for name, text in told(server, "commandstats").items():
        fields = dict(field.split("=") for field in text.split(","))
        commands[name] = tuple(int(fields[key]) for key in ("calls", "rejected_calls", "failed_calls"))
    return errors, commands


def test_errors_are_counted_by_code_and_by_command_as_in_redis(pair):
    for server in pair:
        reset(server)
        drive(server)
    (errors, commands), (wanted_errors, wanted_commands) = (counts(server) for server in pair)
    assert errors == wanted_errors
    for name in ("get", "set", "incr", "incrbyfloat", "expire", "setrange", "exec", "rename", "auth", "getex", "object|freq"):
        assert commands[f"cmdstat_{name}"] == wanted_commands[f"cmdstat_{name}"], name
    ours, wanted = (told(server, "stats") for server in pair)
    assert ours["total_error_replies"] == wanted["total_error_replies"]
    assert sum(int(text.split("=")[1]) for text in errors.values()) == int(ours["total_error_replies"])
    denied = {name: ours[f"acl_access_denied_{name}"] for name in ("auth", "cmd", "key", "channel")}
    assert denied == {"auth": "1", "cmd": "1", "key": "1", "channel": "0"}


def test_a_reset_begins_anew(pair):
    ours = pair[0]
    with redis.Redis(port=ours.resp_port) as client:
        client.set("short", "1", px=1)
        deadline = time.monotonic() + 20
        while client.exists("short") and time.monotonic() < deadline:
            time.sleep(0.01)
        while told(ours, "stats")["expired_keys"] == "0" and time.monotonic() < deadline:
            time.sleep(0.01)
    drive(ours)
    assert told(ours, "stats")["expired_keys"] != "0"
    reset(ours)
    stats = told(ours, "stats")
    names = ["expired_keys", "evicted_keys", "keyspace_hits", "total_error_replies", "acl_access_denied_cmd",
             "acl_access_denied_key", "acl_access_denied_auth", "rejected_connections"]
    assert {name: stats[name] for name in names} == dict.fromkeys(names, "0")
    assert told(ours, "errorstats") == {}


def test_all_names_of_redis_are_there_or_listed_as_missing(pair):
    ours, wanted = (set(told(server, "everything")) for server in pair)
    wanted = {name for name in wanted if not name.startswith(("cmdstat_", "latency_", "errorstat_", "db"))}
    assert wanted - ours - MISSING == set()
    assert MISSING & ours == set(), "no longer missing"


def test_sections_are_those_of_a_plain_info_and_of_all(pair):
    def titles(server, *sections):
        return [line for line in info(server, *sections).split("\r\n") if line.startswith("#")]

    for sections in ([], ["all"], ["everything"], ["default"], ["errorstats"], ["stats", "cpu"], ["nosuch"]):
        ours, wanted = (titles(server, *sections) for server in pair)
        assert set(ours) >= set(wanted), sections


def test_bytes_a_second_are_told(pair):
    with redis.Redis(port=pair[0].resp_port) as client:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            client.set("a", "x" * 100_000)
            found = client.info("stats")
            if found["instantaneous_input_kbps"] > 0 and found["instantaneous_output_kbps"] > 0:
                return
    pytest.fail("nothing was measured")

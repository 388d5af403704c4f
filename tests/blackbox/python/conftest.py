"""Fixtures: a server of its own for each test, and clients of it."""

import pytest
import redis
from pymemcache.client.base import Client as MemcachedClient

import servers
import wires


def pytest_collection_modifyitems(items):
    if servers.is_reference_run():
        skip = pytest.mark.skip(reason="concerns Dovetail itself, not the protocols")
        for item in items:
            if "dovetail_only" in item.keywords:
                item.add_marker(skip)


def pytest_configure(config):
    config.addinivalue_line("markers", "dovetail_only: does not hold for the reference servers")
    config.addinivalue_line("markers", "flags(*flags, **settings): how the server is started")
    config.addinivalue_line("markers", "index(*names): the indexes that a test runs with, if not the default")


def pytest_generate_tests(metafunc):
    """Each test runs with its indexes; the reference servers have but one."""
    if "index" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("index")
        names = marker.args if marker else servers.DEFAULT_INDEXES
        metafunc.parametrize("index", names[:1] if servers.is_reference_run() else names)


@pytest.fixture
def server(request, index):
    marker = request.node.get_closest_marker("flags")
    flags, settings = (marker.args, marker.kwargs) if marker else ((), {})
    running = servers.start("--index", index, *flags, **settings)
    yield running
    was_running = running.is_running()
    status = running.stop()
    assert was_running, "the server ended during the test"
    assert status == 0, f"the server ended with status {status}"


@pytest.fixture(scope="module")
def reference():
    """The real servers, beside which the modules' requests are asked."""
    running = servers.Reference()
    yield running
    running.stop()


@pytest.fixture(scope="module", params=servers.DEFAULT_INDEXES)
def subject(request):
    """Dovetail beside them."""
    running = servers.Dovetail("--index", request.param)
    yield running
    running.stop()


@pytest.fixture
def client(server):
    with redis.Redis(host=servers.HOST, port=server.resp_port, protocol=2) as found:
        yield found


@pytest.fixture
def text_client(server):
    with redis.Redis(port=server.resp_port, protocol=2, decode_responses=True) as found:
        yield found


@pytest.fixture
def wire(server):
    with wires.RespWire(server.resp_port) as found:
        yield found


@pytest.fixture
def cache(server):
    found = MemcachedClient((servers.HOST, server.memcached_port), timeout=20, no_delay=True,
                            default_noreply=False)
    yield found
    found.close()


@pytest.fixture
def text_wire(server):
    with wires.TextWire(server.memcached_port) as found:
        yield found

package blackbox

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"
)

func item(key, value string) *memcache.Item {
	return &memcache.Item{Key: key, Value: []byte(value)}
}

func checkValue(t *testing.T, cache *memcache.Client, key, want string) {
	t.Helper()
	found, err := cache.Get(key)
	must(t, err)
	check(t, key, string(found.Value), want)
}

func checkError(t *testing.T, what string, found, want error) {
	t.Helper()
	if !errors.Is(found, want) {
		t.Fatalf("%s: %v, not %v", what, found, want)
	}
}

func TestCacheCommands(t *testing.T) {
	cache := start(t).cache(t)
	must(t, cache.Ping())
	must(t, cache.Set(&memcache.Item{Key: "a", Value: []byte("1"), Flags: 4_294_967_295}))
	found, err := cache.Get("a")
	must(t, err)
	check(t, "flags", found.Flags, 4_294_967_295)
	checkError(t, "add", cache.Add(item("a", "2")), memcache.ErrNotStored)
	must(t, cache.Add(item("b", "2")))
	must(t, cache.Replace(item("b", "3")))
	checkError(t, "replace", cache.Replace(item("absent", "3")), memcache.ErrNotStored)
	must(t, cache.Append(item("b", "+")))
	must(t, cache.Prepend(item("b", "-")))
	checkValue(t, cache, "b", "-3+")
	must(t, cache.Touch("b", 1000))
	checkError(t, "touch", cache.Touch("absent", 1000), memcache.ErrCacheMiss)
	got, err := cache.GetAndTouch("b", 2000)
	must(t, err)
	check(t, "gat", string(got.Value), "-3+")
	must(t, cache.Delete("b"))
	checkError(t, "delete", cache.Delete("b"), memcache.ErrCacheMiss)
	_, err = cache.Get("b")
	checkError(t, "get", err, memcache.ErrCacheMiss)
	must(t, cache.FlushAll())
	_, err = cache.Get("a")
	checkError(t, "get after flush_all", err, memcache.ErrCacheMiss)
}

func TestCacheCounters(t *testing.T) {
	cache := start(t).cache(t)
	must(t, cache.Set(item("n", "10")))
	sum, err := cache.Increment("n", 5)
	must(t, err)
	check(t, "incr", sum, 15)
	sum, err = cache.Decrement("n", 100)
	must(t, err)
	check(t, "decr", sum, 0)
	_, err = cache.Increment("absent", 1)
	checkError(t, "incr", err, memcache.ErrCacheMiss)
}

func TestCacheCompareAndSwap(t *testing.T) {
	cache := start(t).cache(t)
	must(t, cache.Set(item("a", "1")))
	one, err := cache.Get("a")
	must(t, err)
	two, err := cache.Get("a")
	must(t, err)
	one.Value = []byte("2")
	must(t, cache.CompareAndSwap(one))
	two.Value = []byte("3")
	checkError(t, "cas", cache.CompareAndSwap(two), memcache.ErrCASConflict)
	must(t, cache.Delete("a"))
	checkError(t, "cas of nothing", cache.CompareAndSwap(one), memcache.ErrCacheMiss)
}

func TestCacheMultiGetAndLargeValues(t *testing.T) {
	cache := start(t).cache(t)
	keys := make([]string, 400)
	for number := range keys {
		keys[number] = fmt.Sprintf("key%d", number)
		must(t, cache.Set(item(keys[number], fmt.Sprint(number))))
	}
	found, err := cache.GetMulti(append(keys, "absent"))
	must(t, err)
	check(t, "items found", len(found), len(keys))
	for number, key := range keys {
		check(t, key, string(found[key].Value), fmt.Sprint(number))
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 512<<10)
	must(t, cache.Set(&memcache.Item{Key: "large", Value: large}))
	got, err := cache.Get("large")
	must(t, err)
	check(t, "large value", bytes.Equal(got.Value, large), true)
}

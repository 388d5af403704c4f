package blackbox

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// freePort is one that nobody has now.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// startCluster starts a manager, whose config store is a folder, and three servers.
func startCluster(t *testing.T) []*server {
	t.Helper()
	configStore := "file://" + t.TempDir()
	manager := program(t, "cm", "--config-store", configStore, "--listen", freePort(t), "--shards", "16",
		"--rebalance", "off", "--lease", "1s", "--session", "3s")
	must(t, manager.Start())
	t.Cleanup(func() { stop(t, manager) })
	var servers []*server
	for range 3 {
		servers = append(servers, start(t, "--cluster", configStore, "--peer", freePort(t)))
	}
	deadline := time.Now().Add(time.Minute)
	for {
		answer, err := program(t, "cluster", "status", "--config-store", configStore).CombinedOutput()
		if err == nil && strings.Contains(string(answer), "0 with fewer than 3 copies, 0 without a primary") {
			return servers
		}
		if time.Now().After(deadline) {
			t.Fatalf("not whole after a minute: %s", answer)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func clusterClient(t *testing.T, servers []*server, protocol int) *redis.ClusterClient {
	t.Helper()
	var addresses []string
	for _, server := range servers {
		addresses = append(addresses, server.resp)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses, Protocol: protocol})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestCluster(t *testing.T) {
	servers := startCluster(t)
	for _, protocol := range []int{2, 3} {
		client := clusterClient(t, servers, protocol)
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			clusterCommands(t, client)
			clusterPipelines(t, client)
			clusterThreads(t, client)
		})
	}
	// Any server answers memcached clients.
	for number, server := range servers {
		name := fmt.Sprintf("any%d", number)
		must(t, server.cache(t).Set(item(name, "1")))
		sum, err := servers[(number+1)%3].cache(t).Increment(name, 41)
		must(t, err)
		check(t, "incr", sum, uint64(42))
	}
}

func clusterCommands(t *testing.T, client *redis.ClusterClient) {
	for number := range 300 {
		must(t, client.Set(background, fmt.Sprintf("key%d", number), number, time.Hour).Err())
	}
	for number := range 300 {
		found, err := client.Get(background, fmt.Sprintf("key%d", number)).Int()
		must(t, err)
		check(t, "GET", found, number)
	}
	must(t, client.MSet(background, "{tag}a", 1, "{tag}b", 2).Err())
	values := client.MGet(background, "{tag}a", "{tag}absent", "{tag}b").Val()
	check(t, "MGET", fmt.Sprint(values), "[1 <nil> 2]")
	check(t, "DEL", client.Del(background, "{tag}a", "{tag}b").Val(), 2)
	masters := 0
	var lock sync.Mutex
	must(t, client.ForEachShard(background, func(ctx context.Context, one *redis.Client) error {
		lock.Lock()
		defer lock.Unlock()
		masters++
		return one.Ping(ctx).Err()
	}))
	check(t, "nodes", masters, 3)
}

func clusterPipelines(t *testing.T, client *redis.ClusterClient) {
	answers, err := client.Pipelined(background, func(pipe redis.Pipeliner) error {
		for number := range 200 {
			pipe.Set(background, fmt.Sprintf("pipe%d", number), number, 0)
		}
		return nil
	})
	must(t, err)
	check(t, "answers", len(answers), 200)
	must(t, client.Del(background, "{t}n", "{t}m").Err())
	var one, other *redis.IntCmd
	_, err = client.TxPipelined(background, func(pipe redis.Pipeliner) error {
		one, other = pipe.Incr(background, "{t}n"), pipe.IncrBy(background, "{t}m", 5)
		return nil
	})
	must(t, err)
	check(t, "INCR", one.Val(), 1)
	check(t, "INCRBY", other.Val(), 5)
}

func clusterThreads(t *testing.T, client *redis.ClusterClient) {
	must(t, client.Del(background, "sum").Err())
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				if err := client.Incr(background, "sum").Err(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	sum, err := client.Get(background, "sum").Int()
	must(t, err)
	check(t, "sum", sum, 800)
}

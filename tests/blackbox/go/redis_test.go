package blackbox

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// bothProtocols runs a test over RESP2 and RESP3.
func bothProtocols(t *testing.T, body func(t *testing.T, client *redis.Client)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			body(t, start(t).redis(t, protocol))
		})
	}
}

func TestStrings(t *testing.T) {
	bothProtocols(t, func(t *testing.T, client *redis.Client) {
		must(t, client.Set(background, "a", "v", time.Hour).Err())
		check(t, "GET", client.Get(background, "a").Val(), "v")
		if ttl := client.TTL(background, "a").Val(); ttl <= 59*time.Minute || ttl > time.Hour {
			t.Fatalf("TTL is %v", ttl)
		}
		if err := client.Get(background, "absent").Err(); !errors.Is(err, redis.Nil) {
			t.Fatalf("GET of an absent key: %v", err)
		}
		check(t, "SETNX", client.SetNX(background, "a", "w", 0).Val(), false)
		check(t, "SETXX", client.SetXX(background, "a", "w", 0).Val(), true)
		check(t, "GETDEL", client.GetDel(background, "a").Val(), "w")
		check(t, "INCRBY", client.IncrBy(background, "n", 41).Val(), 41)
		check(t, "INCR", client.Incr(background, "n").Val(), 42)
		check(t, "INCRBYFLOAT", client.IncrByFloat(background, "n", 0.5).Val(), 42.5)
		check(t, "APPEND", client.Append(background, "s", "hello").Val(), 5)
		check(t, "GETRANGE", client.GetRange(background, "s", 1, 3).Val(), "ell")
		check(t, "SETRANGE", client.SetRange(background, "s", 5, "!").Val(), 6)
		must(t, client.MSet(background, "x", 1, "y", 2).Err())
		values := client.MGet(background, "x", "absent", "y").Val()
		check(t, "MGET", fmt.Sprint(values), "[1 <nil> 2]")
		check(t, "DEL", client.Del(background, "x", "y", "absent").Val(), 2)
	})
}

func TestErrorsKeepTheirWords(t *testing.T) {
	client := start(t).redis(t, 2)
	must(t, client.Set(background, "text", "abc", 0).Err())
	for want, err := range map[string]error{
		"ERR value is not an integer or out of range": client.Incr(background, "text").Err(),
		"ERR no such key":  client.Rename(background, "absent", "b").Err(),
		"ERR syntax error": client.Do(background, "SET", "a", "1", "BAD").Err(),
		"ERR wrong number of arguments for 'get' command": client.Do(background, "GET").Err(),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v instead of %s", err, want)
		}
	}
}

func TestPipelinesAndTransactions(t *testing.T) {
	bothProtocols(t, func(t *testing.T, client *redis.Client) {
		for name, pipelined := range map[string]func(func(redis.Pipeliner) error) error{
			"Pipelined": func(body func(redis.Pipeliner) error) error {
				_, err := client.Pipelined(background, body)
				return err
			},
			"TxPipelined": func(body func(redis.Pipeliner) error) error {
				_, err := client.TxPipelined(background, body)
				return err
			},
		} {
			gets := make([]*redis.StringCmd, 300)
			must(t, pipelined(func(pipe redis.Pipeliner) error {
				for number := range gets {
					key := fmt.Sprintf("%s:%d", name, number)
					pipe.Set(background, key, number, 0)
					gets[number] = pipe.Get(background, key)
				}
				return nil
			}))
			for number, get := range gets {
				check(t, name, get.Val(), fmt.Sprint(number))
			}
		}
	})
}

func TestOptimisticLockingLosesNothing(t *testing.T) {
	client := start(t).redis(t, 3)
	var group sync.WaitGroup
	for range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			for done := 0; done < 40; {
				err := client.Watch(background, func(tx *redis.Tx) error {
					value, err := tx.Get(background, "sum").Int()
					if err != nil && !errors.Is(err, redis.Nil) {
						return err
					}
					_, err = tx.TxPipelined(background, func(pipe redis.Pipeliner) error {
						pipe.Set(background, "sum", value+1, 0)
						return nil
					})
					return err
				}, "sum")
				if err == nil {
					done++
				} else if !errors.Is(err, redis.TxFailedErr) {
					t.Error(err)
					return
				}
			}
		}()
	}
	group.Wait()
	check(t, "sum", client.Get(background, "sum").Val(), "160")
}

func TestScanFindsEveryKey(t *testing.T) {
	client := start(t).redis(t, 2)
	want := map[string]bool{}
	_, err := client.Pipelined(background, func(pipe redis.Pipeliner) error {
		for number := range 2000 {
			key := fmt.Sprintf("key:%d", number)
			want[key] = true
			pipe.Set(background, key, number, 0)
		}
		return nil
	})
	must(t, err)
	found := map[string]bool{}
	keys := client.Scan(background, 0, "key:*", 50).Iterator()
	for keys.Next(background) {
		found[keys.Val()] = true
	}
	must(t, keys.Err())
	check(t, "keys found", len(found), len(want))
	check(t, "DBSIZE", client.DBSize(background).Val(), int64(len(want)))
	must(t, client.FlushAll(background).Err())
	check(t, "DBSIZE", client.DBSize(background).Val(), 0)
}

func TestConnectionSetUp(t *testing.T) {
	client := start(t, "--requirepass", "secret").redis(t, 3)
	if err := client.Ping(background).Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Fatalf("without a password: %v", err)
	}
	for _, user := range []string{"", "default"} {
		options := *client.Options()
		options.Username, options.Password, options.ClientName = user, "secret", "tester"
		named := redis.NewClient(&options)
		check(t, "PING", named.Ping(background).Val(), "PONG")
		check(t, "CLIENT GETNAME", named.ClientGetName(background).Val(), "tester")
		if info := named.Info(background).Val(); !strings.Contains(info, "redis_version:7.") {
			t.Fatalf("INFO has no redis_version of 7.x: %s", info)
		}
		if len(named.Command(background).Val()) < 50 {
			t.Fatal("COMMAND lists too little")
		}
		must(t, named.Close())
	}
}

func TestManyGoroutinesShareAPool(t *testing.T) {
	client := start(t).redis(t, 3)
	var group sync.WaitGroup
	for worker := range 16 {
		group.Add(1)
		go func() {
			defer group.Done()
			for step := range 200 {
				key, want := fmt.Sprintf("w%d:%d", worker, step%20), fmt.Sprint(step)
				if err := client.Set(background, key, want, 0).Err(); err != nil {
					t.Error(err)
					return
				}
				if found := client.Get(background, key).Val(); found != want {
					t.Errorf("%s is %s, not %s", key, found, want)
					return
				}
			}
		}()
	}
	group.Wait()
}

func TestABrokenStreamEndsWithItsError(t *testing.T) {
	connection := dial(t, start(t).resp)
	_, err := connection.Write([]byte("*1\r\n$x\r\n"))
	must(t, err)
	reply, err := io.ReadAll(connection)
	must(t, err)
	check(t, "reply", string(reply), "-ERR Protocol error: invalid bulk length\r\n")
}

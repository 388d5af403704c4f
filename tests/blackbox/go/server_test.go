// Real Go clients against the real binary, each test on a server of its own.
package blackbox

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/redis/go-redis/v9"
)

// server is one running process; it chose its ports itself.
type server struct {
	resp      string
	memcached string
}

// binary is DOVETAIL_BIN, or what a build of this checkout left behind.
func binary(t *testing.T) string {
	t.Helper()
	if named := os.Getenv("DOVETAIL_BIN"); named != "" {
		return named
	}
	for _, profile := range []string{"release", "debug"} {
		path, err := filepath.Abs(filepath.Join("../../../target", profile, "dovetail"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatal("set DOVETAIL_BIN, or run `cargo build --release`")
	return ""
}

// withWanted puts the flags of BLACKBOX_SERVE in the place of the command's own.
func withWanted(arguments []string) []string {
	wanted := strings.Fields(os.Getenv("BLACKBOX_SERVE"))
	for place := 0; place+1 < len(wanted); place += 2 {
		if own := slices.Index(arguments, wanted[place]); own >= 0 {
			arguments = slices.Delete(arguments, own, own+2)
		}
		arguments = append(arguments, wanted[place], wanted[place+1])
	}
	return arguments
}

func start(t *testing.T, flags ...string) *server {
	t.Helper()
	arguments := []string{
		"serve", "--resp", "127.0.0.1:0", "--memcached", "127.0.0.1:0", "--native", "off", "--admin", "off",
		"--memory", "128MiB", "--threads", "2", "--log-format", "json",
	}
	command := program(t, withWanted(append(arguments, flags...))...)
	log, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan server, 1)
	go readLog(log, ready)
	t.Cleanup(func() { stop(t, command) })
	select {
	case found, isReady := <-ready:
		if !isReady {
			t.Fatal("the server ended at start")
		}
		return &found
	case <-time.After(20 * time.Second):
		t.Fatal("the server is not ready after 20 s")
	}
	return nil
}

// program runs the binary somewhere else, without settings that would reach it.
func program(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(binary(t), arguments...)
	command.Dir = t.TempDir()
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "DOVETAIL_") {
			command.Env = append(command.Env, entry)
		}
	}
	return command
}

// readLog hands over the addresses of the line "ready" and drains the rest.
func readLog(log interface{ Read([]byte) (int, error) }, ready chan<- server) {
	defer close(ready)
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct{ Msg, Resp, Memcached string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" {
			ready <- server{resp: line.Resp, memcached: line.Memcached}
		}
	}
}

func stop(t *testing.T, command *exec.Cmd) {
	t.Helper()
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("the server ended during the test: %v", err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("the server did not end with status 0: %v", err)
	}
}

func (server *server) redis(t *testing.T, protocol int) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.resp, Protocol: protocol})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (server *server) cache(t *testing.T) *memcache.Client {
	t.Helper()
	client := memcache.New(server.memcached)
	client.Timeout = 10 * time.Second
	client.MaxIdleConns = 16
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// check fails the test unless found is want.
func check[Value comparable](t *testing.T, what string, found, want Value) {
	t.Helper()
	if found != want {
		t.Fatalf("%s is %v, not %v", what, found, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	connection, err := net.DialTimeout("tcp", address, 5*time.Second)
	must(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	must(t, connection.SetDeadline(time.Now().Add(20*time.Second)))
	return connection
}

var background = context.Background()

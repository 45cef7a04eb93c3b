//go:build unix

package modelpool

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// serverArg makes the test program a model server without a model.
const serverArg = "be-a-host"

// workerArg makes it a worker that starts a host which kills it.
const workerArg = "be-a-worker"

func worker() {
	k, err := New(Config{Data: os.Args[2], Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	_, _, err = k.Acquire(context.Background(), serverSpec("a", "kills "+strconv.Itoa(os.Getpid())), watch)
	panic(fmt.Sprint("it still runs: ", err))
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serverArg {
		serve()
		return
	}
	if len(os.Args) > 1 && os.Args[1] == workerArg {
		worker()
		return
	}
	os.Exit(m.Run())
}

func serve() {
	mode, arg, _ := strings.Cut(os.Getenv("HOST"), " ")
	switch mode {
	case "kills":
		if pid, err := strconv.Atoi(arg); err == nil && pid == os.Getppid() {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
	case "broken":
		fmt.Fprintln(os.Stderr, "no module named torch")
		os.Exit(1)
	case "silent":
		time.Sleep(time.Hour) // select {} would be found to be a deadlock
	}
	if err := os.Chdir(filepath.Dir(os.Getenv("MUSTER_WARM"))); err != nil {
		panic(err)
	}
	l, err := net.Listen("unix", filepath.Base(os.Getenv("MUSTER_WARM")))
	if err != nil {
		panic(err)
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			panic(err)
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			continue
		}
		var req struct {
			Op string `json:"op"`
		}
		if err := json.Unmarshal([]byte(strings.TrimSpace(line)), &req); err != nil {
			panic(err)
		}
		fmt.Fprintf(conn, "{\"ok\":true,\"pid\":%d}\n", os.Getpid())
		if req.Op == "evict" && os.Getenv("HOST") != "stubborn" {
			os.Exit(0)
		}
		_ = conn.Close()
	}
}

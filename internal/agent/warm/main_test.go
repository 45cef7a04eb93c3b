package warm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hostWord makes the test program a stand-in for a host: one that keeps no model, but lives as hosts do.
const hostWord = "be-a-host"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == hostWord {
		standIn()
		return
	}
	os.Exit(m.Run())
}

func standIn() {
	switch os.Getenv("HOST") {
	case "broken":
		fmt.Fprintln(os.Stderr, "no module named torch")
		os.Exit(1)
	case "silent":
		select {}
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
		var asked struct {
			Op string `json:"op"`
		}
		if err := json.Unmarshal([]byte(strings.TrimSpace(line)), &asked); err != nil {
			panic(err)
		}
		fmt.Fprintf(conn, "{\"ok\":true,\"pid\":%d}\n", os.Getpid())
		if asked.Op == "evict" && os.Getenv("HOST") != "stubborn" {
			os.Exit(0)
		}
		_ = conn.Close()
	}
}

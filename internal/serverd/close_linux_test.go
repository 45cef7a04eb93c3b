package serverd

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// openFilesBelow lists the files in a folder that this process has open.
func openFilesBelow(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, e := range entries {
		if path, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && strings.HasPrefix(path, folder+"/") {
			open = append(open, path)
		}
	}
	return open
}

// TestFailedStartClosesEverything starts a server whose port is in use, and then, with the same data directory, one whose port
// is free. The second one has an open log when it stops.
func TestFailedStartClosesEverything(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	folder := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	if _, err := New(t.Context(), Config{Listen: taken.Addr().String(), Data: folder}, log); muster.CodeOf(err) != muster.Conflict {
		t.Fatalf("a start on a port in use: %v", err)
	}
	if open := openFilesBelow(t, folder); len(open) > 0 {
		t.Errorf("open files after a failed start: %q", open)
	}

	s, err := New(t.Context(), Config{Listen: "127.0.0.1:0", Data: folder}, log)
	if err != nil {
		t.Fatalf("the next start: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.engine.Ready()
	a := muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}
	if _, err := s.logs.Append(ctx, a, 0, bytes.Repeat([]byte("x"), 10)); err != nil {
		t.Fatal(err)
	}
	if open := openFilesBelow(t, filepath.Join(folder, "logs")); len(open) == 0 {
		t.Error("no log is open while the server runs: the test is useless")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if open := openFilesBelow(t, folder); len(open) > 0 {
		t.Errorf("open files after the server has stopped: %q", open)
	}
	if _, err := s.verifier.Verify(t.Context(), store.Content{CID: "x", SHA256: strings.Repeat("0", 64)}); muster.CodeOf(err) != muster.Unavailable {
		t.Errorf("the stopped server can still read files: %v", err)
	}
}

package tool

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// countingReader counts those that a tool prints.
type countingReader struct{ n int }

func (l *countingReader) Line(time.Time, string) bool {
	l.n++
	return true
}

// TestNoSecondThatHangs proves that tools that cannot be killed do not pile up:
// while one is there, no other is started.
func TestNoSecondThatHangs(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the tool is a shell script")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "nvidia-smi")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho well\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	blocked := &process{path: path, done: make(chan struct{})}
	stuckTools.Store(path, blocked)
	if out, err := Output(t.Context(), "nvidia-smi"); err == nil || !strings.Contains(err.Error(), "still hangs") || out != "" {
		t.Errorf("it prints %q: %v", out, err)
	}
	read := &countingReader{}
	f := &Stream{
		Tool: "nvidia-smi", Interval: time.Second, MinBackoff: time.Second, Log: slog.New(slog.DiscardHandler),
		Args: func() []string { return nil }, Reader: func() Reader { return read },
	}
	if sampled, err := f.runOnce(t.Context()); sampled || err == nil || !strings.Contains(err.Error(), "still hangs") || read.n > 0 {
		t.Errorf("the stream: %d lines, %v", read.n, err)
	}
	close(blocked.done)
	if out, err := Output(t.Context(), "nvidia-smi"); err != nil || out != "well\n" {
		t.Errorf("when it has ended it prints %q: %v", out, err)
	}
	if sampled, err := f.runOnce(t.Context()); !sampled || read.n != 1 {
		t.Errorf("when it has ended the stream has %d lines: %v", read.n, err)
	}
}

// TestTimeoutIsTheTimeThatPassed checks that the error of a tool that hangs says how long it was waited for, not how long it would have been.
func TestTimeoutIsTheTimeThatPassed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the tool is a shell script")
	}
	path := filepath.Join(t.TempDir(), "hangs")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := OutputWithin(ctx, time.Minute, path); !errors.Is(err, ErrTimeout) || strings.Contains(err.Error(), "within 1m") {
		t.Error(err)
	}
}

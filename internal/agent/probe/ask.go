package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	askTimeout = 5 * time.Second // some tools hang where their daemon or driver does
	maxAnswer  = 4 << 20         // bytes of output that count
	asksAtOnce = 4               // tools that run at the same time
)

// asker runs the tools of the machine, a few at a time.
type asker struct {
	turns    chan struct{}
	patience time.Duration
}

func newAsker() *asker {
	return &asker{turns: make(chan struct{}, asksAtOnce), patience: askTimeout}
}

// ask runs a tool, with nothing to read, and returns what it prints. It is killed
// with what it started when it has not ended after the patience.
func (a *asker) ask(ctx context.Context, tool string, args ...string) ([]byte, error) {
	select {
	case a.turns <- struct{}{}:
		defer func() { <-a.turns }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	out, complaint := &bounded{limit: maxAnswer}, &bounded{limit: 64 << 10}
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Env = environment()
	cmd.Dir = filepath.VolumeName(tool) + string(filepath.Separator)
	cmd.Stdout, cmd.Stderr = out, complaint
	cmd.WaitDelay = time.Second // what left the group may hold the output open
	ownGroup(cmd)
	err := cmd.Run()
	switch name := filepath.Base(tool); {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s did not answer within %s", name, a.patience)
	case err != nil && complaint.Len() > 0:
		return nil, fmt.Errorf("%s failed (%w): %s", name, err, firstLine(complaint.String()))
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, fmt.Errorf("%s failed: %w", name, err)
	}
	return out.Bytes(), nil
}

// environment is what tools see: ours, without Muster's own, which has tokens in
// it, and with answers in English.
func environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "MUSTER_") })
	return append(env, "LC_ALL=C", "LANG=C")
}

// find returns the path of a tool, or "" if it is not there.
func find(tool string) string {
	path, err := exec.LookPath(tool)
	if err != nil {
		return ""
	}
	if path, err = filepath.Abs(path); err != nil {
		return ""
	}
	return path
}

// bounded is a buffer that drops what is over its limit.
type bounded struct {
	bytes.Buffer
	limit int
}

// Write takes p, as far as there is room.
func (b *bounded) Write(p []byte) (int, error) {
	if room := b.limit - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// readMost reads up to limit bytes. What came before an error counts.
func readMost(r io.Reader, limit int64) []byte {
	b, err := io.ReadAll(io.LimitReader(r, limit))
	if err != nil && len(b) == 0 {
		return nil
	}
	return b
}

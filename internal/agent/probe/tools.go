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
	toolTimeout   = 5 * time.Second // some tools hang where their daemon or driver does
	maxOutput     = 4 << 20         // bytes of output that count
	maxConcurrent = 4               // tools that run at the same time
)

// toolRunner runs the tools of the machine, a few at a time.
type toolRunner struct {
	slots   chan struct{}
	timeout time.Duration
}

func newToolRunner() *toolRunner {
	return &toolRunner{slots: make(chan struct{}, maxConcurrent), timeout: toolTimeout}
}

// run runs a tool, with nothing to read, and returns what it prints. It is killed
// with what it started when it has not ended after the patience.
func (a *toolRunner) run(ctx context.Context, tool string, args ...string) ([]byte, error) {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	out, stderr := &limitedBuffer{limit: maxOutput}, &limitedBuffer{limit: 64 << 10}
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Env = toolEnv()
	cmd.Dir = filepath.VolumeName(tool) + string(filepath.Separator)
	cmd.Stdout, cmd.Stderr = out, stderr
	cmd.WaitDelay = time.Second // what left the group may hold the output open
	ownGroup(cmd)
	err := cmd.Run()
	switch name := filepath.Base(tool); {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s did not answer within %s", name, a.timeout)
	case err != nil && stderr.Len() > 0:
		return nil, fmt.Errorf("%s failed (%w): %s", name, err, firstLine(stderr.String()))
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, fmt.Errorf("%s failed: %w", name, err)
	}
	return out.Bytes(), nil
}

// toolEnv is what tools see: ours, without Muster's own, which has tokens in
// it, and with answers in English.
func toolEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "MUSTER_") })
	return append(env, "LC_ALL=C", "LANG=C")
}

// lookPath returns the path of a tool, or "" if it is not there.
func lookPath(tool string) string {
	path, err := exec.LookPath(tool)
	if err != nil {
		return ""
	}
	if path, err = filepath.Abs(path); err != nil {
		return ""
	}
	return path
}

// limitedBuffer is a buffer that drops what is over its limit.
type limitedBuffer struct {
	bytes.Buffer
	limit int
}

// Write takes p, as far as there is room.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if free := b.limit - b.Len(); free > 0 {
		b.Buffer.Write(p[:min(free, len(p))])
	}
	return len(p), nil
}

// readLimited reads up to limit bytes. What came before an error counts.
func readLimited(r io.Reader, limit int64) []byte {
	b, err := io.ReadAll(io.LimitReader(r, limit))
	if err != nil && len(b) == 0 {
		return nil
	}
	return b
}

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

	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

const (
	toolTimeout   = 5 * time.Second // some tools hang with their daemon or driver
	maxOutput     = 4 << 20         // bytes of output that are kept
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

// run runs a tool without input and returns its output. After the timeout it kills the tool with all that it started.
func (a *toolRunner) run(ctx context.Context, program string, args ...string) ([]byte, error) {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	out, stderr := &limitedBuffer{limit: maxOutput}, &limitedBuffer{limit: 64 << 10}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = toolEnv()
	cmd.Dir = filepath.VolumeName(program) + string(filepath.Separator)
	cmd.Stdout, cmd.Stderr = out, stderr
	cmd.WaitDelay = time.Second // a process that left the group may hold the output open
	ownGroup(cmd)
	err := cmd.Run()
	switch name := filepath.Base(program); {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s did not answer within %s", name, a.timeout)
	case err != nil && stderr.Len() > 0:
		return nil, fmt.Errorf("%s failed (%w): %s", name, err, tool.FirstLine(stderr.String()))
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, fmt.Errorf("%s failed: %w", name, err)
	}
	return out.Bytes(), nil
}

// toolEnv returns this process's environment without Muster's variables, some of which are tokens, and with English messages.
func toolEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "MUSTER_") })
	return append(env, "LC_ALL=C", "LANG=C")
}

// lookPath returns the absolute path of a tool, or "" if it is not installed.
func lookPath(program string) string {
	path, err := exec.LookPath(program)
	if err != nil {
		return ""
	}
	if path, err = filepath.Abs(path); err != nil {
		return ""
	}
	return path
}

// limitedBuffer is a buffer that drops what exceeds its limit.
type limitedBuffer struct {
	bytes.Buffer
	limit int
}

// Write keeps what fits of p.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if free := b.limit - b.Len(); free > 0 {
		b.Buffer.Write(p[:min(free, len(p))])
	}
	return len(p), nil
}

// readLimited reads up to limit bytes. It returns what it read before an error.
func readLimited(r io.Reader, limit int64) []byte {
	b, err := io.ReadAll(io.LimitReader(r, limit))
	if err != nil && len(b) == 0 {
		return nil
	}
	return b
}

// Package tool runs the programs of GPU vendors, once or permanently, and parses the values that they print. Output also runs other
// programs that describe the machine.
//
// They may be missing, hang with the driver, print anything, and differ between versions. So each runs in a process group of its own and
// is killed, with all that it started, after five seconds, or three intervals without a sample. No second instance is started of a tool
// that cannot be killed, and none outlives this process for long. Values that a tool does not print are absent, never zero.
package tool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrTimeout means that a tool was killed because it took too long.
var ErrTimeout = errors.New("did not answer")

// Timeout is how long one query of a tool may take: some hang with the driver.
const Timeout = 5 * time.Second

const (
	killGrace = time.Second // until a killed tool has exited
	maxOutput = 8 << 20     // bytes of a query: 16 devices print less than one
	maxStderr = 4 << 10
)

// ErrMissing means that a tool is not installed.
var ErrMissing = errors.New("is not on the PATH")

// Output runs a tool once and returns its standard output, 8 MiB at most. It returns output beside an error too: some tools print what
// matters and fail. It takes no longer than Timeout and the time to kill the tool. The error is ErrMissing if the tool is not on the
// PATH.
func Output(ctx context.Context, name string, args ...string) (string, error) {
	return OutputWithin(ctx, Timeout, name, args...)
}

// OutputWithin is Output with another timeout, or the deadline of ctx if that is earlier.
func OutputWithin(ctx context.Context, timeout time.Duration, name string, args ...string) (string, error) {
	path, err := find(name)
	if err != nil {
		return "", err
	}
	name = filepath.Base(path)
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, stderr := limitedBuffer{limit: maxOutput}, limitedBuffer{limit: maxStderr}
	cmd := command(path, args...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	cmd.WaitDelay = killGrace // a process that it started may hold its output open
	r, err := start(cmd, path)
	if err != nil {
		return "", fmt.Errorf("cannot run %s: %w", name, err)
	}
	select {
	case <-r.done:
		err = r.err
	case <-ctx.Done():
		if !r.kill() {
			return "", fmt.Errorf("%s did not answer within %s and cannot be killed: restart the machine, or reload the driver that it uses", name, timeout.Round(100*time.Millisecond))
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return "", fmt.Errorf("%s was interrupted: %w", name, ctx.Err())
		}
		return "", fmt.Errorf("%s %w within %s and was killed", name, ErrTimeout, timeout.Round(100*time.Millisecond))
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		// Its own messages before the driver's, which nvidia-smi prints on standard output.
		return out.String(), fmt.Errorf("%s failed (%w): %s", name, err, FirstLine(stderr.String()+"\n"+out.String()))
	}
	if out.truncated {
		return "", fmt.Errorf("%s printed more than %d MiB", name, maxOutput>>20)
	}
	return out.String(), nil
}

// find returns the path of a tool. It fails if an earlier instance hangs: another one would hang as well, and they would accumulate.
func find(name string) (path string, err error) {
	if path, err = exec.LookPath(name); err != nil {
		return "", fmt.Errorf("%s %w", name, ErrMissing)
	}
	if r, ok := stuckTools.Load(path); ok && !r.(*process).exited() { //nolint:forcetypeassert // see kill
		return "", fmt.Errorf("an earlier %s still hangs: restart the machine, or reload the driver that it uses", filepath.Base(path))
	}
	return path, nil
}

// command prepares a tool in a process group of its own, with texts and times that do not depend on the locale, and without Muster's
// variables, because some are tokens.
func command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...) //nolint:noctx // ends by killing its group, where a context would kill the leader only
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "MUSTER_") })
	cmd.Env = append(cmd.Env, "LC_ALL=C", "LANG=C", "LANGUAGE=C", "TZ=UTC")
	cmd.Dir = filepath.VolumeName(path) + string(filepath.Separator)
	setProcessGroup(cmd)
	return cmd
}

type process struct {
	cmd  *exec.Cmd
	path string
	done chan struct{} // closed when it has exited
	err  error         // of Wait; valid after done is closed
}

// start starts a tool on a thread that exists as long as the tool: with Pdeathsig the kernel kills a child when the thread that started
// it ends.
func start(cmd *exec.Cmd, path string) (*process, error) {
	r := &process{cmd: cmd, path: path, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			r.err = cmd.Wait()
			close(r.done)
		}
	}()
	return r, <-started
}

// kill kills a tool with all that it started, and reports whether it has exited: a tool that hangs in the driver does not. It is then
// in stuckTools until it exits.
func (r *process) kill() bool {
	if r.exited() {
		return true // its number may be reused
	}
	killGroup(r.cmd.Process)
	for range 2 { // the second time for processes that hold its output open
		select {
		case <-r.done:
			return true
		case <-time.After(killGrace):
		}
	}
	stuckTools.Store(r.path, r)
	return false
}

// stuckTools are the tools of this process that could not be killed, by path: the last *process of each.
var stuckTools sync.Map

func (r *process) exited() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// limitedBuffer keeps the beginning of what is written to it. It does not embed bytes.Buffer, whose ReadFrom would bypass Write.
type limitedBuffer struct {
	buf       []byte
	limit     int
	truncated bool
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	free := b.limit - len(b.buf)
	b.truncated = b.truncated || len(p) > free
	b.buf = append(b.buf, p[:min(free, len(p))]...)
	return len(p), nil
}

func (b *limitedBuffer) String() string { return string(b.buf) }

// FirstLine returns the first line that is not empty, cut to 200 bytes.
func FirstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	line = strings.TrimSpace(line)
	if len(line) > 200 {
		line = strings.ToValidUTF8(line[:200], "") + "…"
	}
	return line
}

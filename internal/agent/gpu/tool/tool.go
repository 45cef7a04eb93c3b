// Package tool runs the programs of the makers of GPUs, once or again and again, and reads
// the values that they print.
//
// They may be missing, hang with the driver, print anything and differ from version to version. So
// each runs in a process group of its own and is killed, with all that it started, after five seconds, or three
// periods without a sample. Of one that cannot be killed no second is started, and
// none outlives this process for long. What a tool does not tell is absent, never zero.
package tool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Patience is how long one look of a tool may take: some hang with the driver.
const Patience = 5 * time.Second

const (
	mercy      = time.Second // for a killed tool to be gone
	mostOutput = 8 << 20     // bytes of one look: 16 devices print less than one

	mostComplaint = 4 << 10 // bytes of its words about what went wrong
)

// ErrMissing says that a tool is not installed.
var ErrMissing = errors.New("is not on the PATH")

// Ask runs a tool once and returns what it printed on its standard output, 8 MiB at most. The
// text is there beside an error too: some tools print what matters and fail. It takes no longer than
// Patience and the time to kill the tool; the error is ErrMissing where it is not on the PATH.
func Ask(ctx context.Context, name string, args ...string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s %w", name, ErrMissing)
	}
	name = filepath.Base(path)
	if held.has(path) {
		return "", fmt.Errorf("%s of an earlier look still hangs in the driver: restart the machine or reload the driver", name)
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	out, complaint := bounded{most: mostOutput}, bounded{most: mostComplaint}
	cmd := command(path, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.WaitDelay = mercy // what it started may hold its output open
	r, err := launch(cmd, path)
	if err != nil {
		return "", fmt.Errorf("%s cannot be run: %w", name, err)
	}
	select {
	case <-r.done:
		err = r.err
	case <-ctx.Done():
		if !r.end() {
			return "", fmt.Errorf("%s did not answer within %s and cannot be killed: restart the machine or reload the driver", name, Patience)
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return "", fmt.Errorf("%s was not waited for: %w", name, ctx.Err())
		}
		return "", fmt.Errorf("%s did not answer within %s and was killed; the driver may need a reset, or persistence mode", name, Patience)
	}
	if err != nil {
		// Its words before the driver's: nvidia-smi complains on standard output.
		return out.String(), fmt.Errorf("%s failed (%w): %s", name, err, FirstLine(complaint.String()+"\n"+out.String()))
	}
	if out.full {
		return "", fmt.Errorf("%s printed more than %d MiB", name, mostOutput>>20)
	}
	return out.String(), nil
}

// command prepares a tool: in a process group of its own, with texts and times
// that no locale changes.
func command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...) //nolint:noctx // ends by killing its group, where a context would kill the leader only
	cmd.Env = append(os.Environ(), "LC_ALL=C", "LANGUAGE=C", "TZ=UTC")
	asGroup(cmd)
	return cmd
}

// running is a tool that was started.
type running struct {
	cmd  *exec.Cmd
	path string
	done chan struct{} // closed at its end
	err  error         // how it ended; to be read after that
}

// launch starts a tool. It does so on a thread that lives as long as the tool:
// where the kernel can kill a child with its parent, it takes the thread for the
// parent.
func launch(cmd *exec.Cmd, path string) (*running, error) {
	r := &running{cmd: cmd, path: path, done: make(chan struct{})}
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

// end kills a tool that has not ended, with all that it started, and says whether
// it is gone: one that hangs within the driver outlives even that. It is
// remembered until it ends.
func (r *running) end() bool {
	select {
	case <-r.done:
		return true // its number may be another's by now
	default:
	}
	killGroup(r.cmd.Process)
	for range 2 { // the second for those that hold its output open
		select {
		case <-r.done:
			return true
		case <-time.After(mercy):
		}
	}
	held.add(r)
	return false
}

// held are the tools of this process that could not be killed. Another of the
// same would hang as well, and they would pile up.
var held = stuck{by: map[string]*running{}}

type stuck struct {
	mu sync.Mutex
	by map[string]*running
}

func (s *stuck) add(r *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by[r.path] = r
}

func (s *stuck) has(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.by[path]
	if !ok {
		return false
	}
	select {
	case <-r.done:
		delete(s.by, path)
		return false
	default:
		return true
	}
}

// bounded keeps the beginning of what is written to it. It is no bytes.Buffer,
// which reads past Write.
type bounded struct {
	kept []byte
	most int
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := b.most - len(b.kept)
	b.full = b.full || len(p) > room
	b.kept = append(b.kept, p[:min(room, len(p))]...)
	return len(p), nil
}

func (b *bounded) String() string { return string(b.kept) }

// FirstLine is the first line with a word in it, cut to a length that a note can
// have.
func FirstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	line = strings.TrimSpace(line)
	if len(line) > 200 {
		line = strings.ToValidUTF8(line[:200], "") + "…"
	}
	return line
}

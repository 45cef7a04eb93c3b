package builtin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
)

const (
	pollInterval = 100 * time.Millisecond
	maxLine      = 1 << 20
	// outputWaitDelay is how long to wait for the output of a program that has exited while another process holds it open. It is generous:
	// on a busy machine the rest of the output still has to be copied.
	outputWaitDelay = 5 * time.Second
)

// followLines calls onLine with each complete line that is appended to a file. stop reads the rest, and returns after the last call.
func followLines(f *os.File, onLine func([]byte)) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var partial []byte
		buf := make([]byte, 64<<10)
		poll := func() {
			for {
				n, err := f.Read(buf)
				partial = append(partial, buf[:n]...)
				for {
					text, rest, found := bytes.Cut(partial, []byte("\n"))
					if !found {
						break
					}
					onLine(text)
					partial = rest
				}
				if len(partial) > maxLine {
					partial = nil // no known program writes such lines
				}
				if err != nil || n == 0 {
					return
				}
			}
		}
		for {
			select {
			case <-done:
				poll()
				return
			case <-time.After(pollInterval):
				poll()
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

// newCommand returns a command of the task. It has no context: a stop signals all processes of the task, and the command may exit in order.
func newCommand(words []string, stdout, stderr io.Writer) *exec.Cmd {
	cmd := exec.Command(words[0], words[1:]...) //nolint:noctx // see above
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdout, stderr, outputWaitDelay
	return cmd
}

// startCommand starts a command. It asks it to exit when ctx ends, until stop is called.
func startCommand(ctx context.Context, cmd *exec.Cmd) (stop func() bool, err error) {
	err = cmd.Start()
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return nil, failf(muster.BadInput, "%s: command not found on this worker, nor in the task's folder", cmd.Args[0])
	case err != nil:
		return nil, fmt.Errorf("cannot execute %s: %w", cmd.Args[0], err)
	}
	return context.AfterFunc(ctx, func() { terminate(cmd.Process) }), nil
}

// terminate asks a process to exit, or kills it where it cannot be asked.
func terminate(p *os.Process) {
	if runtime.GOOS == "windows" {
		_ = p.Kill() // it may have exited
		return
	}
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		_ = p.Kill()
	}
}

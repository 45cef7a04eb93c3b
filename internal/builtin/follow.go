package builtin

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	pollInterval = 100 * time.Millisecond
	maxLine      = 1 << 20
	// outputWaitDelay is how long a program's output is waited for when it has ended, and left somebody who holds that. It is not cut short
	// on a machine that is busy: what is there then is still to be passed on.
	outputWaitDelay = 5 * time.Second
)

// followLines calls line with each whole line that others append to a file. The returned function looks a last time, and returns when line is called no more.
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
					partial = nil // nobody whom we know writes such lines
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

// terminate asks a process to end. Where that cannot be asked it is killed.
func terminate(p *os.Process) {
	if runtime.GOOS == "windows" {
		_ = p.Kill() // it may have ended
		return
	}
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		_ = p.Kill()
	}
}

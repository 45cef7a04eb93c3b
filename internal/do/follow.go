package do

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
	lookEvery = 100 * time.Millisecond
	maxLine   = 1 << 20
	// leftWait is how long a program's output is waited for when it has ended, and left somebody who holds that. It is not cut short
	// on a machine that is busy: what is there then is still to be passed on.
	leftWait = 5 * time.Second
)

// follow calls line with each whole line that others append to a file. The returned function looks a last time, and returns when line is called no more.
func follow(f *os.File, line func([]byte)) (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var part []byte
		buf := make([]byte, 64<<10)
		look := func() {
			for {
				n, err := f.Read(buf)
				part = append(part, buf[:n]...)
				for {
					text, rest, found := bytes.Cut(part, []byte("\n"))
					if !found {
						break
					}
					line(text)
					part = rest
				}
				if len(part) > maxLine {
					part = nil // nobody whom we know writes such lines
				}
				if err != nil || n == 0 {
					return
				}
			}
		}
		for {
			select {
			case <-end:
				look()
				return
			case <-time.After(lookEvery):
				look()
			}
		}
	})
	return func() {
		close(end)
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

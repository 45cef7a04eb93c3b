//go:build unix

package isolation

import (
	"errors"
	"syscall"
	"time"
)

// forkExec starts p with attr. It retries while a program that was just written is busy: a process that is being forked at this
// moment may still have it open for writing.
func forkExec(p *Program, attr *syscall.SysProcAttr) (int, error) {
	attr.Setsid, attr.Setctty = true, p.TTY
	attrs := &syscall.ProcAttr{
		Dir:   p.Dir,
		Env:   p.Env,
		Files: []uintptr{p.Stdin.Fd(), p.Stdout.Fd(), p.Stderr.Fd()},
		Sys:   attr,
	}
	if p.extraFile != nil {
		attrs.Files = append(attrs.Files, p.extraFile.Fd())
	}
	for retries := 0; ; retries++ {
		pid, err := syscall.ForkExec(p.Path, p.Argv, attrs)
		if errors.Is(err, syscall.ETXTBSY) && retries < 100 {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		return pid, err
	}
}

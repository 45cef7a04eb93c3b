package python

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/run"
)

// runBuild runs uv for packages that a task chose. Installing a package may execute its code, so uv can only write to tmp and to its
// cache.
func (t *tool) runBuild(ctx context.Context, uv, tmp string, read []string, handler outputHandler, args ...string) error {
	env := append(t.env(), "HOME="+tmp, "TMPDIR="+tmp)
	write := []string{tmp}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case "UV_CACHE_DIR":
			if err := os.MkdirAll(value, 0o700); err != nil {
				return run.Failf(muster.WorkerInternal, "create the folder for fetched packages: %w", err)
			}
			write = append(write, value)
		case "UV_FIND_LINKS":
			read = append(read, strings.Split(value, ",")...)
		case "UV_PYTHON_INSTALL_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE":
			read = append(read, value)
		}
	}
	return t.runIsolated(ctx, read, write, tmp, env, handler, uv, args...)
}

// runIsolated runs a program that may execute code of tasks. It sees what tasks see, and the paths in read and write.
func (t *tool) runIsolated(ctx context.Context, read, write []string, dir string, env []string, handler outputHandler, path string, args ...string) error {
	if t.isolator == nil {
		return command(ctx, nil, dir, env, handler, path, args...)
	}
	read = append(read, programDirs(path)...)
	for i, arg := range args {
		if arg == "--python" && i+1 < len(args) {
			read = append(read, programDirs(args[i+1])...)
		}
	}
	c := t.isolator.PrepareTool(read, write)
	if c.Sandbox == nil && c.User == nil {
		c = nil
	}
	return command(ctx, c, dir, env, handler, path, args...)
}

// programDirs returns the folders that a program needs: of its file, and of its installation.
func programDirs(path string) []string {
	list := []string{filepath.Dir(path)}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		list = append(list, filepath.Dir(target))
		if bin := filepath.Dir(target); filepath.Base(bin) == "bin" && filepath.Dir(bin) != "/" {
			list = append(list, filepath.Dir(bin))
		}
	}
	return list
}

// command runs a program within c, which may be nil, and passes each line of its output to the handler. It kills the program and its
// children when ctx ends, and its children when it exits.
func command(ctx context.Context, c *run.IsolationSpec, dir string, env []string, handler outputHandler, path string, args ...string) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	pid, handle, err := isolation.Spawn(c, isolation.Program{Path: path, Argv: append([]string{path}, args...), Env: env, Dir: dir, Stdin: null, Stdout: w, Stderr: w})
	_ = w.Close()
	if err != nil {
		return err
	}
	if handler.onStart != nil {
		handler.onStart(pid)
	}
	if handle >= 0 {
		_ = os.NewFile(uintptr(handle), "pidfd").Close()
	}
	readDone := make(chan struct{})
	go func() {
		defer close(readDone)
		scanLines(r, handler.onLine)
	}()
	proc, err := os.FindProcess(pid) // which is not reaped yet
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { killGroup(pid) })
	st, err := proc.Wait()
	stop()
	killGroup(pid)                                         // its children
	_ = r.SetReadDeadline(time.Now().Add(5 * time.Second)) // an escaped process may hold the pipe open
	<-readDone
	switch cause := context.Cause(ctx); {
	case cause != nil && (err != nil || !st.Success()):
		return cause
	case err != nil:
		return err
	case !st.Success():
		return fmt.Errorf("%s ended with %s", filepath.Base(path), st)
	}
	return nil
}

package container

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/egress"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// entrypointPath is the path of this program in a container that has an allowlist or standard input.
const entrypointPath = "/muster/gate"

// addEntrypoint makes a container with an allowlist wait for its proxy, which can only start after the container, and gives it its standard input.
// It returns the allowed hosts, nil without an allowlist.
func (c *Containers) addEntrypoint(p *docker.ContainerSpec, b *run.ContainerSpec, img *docker.Image, about *docker.Info) ([]string, error) {
	spec := b.Task.Spec
	opts := egress.EntrypointOptions{Proxy: spec.Network == muster.NetworkAllowlist, Stdin: b.Stdin}
	if !opts.Proxy && opts.Stdin == "" {
		return nil, nil
	}
	if err := c.checkAllowlist(spec, about); err != nil {
		return nil, err
	}
	program, err := c.program.Copy(filepath.Join(c.cfg.Dir, "gate"), true)
	switch {
	case err != nil && opts.Proxy:
		return nil, allowlistError(err)
	case err != nil:
		return nil, run.Failf(muster.Dependency, "this worker does not support standard input in containers: %w", err)
	}
	if p.Entrypoint == nil {
		if p.Entrypoint = img.Entrypoint; p.Command == nil {
			p.Command = img.Command
		}
	}
	p.Entrypoint, p.Command = append([]string{entrypointPath}, opts.Args()...), slices.Concat(p.Entrypoint, p.Command)
	p.Mounts = append(p.Mounts, docker.Mount{Source: program, Target: entrypointPath, ReadOnly: true})
	if !opts.Proxy {
		return nil, nil
	}
	return spec.AllowHosts, nil
}

// checkAllowlist returns a TaskError if a container cannot have the network of its spec. It is not an engine failure: a retry on this
// worker would fail too.
func (c *Containers) checkAllowlist(spec *muster.TaskSpec, about *docker.Info) error {
	if spec.Network != muster.NetworkAllowlist {
		return nil
	}
	rules, err := egress.Parse(spec.AllowHosts)
	switch {
	case err != nil:
		return run.Failf(muster.TaskInvalid, "%w", err)
	case rules.AllowsLoopback() && (c.cfg.Allow == nil || !c.cfg.Allow.HostNetwork):
		return run.Failf(muster.Dependency, "allow_hosts has loopback addresses, which are the worker's, but this worker's owner does not allow containers to use its network")
	}
	if missing := c.missingForAllowlist(about); missing != nil {
		return allowlistError(missing)
	}
	return nil
}

func allowlistError(err error) error {
	return run.Failf(muster.Dependency, "this worker does not support network: allowlist in containers: %w", err)
}

// AllowlistUnavailable returns why containers cannot have network: allowlist, nil if they can, or if the engine was never ready.
func (c *Containers) AllowlistUnavailable() error {
	if about := c.About(); about != nil {
		return c.missingForAllowlist(about)
	}
	return nil
}

// missingForAllowlist returns why containers of an engine cannot have an allowlist, nil if they can.
func (c *Containers) missingForAllowlist(about *docker.Info) error {
	switch {
	case !c.isLocal(about):
		return fmt.Errorf("the container engine at %s is not on the worker's own machine", c.cfg.Engine.Host())
	case runtime.GOOS != "linux" || os.Geteuid() != 0:
		return errors.New("it does not run as root, which is required to enter their networks")
	}
	f, err := c.program.open(true)
	if err != nil {
		return err
	}
	return f.Close()
}

// ProgramCopy is a copy of this program that every user may execute, even after an upgrade replaced the original. The zero value is
// ready for use. Its methods may be called concurrently.
type ProgramCopy struct {
	mu   sync.Mutex
	self string // the program; "" for this process's own
	path string // of the copy; "" until it is created
}

// Copy returns the path of the copy in dir and creates it if this build has none. With everywhere it fails if the program cannot be
// executed in every container.
func (g *ProgramCopy) Copy(dir string, everywhere bool) (string, error) {
	f, err := g.open(everywhere)
	if err != nil {
		return "", err
	}
	defer f.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, err := os.Stat(g.path); err == nil {
		return g.path, nil
	}
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("its own program cannot be read: %w", err)
	}
	path := filepath.Join(dir, fmt.Sprintf("muster-%d-%d", info.Size(), info.ModTime().UnixNano()))
	if existing, err := os.Stat(path); err != nil || existing.Size() != info.Size() {
		if err := copyTo(path, f); err != nil {
			return "", fmt.Errorf("its own program cannot be copied: %w", err)
		}
	}
	g.path = path
	return path, nil
}

func (g *ProgramCopy) open(everywhere bool) (*os.File, error) {
	self := g.self
	if self == "" {
		self = "/proc/self/exe" // works even after the file was replaced
		if runtime.GOOS != "linux" {
			var err error
			if self, err = os.Executable(); err != nil {
				return nil, fmt.Errorf("its own program cannot be found: %w", err)
			}
		}
	}
	f, err := os.Open(self)
	if err != nil {
		return nil, fmt.Errorf("its own program cannot be read: %w", err)
	}
	if everywhere {
		if err := checkStatic(f); err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	return f, nil
}

// checkStatic returns why a program cannot be executed in every container, nil if it can.
func checkStatic(f *os.File) error {
	e, err := elf.NewFile(f)
	if err != nil {
		return fmt.Errorf("its own program is not a Linux binary: %w", err)
	}
	if slices.ContainsFunc(e.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return errors.New("this muster binary needs shared libraries, which images do not have: use a binary built with CGO_ENABLED=0")
	}
	return nil
}

// copyTo copies a program to path and removes the copies of earlier builds beside it.
func copyTo(path string, f *os.File) error {
	dir := filepath.Dir(path)
	old, _ := filepath.Glob(filepath.Join(dir, "muster-*")) // the pattern is right
	for _, file := range old {
		_ = os.Remove(file) // containers that execute it keep it
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return atomicfile.WriteFunc(path, 0o755, func(w io.Writer) error { // the users of containers execute it
		_, err := io.Copy(w, io.NewSectionReader(f, 0, 1<<40))
		return err
	})
}

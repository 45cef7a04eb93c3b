package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/userns"
)

// Engine is a container engine that this user may use.
type Engine struct {
	Name     string   `json:"name"` // docker, podman or nerdctl
	Version  string   `json:"version,omitempty"`
	Socket   string   `json:"socket,omitempty"` // if it is used through its API
	Tool     string   `json:"tool,omitempty"`   // the path of its program, if only that answers
	Rootless bool     `json:"rootless,omitempty"`
	Remapped bool     `json:"remapped,omitempty"`        // user namespaces: root in containers is another user outside
	Users    *Users   `json:"user_namespaces,omitempty"` // of the containers of tasks; nil if it runs none
	Runtimes []string `json:"runtimes,omitempty"`        // such as runc, nvidia
	GPUs     []string `json:"gpus"`                      // vendors of GPUs that containers can use: by a runtime or by CDI
}

// Users says which user namespaces the containers of tasks have.
type Users struct {
	Of  userns.Mode `json:"of"`            // container: each its own; engine: that of the engine; none
	Why string      `json:"why,omitempty"` // not each its own
}

// RunsTasks reports whether workers on that operating system can run tasks with the engine: through its API, so a program is not enough.
func (e *Engine) RunsTasks(os string) bool {
	return e.Socket != "" || os == "windows" && e.Name == "docker" // its API is at a named pipe
}

// engines returns the engines that answer, for a worker with this data directory. A note explains why one that exists does not.
func (h *host) engines(ctx context.Context, data string) (found []Engine, notes []string) {
	found = []Engine{}
	cdi := h.cdi()
	byTool := func(name string, parse func([]byte, []string) (*Engine, error), args ...string) func() (*Engine, error) {
		return func() (*Engine, error) { return h.queryEngine(ctx, name, parse, cdi, args...) }
	}
	bySocket := func(name string, sockets []string) func() (*Engine, error) {
		return func() (*Engine, error) { return firstSocket(ctx, name, sockets, cdi, data) }
	}
	infoArgs := []string{"info", "--format", "{{json .}}"}
	queries := []func() (*Engine, error){byTool("docker", parseDocker, infoArgs...)}
	if h.os != "windows" {
		queries = []func() (*Engine, error){bySocket("docker", h.dockerSockets()), bySocket("podman", h.podmanSockets())}
	}
	queries = append(queries, byTool("podman", parsePodman, "info", "--format", "json"), byTool("nerdctl", parseDocker, infoArgs...))
	engines, errs := make([]*Engine, len(queries)), make([]error, len(queries))
	var wg sync.WaitGroup
	for i, query := range queries { // concurrently: one of them may hang
		wg.Go(func() { engines[i], errs[i] = query() })
	}
	wg.Wait()
	for i, e := range engines {
		switch {
		case errs[i] != nil:
			notes = append(notes, errs[i].Error())
		case e != nil && !slices.ContainsFunc(found, func(o Engine) bool { return o.Name == e.Name }):
			found = append(found, *e)
		}
	}
	return found, notes
}

// dockerSockets lists the sockets of Docker: the one that the user chose, else those of the machine, of the user, and of desktop
// products.
func (h *host) dockerSockets() []string {
	addr := h.env("DOCKER_HOST")
	if strings.Contains(h.engine, "://") {
		addr = h.engine
	}
	all, _ := docker.Sockets(h.home, h.env("XDG_RUNTIME_DIR"))
	return chosenSocket(addr, all)
}

func (h *host) podmanSockets() []string {
	_, all := docker.Sockets(h.home, h.env("XDG_RUNTIME_DIR"))
	return chosenSocket(h.env("CONTAINER_HOST"), all)
}

// chosenSocket returns the socket at addr, or all if addr is "".
func chosenSocket(addr string, all []string) []string {
	if addr == "" {
		return all
	}
	if socket, ok := strings.CutPrefix(addr, "unix://"); ok {
		return []string{socket}
	}
	return nil // an engine on another machine
}

// firstSocket returns the first engine that answers at one of the sockets, or why the first socket that exists has none.
func firstSocket(ctx context.Context, name string, sockets []string, cdi []string, data string) (*Engine, error) {
	var reason error
	for _, socket := range sockets {
		e, err := querySocket(ctx, socket, cdi, data)
		switch {
		case err == nil:
			return e, nil
		case errors.Is(err, fs.ErrNotExist) || reason != nil:
		case errors.Is(err, fs.ErrPermission):
			reason = fmt.Errorf("%s is not usable: this user has no permission for %s; add the user to the group that owns it", name, socket)
		case errors.Is(err, syscall.ECONNREFUSED):
			reason = fmt.Errorf("%s is not usable: connection refused at %s; start its service to use it", name, socket)
		default:
			reason = fmt.Errorf("%s is not usable: %s: %w", name, socket, err)
		}
	}
	return nil, reason
}

// socketTimeout is the time of an engine's answers at a socket.
const socketTimeout = 5 * time.Second

// querySocket queries the engine at a socket through Docker's API, which Podman has as well.
func querySocket(ctx context.Context, socket string, cdi []string, data string) (*Engine, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, socketTimeout, fmt.Errorf("no answer within %s", socketTimeout))
	defer cancel()
	info, err := docker.Query(ctx, "unix://"+socket)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	}
	e := &Engine{Name: info.Name, Version: strings.TrimPrefix(info.Version, "v"), Socket: socket, Rootless: info.Rootless, Remapped: info.Remapped, Runtimes: info.Runtimes}
	e.setGPUs(len(info.CDI) > 0, cdi)
	users := userns.Describe("unix://"+socket, info, data)
	e.Users = &Users{users.Mode, users.Why}
	return e, nil
}

// queryEngine queries an engine through its command line.
func (h *host) queryEngine(ctx context.Context, name string, parse func([]byte, []string) (*Engine, error), cdi []string, args ...string) (*Engine, error) {
	tool := lookPath(name)
	if tool == "" {
		return nil, nil //nolint:nilnil // no tool, no engine, no note
	}
	out, err := h.run(ctx, tool, args...)
	if err != nil {
		return nil, fmt.Errorf("%s is not usable: %w", name, err)
	}
	e, err := parse(out, cdi)
	if err != nil {
		return nil, fmt.Errorf("%s is not usable: %w", name, err)
	}
	e.Name, e.Tool = name, tool
	return e, nil
}

// parseDocker parses the answer to /info of the Docker Engine API, which docker info and nerdctl info print too.
func parseDocker(info []byte, cdi []string) (*Engine, error) {
	var d struct {
		ServerVersion   string         `json:"ServerVersion"`
		SecurityOptions []string       `json:"SecurityOptions"`
		Runtimes        map[string]any `json:"Runtimes"`
		CDISpecDirs     []string       `json:"CDISpecDirs"` // if CDI is enabled
	}
	if err := json.Unmarshal(info, &d); err != nil {
		return nil, fmt.Errorf("cannot parse its answer: %w", err)
	}
	if d.ServerVersion == "" {
		return nil, errors.New("its service does not run; start it to use it")
	}
	e := &Engine{Version: strings.TrimPrefix(d.ServerVersion, "v"), Rootless: slices.Contains(d.SecurityOptions, "name=rootless"), Remapped: slices.Contains(d.SecurityOptions, "name=userns"), Runtimes: slices.Sorted(maps.Keys(d.Runtimes))}
	e.setGPUs(len(d.CDISpecDirs) > 0, cdi)
	return e, nil
}

// setGPUs sets the vendors of GPUs that containers can use: by a runtime or, if it is enabled, by CDI.
func (e *Engine) setGPUs(cdiEnabled bool, cdi []string) {
	e.GPUs = []string{}
	if slices.Contains(e.Runtimes, "nvidia") {
		e.GPUs = append(e.GPUs, "nvidia")
	}
	if cdiEnabled {
		e.GPUs = append(e.GPUs, gpuVendors(cdi)...)
	}
	slices.Sort(e.GPUs)
	e.GPUs = slices.Compact(e.GPUs)
}

// parsePodman parses the JSON of podman info. Podman supports CDI without configuration.
func parsePodman(info []byte, cdi []string) (*Engine, error) {
	var p struct {
		Host struct {
			Rootless bool `json:"rootless"` // before Podman 3
			Security struct {
				Rootless bool `json:"rootless"`
			} `json:"security"`
			Runtime struct {
				Name string `json:"name"`
			} `json:"ociRuntime"`
		} `json:"host"`
		Version struct {
			Version string `json:"Version"`
		} `json:"version"`
	}
	if err := json.Unmarshal(info, &p); err != nil {
		return nil, fmt.Errorf("cannot parse its answer: %w", err)
	}
	if p.Version.Version == "" {
		return nil, errors.New("its answer has no version")
	}
	e := &Engine{Version: p.Version.Version, Rootless: p.Host.Rootless || p.Host.Security.Rootless, GPUs: gpuVendors(cdi)}
	if p.Host.Runtime.Name != "" {
		e.Runtimes = []string{p.Host.Runtime.Name}
	}
	return e, nil
}

// cdi returns the kinds of devices that this machine's CDI specs describe, such as nvidia.com/gpu.
func (h *host) cdi() (kinds []string) {
	for _, spec := range docker.CDISpecs(h.fs, docker.CDIDirs) {
		kinds = append(kinds, spec.Kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// gpuVendors returns the vendors of the GPUs among the kinds.
func gpuVendors(kinds []string) []string {
	found := []string{}
	for _, kind := range kinds {
		if vendor, class, ok := strings.Cut(kind, ".com/"); ok && class == "gpu" && slices.Contains([]string{"nvidia", "amd", "intel"}, vendor) {
			found = append(found, vendor)
		}
	}
	return found
}

package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Engine runs containers for this user.
type Engine struct {
	Name     string   `json:"name"` // docker, podman or nerdctl
	Version  string   `json:"version,omitempty"`
	Socket   string   `json:"socket,omitempty"` // where it is reached, if it is not by its tool
	Tool     string   `json:"tool,omitempty"`   // the path of its program, if that is how
	Rootless bool     `json:"rootless,omitempty"`
	Runtimes []string `json:"runtimes,omitempty"` // such as runc, nvidia
	GPUs     []string `json:"gpus"`               // makers of devices that it hands to containers: by a runtime of theirs or by CDI
}

// engines finds out which engines there are and answer. One that is there and does not is
// told in a note.
func (h *host) engines(ctx context.Context, a *toolRunner) (found []Engine, notes []string) {
	found = []Engine{}
	cdi := h.cdi()
	byTool := func(name string, parse func([]byte, []string) (*Engine, error), args ...string) func() (*Engine, error) {
		return func() (*Engine, error) { return queryEngine(ctx, a, name, parse, cdi, args...) }
	}
	bySocket := func(name string, sockets []string) func() (*Engine, error) {
		return func() (*Engine, error) { return firstSocket(ctx, name, sockets, cdi) }
	}
	docker := []string{"info", "--format", "{{json .}}"}
	queries := []func() (*Engine, error){byTool("docker", parseDocker, docker...)}
	if h.os != "windows" {
		queries = []func() (*Engine, error){bySocket("docker", h.dockerSockets()), bySocket("podman", h.podmanSockets())}
	}
	queries = append(queries, byTool("podman", parsePodman, "info", "--format", "json"), byTool("nerdctl", parseDocker, docker...))
	type answer struct {
		engine *Engine
		err    error
	}
	answers := make([]answer, len(queries))
	var wg sync.WaitGroup
	for i, query := range queries { // at the same time: one that hangs is waited for alone
		wg.Go(func() { answers[i].engine, answers[i].err = query() })
	}
	wg.Wait()
	for _, x := range answers {
		switch e := x.engine; {
		case x.err != nil:
			notes = append(notes, x.err.Error())
		case e != nil && !slices.ContainsFunc(found, func(o Engine) bool { return o.Name == e.Name }):
			found = append(found, *e)
		}
	}
	return found, notes
}

// dockerSockets lists where Docker may listen: where the user says, else for the
// machine, for the user alone, and where its desktop relatives do.
func (h *host) dockerSockets() []string {
	addr := h.env("DOCKER_HOST")
	if strings.Contains(h.engine, "://") {
		addr = h.engine
	}
	if addr != "" {
		socket, ok := strings.CutPrefix(addr, "unix://")
		if !ok {
			return nil // the engine of another machine
		}
		return []string{socket}
	}
	all := []string{"/var/run/docker.sock"}
	if dir := h.env("XDG_RUNTIME_DIR"); dir != "" {
		all = append(all, filepath.Join(dir, "docker.sock"))
	}
	if h.home != "" {
		for _, dir := range []string{".docker/run", ".docker/desktop", ".colima/default", ".orbstack/run", ".rd"} {
			all = append(all, filepath.Join(h.home, filepath.FromSlash(dir), "docker.sock"))
		}
	}
	return all
}

func (h *host) podmanSockets() []string {
	if addr := h.env("CONTAINER_HOST"); addr != "" {
		if socket, ok := strings.CutPrefix(addr, "unix://"); ok {
			return []string{socket}
		}
		return nil
	}
	var all []string
	if dir := h.env("XDG_RUNTIME_DIR"); dir != "" {
		all = append(all, filepath.Join(dir, "podman", "podman.sock"))
	}
	return append(all, "/run/podman/podman.sock")
}

// firstSocket returns the first engine that answers at one of the sockets, or else why
// the first socket that is there does not lead to one.
func firstSocket(ctx context.Context, name string, sockets []string, cdi []string) (*Engine, error) {
	var reason error
	for _, socket := range sockets {
		e, err := querySocket(ctx, socket, cdi)
		switch {
		case err == nil:
			return e, nil
		case errors.Is(err, fs.ErrNotExist) || reason != nil:
		case errors.Is(err, fs.ErrPermission):
			reason = fmt.Errorf("%s is not offered: this user may not use %s; add the user to the group that owns it", name, socket)
		case errors.Is(err, syscall.ECONNREFUSED):
			reason = fmt.Errorf("%s is not offered: nobody answers at %s; start its service if it is wanted", name, socket)
		default:
			reason = fmt.Errorf("%s is not offered: %s: %w", name, socket, err)
		}
	}
	return nil, reason
}

// querySocket asks the engine at a socket by Docker's HTTP API, which Podman speaks
// as well.
func querySocket(ctx context.Context, socket string, cdi []string) (*Engine, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, toolTimeout, fmt.Errorf("it did not answer within %s", toolTimeout))
	defer cancel()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	get := func(path string) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine"+path, nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("it answers %s", resp.Status)
		}
		return readLimited(resp.Body, maxOutput), nil
	}
	version, err := get("/version")
	if err != nil {
		return nil, err
	}
	info, err := get("/info")
	if err != nil {
		return nil, err
	}
	e, err := parseDocker(info, cdi)
	if err != nil {
		return nil, err
	}
	e.Name, e.Socket = "docker", socket
	if isPodman(version) {
		e.Name = "podman"
	}
	return e, nil
}

// queryEngine asks an engine by its tool.
func queryEngine(ctx context.Context, a *toolRunner, name string, parse func([]byte, []string) (*Engine, error), cdi []string, args ...string) (*Engine, error) {
	tool := lookPath(name)
	if tool == "" {
		return nil, nil //nolint:nilnil // no tool, no engine, no note
	}
	out, err := a.run(ctx, tool, args...)
	if err != nil {
		return nil, fmt.Errorf("%w; it is not offered", err)
	}
	e, err := parse(out, cdi)
	if err != nil {
		return nil, fmt.Errorf("%s is not offered: %w", name, err)
	}
	e.Name, e.Tool = name, tool
	return e, nil
}

// isPodman tells Podman by what it calls itself in the answer to /version.
func isPodman(version []byte) bool {
	var v struct {
		Components []component `json:"Components"`
	}
	if json.Unmarshal(version, &v) != nil {
		return false
	}
	return slices.ContainsFunc(v.Components, func(c component) bool { return strings.HasPrefix(c.Name, "Podman") })
}

type component struct {
	Name string `json:"Name"`
}

// parseDocker reads the answer to /info of the Docker Engine API, which docker and
// nerdctl print as well.
func parseDocker(info []byte, cdi []string) (*Engine, error) {
	var d struct {
		ServerVersion   string         `json:"ServerVersion"`
		SecurityOptions []string       `json:"SecurityOptions"`
		Runtimes        map[string]any `json:"Runtimes"`
		CDISpecDirs     []string       `json:"CDISpecDirs"` // where CDI is on
	}
	if err := json.Unmarshal(info, &d); err != nil {
		return nil, fmt.Errorf("its answer cannot be read: %w", err)
	}
	if d.ServerVersion == "" {
		return nil, errors.New("its service does not answer; start it if it is wanted")
	}
	e := &Engine{Version: strings.TrimPrefix(d.ServerVersion, "v"), GPUs: []string{}}
	e.Rootless = slices.Contains(d.SecurityOptions, "name=rootless")
	for name := range d.Runtimes {
		e.Runtimes = append(e.Runtimes, name)
	}
	slices.Sort(e.Runtimes)
	if slices.Contains(e.Runtimes, "nvidia") {
		e.GPUs = append(e.GPUs, "nvidia")
	}
	if len(d.CDISpecDirs) > 0 {
		e.GPUs = append(e.GPUs, gpuVendors(cdi)...)
	}
	slices.Sort(e.GPUs)
	e.GPUs = slices.Compact(e.GPUs)
	return e, nil
}

// parsePodman reads what podman info prints as JSON. Podman hands over what CDI
// names without being told to.
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
		return nil, fmt.Errorf("its answer cannot be read: %w", err)
	}
	if p.Version.Version == "" {
		return nil, errors.New("its answer does not tell its version")
	}
	e := &Engine{Version: p.Version.Version, Rootless: p.Host.Rootless || p.Host.Security.Rootless, GPUs: gpuVendors(cdi)}
	if p.Host.Runtime.Name != "" {
		e.Runtimes = []string{p.Host.Runtime.Name}
	}
	return e, nil
}

// cdiDirs are where the Container Device Interface keeps its specs.
var cdiDirs = []string{"/etc/cdi", "/var/run/cdi"}

// cdi returns the kinds of devices that CDI specs on this machine describe, such
// as nvidia.com/gpu.
func (h *host) cdi() []string {
	var kinds []string
	for _, dir := range cdiDirs {
		for _, name := range h.readDir(dir) {
			if ext := filepath.Ext(name); ext != ".json" && ext != ".yaml" && ext != ".yml" {
				continue
			}
			if kind := cdiKind(h.readText(dir + "/" + name)); kind != "" {
				kinds = append(kinds, kind)
			}
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// cdiKind reads the kind of a spec in JSON or YAML, where it stands at the top
// level as in all that the makers' tools write.
func cdiKind(spec string) string {
	var j struct {
		Kind string `json:"kind"`
	}
	if json.Unmarshal([]byte(spec), &j) == nil {
		return j.Kind
	}
	for line := range strings.Lines(spec) {
		if value, ok := strings.CutPrefix(line, "kind:"); ok {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return ""
}

// gpuVendors are those whose GPUs are among the kinds.
func gpuVendors(kinds []string) []string {
	found := []string{}
	for _, kind := range kinds {
		if maker, class, ok := strings.Cut(kind, ".com/"); ok && class == "gpu" && slices.Contains([]string{"nvidia", "amd", "intel"}, maker) {
			found = append(found, maker)
		}
	}
	return found
}

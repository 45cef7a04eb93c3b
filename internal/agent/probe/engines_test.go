package probe

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseEngines(t *testing.T) {
	type parser func([]byte, []string) (*Engine, error)
	for _, tc := range []struct {
		file  string
		parse parser
		cdi   []string
		want  *Engine
		bad   string
	}{
		{"docker-24", parseDocker, nil, &Engine{Version: "24.0.7", Runtimes: []string{"io.containerd.runc.v2", "nvidia", "runc"}, GPUs: []string{"nvidia"}}, ""},
		{"docker-28-cdi", parseDocker, []string{"nvidia.com/gpu", "vendor.com/nic"}, &Engine{Version: "28.0.0", Rootless: true, Runtimes: []string{"runc"}, GPUs: []string{"nvidia"}}, ""},
		{"docker-28-cdi", parseDocker, nil, &Engine{Version: "28.0.0", Rootless: true, Runtimes: []string{"runc"}, GPUs: []string{}}, ""},
		{"docker-24", parseDocker, []string{"amd.com/gpu"}, &Engine{Version: "24.0.7", Runtimes: []string{"io.containerd.runc.v2", "nvidia", "runc"}, GPUs: []string{"nvidia"}}, ""}, // it has no CDI
		{"docker-client-only", parseDocker, nil, nil, "its service does not run"},
		{"nerdctl", parseDocker, nil, &Engine{Version: "1.7.18", Rootless: true, GPUs: []string{}}, ""},
		{"podman-3", parsePodman, []string{"amd.com/gpu", "nvidia.com/gpu"}, &Engine{Version: "3.4.4", Rootless: true, Runtimes: []string{"crun"}, GPUs: []string{"amd", "nvidia"}}, ""},
		{"podman-1", parsePodman, nil, &Engine{Version: "2.0.0-dev", Rootless: true, Runtimes: []string{"runc"}, GPUs: []string{}}, ""},
		{"version-docker", parsePodman, nil, nil, "cannot parse"},
		{"../cpuinfo/xeon", parseDocker, nil, nil, "cannot parse"},
	} {
		file := "engines/" + tc.file
		if !strings.HasPrefix(tc.file, "..") {
			file += ".json"
		}
		e, err := tc.parse([]byte(recorded(t, file)), tc.cdi)
		if d := cmp.Diff(tc.want, e); d != "" {
			t.Errorf("%s with %q: %s", tc.file, tc.cdi, d)
		}
		if (err == nil) != (tc.bad == "") || err != nil && !strings.Contains(err.Error(), tc.bad) {
			t.Errorf("%s: got %v, want an error about %q", tc.file, err, tc.bad)
		}
	}
}

func TestCDI(t *testing.T) {
	h := fakeHost(map[string]string{
		"etc/cdi/nvidia.yaml":      "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n    - name: \"0\"\n      containerEdits: {}\n",
		"etc/cdi/old.yml":          "cdiVersion: \"0.3.0\"\nkind: \"vendor.com/nic\"\n",
		"etc/cdi/README":           "kind: not.a/spec\n",
		"var/run/cdi/amd.json":     `{"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": [{"name": "0"}]}`,
		"var/run/cdi/nvidia.json":  `{"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu"}`,
		"var/run/cdi/garbage.json": `{"kind": [`,
	})
	kinds := h.cdi()
	if d := cmp.Diff([]string{"amd.com/gpu", "nvidia.com/gpu", "vendor.com/nic"}, kinds); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"amd", "nvidia"}, gpuVendors(kinds)); d != "" {
		t.Error(d)
	}
}

// engine serves recorded answers at a socket.
func engine(t *testing.T, version, info string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("engines have no sockets on this system")
	}
	dir, err := os.MkdirTemp("", "e") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch path.Base(r.URL.Path) { // after the version of the API
		case "_ping":
			w.Header().Set("Api-Version", "1.43")
		case "version":
			_, _ = w.Write([]byte(version))
		case "info":
			_, _ = w.Write([]byte(info))
		default:
			http.NotFound(w, r)
		}
	}))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return socket
}

func TestEngineAtSocket(t *testing.T) {
	docker := engine(t, recorded(t, "engines/version-docker.json"), recorded(t, "engines/docker-24.json"))
	podman := engine(t, recorded(t, "engines/version-podman.json"), recorded(t, "engines/docker-28-cdi.json"))
	silent := filepath.Join(filepath.Dir(docker), "silent.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: silent, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for _, tc := range []struct {
		name    string
		sockets []string
		engine  string
		bad     string
	}{
		{"docker", []string{"/nowhere/docker.sock", docker}, "docker", ""},
		{"podman in the place of docker", []string{podman}, "podman", ""},
		{"one whose service is stopped", []string{silent}, "", "connection refused at " + silent},
		{"the next one, if the first is stopped", []string{silent, docker}, "docker", ""},
		{"none", []string{"/nowhere/docker.sock"}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, err := firstSocket(t.Context(), "docker", tc.sockets, nil, t.TempDir())
			if (e == nil) != (tc.engine == "") || e != nil && (e.Name != tc.engine || e.Version == "" || e.Socket == "") {
				t.Errorf("got %+v", e)
			}
			if (err == nil) != (tc.bad == "") || err != nil && !strings.Contains(err.Error(), tc.bad) {
				t.Errorf("got %v, want an error about %q", err, tc.bad)
			}
		})
	}
}

// TestHangingEngine checks that the probe times out on an engine that accepts a connection and never responds.
func TestHangingEngine(t *testing.T) {
	socket := engine(t, "", "")
	l, err := net.Listen("unix", socket+".2") // without Accept
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := querySocket(ctx, socket+".2", nil, t.TempDir()); err == nil {
		t.Error("a socket that never responds counts as an engine")
	}
}

// TestEngines finds engines by socket and by tool, each once.
func TestEngines(t *testing.T) {
	socket := engine(t, recorded(t, "engines/version-docker.json"), recorded(t, "engines/docker-24.json"))
	here, err := filepath.Abs("testdata/engines")
	if err != nil {
		t.Fatal(err)
	}
	writeTool(t, "podman", `[ "$*" = "info --format json" ] && cat `+here+`/podman-3.json`)
	writeTool(t, "nerdctl", `echo "cannot access containerd socket: permission denied" >&2; exit 1`)
	h := fakeHost(nil)
	h.env = func(name string) string {
		return map[string]string{"DOCKER_HOST": "unix://" + socket, "CONTAINER_HOST": "ssh://elsewhere"}[name]
	}
	h.toolTimeout = time.Minute // a script answers late where all is slow
	found, notes := h.engines(t.Context(), t.TempDir())
	if len(found) != 2 || found[0].Name != "docker" || found[0].Socket != socket || found[1].Name != "podman" || found[1].Tool == "" {
		t.Errorf("found %+v", found)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "nerdctl failed") || !strings.Contains(notes[0], "permission denied") {
		t.Errorf("notes %q", notes)
	}
	h.env = func(name string) string { return map[string]string{"DOCKER_HOST": "tcp://elsewhere:2375"}[name] }
	if sockets := h.dockerSockets(); len(sockets) != 0 {
		t.Errorf("the engine of another machine is searched at %q", sockets)
	}
	for named, want := range map[string]string{"unix:///own.sock": "/own.sock", "auto": socket, "none": socket, "": socket} {
		h.env = func(name string) string { return map[string]string{"DOCKER_HOST": "unix://" + socket}[name] }
		h.engine = named
		if sockets := h.dockerSockets(); len(sockets) != 1 || sockets[0] != want {
			t.Errorf("with the engine %q, engines are searched at %q, want %q", named, sockets, want)
		}
	}
}

// FuzzEngines checks that a parsed engine has a version and only known vendors.
func FuzzEngines(f *testing.F) {
	for _, name := range []string{"docker-24", "docker-28-cdi", "docker-client-only", "nerdctl", "podman-3", "podman-1", "version-podman"} {
		f.Add([]byte(recorded(f, "engines/"+name+".json")), "nvidia.com/gpu")
	}
	f.Add([]byte(`{"host":{"security":[]},"version":{"Version":"1"}}`), "kind: 'x'")
	f.Fuzz(func(t *testing.T, info []byte, spec string) {
		kinds := fakeHost(map[string]string{"etc/cdi/x.yaml": spec}).cdi()
		for _, parse := range []func([]byte, []string) (*Engine, error){parseDocker, parsePodman} {
			e, err := parse(info, kinds)
			if (e == nil) == (err == nil) {
				t.Fatalf("%+v, %v", e, err)
			}
			if e == nil {
				continue
			}
			for _, maker := range e.GPUs {
				if !slices.Contains([]string{"nvidia", "amd", "intel"}, maker) {
					t.Errorf("maker %q", maker)
				}
			}
			if _, err := json.Marshal(e); err != nil || e.Version == "" && !strings.Contains(string(info), "v") {
				t.Errorf("%+v: %v", e, err)
			}
		}
	})
}

package workerd

import (
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/container"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/probe"
)

func TestEngineAddress(t *testing.T) {
	usual := "unix:///var/run/docker.sock"
	if runtime.GOOS == "windows" {
		usual = ""
	}
	podman := []probe.Engine{{Name: "nerdctl", Tool: "/usr/bin/nerdctl"}, {Name: "podman", Socket: "/run/podman/podman.sock"}}
	for _, c := range []struct {
		engine, env string
		found       []probe.Engine
		want        string
	}{
		{"", "", nil, usual},
		{"auto", "", podman, "unix:///run/podman/podman.sock"},
		{"auto", "tcp://10.0.0.5:2375", podman, "tcp://10.0.0.5:2375"},
		{"none", "tcp://10.0.0.5:2375", podman, ""},
		{"unix:///a", "tcp://10.0.0.5:2375", podman, "unix:///a"},
	} {
		cfg := Config{Engine: c.engine}
		if got := cfg.engineHost(c.found, func(string) string { return c.env }); got != c.want {
			t.Errorf("--engine %q, DOCKER_HOST %q: %q, want %q", c.engine, c.env, got, c.want)
		}
	}
}

func TestEngineProblems(t *testing.T) {
	for _, cfg := range []Config{{}, {Engine: "none"}, {Engine: "auto"}, {Engine: "unix:///not/there"}, {Engine: "tcp://10.0.0.5:2375", ImageDisk: 1}} {
		if err := cfg.checkEngine(); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	for _, cfg := range []Config{{Engine: "docker"}, {Engine: "/var/run/docker.sock"}, {ImageDisk: -1}, {RegistryConfig: "/not/there"}} {
		if err := cfg.checkEngine(); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// TestLabelsDistinguishWorkers that share an engine.
func TestLabelsDistinguishWorkers(t *testing.T) {
	id := agent.Identity{Worker: "w-1", Server: "http://a"}
	other := agent.Identity{Worker: "w-1", Server: "http://b"}
	if a := ContainerLabel(id, "/data"); a == ContainerLabel(id, "/data2") || a == ContainerLabel(other, "/data") || a != ContainerLabel(id, "/data") {
		t.Errorf("the label is %s", a)
	}
}

// TestLostEngineIsReported checks that the worker logs why it no longer takes containers, also if the engine was detected and not configured,
// and that it logs nothing about a missing engine.
func TestLostEngineIsReported(t *testing.T) {
	var log strings.Builder
	lost := fmt.Errorf("no such socket: %w", fs.ErrNotExist)
	api, err := docker.Open("unix:///not/there")
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	containers, err := container.New(container.Config{Engine: api, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{Containers: containers, host: "unix:///not/there", log: slog.New(slog.NewTextHandler(&log, nil)), optional: true}
	if e.logChange(lost); log.Len() > 0 {
		t.Errorf("of a missing engine: %s", &log)
	}
	e.logChange(nil)
	log.Reset()
	if e.logChange(lost); !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "no such socket") {
		t.Errorf("of a lost engine: %q", &log)
	}
}

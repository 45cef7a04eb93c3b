package docker

import (
	"context"
	"errors"
	"testing"

	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// TestPullErrors checks the error texts of engines: those of Docker 20.10 and Podman 4.3 with a real registry, as in the tests of package
// container, and those of newer versions of Docker that their users report.
func TestPullErrors(t *testing.T) {
	e, err := Open("unix:///nowhere.sock")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		msg  string
		want error
	}{
		{`manifest for 127.0.0.1:5000/acme/tool:2 not found: manifest unknown: Unknown manifest`, ErrNotFound},
		{`manifest for alpine:nope not found: manifest unknown: manifest unknown`, ErrNotFound},
		{`failed to resolve reference "docker.io/library/alpine:nope": docker.io/library/alpine:nope: not found`, ErrNotFound},
		{`reading manifest 2 in 127.0.0.1:5000/acme/tool: manifest unknown: Unknown manifest`, ErrNotFound},
		{`no matching manifest for linux/amd64 in the manifest list entries`, ErrNotFound},
		{`name unknown: repository name not known to registry`, ErrNotFound},
		{`pull access denied for acme/tool, repository does not exist or may require 'docker login': denied: requested access to the resource is denied`, ErrDenied},
		{`Head "http://127.0.0.1:5000/v2/acme/tool/manifests/1": no basic auth credentials`, ErrDenied},
		{`unauthorized: authentication required`, ErrDenied},
		{`Head "https://ghcr.io/v2/acme/tool/manifests/1": denied: denied`, ErrDenied},
		{`initializing source docker://r.dev/acme/tool:1: reading manifest 1 in r.dev/acme/tool: unauthorized`, ErrDenied},
		{`failed to authorize: failed to fetch oauth token: unexpected status from GET request to https://r.dev/token: 401 Unauthorized`, ErrDenied},
		{`Get "https://nosuch.invalid/v2/": dial tcp: lookup nosuch.invalid on 10.0.0.53:53: no such host`, ErrRegistryUnreachable},
		{`Get "http://127.0.0.1:1/v2/": dial tcp 127.0.0.1:1: connect: connection refused`, ErrRegistryUnreachable},
		{`Get "https://r.dev/v2/": net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)`, ErrRegistryUnreachable},
		{`Get "https://r.dev/v2/": x509: certificate signed by unknown authority`, ErrRegistryUnreachable},
		{`Get "https://10.0.0.5:5000/v2/": http: server gave HTTP response to HTTPS client`, ErrRegistryUnreachable},
		{`pinging container registry 127.0.0.1:1: Get "https://127.0.0.1:1/v2/": dial tcp 127.0.0.1:1: connect: connection refused`, ErrRegistryUnreachable},
		{`received unexpected HTTP status: 500 Internal Server Error`, ErrRegistryFailed},
		{`pinging container registry 127.0.0.1:5000: invalid status code from registry 500 (Internal Server Error)`, ErrRegistryFailed},
		{`toomanyrequests: You have reached your pull rate limit. You may increase the limit by authenticating and upgrading`, ErrRegistryFailed},
		{`error pulling image configuration: image config verification failed for digest sha256:6cd1`, ErrRegistryFailed},
		{`filesystem layer verification failed for digest sha256:6cd1`, ErrRegistryFailed},
		{`parsing image configuration: Download config.json digest sha256:e5bd does not match expected sha256:e5c8`, ErrRegistryFailed},
		{`unexpected EOF`, ErrRegistryFailed},
		{`failed to register layer: Error processing tar file(exit status 1): write /filler: no space left on device`, ErrDiskFull},
	} {
		if err := e.pullError(t.Context(), "x", errors.New(c.msg)); !errors.Is(err, c.want) {
			t.Errorf("%q: want %v", c.msg, c.want)
		}
	}
	ctx, end := context.WithCancelCause(t.Context())
	end(ErrConflict) // any cause
	if err := e.pullError(ctx, "x", errors.New("manifest unknown")); !errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {
		t.Errorf("once its context has ended, that is why: %v", err)
	}
}

func TestPullProgress(t *testing.T) {
	l := layers{}
	at := func(done, total int64) *jsonstream.Progress {
		return &jsonstream.Progress{Current: done, Total: total}
	}
	for i, c := range []struct {
		m       jsonstream.Message
		changed bool
		want    PullProgress
	}{
		{jsonstream.Message{Status: "Pulling from acme/tool"}, true, PullProgress{}},
		{jsonstream.Message{ID: "a", Status: "Pulling fs layer"}, true, PullProgress{}},
		{jsonstream.Message{ID: "b", Status: "Waiting"}, true, PullProgress{}},
		{jsonstream.Message{ID: "a", Status: "Downloading", Progress: at(10, 100)}, true, PullProgress{Done: 10, Total: 100}},
		{jsonstream.Message{ID: "b", Status: "Downloading", Progress: at(5, 50)}, true, PullProgress{Done: 15, Total: 150}},
		{jsonstream.Message{ID: "b", Status: "Retrying in 5 seconds"}, false, PullProgress{Done: 15, Total: 150}},
		{jsonstream.Message{ID: "b", Status: "Downloading", Progress: at(1, 50)}, true, PullProgress{Done: 15, Total: 150}}, // restarted: the progress does not decrease
		{jsonstream.Message{ID: "a", Status: "Download complete"}, true, PullProgress{Done: 105, Total: 150}},
		{jsonstream.Message{ID: "a", Status: "Extracting", Progress: at(3, 100)}, true, PullProgress{Done: 105, Total: 150}},
		{jsonstream.Message{ID: "b", Status: "Verifying Checksum"}, true, PullProgress{Done: 150, Total: 150, Unpacking: true}},
		{jsonstream.Message{ID: "b", Status: "Pull complete"}, true, PullProgress{Done: 150, Total: 150, Unpacking: true}},
		{jsonstream.Message{Status: "Digest: sha256:00"}, true, PullProgress{Done: 150, Total: 150, Unpacking: true}},
	} {
		if changed := l.update(&c.m); changed != c.changed || l.progress() != c.want {
			t.Errorf("%d: %q: %v, %+v: want %v, %+v", i, c.m.Status, changed, l.progress(), c.changed, c.want)
		}
	}
}

func TestInfo(t *testing.T) {
	e, err := Open(containertest.SharedEngine(t))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	a, err := e.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if a.Name == "" || a.Version == "" || a.API == "" || a.OS != "linux" || a.Arch == "" || a.CgroupDriver == "" || a.Storage == "" || a.Root == "" || a.Kernel == "" || len(a.Runtimes) == 0 {
		t.Errorf("the engine is %+v, want all fields set", a)
	}
	if err := e.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNotFound(t *testing.T) {
	e, err := Open(containertest.SharedEngine(t))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx := t.Context()
	if _, err := e.Image(ctx, "muster-test/none:1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an image: %v", err)
	}
	if err := e.RemoveImage(ctx, "muster-test/none:1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("removing an image: %v", err)
	}
	if _, err := e.Create(ctx, &ContainerSpec{Name: "muster-test-none", Image: "muster-test/none:1", LogSize: "1m", LogFiles: 1}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a container of it: %v", err)
	}
	if err := e.Remove(ctx, "muster-test-none"); err != nil {
		t.Errorf("removing a container: %v", err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if err := e.Ping(ended); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreachable) {
		t.Errorf("with a context that has ended: %v", err)
	}
	none, err := Open("unix:///nowhere/docker.sock")
	if err != nil {
		t.Fatal(err)
	}
	if err := none.Ping(ctx); !errors.Is(err, ErrUnreachable) {
		t.Errorf("an engine: %v", err)
	}
	for _, host := range []string{"", "docker.sock", "/var/run/docker.sock"} {
		if _, err := Open(host); err == nil {
			t.Errorf("%q is not an address", host)
		}
	}
}

func TestVolumesAreRemovedWithTheContainer(t *testing.T) {
	host := containertest.SharedEngine(t)
	e, err := Open(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	b := containertest.ShellImage(t)
	b.Volumes = []string{"/data"}
	image := containertest.LoadImage(t, host, "muster-test/volumes:1", b)
	id, err := e.Create(t.Context(), &ContainerSpec{Name: "muster-test-volumes", Image: image, LogSize: "1m", LogFiles: 1, Command: []string{"sleep", "600"}, Network: "none"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Remove(context.WithoutCancel(t.Context()), id) })
	api := containertest.API(t, host)
	res, err := api.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	if err != nil || len(res.Container.Mounts) != 1 {
		t.Fatalf("its mounts are %v (%v): want its volume", res.Container.Mounts, err)
	}
	if _, err := api.ContainerStart(t.Context(), id, client.ContainerStartOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := e.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := api.VolumeInspect(t.Context(), res.Container.Mounts[0].Name, client.VolumeInspectOptions{}); err == nil {
		t.Error("its volume still exists")
	}
}

package docker

import (
	"context"
	"errors"
	"testing"

	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"github.com/muster-dev/muster/internal/mustertest/engines"
)

// TestWhyAnImageIsNotPulled holds what engines say: Docker 20.10 and Podman 4.3 to a real registry, as they do in the tests of
// package container, and newer ones of Docker as their users report it.
func TestWhyAnImageIsNotPulled(t *testing.T) {
	e, err := Open("unix:///nowhere.sock")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		said string
		want error
	}{
		{`manifest for 127.0.0.1:5000/acme/tool:2 not found: manifest unknown: Unknown manifest`, ErrMissing},
		{`manifest for alpine:nope not found: manifest unknown: manifest unknown`, ErrMissing},
		{`failed to resolve reference "docker.io/library/alpine:nope": docker.io/library/alpine:nope: not found`, ErrMissing},
		{`reading manifest 2 in 127.0.0.1:5000/acme/tool: manifest unknown: Unknown manifest`, ErrMissing},
		{`no matching manifest for linux/amd64 in the manifest list entries`, ErrMissing},
		{`name unknown: repository name not known to registry`, ErrMissing},
		{`pull access denied for acme/tool, repository does not exist or may require 'docker login': denied: requested access to the resource is denied`, ErrDenied},
		{`Head "http://127.0.0.1:5000/v2/acme/tool/manifests/1": no basic auth credentials`, ErrDenied},
		{`unauthorized: authentication required`, ErrDenied},
		{`Head "https://ghcr.io/v2/acme/tool/manifests/1": denied: denied`, ErrDenied},
		{`initializing source docker://r.dev/acme/tool:1: reading manifest 1 in r.dev/acme/tool: unauthorized`, ErrDenied},
		{`failed to authorize: failed to fetch oauth token: unexpected status from GET request to https://r.dev/token: 401 Unauthorized`, ErrDenied},
		{`Get "https://nosuch.invalid/v2/": dial tcp: lookup nosuch.invalid on 10.0.0.53:53: no such host`, ErrReach},
		{`Get "http://127.0.0.1:1/v2/": dial tcp 127.0.0.1:1: connect: connection refused`, ErrReach},
		{`Get "https://r.dev/v2/": net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)`, ErrReach},
		{`Get "https://r.dev/v2/": x509: certificate signed by unknown authority`, ErrReach},
		{`Get "https://10.0.0.5:5000/v2/": http: server gave HTTP response to HTTPS client`, ErrReach},
		{`pinging container registry 127.0.0.1:1: Get "https://127.0.0.1:1/v2/": dial tcp 127.0.0.1:1: connect: connection refused`, ErrReach},
		{`received unexpected HTTP status: 500 Internal Server Error`, ErrBroken},
		{`pinging container registry 127.0.0.1:5000: invalid status code from registry 500 (Internal Server Error)`, ErrBroken},
		{`toomanyrequests: You have reached your pull rate limit. You may increase the limit by authenticating and upgrading`, ErrBroken},
		{`error pulling image configuration: image config verification failed for digest sha256:6cd1`, ErrBroken},
		{`filesystem layer verification failed for digest sha256:6cd1`, ErrBroken},
		{`parsing image configuration: Download config.json digest sha256:e5bd does not match expected sha256:e5c8`, ErrBroken},
		{`unexpected EOF`, ErrBroken},
		{`failed to register layer: Error processing tar file(exit status 1): write /filler: no space left on device`, ErrFull},
	} {
		if err := e.unpulled(t.Context(), "x", errors.New(c.said)); !errors.Is(err, c.want) {
			t.Errorf("%q: want %v", c.said, c.want)
		}
	}
	ctx, end := context.WithCancelCause(t.Context())
	end(ErrTaken) // any cause
	if err := e.unpulled(ctx, "x", errors.New("manifest unknown")); !errors.Is(err, ErrTaken) || errors.Is(err, ErrMissing) {
		t.Errorf("once its context has ended, that is why: %v", err)
	}
}

func TestHowFarAPullIs(t *testing.T) {
	l := layers{}
	at := func(done, total int64) *jsonstream.Progress {
		return &jsonstream.Progress{Current: done, Total: total}
	}
	for i, c := range []struct {
		m    jsonstream.Message
		life bool
		want Pulled
	}{
		{jsonstream.Message{Status: "Pulling from acme/tool"}, true, Pulled{}},
		{jsonstream.Message{ID: "a", Status: "Pulling fs layer"}, true, Pulled{}},
		{jsonstream.Message{ID: "b", Status: "Waiting"}, true, Pulled{}},
		{jsonstream.Message{ID: "a", Status: "Downloading", Progress: at(10, 100)}, true, Pulled{Done: 10, Total: 100}},
		{jsonstream.Message{ID: "b", Status: "Downloading", Progress: at(5, 50)}, true, Pulled{Done: 15, Total: 150}},
		{jsonstream.Message{ID: "b", Status: "Retrying in 5 seconds"}, false, Pulled{Done: 15, Total: 150}},
		{jsonstream.Message{ID: "b", Status: "Downloading", Progress: at(1, 50)}, true, Pulled{Done: 15, Total: 150}}, // begun anew: it does not go back
		{jsonstream.Message{ID: "a", Status: "Download complete"}, true, Pulled{Done: 105, Total: 150}},
		{jsonstream.Message{ID: "a", Status: "Extracting", Progress: at(3, 100)}, true, Pulled{Done: 105, Total: 150}},
		{jsonstream.Message{ID: "b", Status: "Verifying Checksum"}, true, Pulled{Done: 150, Total: 150, Busy: true}},
		{jsonstream.Message{ID: "b", Status: "Pull complete"}, true, Pulled{Done: 150, Total: 150, Busy: true}},
		{jsonstream.Message{Status: "Digest: sha256:00"}, true, Pulled{Done: 150, Total: 150, Busy: true}},
	} {
		if life := l.take(&c.m); life != c.life || l.sum() != c.want {
			t.Errorf("%d: %q: %v, %+v: want %v, %+v", i, c.m.Status, life, l.sum(), c.life, c.want)
		}
	}
}

func TestAbout(t *testing.T) {
	e, err := Open(engines.Shared(t))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	a, err := e.About(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if a.Name == "" || a.Version == "" || a.API == "" || a.OS != "linux" || a.Arch == "" || a.CgroupDriver == "" || a.Storage == "" || a.Root == "" || a.Kernel == "" || len(a.Runtimes) == 0 {
		t.Errorf("the engine is %+v: want all of that known", a)
	}
	if err := e.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWhatIsNotThere(t *testing.T) {
	e, err := Open(engines.Shared(t))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx := t.Context()
	if _, err := e.Image(ctx, "muster-test/none:1"); !errors.Is(err, ErrMissing) {
		t.Errorf("an image: %v", err)
	}
	if err := e.RemoveImage(ctx, "muster-test/none:1"); !errors.Is(err, ErrMissing) {
		t.Errorf("removing an image: %v", err)
	}
	if _, err := e.Create(ctx, &Plan{Name: "muster-test-none", Image: "muster-test/none:1", LogSize: "1m", LogFiles: 1}); !errors.Is(err, ErrMissing) {
		t.Errorf("a container of it: %v", err)
	}
	if err := e.Remove(ctx, "muster-test-none"); err != nil {
		t.Errorf("removing a container: %v", err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if err := e.Ping(ended); !errors.Is(err, context.Canceled) || errors.Is(err, ErrDown) {
		t.Errorf("with a context that has ended: %v", err)
	}
	none, err := Open("unix:///nowhere/docker.sock")
	if err != nil {
		t.Fatal(err)
	}
	if err := none.Ping(ctx); !errors.Is(err, ErrDown) {
		t.Errorf("an engine: %v", err)
	}
	for _, host := range []string{"", "docker.sock", "/var/run/docker.sock"} {
		if _, err := Open(host); err == nil {
			t.Errorf("%q is no address", host)
		}
	}
}

func TestVolumesOfAnImageGoWithTheContainer(t *testing.T) {
	host := engines.Shared(t)
	e, err := Open(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	b := engines.Shell(t)
	b.Volumes = []string{"/data"}
	image := engines.Image(t, host, "muster-test/volumes:1", b)
	id, err := e.Create(t.Context(), &Plan{Name: "muster-test-volumes", Image: image, LogSize: "1m", LogFiles: 1, Command: []string{"sleep", "600"}, Network: "none"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Remove(context.WithoutCancel(t.Context()), id) })
	api := engines.API(t, host)
	said, err := api.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	if err != nil || len(said.Container.Mounts) != 1 {
		t.Fatalf("its mounts are %v (%v): want its volume", said.Container.Mounts, err)
	}
	if _, err := api.ContainerStart(t.Context(), id, client.ContainerStartOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := e.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := api.VolumeInspect(t.Context(), said.Container.Mounts[0].Name, client.VolumeInspectOptions{}); err == nil {
		t.Error("its volume is still there")
	}
}

//go:build unix

package engines

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// runs runs a command in a container and returns what it printed.
func runs(t *testing.T, api *client.Client, image string, argv ...string) string {
	t.Helper()
	made, err := api.ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{Image: image, Cmd: argv}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := api.ContainerRemove(t.Context(), made.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	}()
	ended := api.ContainerWait(t.Context(), made.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	if _, err := api.ContainerStart(t.Context(), made.ID, client.ContainerStartOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended.Error:
		t.Fatal(err)
	case <-ended.Result:
	}
	logs, err := api.ContainerLogs(t.Context(), made.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	b, err := io.ReadAll(logs)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) < 8 {
		return ""
	}
	return string(b[8:]) // one frame
}

func TestImage(t *testing.T) {
	host := Shared(t)
	api := API(t, host)
	if got := runs(t, api, Busybox(t, host), "sh", "-c", "id -u"); got != "0\n" {
		t.Errorf("busybox says %q", got)
	}
	b := Shell(t)
	b.Texts["/opt/say"] = "#!/bin/sh\necho $1 $GREETED by $(id -un) in $PWD\n"
	b.Entrypoint, b.Cmd = []string{"/opt/say"}, []string{"hello"}
	b.User, b.Workdir, b.Env = "user", "/home/user", []string{"GREETED=world"}
	name := Image(t, host, "g-image-test", b)
	if got, want := runs(t, api, name), "hello world by user in /home/user\n"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

// pulls pulls an image and returns what the engine says went wrong.
func pulls(ctx context.Context, t *testing.T, api *client.Client, ref, user, password string) string {
	t.Helper()
	auth, err := json.Marshal(map[string]string{"username": user, "password": password})
	if err != nil {
		t.Fatal(err)
	}
	res, err := api.ImagePull(ctx, ref, client.ImagePullOptions{RegistryAuth: base64.URLEncoding.EncodeToString(auth)})
	if err == nil {
		err = res.Wait(ctx)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func TestRegistry(t *testing.T) {
	host := Shared(t)
	api := API(t, host)
	r := NewRegistry(t)
	ref, digest := r.Push(t, "acme/tool:v1", Build{Texts: map[string]string{"/noise": strings.Repeat("some words\n", 10000)}})
	forget := func() { _, _ = api.ImageRemove(t.Context(), ref, client.ImageRemoveOptions{Force: true}) }
	t.Cleanup(func() {
		_, _ = API(t, host).ImageRemove(context.Background(), ref, client.ImageRemoveOptions{Force: true})
	})
	r.Auth("ann", "secret")
	if said := pulls(t.Context(), t, api, ref, "ann", "wrong"); !strings.Contains(said, "no basic auth") && !strings.Contains(said, "unauthorized") && !strings.Contains(said, "authentication required") {
		t.Errorf("with a wrong password: %q", said)
	}
	if said := pulls(t.Context(), t, api, ref, "ann", "secret"); said != "" {
		t.Errorf("with the password: %q", said)
	}
	image, err := api.ImageInspect(t.Context(), ref)
	if err != nil || len(image.RepoDigests) != 1 || !strings.HasSuffix(image.RepoDigests[0], digest) {
		t.Errorf("the image is %+v (%v), want %s", image.RepoDigests, err, digest)
	}
	if n := r.Requests("GET /v2/acme/tool/blobs/"); n != 2 {
		t.Errorf("%d blobs were asked for", n)
	}
	forget()
	r.Auth("", "")
	for fault, want := range map[Fault]string{Failing: "500", Limited: "rate limit", Corrupt: "verification failed"} {
		r.Break(fault)
		if said := pulls(t.Context(), t, api, ref, "", ""); !strings.Contains(said, want) {
			t.Errorf("fault %d: %q, want %q", fault, said, want)
		}
	}
	r.Break(Well)
	r.Stall(100)
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan string)
	before := r.Requests("/blobs/")
	go func() { said <- pulls(ctx, t, api, ref, "", "") }()
	for r.Requests("/blobs/") == before {
		select {
		case s := <-said:
			t.Fatalf("it did not stall: %q", s)
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	if s := <-said; !strings.Contains(s, "cancel") {
		t.Errorf("a stalled pull that is given up: %q", s)
	}
	r.Resume()
	if said := pulls(t.Context(), t, api, ref, "", ""); said != "" {
		t.Errorf("after all: %q", said)
	}
}

// TestDaemon holds what the tests of faults rely on: an engine of a test's own comes back with what it had, and nothing
// of it stays behind.
func TestDaemon(t *testing.T) {
	var dir string
	t.Run("life", func(t *testing.T) {
		d := Start(t)
		dir = d.dir
		host := d.Host()
		image := Busybox(t, host)
		before := Census(t, host, "")
		if got := runs(t, API(t, host), image, "ip", "addr", "show", "eth0"); !strings.Contains(got, "10.198.") {
			t.Errorf("its network is %q", got)
		}
		for _, end := range []func(){d.Kill, d.Stop} {
			made, err := API(t, host).ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{
				Image: image, Cmd: []string{"sleep", "600"}, Labels: map[string]string{"dev.muster.attempt": "1.0#1"}, StopSignal: "KILL",
			}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := API(t, host).ContainerStart(t.Context(), made.ID, client.ContainerStartOptions{}); err != nil {
				t.Fatal(err)
			}
			end()
			if _, err := API(t, host).Ping(t.Context(), client.PingOptions{}); err == nil {
				t.Error("it still answers")
			}
			d.Again()
			if now := Census(t, host, ""); len(now) != len(before)+1 || !strings.Contains(now[made.ID], "container") {
				t.Errorf("there are %v, and were %v", now, before)
			}
			if _, err := API(t, host).ContainerRemove(t.Context(), made.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
				t.Fatal(err)
			}
			NothingLeft(t, host, "", before)
		}
		d.Freeze(true)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := API(t, host).Ping(ctx, client.PingOptions{}); err == nil {
			t.Error("a frozen engine answers")
		}
	})
	if dir == "" {
		t.Skip("no engine was started")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its folder is still there: %v", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("something is still mounted there (%v)", err)
	}
}

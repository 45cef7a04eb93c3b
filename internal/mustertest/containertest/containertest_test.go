//go:build unix

package containertest

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

// runContainer runs a command in a container and returns what it printed.
func runContainer(t *testing.T, api *client.Client, image string, argv ...string) string {
	t.Helper()
	created, err := api.ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{Image: image, Cmd: argv}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := api.ContainerRemove(t.Context(), created.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	}()
	ended := api.ContainerWait(t.Context(), created.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	if _, err := api.ContainerStart(t.Context(), created.ID, client.ContainerStartOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended.Error:
		t.Fatal(err)
	case <-ended.Result:
	}
	logs, err := api.ContainerLogs(t.Context(), created.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
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
	host := SharedEngine(t)
	api := API(t, host)
	if got := runContainer(t, api, LoadBusybox(t, host), "sh", "-c", "id -u"); got != "0\n" {
		t.Errorf("busybox printed %q", got)
	}
	b := ShellImage(t)
	b.Texts["/opt/say"] = "#!/bin/sh\necho $1 $GREETED by $(id -un) in $PWD\n"
	b.Entrypoint, b.Cmd = []string{"/opt/say"}, []string{"hello"}
	b.User, b.Workdir, b.Env = "user", "/home/user", []string{"GREETED=world"}
	name := LoadImage(t, host, "g-image-test", b)
	if got, want := runContainer(t, api, name), "hello world by user in /home/user\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// pullImage pulls an image and returns the engine's error.
func pullImage(ctx context.Context, t *testing.T, api *client.Client, ref, user, password string) string {
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
	host := SharedEngine(t)
	api := API(t, host)
	r := NewRegistry(t)
	ref, digest := r.Push(t, "acme/tool:v1", ImageSpec{Texts: map[string]string{"/noise": strings.Repeat("some words\n", 10000)}})
	forget := func() { _, _ = api.ImageRemove(t.Context(), ref, client.ImageRemoveOptions{Force: true}) }
	t.Cleanup(func() {
		_, _ = API(t, host).ImageRemove(context.Background(), ref, client.ImageRemoveOptions{Force: true})
	})
	r.RequireAuth("ann", "secret")
	if output := pullImage(t.Context(), t, api, ref, "ann", "wrong"); !strings.Contains(output, "no basic auth") && !strings.Contains(output, "unauthorized") && !strings.Contains(output, "authentication required") {
		t.Errorf("with a wrong password: %q", output)
	}
	if output := pullImage(t.Context(), t, api, ref, "ann", "secret"); output != "" {
		t.Errorf("with the password: %q", output)
	}
	image, err := api.ImageInspect(t.Context(), ref)
	if err != nil || len(image.RepoDigests) != 1 || !strings.HasSuffix(image.RepoDigests[0], digest) {
		t.Errorf("the image is %+v (%v), want %s", image.RepoDigests, err, digest)
	}
	if n := r.Requests("GET /v2/acme/tool/blobs/"); n != 2 {
		t.Errorf("%d blobs were asked for", n)
	}
	forget()
	r.RequireAuth("", "")
	for fault, want := range map[Fault]string{Failing: "500", RateLimited: "rate limit", Corrupt: "verification failed"} {
		r.SetFault(fault)
		if output := pullImage(t.Context(), t, api, ref, "", ""); !strings.Contains(output, want) {
			t.Errorf("fault %d: %q, want %q", fault, output, want)
		}
	}
	r.SetFault(NoFault)
	r.Stall(100)
	ctx, cancel := context.WithCancel(t.Context())
	output := make(chan string)
	before := r.Requests("/blobs/")
	go func() { output <- pullImage(ctx, t, api, ref, "", "") }()
	for r.Requests("/blobs/") == before {
		select {
		case s := <-output:
			t.Fatalf("it did not stall: %q", s)
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	if s := <-output; !strings.Contains(s, "cancel") {
		t.Errorf("a stalled pull that times out: %q", s)
	}
	r.Resume()
	if output := pullImage(t.Context(), t, api, ref, "", ""); output != "" {
		t.Errorf("after all: %q", output)
	}
}

// TestDaemon checks the properties that tests of faults rely on: a private engine has its containers after a restart, and leaves nothing after
// the test.
func TestDaemon(t *testing.T) {
	var dir string
	t.Run("life", func(t *testing.T) {
		d := StartDaemon(t)
		dir = d.dir
		host := d.Host()
		image := LoadBusybox(t, host)
		before := ListResources(t, host, "")
		if got := runContainer(t, API(t, host), image, "ip", "addr", "show", "eth0"); !strings.Contains(got, "10.198.") {
			t.Errorf("its network is %q", got)
		}
		for _, end := range []func(){d.Kill, d.Stop} {
			created, err := API(t, host).ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{
				Image: image, Cmd: []string{"sleep", "600"}, Labels: map[string]string{"dev.muster.attempt": "1.0#1"}, StopSignal: "KILL",
			}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := API(t, host).ContainerStart(t.Context(), created.ID, client.ContainerStartOptions{}); err != nil {
				t.Fatal(err)
			}
			end()
			if _, err := API(t, host).Ping(t.Context(), client.PingOptions{}); err == nil {
				t.Error("it still answers")
			}
			d.Restart()
			if current := ListResources(t, host, ""); len(current) != len(before)+1 || !strings.Contains(current[created.ID], "container") {
				t.Errorf("got %v, want %v as before", current, before)
			}
			if _, err := API(t, host).ContainerRemove(t.Context(), created.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
				t.Fatal(err)
			}
			AwaitCleanup(t, host, "", before)
		}
		d.SetFrozen(true)
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
		t.Errorf("its folder still exists: %v", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("a file system is still mounted (%v)", err)
	}
}

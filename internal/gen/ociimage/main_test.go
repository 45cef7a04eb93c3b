package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	mobyclient "github.com/moby/moby/client"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
	"github.com/muster-dev/muster/internal/testkit"
)

// testOptions are options with small files.
func testOptions(t *testing.T) options {
	t.Helper()
	dir := t.TempDir()
	o := options{program: filepath.Join(dir, "muster"), certs: filepath.Join(dir, "certs"), arch: "arm64", version: "1.0~rc.1+3.gabc"}
	testkit.NoError(t, os.WriteFile(o.program, []byte("program"), 0o600))
	testkit.NoError(t, os.WriteFile(o.certs, []byte("certificates"), 0o600))
	return o
}

func TestReproducible(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	o := testOptions(t)
	write := func() []byte {
		output := filepath.Join(t.TempDir(), "image.tar")
		testkit.NoError(t, run(o, output))
		b, err := os.ReadFile(output)
		testkit.NoError(t, err)
		return b
	}
	first := write()
	testkit.NoError(t, os.Chtimes(o.program, time.Now(), time.Now().Add(time.Hour)))
	if !bytes.Equal(first, write()) {
		t.Error("the same files make two images")
	}
	if !bytes.Contains(first, []byte(`"muster:1.0-rc.1-3.gabc"`)) {
		t.Error("the image has no tag of its version")
	}
	image, err := build(o)
	testkit.NoError(t, err)
	config, err := image.ConfigFile()
	testkit.NoError(t, err)
	if config.OS != "linux" || config.Architecture != "arm64" || config.Config.User != "65532" || len(config.RootFS.DiffIDs) != 1 {
		t.Errorf("config %+v", config)
	}
}

func TestErrors(t *testing.T) {
	o := testOptions(t)
	output := filepath.Join(t.TempDir(), "image.tar")
	if err := run(o, ""); err == nil {
		t.Error("it writes no file")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if err := run(o, output); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("error %v", err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	o.certs += "-missing"
	if err := run(o, output); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "-certs") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(output); err == nil {
		t.Error("a failure leaves a file")
	}
}

// loadProgram loads the image of the program under test into the engine at host, and returns its name.
func loadProgram(t *testing.T, host string) string {
	t.Helper()
	o := options{program: mustertest.Program(t), certs: testOptions(t).certs, arch: runtime.GOARCH, version: "test"}
	output := filepath.Join(t.TempDir(), "image.tar")
	testkit.NoError(t, run(o, output))
	archive, err := os.Open(output)
	testkit.NoError(t, err)
	defer archive.Close()
	res, err := containertest.API(t, host).ImageLoad(t.Context(), archive)
	testkit.NoError(t, err)
	defer res.Close()
	if b, err := io.ReadAll(res); err != nil || strings.Contains(string(b), `"error"`) {
		t.Fatalf("the engine says %s (%v)", b, err)
	}
	return "muster:test"
}

// start starts a container, and removes it with its volumes after the test.
func start(t *testing.T, api *mobyclient.Client, name string, config *container.Config, mounts ...mount.Mount) {
	t.Helper()
	created, err := api.ContainerCreate(t.Context(), mobyclient.ContainerCreateOptions{Name: name, Config: config, HostConfig: &container.HostConfig{Mounts: mounts}})
	testkit.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if t.Failed() {
			if logs, err := api.ContainerLogs(ctx, created.ID, mobyclient.ContainerLogsOptions{ShowStdout: true, ShowStderr: true}); err == nil {
				b, _ := io.ReadAll(logs)
				t.Logf("log of %s:\n%s", name, b)
			}
		}
		if _, err := api.ContainerRemove(ctx, created.ID, mobyclient.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			t.Errorf("remove %s: %v", name, err)
		}
	})
	_, err = api.ContainerStart(t.Context(), created.ID, mobyclient.ContainerStartOptions{})
	testkit.NoError(t, err)
}

const adminToken, joinToken = "admin-token-of-the-image-test", "join-token-of-the-image-test"

// TestImage runs a server and a worker from the image in a real engine. The server is an ordinary user with a new volume. The worker,
// which is root, runs a task that needs no shell, and one in another container of the same engine.
func TestImage(t *testing.T) {
	host := containertest.SharedEngine(t)
	if testing.Short() {
		t.Skip("engines of their own are not for -short")
	}
	api := containertest.API(t, host)
	image, busybox := loadProgram(t, host), containertest.LoadBusybox(t, host)
	volume := mount.Mount{Type: mount.TypeVolume, Target: data}
	start(t, api, "muster-image-server", &container.Config{Image: image, Env: []string{"MUSTER_ADMIN_TOKEN=" + adminToken, "MUSTER_JOIN_TOKEN=" + joinToken}}, volume)
	inspected, err := api.ContainerInspect(t.Context(), "muster-image-server", mobyclient.ContainerInspectOptions{})
	testkit.NoError(t, err)
	url := "http://" + inspected.Container.NetworkSettings.Networks["bridge"].IPAddress.String() + ":8700"
	c, err := client.New(url, adminToken, client.Options{RetryTimeout: 30 * time.Second})
	testkit.NoError(t, err)
	testkit.AwaitNil(t, "the server answers", time.Minute, func() error {
		_, err := c.Whoami(t.Context())
		return err
	})

	// Paths of the worker are paths of the engine's machine, too: it binds folders of tasks into their containers.
	dir := mustertest.SharedDir(t)
	socket := strings.TrimPrefix(host, "unix://")
	start(t, api, "muster-image-worker", &container.Config{
		Image: image, User: "0", Cmd: []string{"worker", "--server", url, "--name", "lab", "--engine", host}, Env: []string{"MUSTER_JOIN_TOKEN=" + joinToken, "MUSTER_DATA=" + dir},
	}, mount.Mount{Type: mount.TypeBind, Source: socket, Target: socket}, mount.Mount{Type: mount.TypeBind, Source: dir, Target: dir})

	jobs := []*muster.Spec{
		{Name: "noop", Tasks: []muster.TaskSpec{{Kind: muster.KindNoop}}},
		{Name: "container", Tasks: []muster.TaskSpec{{Kind: muster.KindProcess, Image: busybox, Run: &muster.Command{Shell: "echo works"}}}},
	}
	for _, spec := range jobs {
		submitted, err := c.Submit(t.Context(), spec, client.SubmitOptions{})
		testkit.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if job, err := c.Wait(ctx, submitted.ID); err != nil || job.State != muster.JobSucceeded {
			for task := range c.Tasks(t.Context(), submitted.ID, client.TaskQuery{Page: 1}) {
				t.Errorf("job %s is %s (%v): %s", spec.Name, job.State, err, task.Message)
			}
		}
	}

	_, err = api.ContainerRestart(t.Context(), "muster-image-server", mobyclient.ContainerRestartOptions{})
	testkit.NoError(t, err)
	testkit.AwaitNil(t, "the restarted server answers, and has its jobs", time.Minute, func() error {
		_, err := c.Job(t.Context(), 2)
		return err
	})
}

// TestPodman loads the image into a Podman, and runs its program.
func TestPodman(t *testing.T) {
	host := containertest.StartPodman(t)
	api := containertest.API(t, host)
	start(t, api, "muster-image-version", &container.Config{Image: loadProgram(t, host), Cmd: []string{"version"}})
	testkit.AwaitNil(t, "the program ends", time.Minute, func() error {
		res, err := api.ContainerInspect(t.Context(), "muster-image-version", mobyclient.ContainerInspectOptions{})
		switch {
		case err != nil:
			return err
		case res.Container.State.Running || res.Container.State.FinishedAt == "" || strings.HasPrefix(res.Container.State.FinishedAt, "0001"):
			return errors.New("it runs")
		case res.Container.State.ExitCode != 0:
			t.Fatalf("it exits with %d", res.Container.State.ExitCode)
		}
		return nil
	})
}

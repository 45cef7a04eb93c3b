//go:build linux

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu/gputest"
	"github.com/muster-dev/muster/internal/mustertest"
)

// awaitTags waits until the worker has the tags with a + and lacks those with a -.
func awaitTags(t *testing.T, c *mustertest.Cluster, worker string, want ...string) (w muster.Worker) {
	t.Helper()
	c.Await(fmt.Sprintf("worker %s has the tags %q", worker, want), 90*time.Second, func() (err error) {
		if w, err = c.Client.Worker(t.Context(), worker); err != nil {
			return err
		}
		for _, tag := range want {
			if slices.Contains(w.Tags, tag[1:]) != strings.HasPrefix(tag, "+") {
				return fmt.Errorf("it has %q", w.Tags)
			}
		}
		return nil
	})
	return w
}

// TestMachineChanges checks that changes of the machine while a worker runs (programs that are installed, devices, started engines) change its
// offer without a restart, that waiting tasks then start, and that the operator's options remain.
func TestMachineChanges(t *testing.T) {
	smi := gputest.New(t, gputest.GPU{UUID: "GPU-11111111-2222-3333-4444-555555555555", Name: "NVIDIA L4", Memory: 23034 << 20})
	smi.Remove()
	tools, sockets := t.TempDir(), t.TempDir()
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	t.Setenv("XDG_RUNTIME_DIR", sockets)
	t.Setenv("DOCKER_HOST", "unix://"+sockets+"/docker.sock")
	const absent = "#!/bin/sh\nexit 1\n" // also where this machine has one
	installProgram(t, tools, "podman", absent)
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("changing", t.TempDir(), "--cpus", "1.5", "--slots", "3", "--tags", "mine")
	awaitTags(t, c, "changing", "+mine", "+linux", "-podman", "-docker", "-gpu", "-cuda")

	waiting := mustertest.ShellSpec("docker", "echo here it is")
	waiting.Tasks[0].Where.Tags = []string{"docker"}
	job := c.Submit(waiting)
	installProgram(t, tools, "podman", "#!/bin/sh\n"+`echo '{"host": {"security": {"rootless": true}}, "version": {"Version": "5.2.0"}}'`+"\n")
	stop := startFakeDocker(t, filepath.Join(sockets, "docker.sock"))
	awaitTags(t, c, "changing", "+docker", "-nvidia-container", "-podman", "+mine") // podman has no service that tasks could use
	if job := c.Wait(job.ID, time.Minute); job.State != muster.JobSucceeded {
		t.Errorf("the task that waited for docker is %s", job.State)
	}

	smi.Restore()
	w := awaitTags(t, c, "changing", "+gpu", "+cuda", "+nvidia", "+docker")
	if len(w.Resources.GPUs) != 1 || w.Resources.GPUs[0].Name != "NVIDIA L4" || w.Resources.CPUs != 1.5 || w.Resources.Slots != 3 {
		t.Errorf("offered are %+v", w.Resources)
	}
	c.Await("the new device is read", time.Minute, func() error {
		w, err := c.Client.Worker(t.Context(), "changing")
		if err == nil && (w.Load == nil || len(w.Load.GPUs) != 1) {
			err = fmt.Errorf("the load is %+v", w.Load)
		}
		return err
	})
	training := mustertest.ShellSpec("train", `echo "on $CUDA_VISIBLE_DEVICES"`)
	training.Tasks[0].Resources.GPUs.Count = 1
	job = c.Submit(training)
	if job := c.Wait(job.ID, time.Minute); job.State != muster.JobSucceeded {
		t.Errorf("a task on the new device is %s", job.State)
	}
	if out := c.Output(muster.TaskID{Job: job.ID}); !strings.Contains(out, "GPU-11111111") {
		t.Errorf("got %q", out)
	}

	stop()
	installProgram(t, tools, "podman", absent)
	smi.Remove()
	w = awaitTags(t, c, "changing", "-docker", "-podman", "-gpu", "-cuda", "+mine", "+linux")
	if len(w.Resources.GPUs) != 0 || w.Resources.Slots != 3 || w.State != muster.WorkerActive {
		t.Errorf("%s, offered are %+v", w.State, w.Resources)
	}
}

// installProgram makes a program in a folder, in one step.
func installProgram(t *testing.T, dir, name, text string) {
	t.Helper()
	tmp := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(tmp, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// startFakeDocker answers as a Docker service without GPUs does, until stop is called.
func startFakeDocker(t *testing.T, socket string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Skipf("cannot create a socket at %s: %v", socket, err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"ServerVersion": "27.1.1", "Version": "27.1.1", "Components": [{"Name": "Engine"}], "Runtimes": {"runc": {}}}`))
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	stop = func() {
		s.Close()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

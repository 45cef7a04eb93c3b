package attack

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// registryPassword is in no value that the statements of this file may find.
const registryPassword = "p4ssw0rd-of-the-registry"

// privateImage starts a worker with an engine, and a registry whose only image, with a shell, needs a password: that of the secret PULL of the
// project a. It returns the image's name, its name with a digest in place of the tag, and the worker's data directory.
func (e *env) privateImage(r *containertest.Registry) (ref, pinned, workerData string) {
	t := e.t
	t.Helper()
	host := containertest.SharedEngine(t)
	workerData = mustertest.SharedDir(t)
	e.StartWorker("w", workerData, "--engine", host)
	ref, digest := r.Push(t, "acme/private:1", containertest.ShellImage(t))
	pinned = strings.TrimSuffix(ref, ":1") + "@" + digest
	api := containertest.API(t, host)
	t.Cleanup(func() {
		for _, name := range []string{ref, pinned} {
			_, _ = api.ImageRemove(context.WithoutCancel(t.Context()), name, client.ImageRemoveOptions{Force: true, PruneChildren: true})
		}
	})
	r.RequireToken("ann", registryPassword)
	e.secret("a", "PULL", "ann:"+registryPassword)
	return ref, pinned, workerData
}

// imageJob runs a script in an image, and returns the ended task.
func (e *env) imageJob(project, image, script string, secrets ...muster.Secret) muster.Task {
	e.t.Helper()
	job := e.Submit(&muster.Spec{Project: project, Tasks: []muster.TaskSpec{{Image: image, Run: &muster.Command{Shell: script}, Secrets: secrets, Network: muster.NetworkNone}}})
	e.Wait(job.ID, 2*awaitTimeout)
	return e.Tasks(job.ID)[0]
}

// TestRegistrySecretsStayWithTheWorker states that a secret for a registry reaches neither the task, nor a file or a text, nor another registry.
func TestRegistrySecretsStayWithTheWorker(t *testing.T) { //nolint:tparallel // its parts are in order
	t.Parallel()
	e, r := newEnv(t), containertest.NewRegistry(t)
	ref, _, workerData := e.privateImage(r)
	pull := muster.Secret{Name: "PULL", Registry: r.Addr}
	task := e.imageJob("a", ref, `env; cat /proc/self/environ /proc/1/environ; find /muster -type f -exec cat {} +; echo marker; echo "$PULL"`, pull)
	log := e.Output(task.ID)
	if task.State != muster.Succeeded || !strings.Contains(log, "marker") {
		t.Fatalf("%+v\n%s", task, log)
	}
	t.Run("the task does not have it", func(t *testing.T) {
		if strings.Contains(log, "ann") || strings.Contains(log, "***") || strings.Contains(log, "PULL=") {
			t.Errorf("%s", log)
		}
	})
	t.Run("the worker's data directory does not have it", func(t *testing.T) {
		if found := filesContaining(t, workerData, registryPassword); len(found) > 0 {
			t.Errorf("%v", found)
		}
	})
	t.Run("a registry that repeats it does not get it printed", func(t *testing.T) {
		r.RequireAuth("ann", registryPassword)
		r.SetFault(containertest.Echoing)
		failed := e.imageJob("a", strings.TrimSuffix(ref, ":1")+":2", "true", pull)
		r.SetFault(containertest.NoFault)
		answer := e.get("/api/v1/tasks/" + failed.ID.String())
		if failed.Reason != muster.ImageMissing || !strings.Contains(failed.Message, "you sent Basic ***, ann with ***") || bytes.Contains(answer, []byte(registryPassword)) {
			t.Errorf("%s", answer)
		}
	})
	t.Run("another registry does not get it", func(t *testing.T) {
		other := containertest.NewRegistry(t)
		other.RequireAuth("ann", registryPassword)
		_, err := e.submitAs(e.AdminToken, &muster.Spec{Project: "a", Tasks: []muster.TaskSpec{{Image: other.Addr + "/acme/x:1", Secrets: []muster.Secret{pull}}}})
		if muster.CodeOf(err) != muster.InvalidSpec || !strings.Contains(err.Error(), "is not of the registry "+r.Addr) || other.Requests("") > 0 {
			t.Errorf("%v", err)
		}
	})
}

// TestPrivateImagesAreNotForOthers states that an image which one project pulled with its secret is no image of another's on the same worker.
func TestPrivateImagesAreNotForOthers(t *testing.T) { //nolint:tparallel // its parts are in order
	t.Parallel()
	e, r := newEnv(t), containertest.NewRegistry(t)
	ref, pinned, _ := e.privateImage(r)
	if task := e.imageJob("a", ref, "true", muster.Secret{Name: "PULL", Registry: r.Addr}); task.State != muster.Succeeded {
		t.Fatalf("%+v", task)
	}
	e.secret("b", "PULL", "eve:guessed-password")
	for name, image := range map[string]string{"its tag": ref, "its digest": pinned} {
		t.Run("a task without credentials cannot name "+name, func(t *testing.T) {
			if task := e.imageJob("b", image, "true"); task.State != muster.Failed || task.Reason != muster.ImageMissing {
				t.Errorf("%+v", task)
			}
		})
		t.Run("a task with other credentials cannot name "+name, func(t *testing.T) {
			if task := e.imageJob("b", image, "true", muster.Secret{Name: "PULL", Registry: r.Addr}); task.State != muster.Failed || task.Reason != muster.ImageMissing {
				t.Errorf("%+v", task)
			}
		})
	}
	t.Run("the project itself continues to use it", func(t *testing.T) {
		if task := e.imageJob("a", pinned, "true", muster.Secret{Name: "PULL", Registry: r.Addr}); task.State != muster.Succeeded {
			t.Errorf("%+v", task)
		}
	})
}

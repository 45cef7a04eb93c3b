package e2e

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestDamagedBlobs damages the file of an artifact on the server's disk. A truncated file is not delivered; a client that receives other bytes
// reports it, and the file is set aside; when a task creates the same artifact again, it is delivered as usual, also to the stage that needs
// it.
func TestDamagedBlobs(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("w1", t.TempDir())
	makes := func() *muster.Spec {
		s := mustertest.ShellSpec("makes", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo a line of the artifact $i; done > $MUSTER_OUT/big.txt")
		s.Tasks[0].Name = "make"
		s.Tasks = append(s.Tasks, muster.TaskSpec{
			Name: "use", Kind: muster.KindProcess, Needs: []string{"make"}, Inputs: []muster.Input{{From: "make", Name: "big.txt"}},
			Run: &muster.Command{Shell: "wc -l < big.txt"},
		})
		return s
	}
	createArtifact := func() (muster.TaskID, muster.Artifact) {
		t.Helper()
		job := c.Submit(makes())
		if job = c.Wait(job.ID, 2*time.Minute); job.State != muster.JobSucceeded {
			t.Fatalf("job %d is %s", job.ID, job.State)
		}
		id := muster.TaskID{Job: job.ID}
		list, err := c.Client.Artifacts(t.Context(), id)
		if err != nil || len(list) != 1 {
			t.Fatalf("artifacts %v: %v", list, err)
		}
		return id, list[0]
	}
	for name, damage := range map[string]func(path string) error{
		"cut": func(path string) error { return os.Truncate(path, 100_000) },
		"flipped": func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b[len(b)/2] ^= 1
			return os.WriteFile(path, b, 0o600)
		},
	} {
		id, a := createArtifact()
		path := filepath.Join(c.DataDir, "blobs", a.SHA256[:2], a.SHA256[2:4], a.SHA256)
		if err := damage(path); err != nil {
			t.Fatal(err)
		}
		if err := c.Client.ReadArtifact(t.Context(), id, a, io.Discard); err == nil {
			t.Errorf("%s: the artifact is read as if nothing were wrong", name)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the damaged file is still there: %v", name, err)
		}
		aside, err := filepath.Glob(filepath.Join(c.DataDir, "blobs", "damaged", a.SHA256+".*"))
		if err != nil || len(aside) == 0 {
			t.Errorf("%s: the damaged file is not set aside: %v", name, err)
		}
		if err := c.Client.ReadArtifact(t.Context(), id, a, io.Discard); muster.CodeOf(err) != muster.NotFound {
			t.Errorf("%s: afterwards it is %v", name, err)
		}
		if again, b := createArtifact(); b.SHA256 != a.SHA256 {
			t.Fatalf("another task makes %s, not %s", b.SHA256, a.SHA256)
		} else if err := c.Client.ReadArtifact(t.Context(), again, b, io.Discard); err != nil {
			t.Errorf("%s: what was made again: %v", name, err)
		}
		if err := c.Client.ReadArtifact(t.Context(), id, a, io.Discard); err != nil {
			t.Errorf("%s: the first one, once it is there again: %v", name, err)
		}
	}
}

//go:build unix

package attack

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestWorkersShowOnlyTasksOfTheCallersProjects checks that who asks for a worker learns how many tasks run on it, and the
// ids of those only whose jobs the key may read.
func TestWorkersShowOnlyTasksOfTheCallersProjects(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	alpha := e.key(string(auth.Submitter), "alpha", 0).Secret
	worker, conn := e.connectAll("rig")
	job, err := e.submitAs(alpha, folderSpec(e.upload(alpha, treeOf(e.upload(alpha, "a")))))
	if err != nil {
		t.Fatal(err)
	}
	id := e.assignment(conn, job.ID).Task
	for name, c := range map[string]struct {
		token string
		sees  bool
	}{
		"a submitter of alpha": {alpha, true},
		"a viewer of alpha":    {e.key(string(auth.Viewer), "alpha", 0).Secret, true},
		"a viewer of all":      {e.key(string(auth.Viewer), "", 0).Secret, true},
		"a submitter of beta":  {e.key(string(auth.Submitter), "beta", 0).Secret, false},
		"a viewer of beta":     {e.key(string(auth.Viewer), "beta", 0).Secret, false},
	} {
		rec := e.do(e.request(http.MethodGet, "/api/v1/workers/"+string(worker.Worker), c.token, nil))
		var w muster.Worker
		if err := json.Unmarshal(rec.Body.Bytes(), &w); err != nil || rec.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", name, rec.Code, rec.Body)
		}
		if w.Running != 1 || (len(w.Tasks) == 1 && w.Tasks[0] == id) != c.sees {
			t.Errorf("%s sees %d running tasks and %v", name, w.Running, w.Tasks)
		}
	}
}

// TestDataIsForItsUserOnly checks that no other user of the machine reads what the server stores, also in a folder that was
// open to all before: the database, uploads, logs, keys and a backup.
func TestDataIsForItsUserOnly(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	e := newEnvFor(t, mustertest.NewWith(t, data, mustertest.Options{}))
	e.StartWorker("one", t.TempDir())
	alpha := e.key(string(auth.Submitter), "alpha", 0).Secret
	job, err := e.submitAs(alpha, folderSpec(e.upload(alpha, treeOf(e.upload(alpha, "a")))))
	if err != nil {
		t.Fatal(err)
	}
	if done := e.Wait(job.ID, awaitTimeout); done.State != muster.JobSucceeded {
		t.Fatalf("the job is %s", done.State)
	}
	files := 0
	err = filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == data {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) { // it was temporary
			return nil
		}
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %s", path, info.Mode())
		}
		files++
		return err
	})
	if err != nil || files < 10 {
		t.Errorf("%d files were looked at: %v", files, err)
	}
}

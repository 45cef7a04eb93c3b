package attack

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestTasksCannotFillTheDisk checks that a task ends when it exceeds its disk, by bytes, by the number of its files, or by files that no path names; and that
// the worker bounds a task that names no disk.
func TestTasksCannotFillTheDisk(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("w1", t.TempDir(), "--task-disk", "30MiB")
	for name, task := range map[string]struct {
		script  string
		disk    muster.Size
		message string
	}{
		"bytes without a disk":       {"head -c 60M /dev/urandom >big", 0, "limit of 30MiB"},
		"empty files":                {"i=0; while [ $i -lt 60 ]; do mkdir d$i; (cd d$i; seq 1000 | xargs touch); i=$((i+1)); done", 20 << 20, "files and folders"},
		"empty files without a disk": {"i=0; while [ $i -lt 60 ]; do mkdir d$i; (cd d$i; seq 1000 | xargs touch); i=$((i+1)); done", 0, "limit of 30MiB"},
		"folders without a path":     {"d=$(printf %0200d 0); for i in $(seq 30); do mkdir $d; cd -P $d 2>/dev/null || cd -P ./$d; done; head -c 60M /dev/urandom >big", 100 << 20, "nested too deeply"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := mustertest.ShellSpec("greedy", task.script+"\nsleep 600")
			spec.Tasks[0].Resources.Disk = task.disk
			job := c.Submit(spec)
			if got := c.Wait(job.ID, 2*time.Minute); got.State != muster.JobFailed {
				t.Fatalf("the job ended as %s", got.State)
			}
			if got := c.Tasks(job.ID)[0]; got.Reason != muster.DiskLimit || !strings.Contains(got.Message, task.message) {
				t.Errorf("the task ended as %s: %s", got.Reason, got.Message)
			}
		})
	}
}

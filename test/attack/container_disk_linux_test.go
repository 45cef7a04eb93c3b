package attack

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// TestContainersCannotFillTheDisk states that a task in a container ends when it exceeds its disk, or the worker's limit, by what it writes to
// the image's own files or to a volume of the image, also by the number of its files.
func TestContainersCannotFillTheDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only a worker of root measures containers")
	}
	host := containertest.SharedEngine(t)
	image, withVolume := containertest.LoadBusybox(t, host), containertest.ShellImage(t)
	withVolume.Volumes = []string{"/cache"}
	volume := containertest.LoadImage(t, host, "volume", withVolume)
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("w1", t.TempDir(), "--engine", host, "--task-disk", "30MiB")
	for name, task := range map[string]struct {
		image, script string
		disk          muster.Size
		message       string
	}{
		"bytes without a disk": {image, "head -c 60000000 /dev/urandom >/big", 0, "limit of 30MiB"},
		"bytes":                {image, "head -c 60000000 /dev/urandom >/big", 20 << 20, "limit of 20MiB"},
		"empty files":          {image, "i=0; while [ $i -lt 20 ]; do mkdir /d$i; (cd /d$i; seq 1000 | xargs touch); i=$((i+1)); done", 20 << 20, "files and folders"},
		"a volume":             {volume, "head -c 60000000 /dev/urandom >/cache/big", 0, "limit of 30MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := mustertest.ShellSpec("greedy", task.script+"\nsleep 600")
			spec.Tasks[0].Image, spec.Tasks[0].Resources.Disk = task.image, task.disk
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

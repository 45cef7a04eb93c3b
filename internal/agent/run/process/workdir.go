package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strconv"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// workdir makes the attempt's folders.
func (a *Attempt) workdir(context.Context) error {
	a.place()
	err := a.stock().take(a.base)
	if err == nil {
		a.checkpoint, err = a.e.checkpoints.take(checkpointName(a.Task))
	}
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the task's folder cannot be made: %w", err)
	}
	return nil
}

// place says where the attempt's folders are, in every life of the worker.
func (a *Attempt) place() {
	id := a.Task.Attempt
	a.base = filepath.Join(a.e.tasks, id.Task.String()+"-"+strconv.Itoa(id.N))
	a.Dir = filepath.Join(a.base, "work")
}

// stock is where the attempt's folders come from and go back to.
func (a *Attempt) stock() *folders {
	if a.setting == inContainer {
		return &a.e.boxes
	}
	return &a.e.folders
}

func (a *Attempt) out() string { return filepath.Join(a.base, "out") }

// mark is the environment entry that tells this attempt's processes from all
// others of the machine. All containers have the same $MUSTER_OUT, and what marks theirs tells nothing
// of the worker.
func (a *Attempt) mark() string {
	if h := a.Task.Held; h != nil && h.Start.Mark != "" {
		return h.Start.Mark // of an earlier life, which may have made others
	}
	if a.setting == inContainer {
		sum := sha256.Sum256([]byte("mark\n" + a.base))
		return "MUSTER_MARK=" + hex.EncodeToString(sum[:16])
	}
	return "MUSTER_OUT=" + a.out()
}

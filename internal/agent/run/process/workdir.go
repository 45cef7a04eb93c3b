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

// makeFolders makes the attempt's folders.
func (a *Attempt) makeFolders(context.Context) error {
	a.setPaths()
	err := a.folderPool().acquire(a.base)
	if err == nil {
		a.checkpoint, err = a.executor.checkpoints.acquire(checkpointName(a.Task))
	}
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the task's folder cannot be made: %w", err)
	}
	return nil
}

// setPaths says where the attempt's folders are, in every life of the worker.
func (a *Attempt) setPaths() {
	id := a.Task.Attempt
	a.base = filepath.Join(a.executor.tasks, id.Task.String()+"-"+strconv.Itoa(id.N))
	a.Dir = filepath.Join(a.base, "work")
}

// folderPool is where the attempt's folders come from and go back to.
func (a *Attempt) folderPool() *folderPool {
	if a.mode == modeContainer {
		return &a.executor.containerFolders
	}
	return &a.executor.processFolders
}

func (a *Attempt) outDir() string { return filepath.Join(a.base, "out") }

// envTag is the environment entry that tells this attempt's processes from all
// others of the machine. All containers have the same $MUSTER_OUT, and what marks theirs tells nothing
// of the worker.
func (a *Attempt) envTag() string {
	if h := a.Task.Recovered; h != nil && h.Start.EnvTag != "" {
		return h.Start.EnvTag // of an earlier life, which may have made others
	}
	if a.mode == modeContainer {
		sum := sha256.Sum256([]byte("mark\n" + a.base))
		return "MUSTER_MARK=" + hex.EncodeToString(sum[:16])
	}
	return "MUSTER_OUT=" + a.outDir()
}

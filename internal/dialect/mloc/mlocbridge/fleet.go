package mlocbridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// newID makes an id as workers of MLOC do: 16 hex digits.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// facts measures the active workers that serve the bridge, and returns what it registers with. It fails with Unavailable if
// there is none.
func (w *bridgeWorker) facts(ctx context.Context) (mloc.WorkerHash, error) {
	c, err := w.core.Capacity(ctx)
	if err == nil && len(c.Workers) == 0 {
		err = muster.Errorf(muster.Unavailable, "no worker of Muster takes tasks now")
	}
	if err != nil {
		return mloc.WorkerHash{}, err
	}
	w.session.meter.measure(time.Now(), c.Workers)
	h := mloc.WorkerHash{Hardware: sumHardware(c.Workers, w.cfg.Bandwidth), Tags: w.cfg.Tags, CostPerHour: w.cfg.Cost}
	if w.cfg.Core.Worker != "" && c.Workers[0].Price > 0 {
		h.CostPerHour = c.Workers[0].Price
	}
	return h, nil
}

// returnedFile names the dispatches that went back to the host and whose jobs have not ended yet.
const returnedFile = "dropped.json"

func (w *bridgeWorker) loadReturned() error {
	data, err := os.ReadFile(filepath.Join(w.dir, returnedFile))
	if os.IsNotExist(err) {
		return nil
	}
	if err == nil {
		err = mloc.Decode(data, mloc.MaxMessage, &w.returned)
	}
	if err != nil {
		return muster.Errorf(muster.Internal, "%s cannot be read: %w", filepath.Join(w.dir, returnedFile), err)
	}
	return nil
}

// markReturned notes that a dispatch is not this worker's any more.
func (w *bridgeWorker) markReturned(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.returned[id] = true
	delete(w.openDispatches, id)
	return mloc.WriteJSON(filepath.Join(w.dir, returnedFile), w.returned)
}

// clearReturned forgets that, when its job has ended. It returns why there is no report.
func (w *bridgeWorker) clearReturned(id string, reason error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.returned, id)
	return cmp.Or(mloc.WriteJSON(filepath.Join(w.dir, returnedFile), w.returned), reason)
}

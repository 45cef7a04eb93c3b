package mlocbridge

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"iter"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// newID makes an id as workers of MLOC do: 16 hex digits.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// activeWorkers returns the active workers that serve the bridge. It fails with Unavailable if there is none.
func (w *bridgeWorker) activeWorkers(ctx context.Context) ([]muster.Worker, error) {
	c, err := w.core.Capacity(ctx)
	if err == nil && len(c.Workers) == 0 {
		err = muster.Errorf(muster.Unavailable, "no worker of Muster takes tasks now")
	}
	return c.Workers, err
}

// facts returns what workers register with.
func (b *Bridge) facts(list []muster.Worker) facts {
	f := facts{Hardware: sumHardware(list, localIP(), b.cfg.Bandwidth), Tags: slices.Clone(b.cfg.Tags), Cost: b.cfg.Cost}
	if b.cfg.Core.Worker != "" && list[0].Price > 0 {
		f.Cost = list[0].Price
	}
	f.Tags = uniqueTags(f.Tags)
	return f
}

// localIP is the address by which this machine reaches others, or its loopback.
func localIP() string {
	list, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range list {
			if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
				return n.IP.String()
			}
		}
	}
	return "127.0.0.1"
}

// logs reads a task's output.
func (b *Bridge) logs(ctx context.Context, id muster.TaskID) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for line, err := range b.client.Logs(ctx, id, client.LogOptions{}) {
			if !yield(line.Data, err) {
				return
			}
		}
	}
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
	if w.returned == nil {
		w.returned = map[string]bool{}
	}
	return nil
}

// markReturned notes that a dispatch is not this worker's any more.
func (w *bridgeWorker) markReturned(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.returned[id] = true
	delete(w.openDispatches, id)
	return w.saveReturned()
}

// clearReturned forgets that, when its job has ended. It returns why there is no report.
func (w *bridgeWorker) clearReturned(id string, reason error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.returned, id)
	if err := w.saveReturned(); err != nil {
		return err
	}
	return reason
}

func (w *bridgeWorker) saveReturned() error {
	data, err := mloc.Encode(w.returned)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(w.dir, returnedFile), data, 0o600); err != nil {
		return muster.Errorf(muster.Internal, "cannot write %s: %w", returnedFile, err)
	}
	return nil
}

package shim

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/kin"
)

const (
	sockFile = "sock"
	keyFile  = "key"
	pidFile  = "pid" // of the shim's own process
)

// home is the folder of one shim: where it listens, what one has to know to talk to
// it, and what runs if it is gone. Whoever ends last removes it.
type home struct {
	dir  string
	data string // the worker's data dir
	key  string
}

// shims is where the homes are.
func shims(data string) string { return filepath.Join(data, "shim") }

// newHome makes the home of a new shim.
func newHome(data string) (*home, error) {
	if err := os.MkdirAll(shims(data), 0o700); err != nil {
		return nil, run.Failf(muster.WorkerInternal, "there is no folder for the shim: %w", err)
	}
	dir, err := os.MkdirTemp(shims(data), "")
	if err != nil {
		return nil, run.Failf(muster.WorkerInternal, "there is no folder for the shim: %w", err)
	}
	h := &home{dir: dir, data: data, key: rand.Text()}
	if err := os.WriteFile(filepath.Join(dir, keyFile), []byte(h.key), 0o600); err != nil {
		return nil, errors.Join(run.Failf(muster.WorkerInternal, "the folder of the shim cannot be written: %w", err), os.RemoveAll(dir))
	}
	return h, nil
}

// homesIn lists the homes of earlier lives.
func homesIn(data string) ([]*home, error) {
	entries, err := os.ReadDir(shims(data))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, muster.Errorf(muster.Internal, "the folder of shims cannot be read: %w", err)
	}
	var homes []*home
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		dir := filepath.Join(shims(data), e.Name())
		key, err := os.ReadFile(filepath.Join(dir, keyFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, muster.Errorf(muster.Internal, "the folder of a shim cannot be read: %w", err)
		}
		homes = append(homes, &home{dir: dir, data: data, key: strings.TrimSpace(string(key))})
	}
	return homes, nil
}

// logPath is where shims complain.
func (h *home) logPath() string { return filepath.Join(h.data, "shim.log") }

// owner is the process that lives in a home, or lived.
type owner struct {
	run.Pid

	Home place `json:"home,omitzero"` // zero in homes of earlier builds
}

// place is where a folder is on its disk: that of a copy is another one, whatever is in it.
type place struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// own notes that this process lives here.
func (h *home) own(p run.Pid) error {
	here, err := placeOf(h.dir)
	if err != nil {
		return err
	}
	b, err := json.Marshal(owner{p, here})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(h.dir, pidFile), b, 0o600)
}

// owner is the process that lives here, or lived.
func (h *home) owner() run.Pid { return h.noted().Pid }

func (h *home) noted() owner {
	var o owner
	b, err := os.ReadFile(filepath.Join(h.dir, pidFile))
	if err != nil || json.Unmarshal(b, &o) != nil {
		return owner{} // it never came so far
	}
	return o
}

// copied reports whether this is a copy of the home of a shim that runs, which it returns. That process, and
// the tasks that the copy lists, are another worker's.
func (h *home) copied() (run.Pid, bool) {
	o := h.noted()
	if o.PID == 0 || !kin.Lives(o.Pid) {
		return run.Pid{}, false
	}
	if o.Home == (place{}) {
		return o.Pid, h.namesAnother(o.PID)
	}
	here, err := placeOf(h.dir)
	return o.Pid, err == nil && here != o.Home
}

func (h *home) isCopy() bool {
	_, is := h.copied()
	return is
}

// checkCopy waits a little for the shim of which this home is a copy to end, as it does when its own home was deleted:
// then the copy is what is left of that. Else it returns an error: to end that shim, or what it runs, is not up to the
// worker of a copy.
func (h *home) checkCopy(ctx context.Context) error {
	for until := time.Now().Add(copyWait); ; {
		p, is := h.copied()
		switch {
		case !is:
			return nil
		case time.Now().After(until):
			return muster.Errorf(muster.Conflict,
				"the data dir %s is a copy of one that is in use on this machine, where process %d supervises tasks: a worker cannot run twice. To make another worker of the copy, delete the folder shim and the file identity.json in it, and start it with --token",
				h.data, p.PID)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(copyLook):
		}
	}
}

const (
	copyWait = 5 * time.Second
	copyLook = 100 * time.Millisecond
)

// raze ends what the shim and its tasks left, and removes the home.
func (h *home) raze(shim run.Pid, log *slog.Logger) {
	if shim.PID == 0 {
		if p, is := h.copied(); is {
			log.Error("the folder of a shim is a copy; it is left alone", slog.String("folder", h.dir), slog.Int("pid", p.PID))
			return
		}
		shim = h.owner()
	}
	if shim.PID > 0 && shim.PID != os.Getpid() {
		shim.Mark = ""
		if err := kin.KillLeftover(shim); err != nil {
			log.Error("a shim does not end, even when killed", slog.Int("pid", shim.PID), slog.Any("error", err))
		}
	}
	kin.KillRecorded(h.dir, log)
	h.remove(log)
}

func (h *home) remove(log *slog.Logger) {
	if err := os.RemoveAll(h.dir); err != nil {
		log.Warn("the folder of a shim stays", slog.String("folder", h.dir), slog.Any("error", err))
	}
}

// executable tells one build of this program from another.
func executable() string {
	path, err := os.Executable()
	if err != nil {
		return "unknown"
	}
	info, err := os.Stat(self(path))
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%d bytes of %d", info.Size(), info.ModTime().UnixNano())
}

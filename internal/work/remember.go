package work

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/muster-dev/muster/internal/agent/probe"
)

// factsFile is what the worker last found out about its machine.
const factsFile = "facts.json"

// looking is why a worker takes nothing new while it goes by what it remembers.
const looking = "it looks at its machine anew"

// facts finds out what the machine has. While tasks wait to be taken up it goes by
// what it remembers, for tools that tell of devices may need seconds: stale says that
// it is to look anew when it runs. The error is that of ctx.
func (w *Worker) facts(ctx context.Context, machine *probe.Probe, waiting bool) (f probe.Facts, stale bool, err error) {
	if waiting {
		if f, ok := w.remembered(); ok {
			return f, true, nil
		}
	}
	if f, err = machine.Run(ctx); err != nil {
		return f, false, err
	}
	w.remember(f)
	return f, false, nil
}

// remembered returns what an earlier life found out. A file that is damaged counts
// as none.
func (w *Worker) remembered() (f probe.Facts, ok bool) {
	b, err := os.ReadFile(filepath.Join(w.cfg.Data, factsFile))
	if err != nil || json.Unmarshal(b, &f) != nil {
		return probe.Facts{}, false
	}
	return f, f.Resources.CPUs > 0
}

// remember keeps what was found out for the next life. Without it that life only
// begins later.
func (w *Worker) remember(f probe.Facts) {
	path := filepath.Join(w.cfg.Data, factsFile)
	b, err := json.Marshal(f)
	if err == nil {
		err = os.WriteFile(path+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		w.log.Debug("what was found out about the machine is not kept", slog.Any("error", errors.Join(err, os.Remove(path+".new"))))
	}
}

package serverd

import (
	"context"
	"path/filepath"

	"github.com/shirou/gopsutil/v4/disk"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api"
	"github.com/muster-dev/muster/internal/history"
	"github.com/muster-dev/muster/internal/overview"
)

// apiViews opens the history, and says where the API takes from what it shows of the fleet.
func (s *Server) apiViews() api.Views {
	s.history = history.Open(history.Config{Source: s.engine, File: filepath.Join(s.cfg.Data, "history"), Log: s.log})
	return api.Views{Fleet: s.engine, History: s.history, Jobs: s.store, Disk: s.dataDisk}
}

// dataDisk returns the room on the disk of the data folder, nothing if that is not known.
func (s *Server) dataDisk() overview.Disk {
	u, err := disk.Usage(s.cfg.Data)
	if err != nil {
		return overview.Disk{}
	}
	// What is reserved for root counts as used.
	return overview.Disk{Free: muster.Size(u.Free), Size: muster.Size(u.Used + u.Free)}
}

// runHistory remembers the fleet's load once the state is loaded.
func (s *Server) runHistory(ctx context.Context) error {
	select {
	case <-s.engine.Ready():
		return s.history.Run(ctx)
	case <-ctx.Done():
		return nil
	}
}

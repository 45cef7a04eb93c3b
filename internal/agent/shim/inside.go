package shim

import (
	"context"
	"net"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster/internal/agent/shim/kin"
	"github.com/muster-dev/muster/internal/tasklog"
)

// inside makes a shim that is a part of this process, and returns the connection with
// it and what to wait for after that is closed.
func (c *Client) inside(h *home) (net.Conn, func(), error) {
	var dir *tasklog.Dir
	logs := c.cfg.Logs
	if logs == nil {
		var err error
		if dir, err = tasklog.OpenDir(filepath.Join(c.cfg.Dir, "logs")); err != nil {
			return nil, nil, err
		}
		logs = dir
	}
	record, err := kin.OpenRecord(h.dir)
	if err != nil {
		return nil, nil, err
	}
	s, err := newServer(logs, record, c.cfg.Build, h.key, c.cfg.Log)
	if err != nil {
		_ = record.Close()
		return nil, nil, err
	}
	s.helper = c.cfg.Helper
	mine, its := net.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { s.run(ctx, false); return nil })
	g.Go(func() error {
		s.serve(its)
		s.kill()
		stop()
		return nil
	})
	return mine, func() {
		_ = g.Wait()
		_ = record.Close()
		if dir != nil {
			_ = dir.Close()
		}
		h.remove(c.cfg.Log)
	}, nil
}

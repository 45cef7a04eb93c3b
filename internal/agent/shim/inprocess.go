package shim

import (
	"context"
	"net"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/tasklog"
)

// startInProcess starts a shim in this process. It returns a connection, and a function that waits for its end after the connection is
// closed.
func (c *Client) startInProcess(d *stateDir) (net.Conn, func(), error) {
	var ownLogs *tasklog.Dir
	logs := c.cfg.Logs
	if logs == nil {
		var err error
		if ownLogs, err = tasklog.OpenDir(filepath.Join(c.cfg.Dir, "logs")); err != nil {
			return nil, nil, err
		}
		logs = ownLogs
	}
	record, err := proctree.CreatePIDFile(d.path)
	if err != nil {
		return nil, nil, err
	}
	s, err := newServer(logs, record, c.cfg.Build, d.key, c.cfg.Log)
	if err != nil {
		_ = record.Close()
		return nil, nil, err
	}
	s.helper = c.cfg.Helper
	local, remote := net.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { s.run(ctx, false); return nil })
	g.Go(func() error {
		s.serve(remote)
		s.killAll()
		stop()
		return nil
	})
	return local, func() {
		_ = g.Wait()
		_ = record.Close()
		if ownLogs != nil {
			_ = ownLogs.Close()
		}
		d.remove(c.cfg.Log)
	}, nil
}

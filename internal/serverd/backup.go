package serverd

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backup"
	"github.com/muster-dev/muster/internal/boltdb"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/store/sqlite"
)

// Backup writes a backup of the running server. It is a Conflict while another backup runs.
func (s *Server) Backup(ctx context.Context, w io.Writer) error {
	if !s.backupMu.TryLock() {
		return muster.Errorf(muster.Conflict, "another backup of this server is running: wait until it has ended")
	}
	defer s.backupMu.Unlock()
	databases, err := s.gatewayDatabases()
	if err != nil {
		return err
	}
	summary, err := backup.Write(ctx, w, backup.Source{
		Data: s.cfg.Data, Version: s.cfg.Version, Snapshot: s.store.Snapshot, Databases: databases, Hold: s.sweeper.Hold,
	})
	if err == nil {
		s.metrics.BackedUp(time.Now(), summary.Bytes)
	}
	return err
}

// gatewayDatabases returns the open databases of gateways, by their names in the data directory.
func (s *Server) gatewayDatabases() (map[string]backup.View, error) {
	all := make(map[string]backup.View)
	for _, g := range s.gateways {
		owner, ok := g.Gateway.(dialect.DatabaseOwner)
		if !ok {
			continue
		}
		for _, db := range owner.Databases() {
			name, err := filepath.Rel(s.cfg.Data, db.Path())
			if err != nil {
				return nil, err
			}
			all[filepath.ToSlash(name)] = viewOf(db)
		}
	}
	return all, nil
}

func viewOf(db *bbolt.DB) backup.View {
	return func(f func(int64, io.WriterTo) error) error { return boltdb.View(db, f) }
}

// BackUpStopped writes a backup of the data directory of a server that does not run.
func BackUpStopped(ctx context.Context, data, version string, w io.Writer) (_ backup.Summary, err error) {
	if err := refuseIncomplete(data); err != nil {
		return backup.Summary{}, err
	}
	db, err := sqlite.OpenStopped(ctx, filepath.Join(data, backup.DatabaseName))
	if err != nil {
		return backup.Summary{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return backup.Write(ctx, w, backup.Source{Data: data, Version: version, Snapshot: db.Snapshot})
}

// Restore restores a backup into an empty data directory.
func Restore(ctx context.Context, r io.Reader, data string) (backup.Summary, error) {
	sum, err := backup.Restore(ctx, r, data, sqlite.Verify)
	if err != nil {
		return sum, err
	}
	return sum, markRestored(data, sum)
}

// refuseIncomplete returns an error if a restore into the directory did not end.
func refuseIncomplete(data string) error {
	if backup.Incomplete(data) {
		return muster.Errorf(muster.Conflict, "a restore of the data directory %s did not complete: run muster restore again with --data %s", data, data)
	}
	return nil
}

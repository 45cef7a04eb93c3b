package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/muster-dev/muster"
	"github.com/ncruces/go-sqlite3"
)

// Options are options of Open.
type Options struct {
	// UsedJob is the highest job number known to be used from outside the database, or 0.
	UsedJob muster.JobID
	// AcceptLoss opens a database that lacks acknowledged commits.
	AcceptLoss bool
}

// Loss is what a database lacks.
type Loss struct {
	OtherDatabase bool         // it is not the database that was last used in its directory
	Commits       int64        // that are missing, as far as they can be counted
	FirstJob      muster.JobID // jobs from this number on may be missing
	LastJob       muster.JobID // up to this one; less than FirstJob if no job is missing
}

// String describes the loss for messages.
func (l *Loss) String() string {
	text := fmt.Sprintf("its last %d commits are missing", l.Commits)
	switch {
	case l.OtherDatabase:
		text = "it is missing, or not the one that was last used there"
	case l.Commits == 0:
		text = "it is older than the logs beside it"
	}
	switch {
	case l.FirstJob == l.LastJob:
		text += fmt.Sprintf(", and with them job %s", l.FirstJob)
	case l.FirstJob < l.LastJob:
		text += fmt.Sprintf(", and with them jobs %s to %s", l.FirstJob, l.LastJob)
	}
	return text
}

func (s *Store) lossError(l *Loss) error {
	return muster.Errorf(muster.Conflict,
		"the database %s lacks acknowledged commits: %s; its write-ahead log (-wal) was damaged or removed, or an older copy was restored: "+
			"restore a backup of the whole data directory, or continue without them with --accept-loss", s.path, l)
}

// detectLoss compares the database with the mark and with the job numbers known to be used. It
// writes nothing, not even to the write-ahead log. It returns nil if nothing is missing.
func (s *Store) detectLoss(ctx context.Context, used muster.JobID) (*Loss, error) {
	last, marked, err := readCommitMark(filepath.Dir(s.path))
	if err != nil {
		return nil, err
	}
	onDisk, err := s.readPosition(ctx)
	if err != nil {
		return nil, err
	}
	lastUsed := used
	if marked {
		lastUsed = max(lastUsed, last.nextJob-1)
	}
	l := &Loss{FirstJob: onDisk.nextJob, LastJob: lastUsed}
	switch {
	case marked && last.id != onDisk.id:
		l.OtherDatabase = true
		l.Commits = 0
	case marked && last.seq > onDisk.seq:
		l.Commits = last.seq - onDisk.seq
	case used >= onDisk.nextJob:
	default:
		return nil, nil //nolint:nilnil // nothing is missing
	}
	return l, nil
}

// readPosition reads the position of the database on disk. A missing database, and one of an older Muster, has no id.
func (s *Store) readPosition(ctx context.Context) (p position, err error) {
	p.nextJob = 1
	if info, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return p, nil
	}
	c, err := openConn(ctx, s.path, "PRAGMA query_only = ON;")
	if err != nil {
		return p, s.wrapError(ctx, "open", err)
	}
	defer func() { err = errors.Join(err, c.close()) }()
	// Otherwise closing the last connection would checkpoint and delete the write-ahead log.
	if _, err := c.db.Config(sqlite3.DBCONFIG_NO_CKPT_ON_CLOSE, true); err != nil {
		return p, s.wrapError(ctx, "open", err)
	}
	if err := c.inTx(ctx, forReading, func() error { return c.readPosition(&p) }); err != nil {
		return p, s.wrapError(ctx, "read", err)
	}
	return p, nil
}

func (c *conn) readPosition(p *position) error {
	tables := map[string]bool{}
	err := c.query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ('job', 'life')", nil, func(cols *columns) bool {
		tables[cols.text()] = true
		return true
	})
	if err == nil && tables["job"] {
		err = c.query("SELECT ifnull(max(id), 0) + 1 FROM job", nil, func(cols *columns) bool {
			p.nextJob = muster.JobID(cols.int())
			return true
		})
	}
	if err == nil && tables["life"] {
		err = c.query("SELECT id, seq, next_job FROM life", nil, func(cols *columns) bool {
			p.id, p.seq = cols.text(), cols.int()
			p.nextJob = max(p.nextJob, muster.JobID(cols.int()))
			return true
		})
	}
	return err
}

// acceptLoss continues without the missing commits: the database gets a new id, and no job number is used twice.
func (s *Store) acceptLoss(ctx context.Context, l *Loss) error {
	return s.writeTx(ctx, func(c *conn) error {
		intact := true
		err := c.query("PRAGMA integrity_check(1)", nil, func(cols *columns) bool {
			intact = cols.text() == "ok"
			return true
		})
		if err != nil {
			return err
		}
		if !intact {
			return muster.Errorf(muster.Internal, "the database %s is also damaged: restore it from a backup", s.path)
		}
		return c.exec("UPDATE life SET id = lower(hex(randomblob(16))), next_job = max(next_job, ?)", values(int64(l.LastJob)+1))
	})
}

// countCommit counts the commit in its own transaction. next is the least number of the next job, or 0.
func (s *Store) countCommit(next muster.JobID) error {
	return s.writer.query("UPDATE life SET seq = seq + 1, next_job = max(next_job, ?) RETURNING id, seq, next_job", values(int64(next)),
		func(cols *columns) bool {
			s.lastCommit.id, s.lastCommit.seq, s.lastCommit.nextJob = cols.text(), cols.int(), muster.JobID(cols.int())
			return true
		})
}

// writeMark writes the mark of the last commit. Without the mark a later loss of this commit is not
// detected, but the commit itself succeeded, so errors are ignored.
func (s *Store) writeMark() { _ = s.mark.write(s.lastCommit) }

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

// Options say how to open a database.
type Options struct {
	// UsedJob is the highest job number that something outside the database shows to have been used, or 0.
	UsedJob muster.JobID
	// AcceptLoss opens a database that lacks commits which were acknowledged.
	AcceptLoss bool
}

// Loss says what a database lacks.
type Loss struct {
	OtherDatabase bool         // it is another database than the one that was last used in its folder
	Commits       int64        // that are missing, as far as they can be counted
	FirstJob      muster.JobID // jobs from this number on may be missing
	LastJob       muster.JobID // to this one; less than From if no job is missing
}

// String tells it in words.
func (l *Loss) String() string {
	text := fmt.Sprintf("its last %d commits are missing", l.Commits)
	switch {
	case l.OtherDatabase:
		text = "it is missing, or another one than was last used there"
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
		"the database %s lacks what was acknowledged: %s; its write-ahead log (-wal) was damaged or removed, or an older copy was put in its place: "+
			"restore a backup of the whole data folder, or go on without it with --accept-loss", s.path, l)
}

// detectLoss compares the database with the mark, and with the job numbers that are known to be used, before anything
// is written: also the write-ahead log stays as it is. It returns nil if nothing is missing.
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

// readPosition reads how far the database on disk has come. One that is not there, or was made by an older Muster, has no id.
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
	// The last connection that closes would otherwise move what is left of the write-ahead log, and delete the rest.
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

// acceptLoss goes on without what is missing: the database gets another identity, and no number is used again.
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
			return muster.Errorf(muster.Internal, "the database %s is damaged in itself, too: restore it from a backup", s.path)
		}
		return c.exec("UPDATE life SET id = lower(hex(randomblob(16))), next_job = max(next_job, ?)", func(p *params) { p.int(int64(l.LastJob) + 1) })
	})
}

// countCommit counts a commit, which is part of it. next is the number of the next job, if the commit says so.
func (s *Store) countCommit(next muster.JobID) error {
	return s.writer.query("UPDATE life SET seq = seq + 1, next_job = max(next_job, ?) RETURNING id, seq, next_job", func(p *params) { p.int(int64(next)) },
		func(cols *columns) bool {
			s.lastCommit.id, s.lastCommit.seq, s.lastCommit.nextJob = cols.text(), cols.int(), muster.JobID(cols.int())
			return true
		})
}

// writeMark writes the mark of the commit that has just been made. Without it a later loss of this commit would not be
// noticed: that is no reason to tell its caller that it was not done.
func (s *Store) writeMark() { _ = s.mark.write(s.lastCommit) }

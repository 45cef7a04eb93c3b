package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

// TestOlderRowsAreKeptForRetention checks what a database of the last version without retention has after the upgrade: totals, sizes of logs, contents,
// keys that outlive their jobs, and a week before anything is deleted.
func TestOlderRowsAreKeptForRetention(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "muster.db")
	editDatabase(t, path, func(ctx context.Context, db *sql.DB) error {
		if err := claimFile(ctx, db, path); err != nil {
			return err
		}
		p, err := migrator(db)
		if err != nil {
			return err
		}
		if _, err := p.UpTo(ctx, 28); err != nil {
			return err
		}
		const counts = "0, 0, 0, 0, 0, 1, 1, 0, 0, 0"
		_, err = db.ExecContext(ctx, `INSERT INTO job (id, name, project, state, priority, n_waiting, n_queued, n_assigned, n_running, n_cancelling, n_succeeded,
			n_failed, n_timed_out, n_cancelled, n_skipped, created_at, finished_at) VALUES (7, 'a', 'p', 5, 50, `+counts+`, 1, 9), (8, 'b', 'p', 5, 50, `+counts+`, 1, 9);
			INSERT INTO task (id, grp, name, kind, state, attempt, retried, crashes, finished_at, log_size, artifacts) VALUES
			((7 << 24), 0, 'a', 'noop', 6, 1, 0, 0, 9, 1000, '[{"name":"x","size":3,"sha256":"`+strings.Repeat("a", 64)+`"}]'), ((7 << 24) + 1, 0, 'a', 'noop', 7, 2, 0, 0, 9, 0, NULL);
			INSERT INTO attempt (task, n, outcome, finished_at, log_size) VALUES ((7 << 24) + 1, 1, 2, 5, 50);
			INSERT INTO content (cid, job, name, sha256, size, pin, proof) VALUES ('`+strings.Repeat("Q", 46)+`', 7, 'x', '`+strings.Repeat("a", 64)+`', 3, 1, 1);
			INSERT INTO idempotency (owner, key, digest, job, at) VALUES ('me', 'k', 'd', 8, 5)`)
		return err
	})
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	snap, err := s.Load(t.Context())
	if err != nil || len(snap.Totals) != 1 || snap.Totals["p"] != (muster.Counts{muster.Succeeded: 2, muster.Failed: 2}) {
		t.Errorf("totals: %v, %v", snap.Totals, err)
	}
	for id, want := range map[muster.JobID]muster.Size{7: 1050 + 2*muster.LogOverhead, 8: 0} {
		if j, err := s.Job(t.Context(), id); err != nil || j.Usage.LogBytes != want || j.JobRetention != (muster.JobRetention{}) {
			t.Errorf("the logs of job %s take %s, %+v, %v; want %s", id, j.Usage.LogBytes, j.JobRetention, err, want)
		}
	}
	if k, found, err := s.FindIdempotencyKey(t.Context(), "me", "k"); k.Job != 8 || !found || err != nil {
		t.Errorf("the idempotency key: %v, %t, %v", k, found, err)
	}
	if pages, _, _, err := s.TaskBlobs(t.Context(), muster.TaskID{}, 9); len(pages) != 1 || err != nil {
		t.Errorf("references: %v, %v", pages, err)
	}
	start, _, err := s.RetentionStart(t.Context())
	if in := start.Sub(muster.NewTime(time.Now())).Std(); in < 6*24*time.Hour || in > 8*24*time.Hour || err != nil {
		t.Errorf("the default policies apply in %s, %v", in, err)
	}
}

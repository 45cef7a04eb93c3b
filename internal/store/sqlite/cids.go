package sqlite

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// putContents records which of a job's artifacts have content identifiers. The pin and proof of a file hold for all jobs that have it.
func (c *conn) putContents(job muster.JobID, artifacts []muster.Artifact) error {
	for i := range artifacts {
		a := &artifacts[i]
		if a.CID == "" {
			continue
		}
		err := c.exec(`INSERT INTO content (cid, job, name, sha256, size, pin, proof)
			SELECT ?1, ?2, ?3, ?4, ?5, coalesce(max(pin), 0), coalesce(max(proof), 0) FROM content WHERE cid = ?1 AND sha256 = ?4 ON CONFLICT DO NOTHING`,
			values(a.CID, int64(job), a.Name, a.SHA256, a.Size))
		if err != nil {
			return err
		}
	}
	return nil
}

const contentColumns = "cid, job, name, sha256, size, proof"

func (r row) content(k *store.Content) {
	text(r, &k.CID)
	number(r, &k.Job)
	text(r, &k.Name)
	text(r, &k.SHA256)
	number(r, &k.Size)
	number(r, &k.Verification)
}

// Contents implements store.Reader.
func (s *Store) Contents(ctx context.Context, q store.ContentQuery) ([]store.Content, error) {
	return readList(ctx, s, "SELECT "+contentColumns+` FROM content WHERE cid = ?1 AND proof < 2 AND (?2 = 0 OR job < ?2 OR job = ?2 AND sha256 > ?3)
		AND (?4 = '' OR (SELECT project FROM job WHERE id = content.job) = ?4) ORDER BY job DESC, sha256 LIMIT ?5`,
		values(q.CID, int64(q.After.Job), q.After.SHA256, q.Project, q.Limit), row.content)
}

// Unpinned implements store.PinStore.
func (s *Store) Unpinned(ctx context.Context, after store.Content, limit int) ([]store.Content, error) {
	return readList(ctx, s, "SELECT cid, max(job), name, sha256, size, proof FROM content WHERE pin = 0 AND (cid, sha256) > (?, ?) GROUP BY cid, sha256 ORDER BY cid, sha256 LIMIT ?",
		values(after.CID, after.SHA256, limit), row.content)
}

// SetPin implements store.PinStore.
func (s *Store) SetPin(ctx context.Context, k store.Content, state store.PinState) error {
	return s.writeTx(ctx, func(c *conn) error {
		return c.exec("UPDATE content SET pin = ? WHERE cid = ? AND sha256 = ?", values(int(state), k.CID, k.SHA256))
	})
}

// SetVerification implements store.VerificationStore.
func (s *Store) SetVerification(ctx context.Context, k store.Content, state store.Verification) error {
	return s.writeTx(ctx, func(c *conn) error {
		return c.exec("UPDATE content SET proof = ? WHERE cid = ? AND sha256 = ?", values(int(state), k.CID, k.SHA256))
	})
}

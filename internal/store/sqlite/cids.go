package sqlite

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// putContents notes which of a job's artifacts have content identifiers. What is known of a file's pin and proof holds for every job.
func (c *conn) putContents(job muster.JobID, artifacts []muster.Artifact) error {
	for i := range artifacts {
		a := &artifacts[i]
		if a.CID == "" {
			continue
		}
		err := c.exec(`INSERT INTO content (cid, job, name, sha256, size, pin, proof)
			SELECT ?1, ?2, ?3, ?4, ?5, coalesce(max(pin), 0), coalesce(max(proof), 0) FROM content WHERE cid = ?1 AND sha256 = ?4 ON CONFLICT DO NOTHING`,
			func(p *params) {
				p.text(a.CID)
				p.int(int64(job))
				p.text(a.Name)
				p.text(a.SHA256)
				p.int(a.Size)
			})
		if err != nil {
			return err
		}
	}
	return nil
}

const contentColumns = "cid, job, name, sha256, size, proof"

func (c *columns) content() (k store.Content) {
	k.CID = c.text()
	k.Job = muster.JobID(c.int())
	k.Name = c.text()
	k.SHA256 = c.text()
	k.Size = c.int()
	k.Verification = store.Verification(c.int())
	return k
}

// Contents implements store.Reader.
func (s *Store) Contents(ctx context.Context, q store.ContentQuery) ([]store.Content, error) {
	return s.contents(ctx, "SELECT "+contentColumns+` FROM content WHERE cid = ?1 AND proof < 2 AND (?2 = 0 OR job < ?2 OR job = ?2 AND sha256 > ?3)
		AND (?4 = '' OR (SELECT project FROM job WHERE id = content.job) = ?4) ORDER BY job DESC, sha256 LIMIT ?5`,
		func(p *params) {
			p.text(q.CID)
			p.int(int64(q.After.Job))
			p.text(q.After.SHA256)
			p.text(q.Project)
			p.int(int64(q.Limit))
		})
}

// Unpinned implements store.Pins.
func (s *Store) Unpinned(ctx context.Context, after store.Content, limit int) ([]store.Content, error) {
	return s.contents(ctx, "SELECT cid, max(job), name, sha256, size, proof FROM content WHERE pin = 0 AND (cid, sha256) > (?, ?) GROUP BY cid, sha256 ORDER BY cid, sha256 LIMIT ?",
		func(p *params) {
			p.text(after.CID)
			p.text(after.SHA256)
			p.int(int64(limit))
		})
}

func (s *Store) contents(ctx context.Context, sql string, bind func(*params)) (found []store.Content, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		return c.query(sql, bind, func(cols *columns) bool {
			found = append(found, cols.content())
			return true
		})
	})
	return found, err
}

// SetPin implements store.Pins.
func (s *Store) SetPin(ctx context.Context, k store.Content, state store.PinState) error {
	return s.writeTx(ctx, func(c *conn) error {
		return c.exec("UPDATE content SET pin = ? WHERE cid = ? AND sha256 = ?", func(p *params) {
			p.int(int64(state))
			p.text(k.CID)
			p.text(k.SHA256)
		})
	})
}

// SetVerification implements store.Proofs.
func (s *Store) SetVerification(ctx context.Context, k store.Content, state store.Verification) error {
	return s.writeTx(ctx, func(c *conn) error {
		return c.exec("UPDATE content SET proof = ? WHERE cid = ? AND sha256 = ?", func(p *params) {
			p.int(int64(state))
			p.text(k.CID)
			p.text(k.SHA256)
		})
	})
}

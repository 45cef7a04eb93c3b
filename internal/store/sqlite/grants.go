package sqlite

import (
	"context"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

var _ store.GrantStore = (*Store)(nil)

// GrantBlobs implements store.GrantStore. A later size replaces an earlier one.
func (s *Store) GrantBlobs(ctx context.Context, holders []store.Grantee, blobs []store.Blob) error {
	now := int64(muster.NewTime(time.Now()))
	return s.writeTx(ctx, func(c *conn) error {
		for i := range blobs {
			err := c.exec("INSERT INTO blob_grant (sha256, holder, size, at) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET size = excluded.size, at = excluded.at",
				values(blobs[i].SHA256, string(holders[i]), blobs[i].Size, now))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// putArtifacts grants a job's artifacts to its project, and records their content identifiers.
func (c *conn) putArtifacts(job muster.JobID, artifacts []muster.Artifact) error {
	err := each(artifacts, func(a *muster.Artifact) error {
		if len(a.SHA256) != 64 {
			return nil // not the name of a blob
		}
		return c.exec("INSERT INTO blob_grant (sha256, holder, size) SELECT ?, 'p:' || project, ? FROM job WHERE id = ? ON CONFLICT DO NOTHING",
			values(a.SHA256, a.Size, int64(job)))
	})
	if err != nil {
		return err
	}
	return c.putContents(job, artifacts)
}

const selectGrant = "SELECT size, holder = ?1 FROM blob_grant WHERE sha256 = ?2 ORDER BY holder = ?1 DESC LIMIT 1"

// BlobGrant implements store.GrantStore.
func (s *Store) BlobGrant(ctx context.Context, h store.Grantee, sha256 string) (size int64, granted bool, err error) {
	_, found, err := readFirst(ctx, s, selectGrant, values(string(h), sha256), func(r row, _ *struct{}) {
		number(r, &size)
		r.bool(&granted)
	})
	if !found {
		return -1, false, err
	}
	return size, granted, err
}

// Ungranted implements store.GrantStore.
func (s *Store) Ungranted(ctx context.Context, h store.Grantee, sha256 []string) (ungranted []string, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		for _, sum := range sha256 {
			_, found, err := first(c, "SELECT 1 FROM blob_grant WHERE sha256 = ? AND holder = ?", values(sum, string(h)), number[int])
			if err != nil {
				return err
			}
			if !found {
				ungranted = append(ungranted, sum)
			}
		}
		return nil
	})
	return ungranted, err
}

// putContents records which of a job's artifacts have content identifiers. The pin and proof of a file hold for all jobs that have it.
func (c *conn) putContents(job muster.JobID, artifacts []muster.Artifact) error {
	return each(artifacts, func(a *muster.Artifact) error {
		if a.CID == "" {
			return nil
		}
		return c.exec(`INSERT INTO content (cid, job, name, sha256, size, pin, proof)
			SELECT ?1, ?2, ?3, ?4, ?5, coalesce(max(pin), 0), coalesce(max(proof), 0) FROM content WHERE cid = ?1 AND sha256 = ?4 ON CONFLICT DO NOTHING`,
			values(a.CID, int64(job), a.Name, a.SHA256, a.Size))
	})
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
		AND EXISTS (SELECT 1 FROM job WHERE id = content.job AND (?4 = '' OR project = ?4)) ORDER BY job DESC, sha256 LIMIT ?5`,
		values(q.CID, int64(q.After.Job), q.After.SHA256, q.Project, q.Limit), row.content)
}

// Unpinned implements store.PinStore.
func (s *Store) Unpinned(ctx context.Context, after store.Content, limit int) ([]store.Content, error) {
	return readList(ctx, s, "SELECT cid, max(job), name, sha256, size, proof FROM content WHERE pin = 0 AND (cid, sha256) > (?, ?) AND EXISTS (SELECT 1 FROM job WHERE id = content.job) GROUP BY cid, sha256 ORDER BY cid, sha256 LIMIT ?",
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

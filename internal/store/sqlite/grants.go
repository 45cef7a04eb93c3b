package sqlite

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

var _ store.GrantStore = (*Store)(nil)

// GrantBlobs implements store.Grants. A later size replaces an earlier one: it was counted later.
func (s *Store) GrantBlobs(ctx context.Context, holders []store.Grantee, blobs []store.Blob) error {
	return s.writeTx(ctx, func(c *conn) error {
		for i := range blobs {
			err := c.exec("INSERT INTO blob_grant (sha256, holder, size) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET size = excluded.size", func(p *params) {
				p.text(blobs[i].SHA256)
				p.text(string(holders[i]))
				p.int(blobs[i].Size)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// putArtifacts notes what a job's artifacts are found by, and who may have them.
func (c *conn) putArtifacts(job muster.JobID, artifacts []muster.Artifact) error {
	if len(artifacts) == 0 {
		return nil
	}
	if err := c.grantArtifacts(job, artifacts); err != nil {
		return err
	}
	return c.putContents(job, artifacts)
}

// grantArtifacts grants the artifacts of a job to its project.
func (c *conn) grantArtifacts(job muster.JobID, artifacts []muster.Artifact) error {
	for i := range artifacts {
		if len(artifacts[i].SHA256) != 64 {
			continue // no blob has such a name
		}
		err := c.exec("INSERT INTO blob_grant (sha256, holder, size) SELECT ?, 'p:' || project, ? FROM job WHERE id = ? ON CONFLICT DO NOTHING", func(p *params) {
			p.text(artifacts[i].SHA256)
			p.int(artifacts[i].Size)
			p.int(int64(job))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const selectGrant = "SELECT size, holder = ?1 FROM blob_grant WHERE sha256 = ?2 ORDER BY holder = ?1 DESC LIMIT 1"

// BlobGrant implements store.Grants.
func (s *Store) BlobGrant(ctx context.Context, h store.Grantee, sha256 string) (size int64, granted bool, err error) {
	size = -1
	err = s.readTx(ctx, func(c *conn) error {
		return c.query(selectGrant, func(p *params) {
			p.text(string(h))
			p.text(sha256)
		}, func(cols *columns) bool {
			size, granted = cols.int(), cols.bool()
			return true
		})
	})
	return size, granted, err
}

// Ungranted implements store.Grants.
func (s *Store) Ungranted(ctx context.Context, h store.Grantee, sha256 []string) (ungranted []string, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		for _, sum := range sha256 {
			found := false
			err := c.query("SELECT 1 FROM blob_grant WHERE sha256 = ? AND holder = ?", func(p *params) {
				p.text(sum)
				p.text(string(h))
			}, func(*columns) bool {
				found = true
				return true
			})
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

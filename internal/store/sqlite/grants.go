package sqlite

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

var _ store.GrantStore = (*Store)(nil)

// GrantBlobs implements store.GrantStore. A later size replaces an earlier one.
func (s *Store) GrantBlobs(ctx context.Context, holders []store.Grantee, blobs []store.Blob) error {
	return s.writeTx(ctx, func(c *conn) error {
		for i := range blobs {
			err := c.exec("INSERT INTO blob_grant (sha256, holder, size) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET size = excluded.size",
				values(blobs[i].SHA256, string(holders[i]), blobs[i].Size))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// putArtifacts grants a job's artifacts to its project, and records their content identifiers.
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
			continue // not the name of a blob
		}
		err := c.exec("INSERT INTO blob_grant (sha256, holder, size) SELECT ?, 'p:' || project, ? FROM job WHERE id = ? ON CONFLICT DO NOTHING",
			values(artifacts[i].SHA256, artifacts[i].Size, int64(job)))
		if err != nil {
			return err
		}
	}
	return nil
}

const selectGrant = "SELECT size, holder = ?1 FROM blob_grant WHERE sha256 = ?2 ORDER BY holder = ?1 DESC LIMIT 1"

// BlobGrant implements store.GrantStore.
func (s *Store) BlobGrant(ctx context.Context, h store.Grantee, sha256 string) (size int64, granted bool, err error) {
	size = -1
	err = s.readTx(ctx, func(c *conn) error {
		return c.query(selectGrant, values(string(h), sha256), func(cols *columns) bool {
			size, granted = cols.int(), cols.bool()
			return true
		})
	})
	return size, granted, err
}

// Ungranted implements store.GrantStore.
func (s *Store) Ungranted(ctx context.Context, h store.Grantee, sha256 []string) (ungranted []string, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		for _, sum := range sha256 {
			found := false
			err := c.query("SELECT 1 FROM blob_grant WHERE sha256 = ? AND holder = ?", values(sum, string(h)), func(*columns) bool {
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

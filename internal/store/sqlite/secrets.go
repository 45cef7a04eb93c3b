package sqlite

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

var _ store.SecretStore = (*Store)(nil)

const secretColumns = "project, name, version, workers, sealed, updated_at, updated_by"

// Secrets implements store.SecretStore.
func (s *Store) Secrets(ctx context.Context) ([]store.Secret, error) {
	return readList(ctx, s, "SELECT "+secretColumns+" FROM secret ORDER BY project, name", nil, row.secret)
}

// PutSecret implements store.SecretStore.
func (s *Store) PutSecret(ctx context.Context, v store.Secret) error {
	return s.writeTx(ctx, func(c *conn) error {
		return c.exec("REPLACE INTO secret ("+secretColumns+") VALUES (?, ?, ?, ?, ?, ?, ?)", func(p *params) { row{p: p}.secret(&v) })
	})
}

// DeleteSecret implements store.SecretStore.
func (s *Store) DeleteSecret(ctx context.Context, project, name string) error {
	return s.writeTx(ctx, func(c *conn) error {
		if err := c.exec("DELETE FROM secret WHERE project = ? AND name = ?", values(project, name)); err != nil {
			return err
		}
		if c.db.Changes() == 0 {
			return muster.Errorf(muster.NotFound, "project %s has no secret %s", project, name)
		}
		return nil
	})
}

func (r row) secret(v *store.Secret) {
	text(r, &v.Project)
	text(r, &v.Name)
	number(r, &v.Version)
	jsonList(r, &v.Workers)
	field(r, &v.Sealed, (*params).blob, (*columns).blob)
	number(r, &v.UpdatedAt)
	text(r, &v.UpdatedBy)
}

package sqlite

import (
	"context"
	"errors"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"github.com/ncruces/go-sqlite3"
)

// PutKey implements store.Keys.
func (s *Store) PutKey(ctx context.Context, k store.Key) error {
	return s.writeTx(ctx, func(c *conn) error {
		err := c.exec(putKey, func(p *params) { p.key(&k) })
		if errors.Is(err, sqlite3.CONSTRAINT_UNIQUE) {
			return muster.Errorf(muster.Conflict, "the key %q has the secret of another key: choose another one", k.Name)
		}
		if errors.Is(err, sqlite3.CONSTRAINT_FOREIGNKEY) {
			return muster.Errorf(muster.Unauthenticated, "the key that makes the key %q was revoked", k.Name)
		}
		return err
	})
}

// DeleteKey implements store.Keys.
func (s *Store) DeleteKey(ctx context.Context, id string) error {
	return s.writeTx(ctx, func(c *conn) error {
		if err := c.exec("INSERT OR IGNORE INTO revoked_key SELECT hash, worker FROM api_key WHERE id = ? AND worker IS NOT NULL",
			func(p *params) { p.text(id) }); err != nil {
			return err
		}
		if err := c.exec("DELETE FROM api_key WHERE id = ?", func(p *params) { p.text(id) }); err != nil {
			return err
		}
		if c.db.Changes() == 0 {
			return errNoKey(id)
		}
		return nil
	})
}

// KeyByHash implements store.Keys.
func (s *Store) KeyByHash(ctx context.Context, hash string) (store.Key, error) {
	keys, err := s.keys(ctx, "SELECT "+keyColumns+" FROM api_key WHERE hash = ?", func(p *params) { p.text(hash) })
	if err != nil {
		return store.Key{}, err
	}
	if len(keys) > 0 {
		return keys[0], nil
	}
	worker, err := s.revoked(ctx, hash)
	if err != nil {
		return store.Key{}, err
	}
	if worker != "" {
		return store.Key{}, muster.Errorf(muster.Forbidden, "the key of worker %s was revoked by an administrator", worker)
	}
	return store.Key{}, muster.Errorf(muster.NotFound, "there is no such key")
}

// revoked returns the worker whose deleted key has a hash; "" if there is none.
func (s *Store) revoked(ctx context.Context, hash string) (worker string, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		return c.query("SELECT worker FROM revoked_key WHERE hash = ?", func(p *params) { p.text(hash) }, func(cols *columns) bool {
			worker = cols.text()
			return true
		})
	})
	return worker, err
}

// ListKeys implements store.Keys.
func (s *Store) ListKeys(ctx context.Context) ([]store.Key, error) {
	return s.keys(ctx, "SELECT "+keyColumns+" FROM api_key ORDER BY created_at, id", nil)
}

func (s *Store) keys(ctx context.Context, sql string, bind func(*params)) (keys []store.Key, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		return c.query(sql, bind, func(cols *columns) bool {
			keys = append(keys, cols.key())
			return true
		})
	})
	return keys, err
}

func errNoKey(id string) error {
	return muster.Errorf(muster.NotFound, "there is no key %q", id)
}

func (p *params) key(k *store.Key) {
	p.text(k.ID)
	p.text(k.Name)
	p.text(k.Hash)
	p.text(k.Role)
	p.nullText(k.Project)
	p.nullText(string(k.Worker))
	p.int(int64(k.CreatedAt))
	p.time(k.ExpiresAt)
	p.nullInt(int64(k.Job))
	p.nullText(k.Parent)
}

func (c *columns) key() (k store.Key) {
	k.ID = c.text()
	k.Name = c.text()
	k.Hash = c.text()
	k.Role = c.text()
	k.Project = c.text()
	k.Worker = muster.WorkerID(c.text())
	k.CreatedAt = c.time()
	k.ExpiresAt = c.time()
	k.Job = muster.JobID(c.int())
	k.Parent = c.text()
	return k
}

package sqlite

import (
	"cmp"
	"context"
	"errors"

	"github.com/ncruces/go-sqlite3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// PutKeys implements store.KeyStore.
func (s *Store) PutKeys(ctx context.Context, keys ...store.Key) error {
	return s.writeTx(ctx, func(c *conn) error {
		return each(keys, func(k *store.Key) error {
			err := c.exec(putKey, func(p *params) { row{p: p}.key(k) })
			if errors.Is(err, sqlite3.CONSTRAINT_UNIQUE) {
				return muster.Errorf(muster.Conflict, "the key %q has the same secret as another key: choose another secret", k.Name)
			}
			if errors.Is(err, sqlite3.CONSTRAINT_FOREIGNKEY) {
				return muster.Errorf(muster.Unauthenticated, "the parent of the key %q was revoked", k.Name)
			}
			return err
		})
	})
}

// TouchKeys implements store.KeyStore.
func (s *Store) TouchKeys(ctx context.Context, uses []store.KeyUse) error {
	return s.writeTx(ctx, func(c *conn) error {
		return each(uses, func(u *store.KeyUse) error {
			return c.exec("UPDATE api_key SET last_used_at = ?2, last_used_from = ?3 WHERE hash = ?1 AND ifnull(last_used_at, 0) < ?2",
				func(p *params) { p.text(u.Hash); p.time(u.At); p.nullText(u.From) })
		})
	})
}

// QuarantineKeys implements store.KeyStore.
func (s *Store) QuarantineKeys(ctx context.Context, worker muster.WorkerID, why string) error {
	return s.writeTx(ctx, func(c *conn) error {
		return c.exec("UPDATE api_key SET quarantined = ? WHERE worker = ?", values(why, string(worker)))
	})
}

// DeleteKey implements store.KeyStore.
func (s *Store) DeleteKey(ctx context.Context, id string) error {
	return s.writeTx(ctx, func(c *conn) error {
		if err := c.exec("INSERT OR IGNORE INTO revoked_key SELECT hash, worker FROM api_key WHERE id = ? AND worker IS NOT NULL",
			values(id)); err != nil {
			return err
		}
		if err := c.exec("DELETE FROM api_key WHERE id = ?", values(id)); err != nil {
			return err
		}
		if c.db.Changes() == 0 {
			return muster.Errorf(muster.NotFound, "there is no key %q", id)
		}
		return nil
	})
}

// KeyByHash implements store.KeyStore.
func (s *Store) KeyByHash(ctx context.Context, hash string) (store.Key, error) {
	key, found, err := readFirst(ctx, s, "SELECT "+keyColumns+" FROM api_key WHERE hash = ?", values(hash), row.key)
	if found || err != nil {
		return key, err
	}
	worker, found, err := readFirst(ctx, s, "SELECT worker FROM revoked_key WHERE hash = ?", values(hash), text[string])
	if err != nil {
		return store.Key{}, err
	}
	if found {
		return store.Key{}, muster.Errorf(muster.Forbidden, "the key of worker %s was revoked by an administrator", worker)
	}
	return store.Key{}, muster.Errorf(muster.NotFound, "there is no such key")
}

// ListKeys implements store.KeyStore.
func (s *Store) ListKeys(ctx context.Context) ([]store.Key, error) {
	return readList(ctx, s, "SELECT "+keyColumns+" FROM api_key ORDER BY created_at, id", nil, row.key)
}

func (r row) key(k *store.Key) {
	text(r, &k.ID)
	text(r, &k.Name)
	text(r, &k.Hash)
	text(r, &k.Role)
	optText(r, &k.Project)
	optText(r, &k.Worker)
	number(r, &k.CreatedAt)
	optNumber(r, &k.ExpiresAt)
	optNumber(r, &k.Job)
	optText(r, &k.Parent)
	optText(r, &k.Prefix)
	r.bool(&k.Rotated)
	optNumber(r, &k.LastUsedAt)
	optText(r, &k.LastUsedFrom)
	optText(r, &k.Subject)
	optional(r, &k.Uses, number[int])
	jsonPtr(r, &k.Bounds)
	r.bool(&k.Approval)
	optText(r, &k.JoinedBy)
	optText(r, &k.Quarantined)
}

// takenID finds a worker that has, had or may get an id, or has it as its name.
const takenID = `SELECT worker FROM revoked_key WHERE worker = ?1
	UNION ALL SELECT worker FROM api_key WHERE worker = ?1
	UNION ALL SELECT id FROM worker WHERE id = ?1 OR name = ?1
	UNION ALL SELECT id FROM api_key INDEXED BY api_key_bounds WHERE bounds IS NOT NULL AND bounds ->> '$.worker' = ?1 LIMIT 1`

// Enroll implements store.EnrolmentStore.
func (s *Store) Enroll(ctx context.Context, token string, replaces muster.WorkerID, k store.Key) (store.Key, error) {
	err := s.writeTx(ctx, func(c *conn) error {
		by, found, err := first(c, "SELECT "+keyColumns+" FROM api_key WHERE id = ?", values(token), row.key)
		if err != nil {
			return err
		}
		if !found {
			return muster.Errorf(muster.Unauthenticated, "the key %q was revoked", token)
		}
		own, joinedBy := by.Bounds != nil && by.Bounds.Worker != "", by.ID
		if own {
			joinedBy = cmp.Or(by.JoinedBy, by.ID)
		}
		if replaces != "" && (!own || by.Bounds.Worker != replaces) {
			if _, refused, err := first(c, "SELECT worker FROM revoked_key WHERE worker = ?1 UNION ALL SELECT worker FROM api_key WHERE worker = ?1 AND quarantined IS NOT NULL LIMIT 1",
				values(string(replaces)), text[string]); err != nil {
				return err
			} else if refused {
				return muster.Errorf(muster.Forbidden, "worker %s was revoked, removed or quarantined, and the join token %q is not for it: muster workers reset makes one that is; to join as a new worker, delete identity.json in the worker's data directory first", replaces, by.Name)
			}
		}
		old, repeated, err := first(c, "SELECT "+keyColumns+" FROM api_key WHERE hash = ?", values(k.Hash), row.key)
		if err != nil {
			return err
		}
		if repeated && (old.JoinedBy != joinedBy || own && old.Worker != by.Bounds.Worker) {
			return muster.Errorf(muster.Conflict, "worker %s has joined with this key pair by another token: delete the identity.json of the worker that is to join", old.Worker)
		}
		if repeated {
			k = old
			return nil
		}
		if !own {
			if _, taken, err := first(c, takenID, values(string(k.Worker)), text[string]); err != nil {
				return err
			} else if taken {
				return muster.Errorf(muster.Conflict, "the id %[1]s is that of another worker, or was, or is the name of one: choose another --worker-id, or join with the token of muster workers reset %[1]s", k.Worker)
			}
		}
		k.Project, k.Approval, k.JoinedBy = by.Project, by.Approval, joinedBy
		if k.Bounds = by.Bounds; own {
			bounds := *k.Bounds
			k.Worker, bounds.Worker, k.Bounds = bounds.Worker, "", &bounds
		}
		if k.Approval {
			k.ExpiresAt = k.CreatedAt.Add(store.PendingTTL)
			n, _, err := first(c, "SELECT count(*) FROM api_key INDEXED BY api_key_approval WHERE approval = 1 AND worker IS NOT NULL AND expires_at > ?", values(int64(k.CreatedAt)), number[int])
			if err != nil {
				return err
			}
			if n >= store.MaxPending {
				return muster.Errorf(muster.Unavailable, "%d workers wait for approval, which is the maximum: approve or remove some of them", n)
			}
		}
		if by.Uses != nil {
			if err := c.exec("UPDATE api_key SET uses = uses - 1 WHERE id = ? AND uses > 0", values(token)); err != nil {
				return err
			}
			if c.db.Changes() == 0 {
				return muster.Errorf(muster.Forbidden, "all uses of the join token %q are used up: create a new one with muster keys create --role join", by.Name)
			}
		}
		return c.exec(putKey, func(p *params) { row{p: p}.key(&k) })
	})
	return k, err
}

// Approve implements store.EnrolmentStore.
func (s *Store) Approve(ctx context.Context, w muster.WorkerID) error {
	return s.writeTx(ctx, func(c *conn) error {
		return c.exec("UPDATE api_key SET approval = 0, expires_at = NULL WHERE worker = ? AND approval = 1", values(string(w)))
	})
}

// BoundTags implements store.EnrolmentStore.
func (s *Store) BoundTags(ctx context.Context) ([]string, error) {
	return readList(ctx, s, `SELECT DISTINCT tag.value FROM (SELECT DISTINCT bounds FROM api_key INDEXED BY api_key_bounds WHERE bounds IS NOT NULL) AS k,
		json_each(k.bounds, '$.tags') AS tag ORDER BY 1`, nil, text[string])
}

// KeyNames sets the values of a map from ids of API keys to the keys' names. Deleted keys keep their values.
func (s *Store) KeyNames(ctx context.Context, names map[string]string) error {
	return s.fillNames(ctx, "SELECT name FROM api_key WHERE id = ?", names)
}

// WorkerNames is KeyNames for workers.
func (s *Store) WorkerNames(ctx context.Context, names map[string]string) error {
	return s.fillNames(ctx, "SELECT name FROM worker WHERE id = ?", names)
}

func (s *Store) fillNames(ctx context.Context, sql string, names map[string]string) error {
	if len(names) == 0 {
		return nil
	}
	return s.readTx(ctx, func(c *conn) error {
		for id := range names {
			name, found, err := first(c, sql, values(id), text[string])
			if err != nil {
				return err
			}
			if found {
				names[id] = name
			}
		}
		return nil
	})
}

package sqlite

import (
	"context"
	"encoding/json"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

var _ store.CacheStore = (*Store)(nil)

const (
	cacheColumns = "project, key, kind, name, origin, created_at, expires_at, hits, hit_at, fields, exit_code, artifacts, image, metrics, result"
	cacheLight   = "project, key, kind, name, origin, created_at, expires_at, hits, hit_at, fields, exit_code, artifacts, image"

	selectCacheBlobs = `SELECT id, project, artifacts FROM cache_entry INDEXED BY cache_entry_blobs WHERE artifacts IS NOT NULL AND expires_at > ? AND id > ? ORDER BY id LIMIT ?`
)

// A new result replaces an older one, and its hits.
var putCacheEntry = upsert("cache_entry", 2, cacheColumns)

// CacheEntry implements store.CacheStore.
func (s *Store) CacheEntry(ctx context.Context, project, key string) (muster.CacheEntry, bool, error) {
	return readFirst(ctx, s, "SELECT "+cacheColumns+" FROM cache_entry WHERE project = ? AND key = ?", values(project, key), row.cacheEntry)
}

// CacheEntries implements store.CacheStore.
func (s *Store) CacheEntries(ctx context.Context, q store.CacheQuery) ([]muster.CacheEntry, error) {
	return readList(ctx, s, "SELECT "+cacheLight+" FROM cache_entry WHERE project = ? AND expires_at > ? ORDER BY created_at DESC, id DESC LIMIT ?",
		values(q.Project, int64(q.Now), q.Limit), row.cacheLight)
}

// DeleteCacheEntries implements store.CacheStore.
func (s *Store) DeleteCacheEntries(ctx context.Context, d store.CacheSelection) (n int, err error) {
	first, last := int64(0), int64(1)<<62
	if d.Job != 0 {
		first, last = packTask(muster.TaskID{Job: d.Job}), packTask(muster.TaskID{Job: d.Job + 1})-1
	}
	err = s.writeTx(ctx, func(c *conn) error {
		if err := c.exec(`DELETE FROM cache_entry WHERE project = ?1 AND origin BETWEEN ?2 AND ?3 AND ?4 IN ('', kind) AND ?5 IN ('', name) AND substr(key, 1, length(?6)) = ?6`,
			values(d.Project, first, last, d.Kind, d.Name, d.Key)); err != nil {
			return err
		}
		n = int(c.db.Changes())
		return nil
	})
	return n, err
}

// DeleteExpiredCacheEntries implements store.CacheStore.
func (s *Store) DeleteExpiredCacheEntries(ctx context.Context, at muster.Time, limit int) (n int, err error) {
	err = s.writeTx(ctx, func(c *conn) error {
		if err := c.exec("DELETE FROM cache_entry WHERE id IN (SELECT id FROM cache_entry INDEXED BY cache_entry_expires WHERE expires_at <= ? LIMIT ?)", values(int64(at), limit)); err != nil {
			return err
		}
		n = int(c.db.Changes())
		return nil
	})
	return n, err
}

// CacheBlobs implements store.CacheStore.
func (s *Store) CacheBlobs(ctx context.Context, at muster.Time, after int64, limit int) (page []store.BlobRef, next int64, done bool, err error) {
	type ref struct {
		id int64
		blobRow
	}
	rows, err := readList(ctx, s, selectCacheBlobs, values(int64(at), after, limit), func(r row, v *ref) {
		number(r, &v.id)
		text(r, &v.Project)
		var artifacts []muster.Artifact
		jsonList(r, &artifacts)
		v.addArtifacts(artifacts)
	})
	for i := range rows {
		page, next = append(page, rows[i].BlobRef), rows[i].id
	}
	return page, next, len(rows) < limit, err
}

// writeCache writes new results, and then counts hits.
func (c *conn) writeCache(b *store.Batch) error {
	if err := each(b.CacheEntries, func(e *muster.CacheEntry) error {
		return c.exec(putCacheEntry, func(p *params) { row{p: p}.cacheEntry(e) })
	}); err != nil {
		return err
	}
	return each(b.CacheHits, func(h *muster.CacheHit) error {
		return c.exec("UPDATE cache_entry SET hits = hits + 1, hit_at = ? WHERE project = ? AND key = ?", values(int64(h.At), h.Project, h.Key))
	})
}

func (r row) cacheLight(e *muster.CacheEntry) {
	text(r, &e.Project)
	text(r, &e.Key)
	text(r, &e.Kind)
	text(r, &e.Name)
	r.taskID(&e.Origin)
	number(r, &e.CreatedAt)
	number(r, &e.ExpiresAt)
	number(r, &e.Hits)
	optNumber(r, &e.HitAt)
	jsonList(r, &e.Fields)
	optional(r, &e.ExitCode, number[int])
	jsonList(r, &e.Artifacts)
	optText(r, &e.Image)
}

func (r row) cacheEntry(e *muster.CacheEntry) {
	r.cacheLight(e)
	jsonMap(r, &e.Metrics)
	r.raw((*json.RawMessage)(&e.Result))
}

// taskCache is how a task uses the cache. From a hit follow the task's Cached and Origin.
func (r row) taskCache(t *muster.Task) {
	jsonPtr(r, &t.Cache)
	if r.c != nil && t.Cache != nil && t.Cache.Origin != (muster.TaskID{}) {
		t.Cached, t.Origin = true, t.Cache.Origin
	}
}

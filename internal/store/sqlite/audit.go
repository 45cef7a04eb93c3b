package sqlite

import (
	"context"
	"math"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/store"
)

var _ store.AuditStore = (*Store)(nil)

const auditColumns = "seq, at, key_id, key_name, role, worker, address, via, operation, object, project, outcome, status, detail, request, n, until_at, hash"

const putAudit = "INSERT INTO audit_log (" + auditColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

func (r row) audit(v *audit.Record) {
	number(r, &v.Seq)
	number(r, &v.At)
	text(r, &v.Key)
	text(r, &v.KeyName)
	text(r, &v.Role)
	text(r, &v.Worker)
	text(r, &v.Address)
	text(r, &v.Via)
	text(r, &v.Operation)
	text(r, &v.Object)
	text(r, &v.Project)
	text(r, &v.Outcome)
	number(r, &v.Status)
	text(r, &v.Detail)
	text(r, &v.Request)
	number(r, &v.Count)
	number(r, &v.Until)
	r.hash(&v.Hash)
}

// hash is a hash in hexadecimal. One that is damaged is read as zero, which no record has.
func (r row) hash(v *audit.Hash) {
	field(r, v, func(p *params, v audit.Hash) { p.text(v.String()) }, func(c *columns) (h audit.Hash) {
		if h.UnmarshalText([]byte(c.text())) != nil {
			return audit.Hash{}
		}
		return h
	})
}

func (r row) auditHead(v *audit.Head) {
	number(r, &v.Seq)
	r.hash(&v.Hash)
}

// auditBase returns the last removed record.
func (c *conn) auditBase() (audit.Head, error) {
	base, _, err := first(c, "SELECT seq, hash FROM audit_base", nil, row.auditHead)
	return base, err
}

// auditHead returns the last record, and its time.
func (c *conn) auditHead() (head audit.Head, at muster.Time, err error) {
	head, found, err := first(c, "SELECT seq, hash, at FROM audit_log ORDER BY seq DESC LIMIT 1", nil, func(r row, h *audit.Head) {
		r.auditHead(h)
		number(r, &at)
	})
	if err == nil && !found {
		head, err = c.auditBase()
	}
	return head, at, err
}

// AppendAudit implements store.AuditStore.
func (s *Store) AppendAudit(ctx context.Context, records []audit.Record) (head audit.Head, err error) {
	err = s.writeTx(ctx, func(c *conn) error {
		head, err = c.appendAudit(records)
		return err
	})
	return head, err
}

func (c *conn) appendAudit(records []audit.Record) (audit.Head, error) {
	head, at, err := c.auditHead()
	if err != nil {
		return head, err
	}
	return head, each(records, func(r *audit.Record) error {
		head, at = audit.Append(head, at, r), r.At
		return c.exec(putAudit, func(p *params) { row{p: p}.audit(r) })
	})
}

// AuditHeads implements store.AuditReader.
func (s *Store) AuditHeads(ctx context.Context) (base, head audit.Head, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		if base, err = c.auditBase(); err != nil {
			return err
		}
		head, _, err = c.auditHead()
		return err
	})
	return base, head, err
}

// Audit implements store.AuditReader.
func (s *Store) Audit(ctx context.Context, q store.AuditQuery) ([]audit.Record, error) {
	if q.Limit < 1 {
		return nil, muster.Errorf(muster.Invalid, "the page size %d is too small: ask for 1 or more", q.Limit)
	}
	if q.Before == 0 {
		q.Before = math.MaxInt64
	}
	sql := "SELECT " + auditColumns + " FROM audit_log WHERE seq > ? AND seq < ?"
	args := []any{q.After, q.Before}
	where := func(set bool, term string, values ...any) {
		if set {
			sql += " AND " + term
			args = append(args, values...)
		}
	}
	// Records are in the order of their times, so a bound of time is one of numbers.
	where(q.Since != 0, "seq >= (SELECT min(seq) FROM audit_log WHERE at = (SELECT min(at) FROM audit_log WHERE at >= ?))", int64(q.Since))
	where(q.Until != 0, "seq <= (SELECT max(seq) FROM audit_log WHERE at = (SELECT max(at) FROM audit_log WHERE at <= ?))", int64(q.Until))
	where(q.Key != "", "(key_id = ? OR key_name = ?)", q.Key, q.Key)
	where(q.Operation != "", "operation = ?", q.Operation)
	where(q.Object != "", "object = ?", q.Object)
	where(q.Project != "", "project = ?", q.Project)
	where(q.Outcome != "", "outcome = ?", string(q.Outcome))
	order := " DESC"
	if q.OldestFirst {
		order = ""
	}
	return readList(ctx, s, sql+" ORDER BY seq"+order+" LIMIT ?", values(append(args, q.Limit)...), row.audit)
}

// RemovableAudit implements store.AuditStore.
func (s *Store) RemovableAudit(ctx context.Context, before muster.Time, keep int64) (audit.Head, error) {
	return read(ctx, s, func(c *conn) (none audit.Head, err error) {
		last, _, err := c.auditHead()
		if err != nil {
			return none, err
		}
		upTo, err := first1(c, "SELECT ifnull(max(seq), 0) FROM audit_log WHERE at = (SELECT max(at) FROM audit_log WHERE at < ?)", values(int64(before)))
		if err != nil {
			return none, err
		}
		if keep > 0 {
			upTo = max(upTo, last.Seq-keep)
		}
		head, _, err := first(c, "SELECT seq, hash FROM audit_log WHERE seq = ?", values(upTo), row.auditHead)
		return head, err
	})
}

// first1 is first for a query that always has a row of one number.
func first1(c *conn, sql string, bind func(*params)) (int64, error) {
	n, _, err := first(c, sql, bind, number[int64])
	return n, err
}

// RemoveAudit implements store.AuditStore.
func (s *Store) RemoveAudit(ctx context.Context, upTo audit.Head, now muster.Time, limit int) (removed int, held time.Duration, err error) {
	held, err = s.writeTimed(ctx, func(c *conn) error {
		base, err := c.auditBase()
		if err != nil {
			return err
		}
		removal := audit.Removal(upTo, upTo.Seq-base.Seq, now)
		recorded, err := first1(c, "SELECT count(*) FROM audit_log WHERE seq > ? AND operation = ? AND object = ?", values(upTo.Seq, removal.Operation, removal.Object))
		if err == nil && recorded == 0 {
			_, err = c.appendAudit([]audit.Record{removal})
		}
		if err != nil {
			return err
		}
		base, found, err := first(c, "SELECT seq, hash FROM audit_log WHERE seq <= ? ORDER BY seq DESC LIMIT 1", values(min(upTo.Seq, base.Seq+int64(limit))), row.auditHead)
		if err != nil || !found {
			return err
		}
		if err := c.exec("DELETE FROM audit_log WHERE seq <= ?", values(base.Seq)); err != nil {
			return err
		}
		removed = int(c.db.Changes())
		return c.exec("UPDATE audit_base SET seq = ?, hash = ?", func(p *params) { row{p: p}.auditHead(&base) })
	})
	return removed, held, err
}

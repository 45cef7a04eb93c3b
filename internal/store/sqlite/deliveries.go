package sqlite

import (
	"context"
	"strconv"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

const (
	deliveryColumns = "message, project, job, event, url, host, preset, secret, body, headers, created_at, " + deliveryMutable
	deliveryMutable = "attempts, next_at, tried_at, status, error, took, delivered, finished_at"
	// deliveryLogColumns leaves out what the log does not show.
	deliveryLogColumns = "id, message, project, job, event, url, host, preset, NULL, NULL, NULL, created_at, " + deliveryMutable
	addDelivery        = "INSERT INTO delivery (" + deliveryColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	// The next statements go by the index delivery_due.
	nextQueue   = "SELECT host, project FROM delivery WHERE next_at IS NOT NULL AND (host, project) > (?, ?) ORDER BY host, project LIMIT 1"
	selectDue   = "SELECT id, " + deliveryColumns + " FROM delivery WHERE host = ? AND project = ? AND next_at IS NOT NULL AND next_at <= ? ORDER BY next_at LIMIT ?"
	selectLater = "SELECT min(next_at) FROM delivery WHERE host = ? AND project = ? AND next_at IS NOT NULL AND next_at > ?"
)

var updateDelivery = update("delivery", deliveryMutable) //nolint:gochecknoglobals // a statement, like those of rows.go

func (p *params) delivery(d *store.Delivery) {
	p.text(d.Message)
	p.text(d.Project)
	p.nullInt(int64(d.Job))
	p.text(d.Event)
	p.text(d.URL)
	p.text(d.Host)
	p.nullText(d.Preset)
	p.nullText(d.Secret)
	p.text(string(d.Body))
	p.json(d.Headers, len(d.Headers) == 0)
	p.time(d.CreatedAt)
	p.mutableDelivery(d)
}

func (p *params) mutableDelivery(d *store.Delivery) {
	p.int(int64(d.Attempts))
	p.time(d.NextAt)
	p.time(d.AttemptedAt)
	p.nullInt(int64(d.Status))
	p.nullText(d.Error)
	p.int(int64(d.Latency))
	p.bool(d.Delivered)
	p.time(d.FinishedAt)
}

func (c *columns) delivery() (d store.Delivery) {
	d.ID = c.int()
	d.Message = c.text()
	d.Project = c.text()
	d.Job = muster.JobID(c.int())
	d.Event = c.text()
	d.URL = c.text()
	d.Host = c.text()
	d.Preset = c.text()
	d.Secret = c.text()
	d.Body = c.raw()
	c.json(&d.Headers)
	d.CreatedAt = c.time()
	d.Attempts = int(c.int())
	d.NextAt = c.time()
	d.AttemptedAt = c.time()
	d.Status = int(c.int())
	d.Error = c.text()
	d.Latency = muster.Duration(c.int())
	d.Delivered = c.bool()
	d.FinishedAt = c.time()
	return d
}

// Due implements store.Deliveries.
func (s *Store) Due(ctx context.Context, now muster.Time, perQueue int, busy map[int64]bool) (due []store.Delivery, next muster.Time, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		for host, project, found := "", "", true; found; {
			if host, project, found, err = c.queueAfter(host, project); err != nil || !found {
				return err
			}
			n := 0
			err := c.query(selectDue, func(p *params) {
				p.text(host)
				p.text(project)
				p.time(now)
				p.int(int64(perQueue + len(busy)))
			}, func(cols *columns) bool {
				if d := cols.delivery(); !busy[d.ID] {
					due = append(due, d)
					n++
				}
				return n < perQueue
			})
			if err != nil {
				return err
			}
			err = c.query(selectLater, func(p *params) {
				p.text(host)
				p.text(project)
				p.time(now)
			}, func(cols *columns) bool {
				if at := cols.time(); at != 0 && (next == 0 || at < next) {
					next = at
				}
				return true
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return due, next, err
}

// queueAfter returns the next host and project with pending deliveries.
func (c *conn) queueAfter(host, project string) (nextHost, nextProject string, found bool, err error) {
	err = c.query(nextQueue, func(p *params) {
		p.text(host)
		p.text(project)
	}, func(cols *columns) bool {
		nextHost, nextProject, found = cols.text(), cols.text(), true
		return true
	})
	return nextHost, nextProject, found, err
}

// RecordAttempts implements store.Deliveries.
func (s *Store) RecordAttempts(ctx context.Context, list []store.Delivery) error {
	return s.writeTx(ctx, func(c *conn) error {
		final := map[string]bool{}
		for i := range list {
			d := &list[i]
			final[d.Project] = final[d.Project] || d.NextAt == 0
			if d.ID == 0 {
				if err := c.exec(addDelivery, func(p *params) { p.delivery(d) }); err != nil {
					return err
				}
				continue
			}
			err := c.exec(updateDelivery, func(p *params) {
				p.mutableDelivery(d)
				p.int(d.ID)
			})
			if err != nil {
				return err
			}
		}
		for project, finished := range final {
			if !finished {
				continue
			}
			if err := c.trimDeliveries(project); err != nil {
				return err
			}
		}
		return nil
	})
}

// Deliveries implements store.Deliveries.
func (s *Store) Deliveries(ctx context.Context, q store.DeliveryQuery) (list []store.Delivery, next string, err error) {
	before, err := q.UpperBound()
	if err != nil {
		return nil, "", err
	}
	sql := "SELECT " + deliveryLogColumns + " FROM delivery WHERE id < ?1 AND (?2 IS NULL OR project = ?2) AND (?3 IS NULL OR job = ?3)" +
		" AND (?4 IS NULL OR CASE WHEN next_at IS NOT NULL THEN 'pending' WHEN delivered = 1 THEN 'delivered' ELSE 'failed' END = ?4) ORDER BY id DESC LIMIT ?5"
	err = s.readTx(ctx, func(c *conn) error {
		return c.query(sql, func(p *params) {
			p.int(before)
			p.nullText(q.Project)
			p.nullInt(int64(q.Job))
			p.nullText(q.State)
			p.int(int64(q.Limit) + 1)
		}, func(cols *columns) bool {
			list = append(list, cols.delivery())
			return true
		})
	})
	if err != nil || len(list) <= q.Limit {
		return list, "", err
	}
	list = list[:q.Limit]
	return list, strconv.FormatInt(list[len(list)-1].ID, 10), nil
}

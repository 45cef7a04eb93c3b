package sqlite

import (
	"context"
	"slices"
	"strconv"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

const (
	deliveryColumns = "message, project, job, event, url, host, preset, secret, body, headers, created_at, " + deliveryMutable
	deliveryMutable = "attempts, next_at, tried_at, status, error, took, delivered, finished_at"
	// deliveryLogColumns is without the secret, the body and the headers, which the log does not show.
	deliveryLogColumns = "id, message, project, job, event, url, host, preset, NULL, NULL, NULL, created_at, " + deliveryMutable
	addDelivery        = "INSERT INTO delivery (" + deliveryColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	// The next statements use the index delivery_due.
	nextQueue   = "SELECT host, project FROM delivery WHERE next_at IS NOT NULL AND (host, project) > (?, ?) ORDER BY host, project LIMIT 1"
	selectDue   = "SELECT id, " + deliveryColumns + " FROM delivery WHERE host = ? AND project = ? AND next_at IS NOT NULL AND next_at <= ? ORDER BY next_at LIMIT ?"
	selectLater = "SELECT min(next_at) FROM delivery WHERE host = ? AND project = ? AND next_at IS NOT NULL AND next_at > ?"
)

var updateDelivery = update("delivery", deliveryMutable) //nolint:gochecknoglobals // a statement, like those of rows.go

func (r row) delivery(d *store.Delivery) {
	text(r, &d.Message)
	text(r, &d.Project)
	optNumber(r, &d.Job)
	text(r, &d.Event)
	text(r, &d.URL)
	text(r, &d.Host)
	optText(r, &d.Preset)
	optText(r, &d.Secret)
	if r.p != nil {
		r.p.text(string(d.Body)) // not NULL, even if it is empty
	} else {
		d.Body = r.c.raw()
	}
	jsonMap(r, &d.Headers)
	optNumber(r, &d.CreatedAt)
	r.deliveryMutable(d)
}

func (r row) deliveryMutable(d *store.Delivery) {
	number(r, &d.Attempts)
	optNumber(r, &d.NextAt)
	optNumber(r, &d.AttemptedAt)
	optNumber(r, &d.Status)
	optText(r, &d.Error)
	number(r, &d.Latency)
	r.bool(&d.Delivered)
	optNumber(r, &d.FinishedAt)
}

// deliveryWithID reads the id, and the columns of a delivery after it.
func (r row) deliveryWithID(d *store.Delivery) {
	number(r, &d.ID)
	r.delivery(d)
}

// Due implements store.DeliveryStore.
func (s *Store) Due(ctx context.Context, now muster.Time, perQueue int, busy map[int64]bool) (due []store.Delivery, next muster.Time, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		for host, project, found := "", "", true; found; {
			if host, project, found, err = c.queueAfter(host, project); err != nil || !found {
				return err
			}
			all, err := list(c, selectDue, values(host, project, int64(now), perQueue+len(busy)), row.deliveryWithID)
			if err != nil {
				return err
			}
			all = slices.DeleteFunc(all, func(d store.Delivery) bool { return busy[d.ID] })
			due = append(due, all[:min(len(all), perQueue)]...)
			at, _, err := first(c, selectLater, values(host, project, int64(now)), optNumber[muster.Time])
			if err != nil {
				return err
			}
			if at != 0 && (next == 0 || at < next) {
				next = at
			}
		}
		return nil
	})
	return due, next, err
}

// queueAfter returns the next host and project with pending deliveries.
func (c *conn) queueAfter(host, project string) (nextHost, nextProject string, found bool, err error) {
	_, found, err = first(c, nextQueue, values(host, project), func(r row, _ *struct{}) {
		text(r, &nextHost)
		text(r, &nextProject)
	})
	return nextHost, nextProject, found, err
}

// RecordAttempts implements store.DeliveryStore.
func (s *Store) RecordAttempts(ctx context.Context, list []store.Delivery) error {
	return s.writeTx(ctx, func(c *conn) error {
		final := map[string]bool{}
		for i := range list {
			d := &list[i]
			final[d.Project] = final[d.Project] || d.NextAt == 0
			if d.ID == 0 {
				if err := c.exec(addDelivery, func(p *params) { row{p: p}.delivery(d) }); err != nil {
					return err
				}
				continue
			}
			err := c.exec(updateDelivery, func(p *params) {
				row{p: p}.deliveryMutable(d)
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

// Deliveries implements store.DeliveryStore.
func (s *Store) Deliveries(ctx context.Context, q store.DeliveryQuery) (list []store.Delivery, next string, err error) {
	before, err := q.UpperBound()
	if err != nil {
		return nil, "", err
	}
	sql := "SELECT " + deliveryLogColumns + " FROM delivery WHERE id < ?1 AND (?2 IS NULL OR project = ?2) AND (?3 IS NULL OR job = ?3)" +
		" AND (?4 IS NULL OR CASE WHEN next_at IS NOT NULL THEN 'pending' WHEN delivered = 1 THEN 'delivered' ELSE 'failed' END = ?4) ORDER BY id DESC LIMIT ?5"
	list, err = readList(ctx, s, sql, func(p *params) {
		p.int(before)
		p.nullText(q.Project)
		p.nullInt(int64(q.Job))
		p.nullText(q.State)
		p.int(int64(q.Limit) + 1)
	}, row.deliveryWithID)
	if err != nil || len(list) <= q.Limit {
		return list, "", err
	}
	list = list[:q.Limit]
	return list, strconv.FormatInt(list[len(list)-1].ID, 10), nil
}

package sqlite

import "context"

// KeyNames sets the values of a map of the ids of API keys to their names. Keys that are gone keep what is there.
func (s *Store) KeyNames(ctx context.Context, names map[string]string) error {
	return s.fillNames(ctx, "SELECT name FROM api_key WHERE id = ?", names)
}

// WorkerNames does the same for workers.
func (s *Store) WorkerNames(ctx context.Context, names map[string]string) error {
	return s.fillNames(ctx, "SELECT name FROM worker WHERE id = ?", names)
}

func (s *Store) fillNames(ctx context.Context, sql string, fillNames map[string]string) error {
	if len(fillNames) == 0 {
		return nil
	}
	return s.readTx(ctx, func(c *conn) error {
		for id := range fillNames {
			if err := c.query(sql, func(p *params) { p.text(id) }, func(cols *columns) bool {
				fillNames[id] = cols.text()
				return true
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

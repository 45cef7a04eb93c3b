package sqlite

import "context"

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
			if err := c.query(sql, values(id), func(cols *columns) bool {
				names[id] = cols.text()
				return true
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

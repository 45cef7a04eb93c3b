package sqlite

import "testing"

// OccupyReaders uses all connections for reading until release is called.
func (s *Store) OccupyReaders(t *testing.T) (release func()) {
	t.Helper()
	var used []*conn
	for range maxReaders {
		used = append(used, <-s.readers)
	}
	return func() {
		for _, c := range used {
			s.readers <- c
		}
	}
}

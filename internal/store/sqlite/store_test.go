package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster/internal/store/sqlite"
	"github.com/muster-dev/muster/internal/store/storetest"
)

func open(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, dir string) storetest.Store {
		t.Helper()
		return open(t, filepath.Join(dir, "muster.db"))
	})
}

func TestPathsWithSpecialCharacters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "my jobs", "50%20?vfs=none#1.db")
	s := open(t, path)
	if err := s.Commit(t.Context(), batch(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
}

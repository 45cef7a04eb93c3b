package sqlite

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/store"
)

// A connection is not used again after a failed rollback.
func TestStuckConnectionIsReplaced(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "muster.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	boom := errors.New("boom")
	breakTx := func(c *conn) error {
		failing, _, err := c.db.Prepare("SELECT abs(-9223372036854775808)") // an overflow when it runs
		if err != nil {
			t.Fatal(err)
		}
		c.stmts["ROLLBACK"] = failing
		return boom
	}
	for range 2 * maxReaders {
		if err := s.readTx(t.Context(), breakTx); !errors.Is(err, boom) {
			t.Fatalf("a reading that fails: %v", err)
		}
	}
	for range 2 * maxReaders {
		if _, err := s.ListKeys(t.Context()); err != nil {
			t.Fatalf("a reading after it: %v", err)
		}
	}
	if err := s.writeTx(t.Context(), func(c *conn) error { return breakTx(c) }); !errors.Is(err, boom) {
		t.Fatalf("a change that fails: %v", err)
	}
	if _, err := s.Load(t.Context()); err != nil {
		t.Fatalf("loading after it: %v", err)
	}
	if err := s.writeTx(t.Context(), func(c *conn) error { return breakTx(c) }); !errors.Is(err, boom) {
		t.Fatalf("another change that fails: %v", err)
	}
	if err := s.PutKeys(t.Context(), store.Key{ID: "k", Name: "k", Hash: strings.Repeat("a", 64), Role: "viewer", CreatedAt: 1}); err != nil {
		t.Fatalf("a change after it: %v", err)
	}
	if keys, err := s.ListKeys(t.Context()); err != nil || len(keys) != 1 {
		t.Fatalf("the keys are %v, %v", keys, err)
	}
}

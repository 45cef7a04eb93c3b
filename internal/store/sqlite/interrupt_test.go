package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster/internal/testkit"
)

// A begin that fails although the transaction has begun, as one that a leaving client interrupts can, does not spoil the connection.
func TestFailedBeginLeavesNoTransaction(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "muster.db"), Options{})
	testkit.NoError(t, err)
	defer func() { testkit.NoError(t, s.Close()) }()
	c, err := openConn(t.Context(), s.path, readerPragmas)
	testkit.NoError(t, err)
	defer func() { testkit.NoError(t, c.close()) }()
	nothing := func() error { return nil }
	testkit.NoError(t, c.exec(forReading, nil))
	if err := c.inTx(t.Context(), forReading, nothing); err == nil {
		t.Error("a transaction began within another one")
	}
	testkit.NoError(t, c.inTx(t.Context(), forReading, nothing))
}

package meter

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/muster-dev/muster/internal/agent/run"
)

func TestManyFiles(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if all, ok := diskUsage(t.Context(), []string{dir}, 21); !ok || all <= 0 { // with the folder
		t.Errorf("%s, %t", all, ok)
	}
	if _, ok := diskUsage(t.Context(), []string{dir}, 20); ok {
		t.Error("more files than the limit are counted")
	}
	free, limited := &subject{}, &subject{Subject: Subject{Isolation: &run.IsolationSpec{WatchDisk: 1}}}
	if free.fileLimit() != maxFiles || limited.fileLimit() <= maxFiles {
		t.Errorf("%d files are counted without a disk limit, %d with one", free.fileLimit(), limited.fileLimit())
	}
}

package doctor

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestFullAndReadOnlyDisk looks at a real file system that is small, full, and then read-only.
func TestFullAndReadOnlyDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,nr_inodes=100"); err != nil {
		t.Skipf("skipped: this user may not mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	cfg := testConfig(t)
	cfg.Data = dir
	names := []string{"data", "write", "space", "filesystem"}
	found := runChecks(t, cfg, names...)
	wantFinding(t, found, "write", OK)
	wantFinding(t, found, "space", Problem, "1MiB")
	wantFinding(t, found, "inodes", Problem)
	wantFinding(t, found, "filesystem", Warning, "tmpfs")
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, runChecks(t, cfg, names...), "write", Problem, "no space left", "du ")
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	found = runChecks(t, cfg, names...)
	wantFinding(t, found, "write", Problem, "read-only")
	wantFinding(t, found, "filesystem", Problem, "read-only")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("files were left: %v %v", entries, err)
	}
}

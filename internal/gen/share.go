package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/muster-dev/muster/internal/cli"
)

// writeShare writes the manual pages and completion scripts for packages below dir. The pages have the date in SOURCE_DATE_EPOCH, as
// reproducible builds set it, or today's.
func writeShare(dir string) error {
	date := time.Now()
	if s := os.Getenv("SOURCE_DATE_EPOCH"); s != "" {
		seconds, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		date = time.Unix(seconds, 0)
	}
	contents, err := cli.ShareFiles(date)
	if err != nil {
		return err
	}
	for name, content := range contents {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // public documents
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // a public document
			return err
		}
	}
	return nil
}

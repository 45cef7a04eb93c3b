package runtimes

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// marker is the file in an environment that is whole.
const marker = "muster-runtime.json"

// record is what marker holds. Its time of change is when the environment was last used.
type record struct {
	Name     string      `json:"name"`
	Packages []string    `json:"packages"` // folders of their metadata, such as "torch-2.15.0.dist-info"
	Python   string      `json:"python"`   // the folder of packages, which names the version
	Backend  string      `json:"backend,omitempty"`
	Size     muster.Size `json:"size"`
	Built    muster.Time `json:"built"`
}

// errDamaged is that an environment was made of packages that lack something. Those that are kept for other
// environments are the same files as theirs, and may have been changed with them.
var errDamaged = errors.New("what was installed is damaged")

// finish marks an environment, if it is whole.
func finish(dir string, rec record) error {
	lib, err := packages(dir)
	if err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(dir, lib, "*.dist-info"))
	if err != nil {
		return err
	}
	for _, path := range found {
		rec.Packages = append(rec.Packages, filepath.Base(path))
	}
	rec.Python, rec.Built = lib, muster.TimeOf(time.Now())
	disk := newBooks()
	if err := disk.add(dir); err != nil {
		return err
	}
	rec.Size = disk.size(dir)
	if err := check(dir, &rec); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, marker), append(b, '\n'), 0o600)
}

// packages is where an environment has its packages.
func packages(dir string) (string, error) {
	found, err := filepath.Glob(filepath.Join(dir, "lib", "python*", "site-packages"))
	if err != nil || len(found) != 1 {
		return "", errors.Join(fmt.Errorf("it has %d folders of packages", len(found)), err)
	}
	return filepath.Rel(dir, found[0])
}

// errAbsent is that there is no environment at all.
var errAbsent = errors.New("it is not installed")

// readRecord reads what an environment holds. The error is errAbsent where there is none.
func readRecord(dir string) (rec record, used time.Time, err error) {
	path := filepath.Join(dir, marker)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("its %s is gone", marker)
		if _, statErr := os.Stat(dir); errors.Is(statErr, fs.ErrNotExist) {
			err = errAbsent
		}
	}
	if err != nil {
		return rec, used, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return rec, used, err
	}
	if err := json.Unmarshal(b, &rec); err != nil {
		return rec, used, fmt.Errorf("%s is damaged: %w", marker, err)
	}
	return rec, st.ModTime(), nil
}

// check returns what is missing or cut short in an environment: each file of each package is looked at,
// but not read.
func check(dir string, rec *record) error {
	if _, err := os.Stat(filepath.Join(dir, "bin", "python")); err != nil {
		return errors.New("its interpreter is gone")
	}
	lib := filepath.Join(dir, rec.Python)
	for _, name := range rec.Packages {
		if err := checkPackage(lib, name); err != nil {
			return err
		}
	}
	return nil
}

func checkPackage(lib, info string) error {
	dist, version, _ := strings.Cut(strings.TrimSuffix(info, ".dist-info"), "-")
	f, err := os.Open(filepath.Join(lib, info, "RECORD"))
	if err != nil {
		return fmt.Errorf("%s %s is gone", dist, version)
	}
	defer f.Close()
	rows := csv.NewReader(f)
	rows.ReuseRecord, rows.FieldsPerRecord = true, 3
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the list of files of %s %s is damaged", dist, version)
		}
		if row[2] == "" || strings.HasSuffix(row[0], ".pyc") {
			continue // nothing is said of it, or Python makes it anew
		}
		st, err := os.Lstat(filepath.Join(lib, filepath.FromSlash(row[0])))
		if err != nil {
			return fmt.Errorf("%s of %s %s is gone", row[0], dist, version)
		}
		if size, err := strconv.ParseInt(row[2], 10, 64); err != nil || st.Size() != size && st.Mode().IsRegular() {
			return fmt.Errorf("%s of %s %s has %d bytes instead of %s", row[0], dist, version, st.Size(), row[2])
		}
	}
}

// sortedByUse sorts environments, least recently used first.
func sortedByUse(all []*placed) {
	slices.SortFunc(all, func(a, b *placed) int { return a.used.Compare(b.used) })
}

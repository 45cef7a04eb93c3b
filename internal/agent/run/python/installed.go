package python

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/internal/agent/run"
)

// errDamaged means that a new environment has incomplete packages. uv's cache may have the same damaged files, as hard links.
var errDamaged = errors.New("what was installed is damaged")

// Installed lists the packages of an environment.
type Installed struct {
	Python   string   `json:"python"`   // the folder of packages, relative to the environment; it names the version
	Packages []string `json:"packages"` // folders of their metadata, such as "torch-2.15.0.dist-info"
}

// listInstalled lists the packages of the environment at dir.
func listInstalled(dir string) (Installed, error) {
	libDirs, err := filepath.Glob(filepath.Join(dir, "lib", "python*", "site-packages"))
	if err != nil || len(libDirs) != 1 {
		return Installed{}, errors.Join(fmt.Errorf("it has %d folders of packages", len(libDirs)), err)
	}
	lib, err := filepath.Rel(dir, libDirs[0])
	if err != nil {
		return Installed{}, err
	}
	distInfos, err := filepath.Glob(filepath.Join(libDirs[0], "*.dist-info"))
	if err != nil {
		return Installed{}, err
	}
	in := Installed{Python: lib}
	for _, path := range distInfos {
		in.Packages = append(in.Packages, filepath.Base(path))
	}
	return in, nil
}

// Check returns an error if a file of the environment at dir is missing or has the wrong size. It reads only the RECORD of each
// package.
func (in *Installed) Check(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "bin", "python")); err != nil {
		return errors.New("its interpreter is missing")
	}
	if in.Python == "" {
		return errors.New("its packages were not recorded")
	}
	lib := filepath.Join(dir, in.Python)
	root, err := os.OpenRoot(lib)
	if err != nil {
		return errors.New("its packages are missing")
	}
	defer func() { _ = root.Close() }()
	for _, name := range in.Packages {
		if err := checkPackage(ctx, root, lib, name); err != nil {
			return err
		}
	}
	return nil
}

// maxRecord is the most bytes of a RECORD; that of PyTorch has 2 MB.
const maxRecord = 16 << 20

// checkPackage checks one package. RECORD is specified at
// https://packaging.python.org/en/latest/specifications/recording-installed-packages/.
// The package itself wrote it: it may be a link, a pipe, or endless.
func checkPackage(ctx context.Context, root *os.Root, lib, info string) error {
	dist, version, _ := strings.Cut(strings.TrimSuffix(info, ".dist-info"), "-")
	f, err := run.OpenRegularIn(root, filepath.Join(info, "RECORD"))
	if err != nil {
		return fmt.Errorf("%s %s is missing", dist, version)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() > maxRecord {
		return fmt.Errorf("the list of files of %s %s is damaged", dist, version)
	}
	rows := csv.NewReader(io.LimitReader(f, maxRecord))
	rows.ReuseRecord, rows.FieldsPerRecord = true, 3
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the list of files of %s %s is damaged", dist, version)
		}
		if row[2] == "" || strings.HasSuffix(row[0], ".pyc") {
			continue // without a recorded size, or rewritten by Python
		}
		st, err := os.Lstat(filepath.Join(lib, filepath.FromSlash(row[0])))
		if err != nil {
			return fmt.Errorf("%s of %s %s is missing", row[0], dist, version)
		}
		if size, err := strconv.ParseInt(row[2], 10, 64); err != nil || st.Size() != size && st.Mode().IsRegular() {
			return fmt.Errorf("%s of %s %s has %d bytes instead of %s", row[0], dist, version, st.Size(), row[2])
		}
	}
}

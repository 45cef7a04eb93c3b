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

// errDamaged is that an environment was made of packages that lack something. Those that uv keeps for other
// environments are the same files, and may be damaged with them.
var errDamaged = errors.New("what was installed is damaged")

// Installed lists the packages of an environment.
type Installed struct {
	Python   string   `json:"python"`   // the folder of packages, which names the version, relative to the environment
	Packages []string `json:"packages"` // folders of their metadata, such as "torch-2.15.0.dist-info"
}

// listInstalled returns what an environment has installed.
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

// Check returns what is missing or truncated in the environment at dir. It compares the size of each file of
// each package with the package's RECORD; it reads no other file.
func (in *Installed) Check(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "bin", "python")); err != nil {
		return errors.New("its interpreter is gone")
	}
	if in.Python == "" {
		return errors.New("its packages were not recorded")
	}
	lib := filepath.Join(dir, in.Python)
	root, err := os.OpenRoot(lib)
	if err != nil {
		return errors.New("its packages are gone")
	}
	defer func() { _ = root.Close() }()
	for _, name := range in.Packages {
		if err := checkPackage(ctx, root, lib, name); err != nil {
			return err
		}
	}
	return nil
}

// maxRecord is the most bytes of a list of files; that of PyTorch has 2 MB.
const maxRecord = 16 << 20

// checkPackage checks one package. RECORD is specified at
// https://packaging.python.org/en/latest/specifications/recording-installed-packages/.
// The package itself wrote it: it may be a link, a pipe, or without an end.
func checkPackage(ctx context.Context, root *os.Root, lib, info string) error {
	dist, version, _ := strings.Cut(strings.TrimSuffix(info, ".dist-info"), "-")
	f, err := run.OpenRegularIn(root, filepath.Join(info, "RECORD"))
	if err != nil {
		return fmt.Errorf("%s %s is gone", dist, version)
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
			continue // it has no recorded size, or Python writes it again
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

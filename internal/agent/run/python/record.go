package python

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// markerFile is the name of the file that marks a finished environment. Its modification time is the last use.
const markerFile = "muster-runtime.json"

// record is the content of markerFile.
type record struct {
	Lib      string      `json:"python"`   // the folder of packages, relative to the environment; it names the version
	Packages []string    `json:"packages"` // folders of their metadata, such as "torch-2.15.0.dist-info"
	Size     muster.Size `json:"size"`     // on the disk, including files that other environments share
	Built    muster.Time `json:"built"`
}

// Env is a finished environment, or a damaged one without a record.
type Env struct {
	Name string
	Used time.Time // without a record, when it was built
	record
}

// ErrAbsent means that an environment does not exist.
var ErrAbsent = errors.New("it is not installed")

// Load reads the record of an environment. The error is ErrAbsent if the environment does not exist.
func (e *Envs) Load(name string) (*Env, error) {
	env := &Env{Name: name}
	path := filepath.Join(e.Path(name), markerFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		st, err := os.Stat(e.Path(name))
		if err != nil {
			return env, ErrAbsent
		}
		env.Used = st.ModTime()
		return env, fmt.Errorf("its %s is missing", markerFile)
	}
	if err != nil {
		return env, err
	}
	if err := json.Unmarshal(b, &env.record); err != nil {
		return env, fmt.Errorf("its %s is damaged: %w", markerFile, err)
	}
	st, err := os.Stat(path)
	if err != nil {
		return env, err
	}
	env.Used = st.ModTime()
	return env, nil
}

// errDamaged means that a new environment has incomplete packages. uv's cache may have the same damaged files, as hard links.
var errDamaged = errors.New("what was installed is damaged")

// list fills in the packages of the environment at dir.
func (r *record) list(dir string) error {
	libs, err := filepath.Glob(filepath.Join(dir, "lib", "python*", "site-packages"))
	if err != nil || len(libs) != 1 {
		return errors.Join(fmt.Errorf("it has %d folders of packages", len(libs)), err)
	}
	if r.Lib, err = filepath.Rel(dir, libs[0]); err != nil {
		return err
	}
	infos, err := filepath.Glob(filepath.Join(libs[0], "*.dist-info"))
	for _, path := range infos {
		r.Packages = append(r.Packages, filepath.Base(path))
	}
	return err
}

// checkFiles returns an error if a file of the environment at dir is missing or has the wrong size. It reads only the RECORD of each
// package.
func (r *record) checkFiles(ctx context.Context, dir string) error {
	if err := checkInterpreterFile(dir); err != nil {
		return err
	}
	if r.Lib == "" {
		return errors.New("its packages were not recorded")
	}
	lib := filepath.Join(dir, r.Lib)
	root, err := os.OpenRoot(lib)
	if err != nil {
		return errors.New("its packages are missing")
	}
	defer func() { _ = root.Close() }()
	for _, name := range r.Packages {
		if err := checkPackage(ctx, root, lib, name); err != nil {
			return err
		}
	}
	return nil
}

func checkInterpreterFile(dir string) error {
	if _, err := os.Stat(InterpreterPath(dir)); err != nil {
		return errors.New("its interpreter does not work: it is missing")
	}
	return nil
}

// InterpreterPath returns the path of the interpreter of the environment at dir.
func InterpreterPath(dir string) string { return filepath.Join(dir, "bin", "python") }

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

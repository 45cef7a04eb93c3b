package python

import (
	"cmp"
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
	Newest   int64       `json:"newest,omitempty"` // the latest modification of a package's file, in Unix nanoseconds
	Image    string      `json:"image,omitempty"`  // see Spec
	Local    bool        `json:"local,omitempty"`  // packages were built from a task's files
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

// errChanged means that a file was changed in place, which also changes uv's cache, as a hard link.
var errChanged = errors.New("was changed after it was installed")

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

// checkFiles returns an error if a file of the environment at dir is missing, has the wrong size, or was modified later than Newest, which
// it sets if it is 0. It reads only the RECORD of each package.
func (r *record) checkFiles(ctx context.Context, dir string) error {
	if err := r.checkInterpreterFile(dir); err != nil {
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
	var newest int64
	for _, name := range r.Packages {
		if err := checkPackage(ctx, root, lib, name, r.Newest, &newest); err != nil {
			return err
		}
	}
	r.Newest = cmp.Or(r.Newest, newest)
	return nil
}

// checkInterpreterFile returns an error if the interpreter is missing. That of an image is a link to a path in the image.
func (r *record) checkInterpreterFile(dir string) error {
	stat := os.Stat
	if r.Image != "" {
		stat = os.Lstat
	}
	if _, err := stat(InterpreterPath(dir)); err != nil {
		return errors.New("its interpreter does not work: it is missing")
	}
	return nil
}

// InterpreterPath returns the path of the interpreter of the environment at dir.
func InterpreterPath(dir string) string { return filepath.Join(dir, "bin", "python") }

// maxRecord is the most bytes of a RECORD; that of PyTorch has 2 MB.
const maxRecord = 16 << 20

// checkPackage checks one package, and that no file was modified after limit, unless that is 0. It raises newest to the latest modification. RECORD is specified at
// https://packaging.python.org/en/latest/specifications/recording-installed-packages/.
// The package itself wrote it: it may be a link, a pipe, or endless.
func checkPackage(ctx context.Context, root *os.Root, lib, info string, limit int64, newest *int64) error {
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
		modified := st.ModTime().UnixNano()
		if *newest = max(*newest, modified); limit > 0 && modified > limit {
			return fmt.Errorf("%s of %s %s %w", row[0], dist, version, errChanged)
		}
	}
}

package python

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster"
)

// markerFile is the name of the file that marks a finished environment. Its modification time is the last use.
const markerFile = "muster-runtime.json"

// earlierMarkerFile was the markerFile of tasks' environments until layout 2.
const earlierMarkerFile = "muster-env.json"

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
		if st, err := os.Stat(filepath.Join(e.Path(name), earlierMarkerFile)); err == nil {
			env.Used = st.ModTime()
		}
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

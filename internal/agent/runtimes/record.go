package runtimes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run/python"
)

// markerFile is the name of the file that marks a finished environment.
const markerFile = "muster-runtime.json"

// record is the content of markerFile. Its modification time is the last use of the environment.
type record struct {
	Name string `json:"name"`
	python.Installed
	Backend string      `json:"backend,omitempty"`
	Size    muster.Size `json:"size"`
	Built   muster.Time `json:"built"`
}

// newMarker returns the marker of a finished environment.
func newMarker(dir string, rec record) (name string, data []byte, err error) {
	usage := newDiskUsage()
	if err := usage.add(dir); err != nil {
		return "", nil, err
	}
	rec.Size, rec.Built = usage.size(dir), muster.NewTime(time.Now())
	data, err = json.Marshal(rec)
	return markerFile, data, err
}

// errAbsent means that the environment does not exist.
var errAbsent = errors.New("it is not installed")

// readRecord reads the record and the last use of an environment. The error is errAbsent if dir does not exist.
func readRecord(dir string) (rec record, used time.Time, err error) {
	path := filepath.Join(dir, markerFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("its %s is missing", markerFile)
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
		return rec, used, fmt.Errorf("%s is damaged: %w", markerFile, err)
	}
	return rec, st.ModTime(), nil
}

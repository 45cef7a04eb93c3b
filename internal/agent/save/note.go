package save

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/muster-dev/muster"
)

// What ends the name of the note beside a folder, and of the next one.
const (
	noteSuffix = ".tree"
	newSuffix  = ".new"
)

// mostPast is how many of a folder's trees are remembered.
const mostPast = 32

// note is what is known of a folder. Who holds none knows nothing.
type note struct {
	Boot  string           `json:"boot,omitempty"` // of the machine, when it was written
	Past  []string         `json:"past"`           // trees that the folder was, the last one last
	Files map[string]saved `json:"files"`          // of the last one
}

// saved is a file as it was when its bytes were uploaded.
type saved struct {
	stamp

	SHA256 string `json:"sha256"`
	Fresh  bool   `json:"fresh,omitempty"` // it was so new then that a change after that may not show
}

// stamp is what shows that a file was changed.
type stamp struct {
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // nanoseconds since 1970
	Inode uint64 `json:"inode,omitempty"`
	Exec  bool   `json:"exec,omitempty"`
}

func stampOf(info fs.FileInfo) stamp {
	return stamp{info.Size(), info.ModTime().UnixNano(), inode(info), info.Mode()&0o100 != 0}
}

// readNote returns the note of a folder, an empty one if there is none or if it cannot be read.
func readNote(dir string) *note {
	n := &note{}
	if b, err := os.ReadFile(dir + noteSuffix); err != nil || json.Unmarshal(b, n) != nil {
		return &note{}
	}
	return n
}

func (n *note) write(dir string) error {
	n.Boot = bootID()
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	path := dir + noteSuffix
	if err := os.WriteFile(path+newSuffix, b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+newSuffix, path)
}

func removeNote(dir string) error {
	if err := os.Remove(dir + noteSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// last is the tree that the folder was last, "" if none.
func (n *note) last() string {
	if len(n.Past) == 0 {
		return ""
	}
	return n.Past[len(n.Past)-1]
}

// was notes that the folder is a tree.
func (n *note) was(tree string) {
	n.Past = append(slices.DeleteFunc(n.Past, func(t string) bool { return t == tree }), tree)
	n.Past = n.Past[max(0, len(n.Past)-mostPast):]
}

// holds reports whether the folder is the tree, or what was made of it here.
func (n *note) holds(tree string) bool {
	return slices.Contains(n.Past, tree) && n.Boot == bootID()
}

// file makes an entry of a tree.
func (s *saved) file(path string) muster.File {
	return muster.File{Path: path, Size: s.Size, SHA256: s.SHA256, Exec: s.Exec}
}

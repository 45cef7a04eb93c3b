package checkpoint

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
	manifestSuffix = ".tree"
	newSuffix      = ".new"
)

// maxTrees is how many of a folder's trees are remembered.
const maxTrees = 32

// manifest is what is known of a folder. Who holds none knows nothing.
type manifest struct {
	Boot  string               `json:"boot,omitempty"` // of the machine, when it was written
	Trees []string             `json:"past"`           // trees that the folder was, the last one last
	Files map[string]savedFile `json:"files"`          // of the last one
}

// savedFile is a file as it was when its bytes were uploaded.
type savedFile struct {
	stamp

	SHA256 string `json:"sha256"`
	Recent bool   `json:"fresh,omitempty"` // it was so new then that a change after that may not show
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

// readManifest returns the note of a folder, an empty one if there is none or if it cannot be read.
func readManifest(dir string) *manifest {
	n := &manifest{}
	if b, err := os.ReadFile(dir + manifestSuffix); err != nil || json.Unmarshal(b, n) != nil {
		return &manifest{}
	}
	return n
}

func (n *manifest) write(dir string) error {
	n.Boot = bootID()
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	path := dir + manifestSuffix
	if err := os.WriteFile(path+newSuffix, b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+newSuffix, path)
}

func removeManifest(dir string) error {
	if err := os.Remove(dir + manifestSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lastTree is the tree that the folder was last, "" if none.
func (n *manifest) lastTree() string {
	if len(n.Trees) == 0 {
		return ""
	}
	return n.Trees[len(n.Trees)-1]
}

// addTree notes that the folder is a tree.
func (n *manifest) addTree(tree string) {
	n.Trees = append(slices.DeleteFunc(n.Trees, func(t string) bool { return t == tree }), tree)
	n.Trees = n.Trees[max(0, len(n.Trees)-maxTrees):]
}

// hasTree reports whether the folder is the tree, or what was made of it here.
func (n *manifest) hasTree(tree string) bool {
	return slices.Contains(n.Trees, tree) && n.Boot == bootID()
}

// treeEntry makes an entry of a tree.
func (s *savedFile) treeEntry(path string) muster.File {
	return muster.File{Path: path, Size: s.Size, SHA256: s.SHA256, Exec: s.Exec}
}

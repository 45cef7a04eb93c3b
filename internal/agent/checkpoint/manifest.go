package checkpoint

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// manifestSuffix is the suffix of the manifest beside a folder.
const manifestSuffix = ".tree"

// maxTrees is the most trees in a manifest.
const maxTrees = 32

// manifest describes the state of a folder.
type manifest struct {
	Boot  string               `json:"boot,omitempty"` // BootID when it was written
	Trees []string             `json:"past"`           // hashes of the trees that the folder was, oldest first
	Files map[string]savedFile `json:"files"`          // of the last tree
}

// savedFile is the state of a file when it was uploaded.
type savedFile struct {
	stamp

	SHA256 string `json:"sha256"`
	Recent bool   `json:"fresh,omitempty"` // modified so shortly before that a later change may have the same time
}

// stamp changes when a file changes.
type stamp struct {
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // nanoseconds since 1970
	Inode uint64 `json:"inode,omitempty"`
	Exec  bool   `json:"exec,omitempty"`
}

func stampOf(info fs.FileInfo) stamp {
	return stamp{info.Size(), info.ModTime().UnixNano(), inode(info), info.Mode()&0o100 != 0}
}

// readManifest returns the manifest of a folder, an empty one if it is missing or unreadable.
func readManifest(dir string) *manifest {
	n := &manifest{}
	if b, err := os.ReadFile(dir + manifestSuffix); err != nil || json.Unmarshal(b, n) != nil {
		return &manifest{}
	}
	return n
}

func (n *manifest) write(dir string) error {
	n.Boot = proctree.BootID()
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return atomicfile.Write(dir+manifestSuffix, b, 0o600)
}

func removeManifest(dir string) error {
	if err := os.Remove(dir + manifestSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lastTree returns the last tree of the folder, "" if none.
func (n *manifest) lastTree() string {
	if len(n.Trees) == 0 {
		return ""
	}
	return n.Trees[len(n.Trees)-1]
}

// addTree makes tree the last tree of the folder.
func (n *manifest) addTree(tree string) {
	n.Trees = append(slices.DeleteFunc(n.Trees, func(t string) bool { return t == tree }), tree)
	n.Trees = n.Trees[max(0, len(n.Trees)-maxTrees):]
}

// hasTree reports whether the folder is the tree, or a later state of it.
func (n *manifest) hasTree(tree string) bool {
	return slices.Contains(n.Trees, tree) && n.Boot == proctree.BootID()
}

// treeEntry returns the entry of the file in a tree.
func (s *savedFile) treeEntry(path string) muster.File {
	return muster.File{Path: path, Size: s.Size, SHA256: s.SHA256, Exec: s.Exec}
}

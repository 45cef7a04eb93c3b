package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// Blobs transfers blobs to and from the server. Its errors are run.TaskErrors.
type Blobs interface {
	UploadFile(ctx context.Context, f *os.File) (sha256 string, size int64, err error)
	FetchTree(ctx context.Context, sha256, dir string) error
}

// Uploader keeps the checkpoint folders of tasks on the server: see process.CheckpointStore.
type Uploader struct {
	Blobs   Blobs
	OnSaved func(a muster.AttemptID, tree string) // reports the tree to the server, which has all of its blobs
	Log     *slog.Logger
}

// Suffixes of the new and the old folder during a replacement.
const (
	incomingSuffix = ".coming"
	outgoingSuffix = ".going"
)

// Load implements process.CheckpointStore.
func (s *Uploader) Load(ctx context.Context, t *run.Task, dir string) error {
	if t.Checkpoint == "" || readManifest(dir).hasTree(t.Checkpoint) {
		return nil
	}
	incoming, outgoing := dir+incomingSuffix, dir+outgoingSuffix
	if err := errors.Join(run.RemoveAll(incoming), run.RemoveAll(outgoing)); err != nil {
		return folderError(err)
	}
	if err := os.Mkdir(incoming, 0o700); err != nil {
		return folderError(err)
	}
	if err := s.Blobs.FetchTree(ctx, t.Checkpoint, incoming); err != nil {
		if rerr := run.RemoveAll(incoming); rerr != nil {
			s.Log.Warn("removing an incomplete checkpoint failed", slog.String("folder", incoming), slog.Any("error", rerr))
		}
		return run.Failf(muster.FetchFailed, "fetch the checkpoint: %w", err)
	}
	if err := removeManifest(dir); err != nil {
		return folderError(err)
	}
	if err := os.Rename(dir, outgoing); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return folderError(err)
	}
	if err := os.Rename(incoming, dir); err != nil {
		return folderError(err)
	}
	n := &manifest{}
	n.addTree(t.Checkpoint)
	if err := n.write(dir); err != nil {
		return folderError(err)
	}
	if err := run.RemoveAll(outgoing); err != nil {
		s.Log.Warn("removing an old checkpoint failed", slog.String("folder", outgoing), slog.Any("error", err))
	}
	return nil
}

// Forget implements process.CheckpointStore.
func (s *Uploader) Forget(dir string) {
	for _, suffix := range []string{manifestSuffix, incomingSuffix, outgoingSuffix, listSuffix} {
		if err := run.RemoveAll(dir + suffix); err != nil {
			s.Log.Warn("removing a checkpoint's file failed", slog.String("path", dir+suffix), slog.Any("error", err))
		}
	}
}

func folderError(err error) error {
	return run.Failf(muster.WorkerInternal, "create the checkpoint folder: %w", err)
}

// manifestSuffix is the suffix of the manifest beside a folder.
const manifestSuffix = ".tree"

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

func (s *savedFile) treeEntry(path string) muster.File {
	return muster.File{Path: path, Size: s.Size, SHA256: s.SHA256, Exec: s.Exec}
}

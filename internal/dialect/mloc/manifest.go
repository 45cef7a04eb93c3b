package mloc

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// The files and folders that each task's folder has.
const (
	FileResponses   = "responses.json"
	FileManifest    = "manifest.json"
	FolderLogs      = "logs"
	FolderArtifacts = "artifacts"
)

// maxEntries is how many entries a manifest lists, and how many files of a folder are counted.
const maxEntries = 10_000

// Manifest says what a task's folder holds; host and worker write the same.
type Manifest struct {
	TaskID      string  `json:"task_id"`
	GeneratedAt string  `json:"generated_at"`
	Entries     []entry `json:"entries"`
}

type entry struct {
	Name      string `json:"name"`
	Path      string `json:"path"` // in the folder, with slashes
	Type      string `json:"type"` // result, logs, artifact or directory
	Required  bool   `json:"required"`
	Status    string `json:"status"` // present or missing
	UpdatedAt string `json:"updated_at,omitempty"`
	Size      *int64 `json:"size,omitempty"`
	SHA256    string `json:"sha256,omitempty"`     // of files
	FileCount *int   `json:"file_count,omitempty"` // of folders
}

// NewManifest looks at a task's folder. declared are the names of spec.output.artifacts: together with those that every
// task has they are required, and come first, by name. Nothing outside of the folder is looked at, whatever they say.
func NewManifest(ctx context.Context, dir, taskID string, declared []string, now time.Time) (Manifest, error) {
	m := Manifest{TaskID: taskID, GeneratedAt: FormatTime(now), Entries: []entry{}}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return m, muster.Errorf(muster.Internal, "cannot read the folder of task %s: %w", taskID, err)
	}
	defer func() { _ = root.Close() }()
	required := []string{FileResponses, FolderLogs, FolderArtifacts}
	for _, name := range declared {
		name = strings.TrimSuffix(name, "/")
		for strings.HasPrefix(name, "./") {
			name = name[2:]
		}
		if name != "" && len(required) < maxEntries {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	required = slices.Compact(required)
	found, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return m, muster.Errorf(muster.Internal, "cannot read the folder of task %s: %w", taskID, err)
	}
	names := required
	for _, f := range found {
		name := f.Name()
		if name != FileManifest && !isTemporary(name) && !slices.Contains(required, name) && len(names) < maxEntries {
			names = append(names, name)
		}
	}
	for i, name := range names {
		e, err := manifestEntry(ctx, root, name)
		if err != nil {
			return m, err
		}
		e.Required = i < len(required)
		m.Entries = append(m.Entries, e)
	}
	return m, nil
}

// isTemporary reports whether a file is being written by atomicfile.
func isTemporary(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".tmp")
}

func manifestEntry(ctx context.Context, root *os.Root, name string) (entry, error) {
	e := entry{Name: path.Base(name), Path: name, Type: entryType(name), Status: "missing"}
	if !filepath.IsLocal(name) {
		return e, nil
	}
	info, err := root.Stat(name) // of what is outside there is an error
	if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		return e, nil //nolint:nilerr // missing is what it says
	}
	e.Status, e.UpdatedAt = "present", FormatTime(info.ModTime())
	if info.IsDir() {
		n, size := 0, int64(0)
		err := fs.WalkDir(root.FS(), name, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || ctx.Err() != nil {
				return cmp.Or(ctx.Err(), err)
			}
			if f, err := d.Info(); err == nil && f.Mode().IsRegular() && !isTemporary(d.Name()) {
				if n++; n >= maxEntries {
					return fs.SkipAll
				}
				size += f.Size()
			}
			return nil
		})
		if err != nil && ctx.Err() != nil {
			return e, ctx.Err()
		}
		e.FileCount, e.Size = &n, &size
		return e, nil
	}
	sum, size, err := hashFile(ctx, root, name)
	if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
		e.Status, e.UpdatedAt = "missing", ""
		return e, nil
	}
	if err != nil {
		return e, muster.Errorf(muster.Internal, "cannot read %s: %w", name, err)
	}
	e.Size, e.SHA256 = &size, sum
	return e, nil
}

func hashFile(ctx context.Context, root *os.Root, name string) (string, int64, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	n, err := io.Copy(h, ContextReader(ctx, f))
	return hex.EncodeToString(h.Sum(nil)), n, err
}

// ContextReader returns r; reading ends with ctx.
func ContextReader(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context //nolint:containedctx // it lives as long as one copy
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// entryType says of what sort an entry is, by its name alone.
func entryType(name string) string {
	switch {
	case name == FileResponses:
		return "result"
	case name == FolderLogs, strings.HasPrefix(name, FolderLogs+"/"):
		return "logs"
	case name == FolderArtifacts, strings.HasPrefix(name, FolderArtifacts+"/"), path.Ext(name) != "":
		return "artifact"
	default:
		return "directory"
	}
}

// DeclaredArtifacts returns the names of spec.output.artifacts.
func DeclaredArtifacts(spec Object) []string {
	list, _ := Lookup(spec, "output")["artifacts"].([]any)
	var names []string
	for _, v := range list {
		if s := Text(v); s != "" {
			names = append(names, s)
		}
	}
	return names
}

// WriteJSON writes a JSON file so that after a crash it is there as a whole or as it was.
func WriteJSON(path string, v any) error {
	data, err := Encode(v)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(path, data, 0o600); err != nil {
		return muster.Errorf(muster.Internal, "cannot write %s: %w", filepath.Base(path), err)
	}
	return nil
}

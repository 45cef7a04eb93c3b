package mlochost

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

const (
	maxUnknown = 256   // results of tasks that this host does not know, which hosts accept
	maxFiles   = 1_000 // of a task
)

// results is the host's folder of results: <id>/responses.json, <id>/manifest.json and <id>/artifacts/<name>. What is
// written survives a crash. Names and ids never lead out of the folder. Its methods may be called at the same time.
type results struct {
	root *os.Root

	mu         sync.Mutex
	unknownIDs []string // ids that the host does not know, oldest first
}

func openResults(dir string, known map[string]bool) (*results, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot make the folder of results: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot open the folder of results: %w", err)
	}
	r := &results{root: root}
	found, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, errors.Join(muster.Errorf(muster.Internal, "cannot read the folder of results: %w", err), root.Close())
	}
	for _, f := range found {
		if !known[f.Name()] {
			r.unknownIDs = append(r.unknownIDs, f.Name())
		}
	}
	return r, nil
}

func (r *results) ensureFolder(id string, known bool) (string, error) {
	name := mloc.SafeID(id)
	if !mloc.ValidID(id) || strings.Trim(name, "_") == "" {
		return "", muster.Errorf(muster.Invalid, "%q is not an id of a task", mloc.Truncate(id, mloc.MaxID))
	}
	for _, below := range []string{mloc.FolderArtifacts, mloc.FolderLogs} {
		if err := r.root.MkdirAll(path.Join(name, below), 0o700); err != nil {
			return "", muster.Errorf(muster.Internal, "cannot make a folder for the result of %s: %w", id, err)
		}
	}
	if !known && !slices.Contains(r.unknownIDs, name) {
		r.unknownIDs = append(r.unknownIDs, name)
		for len(r.unknownIDs) > maxUnknown {
			if err := r.root.RemoveAll(r.unknownIDs[0]); err != nil {
				return "", muster.Errorf(muster.Internal, "cannot remove an old result: %w", err)
			}
			r.unknownIDs = r.unknownIDs[1:]
		}
	}
	return name, nil
}

// put stores a result, in place of an earlier one.
func (r *results) put(d mloc.Delivery, known bool, links func(name string) string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	folder, err := r.ensureFolder(d.TaskID, known)
	if err != nil {
		return err
	}
	for _, name := range r.files(d.TaskID) {
		updateExport(d.Result, name, links(name))
	}
	return r.write(folder, mloc.FileResponses, mloc.Object{ // received now, whatever a worker says: its clock may be wrong
		"task_id": d.TaskID, "worker_id": lenient.NonZero(d.WorkerID), "metadata": d.Metadata, "received_at": mloc.FormatTime(time.Now()), "result": d.Result,
	})
}

// write stores a file of a task. r.mu is held.
func (r *results) write(folder, name string, v any) error {
	return mloc.WriteJSON(filepath.Join(r.root.Name(), folder, name), v)
}

// manifest writes a task's manifest.json. It reads all of its files: callers have time.
func (r *results) manifest(ctx context.Context, id string, spec mloc.Object) error {
	name := mloc.SafeID(id)
	m, err := mloc.NewManifest(ctx, path.Join(r.root.Name(), name), id, mloc.DeclaredArtifacts(spec), time.Now())
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.write(name, mloc.FileManifest, m)
}

// get returns the wrapper of a task's result; NotFound if there is none.
func (r *results) get(id string) (mloc.Object, error) {
	if !mloc.ValidID(id) {
		return nil, muster.Errorf(muster.NotFound, "result not found")
	}
	b, err := r.root.ReadFile(path.Join(mloc.SafeID(id), mloc.FileResponses))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, muster.Errorf(muster.NotFound, "result not found")
	}
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot read the result of %s: %w", id, err)
	}
	var w mloc.Object
	err = mloc.Decode(b, 2*mloc.MaxResult, &w)
	return w, err
}

// putFile stores a file of a task, in place of an earlier one of that name. A file that is broken off or larger than limit
// leaves nothing.
func (r *results) putFile(ctx context.Context, id, name string, known bool, link string, body io.Reader, limit int64) error {
	if !mloc.ValidFileName(name) || name == mloc.FileManifest || strings.HasSuffix(name, ".part") {
		return muster.Errorf(muster.Invalid, "invalid filename")
	}
	r.mu.Lock()
	folder, err := r.ensureFolder(id, known)
	count := len(r.files(id))
	r.mu.Unlock()
	if err != nil {
		return err
	}
	if count >= maxFiles {
		return muster.Errorf(muster.TooLarge, "task %s has %d files already", id, count)
	}
	var uploadErr error // of what the caller sends
	err = atomicfile.WriteFunc(filepath.Join(r.root.Name(), folder, mloc.FolderArtifacts, name), 0o600, func(w io.Writer) error {
		n, err := io.Copy(w, io.LimitReader(mloc.ContextReader(ctx, body), limit+1))
		_, isDiskErr := errors.AsType[*fs.PathError](err)
		switch {
		case n > limit:
			uploadErr = muster.Errorf(muster.TooLarge, "%s is larger than %s", name, muster.Size(limit))
		case err != nil && !isDiskErr:
			uploadErr = muster.Errorf(muster.Unavailable, "%s did not arrive as a whole: %w", name, err)
		}
		return cmp.Or(uploadErr, err)
	})
	switch {
	case uploadErr != nil:
		return uploadErr
	case err != nil:
		return muster.Errorf(muster.Internal, "cannot store %s: %w", name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w, err := r.get(id)
	if err != nil || !updateExport(mloc.Lookup(w, "result"), name, link) {
		return nil // the result comes later, or names no such file
	}
	return r.write(folder, mloc.FileResponses, w)
}

// open opens a file of a task: one that was posted, or else responses.json or manifest.json; NotFound if there is none.
func (r *results) open(id, name string) (*os.File, error) {
	missing := muster.Errorf(muster.NotFound, "artifact not found")
	if !mloc.ValidID(id) || !mloc.ValidFileName(name) {
		return nil, missing
	}
	for _, at := range []string{path.Join(mloc.SafeID(id), mloc.FolderArtifacts, name), path.Join(mloc.SafeID(id), name)} {
		f, err := r.root.Open(at)
		if err != nil {
			continue
		}
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
			return f, nil
		}
		_ = f.Close()
	}
	return nil, missing
}

// files lists the names of what was posted for a task.
func (r *results) files(id string) []string {
	found, err := fs.ReadDir(r.root.FS(), path.Join(mloc.SafeID(id), mloc.FolderArtifacts))
	if err != nil {
		return nil
	}
	var names []string
	for _, f := range found {
		if f.Type().IsRegular() && mloc.ValidFileName(f.Name()) { // others are being received
			names = append(names, f.Name())
		}
	}
	return names
}

// forget removes what there is of a task.
func (r *results) forget(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !mloc.ValidID(id) {
		return nil
	}
	if err := r.root.RemoveAll(mloc.SafeID(id)); err != nil {
		return muster.Errorf(muster.Internal, "cannot remove the result of %s: %w", id, err)
	}
	return nil
}

// updateExport lets result.jsonl_export name a file that the host has, if it is about the file of this name, and reports
// whether it is.
func updateExport(result mloc.Object, name, link string) bool {
	e := mloc.Lookup(result, "jsonl_export")
	if e == nil || mloc.Text(e["artifact_name"]) != name && path.Base(mloc.Text(e["path"])) != name && path.Base(mloc.Text(e["relative_path"])) != name {
		return false
	}
	if e["worker_path"] == nil {
		e["worker_path"] = e["path"]
	}
	at := path.Join(mloc.FolderArtifacts, name)
	e["path"], e["relative_path"], e["host_path"] = at, at, at
	e["url"], e["download_url"] = link, link
	return true
}

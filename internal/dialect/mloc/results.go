package mloc

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

// maxStrangers is how many results of tasks that this host does not know are kept, as hosts accept them.
const maxStrangers = 256

// maxPosted is how many files a task may have.
const maxPosted = 1_000

// results is the host's folder of results: <id>/responses.json, <id>/manifest.json and <id>/artifacts/<name>. What is
// written survives a crash. Names and ids never lead out of the folder. Its methods may be called at the same time.
type results struct {
	root *os.Root

	mu        sync.Mutex
	strangers []string // ids that the host does not know, oldest first
}

func openResults(dir string, known func(id string) bool) (*results, error) {
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
		if !known(f.Name()) {
			r.strangers = append(r.strangers, f.Name())
		}
	}
	return r, nil
}

func (r *results) close() error { return r.root.Close() }

// folder makes a task's folder.
func (r *results) folder(id string, known bool) (string, error) {
	name := safeID(id)
	if !goodID(id) || strings.Trim(name, "_") == "" {
		return "", muster.Errorf(muster.Invalid, "%q is not an id of a task", cut(id, maxID))
	}
	if err := r.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", muster.Errorf(muster.Internal, "cannot make a folder for the result of %s: %w", id, err)
	}
	for _, below := range []string{folderArtifacts, folderLogs} {
		if err := r.root.Mkdir(name+"/"+below, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", muster.Errorf(muster.Internal, "cannot make a folder for the result of %s: %w", id, err)
		}
	}
	if !known && !slices.Contains(r.strangers, name) {
		r.strangers = append(r.strangers, name)
		for len(r.strangers) > maxStrangers {
			if err := r.root.RemoveAll(r.strangers[0]); err != nil {
				return "", muster.Errorf(muster.Internal, "cannot remove an old result: %w", err)
			}
			r.strangers = r.strangers[1:]
		}
	}
	return name, nil
}

// put stores a result, in place of an earlier one, and returns where.
func (r *results) put(d delivery, known bool, links func(name string) string, now time.Time) (string, error) {
	var result any
	if err := decode(d.Result, maxResult, &result); err != nil {
		return "", err
	}
	o, ok := result.(object)
	if !ok {
		return "", muster.Errorf(muster.Invalid, "result is not an object")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name, err := r.folder(d.TaskID, known)
	if err != nil {
		return "", err
	}
	for _, f := range r.list(name) {
		exported(o, f.Name, links(f.Name))
	}
	w := object{"task_id": d.TaskID, "worker_id": nil, "metadata": nil, "received_at": cmp.Or(d.ReceivedAt, stamp(now)), "result": o}
	if d.WorkerID != "" {
		w["worker_id"] = d.WorkerID
	}
	if len(d.Metadata) > 0 {
		w["metadata"] = d.Metadata
	}
	return path.Join("results", name, fileResponses), r.write(name, w)
}

// write stores a wrapper. r.mu is held.
func (r *results) write(name string, w object) error {
	b, err := encode(w)
	if err == nil {
		err = replaceFile(r.root, name+"/"+fileResponses, b)
	}
	if err != nil {
		return muster.Errorf(muster.Internal, "cannot store the result of %s: %w", name, err)
	}
	return nil
}

// manifest writes a task's manifest.json. It reads all of its files: callers have time.
func (r *results) manifest(ctx context.Context, id string, declared []string, now time.Time) error {
	name := safeID(id)
	m, err := makeManifest(ctx, path.Join(r.root.Name(), name), id, declared, now)
	if err != nil {
		return err
	}
	b, err := encode(m)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := replaceFile(r.root, name+"/"+fileManifest, b); err != nil {
		return muster.Errorf(muster.Internal, "cannot store the manifest of %s: %w", id, err)
	}
	return nil
}

// get returns the wrapper of a task's result; NotFound if there is none.
func (r *results) get(id string) (object, error) {
	if !goodID(id) {
		return nil, muster.Errorf(muster.NotFound, "result not found")
	}
	f, err := r.root.Open(safeID(id) + "/" + fileResponses)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, muster.Errorf(muster.NotFound, "result not found")
	}
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot read the result of %s: %w", id, err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, 2*maxResult))
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot read the result of %s: %w", id, err)
	}
	var w object
	if err := decode(b, 2*maxResult, &w); err != nil {
		return nil, err
	}
	return w, nil
}

// putFile stores a file of a task, in place of an earlier one of that name, and returns where. A file that is broken off
// or larger than limit leaves nothing.
func (r *results) putFile(ctx context.Context, id, name string, known bool, link string, body io.Reader, limit int64) (string, error) {
	if !goodFile(name) || name == fileManifest || strings.HasSuffix(name, ".part") {
		return "", muster.Errorf(muster.Invalid, "invalid filename")
	}
	r.mu.Lock()
	folder, err := r.folder(id, known)
	count := len(r.list(folder))
	r.mu.Unlock()
	if err != nil {
		return "", err
	}
	if count >= maxPosted {
		return "", muster.Errorf(muster.TooLarge, "task %s has %d files already", id, count)
	}
	at := path.Join(folder, folderArtifacts, name)
	f, part, err := r.temporary(folder)
	if err != nil {
		return "", muster.Errorf(muster.Internal, "cannot store %s: %w", name, err)
	}
	defer func() { _ = r.root.Remove(part) }()
	n, err := io.Copy(f, io.LimitReader(reader{ctx, body}, limit+1))
	if err == nil {
		err = f.Sync()
	}
	err = cmp.Or(err, f.Close())
	switch {
	case n > limit:
		return "", muster.Errorf(muster.TooLarge, "%s is larger than %s", name, muster.Size(limit))
	case err != nil:
		return "", muster.Errorf(muster.Unavailable, "%s did not arrive as a whole: %w", name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.root.Rename(part, at); err != nil {
		return "", muster.Errorf(muster.Internal, "cannot store %s: %w", name, err)
	}
	w, err := r.get(id)
	if err != nil || !exported(under(w, "result"), name, link) {
		return path.Join("results", at), nil //nolint:nilerr // without a result there is nothing to change in it
	}
	return path.Join("results", at), r.write(folder, w)
}

// temporary makes a file in a task's folder that no other upload uses.
func (r *results) temporary(folder string) (*os.File, string, error) {
	for i := 0; ; i++ {
		part := path.Join(folder, folderLogs, stamp(time.Now())+".part")
		f, err := r.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) && i < 100 {
			continue
		}
		return f, part, err
	}
}

// open opens a file of a task: one that was posted, or else responses.json or manifest.json; NotFound if there is none.
func (r *results) open(id, name string) (*os.File, error) {
	missing := muster.Errorf(muster.NotFound, "artifact not found")
	if !goodID(id) || !goodFile(name) {
		return nil, missing
	}
	for _, at := range []string{path.Join(safeID(id), folderArtifacts, name), path.Join(safeID(id), name)} {
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

// files lists what was posted for a task, by name.
func (r *results) files(id string) []file { return r.list(safeID(id)) }

func (r *results) list(folder string) []file {
	found, err := fs.ReadDir(r.root.FS(), path.Join(folder, folderArtifacts))
	if err != nil {
		return nil
	}
	var list []file
	for _, f := range found {
		if at, err := f.Info(); err == nil && at.Mode().IsRegular() {
			list = append(list, file{Name: f.Name(), Size: at.Size()})
		}
	}
	return list
}

// forget removes what there is of a task.
func (r *results) forget(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !goodID(id) {
		return nil
	}
	if err := r.root.RemoveAll(safeID(id)); err != nil {
		return muster.Errorf(muster.Internal, "cannot remove the result of %s: %w", id, err)
	}
	return nil
}

// exported lets result.jsonl_export name a file that the host has, if it is about the file of this name, and reports
// whether it is.
func exported(result object, name, link string) bool {
	e := under(result, "jsonl_export")
	if e == nil || text(e["artifact_name"]) != name && path.Base(text(e["path"])) != name && path.Base(text(e["relative_path"])) != name {
		return false
	}
	if e["worker_path"] == nil {
		e["worker_path"] = e["path"]
	}
	e["path"], e["relative_path"], e["host_path"] = path.Join(folderArtifacts, name), path.Join(folderArtifacts, name), path.Join(folderArtifacts, name)
	e["url"], e["download_url"] = link, link
	return true
}

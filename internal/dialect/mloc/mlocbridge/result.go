package mlocbridge

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

const (
	logFile = "task.log" // the output of a task, in its folder of logs
	maxLog  = 256 << 20  // bytes of it that are kept
)

// taskDir is where the files of a task are: RESULTS_DIR/<task_id>, or what its destination of type local says.
func (b *Bridge) taskDir(one member) (string, destination, error) {
	d, err := parseDestination(one.Doc.Spec)
	if err != nil {
		return "", d, err
	}
	name := mloc.SafeID(one.ID)
	if d.Type != "local" || d.Path == "" {
		return filepath.Join(b.cfg.Results, name), d, nil
	}
	p := d.Path
	if !filepath.IsAbs(p) {
		p = filepath.Join(b.cfg.Results, p)
	}
	if !b.pathAllowed(resolveExisting(p)) {
		return "", d, mloc.InvalidSpec("spec.output.destination.path is %s: this bridge writes only below %s (see --shared)", mloc.Truncate(d.Path, 200), strings.Join(append([]string{b.cfg.Results}, b.cfg.Shared...), ", "))
	}
	if filepath.Base(p) != name {
		p = filepath.Join(p, name)
	}
	return p, d, nil
}

// resolveExisting follows the links of as much of a path as is there.
func resolveExisting(p string) string {
	p = filepath.Clean(p)
	for rest := ""; ; {
		if found, err := filepath.EvalSymlinks(p); err == nil {
			return filepath.Join(found, rest)
		}
		up := filepath.Dir(p)
		if up == p {
			return filepath.Join(p, rest)
		}
		rest, p = filepath.Join(filepath.Base(p), rest), up
	}
}

// memberOutcome is one task of a message with the task of Muster that carried it out.
type memberOutcome struct {
	member

	task   muster.Task
	dir    string
	dest   destination
	links  map[string]string // addresses of the archives that were delivered, by name
	result mloc.Object       // nil until it is made
}

// seconds is how long the task ran.
func (o *memberOutcome) seconds() float64 {
	if o.task.StartedAt == 0 || o.task.FinishedAt < o.task.StartedAt {
		return 0
	}
	return o.task.FinishedAt.Sub(o.task.StartedAt).Seconds()
}

// collect brings what the task left to its folder: output, artifacts, and the model as folder and archive.
func (b *Bridge) collect(ctx context.Context, o *memberOutcome) error {
	for _, d := range []string{mloc.FolderLogs, mloc.FolderArtifacts} {
		if err := os.MkdirAll(filepath.Join(o.dir, d), 0o755); err != nil { //nolint:gosec // others read the folder of results
			return muster.Errorf(muster.Internal, "cannot make the folder of task %s: %w", o.ID, err)
		}
	}
	if err := b.saveLog(ctx, o); err != nil {
		return err
	}
	list, err := b.client.Artifacts(ctx, o.task.ID)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(o.dir)
	if err != nil {
		return muster.Errorf(muster.Internal, "cannot open the folder of task %s: %w", o.ID, err)
	}
	defer func() { _ = root.Close() }()
	for _, a := range list {
		to := client.Target{Root: root, Name: path.Join(mloc.FolderArtifacts, a.Name), Replace: true}
		model, isModel := modelFolder(a.Name)
		switch {
		case muster.CheckArtifactName(a.Name) != nil || a.Name == mloc.FileResponses: // the summary is made here
			continue
		case isModel:
			to.Name = a.Name
		}
		_, same, err := to.Stat(ctx, a)
		if err == nil && !same { // else it is there since an earlier try
			err = b.client.DownloadArtifact(ctx, o.task.ID, a, to, nil)
		}
		if err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(o.dir, model)); isModel && err != nil {
			if err := unpack(ctx, to.String(), o.dir, model); err != nil {
				return err
			}
		}
	}
	return nil
}

// modelFolder returns the folder that an archive of a model has.
func modelFolder(artifact string) (string, bool) {
	name, ok := strings.CutSuffix(artifact, ".tar.gz")
	return name, ok && (name == "final_model" || name == "final_lora")
}

func (b *Bridge) saveLog(ctx context.Context, o *memberOutcome) error {
	return atomicfile.WriteFunc(filepath.Join(o.dir, mloc.FolderLogs, logFile), 0o644, func(w io.Writer) error {
		left := maxLog
		for line, err := range b.client.Logs(ctx, o.task.ID, client.LogOptions{}) {
			if code := muster.CodeOf(err); err != nil && (code == muster.NotFound || code == muster.Conflict) {
				break // it never ran
			}
			if left -= len(line.Data); err != nil || left < 0 {
				return err
			}
			if _, err := w.Write(line.Data); err != nil {
				return muster.Errorf(muster.Internal, "cannot write the output of task %s: %w", o.ID, err)
			}
		}
		return nil
	})
}

// makeResult makes the result of one task as MLOC's executors do. Its archives are delivered by then.
func (b *Bridge) makeResult(ctx context.Context, o *memberOutcome) (mloc.Object, error) {
	var items []any
	var result mloc.Object
	switch kind := mloc.TaskType(o.Doc); kind {
	case "rag":
		r, err := parseRetrieval(o.Doc.Spec)
		if err != nil {
			return nil, err
		}
		return r.search(ctx, b.http, o.task.Result, o.seconds())
	case "inference":
		returned, err := predictions(o)
		if err != nil {
			return nil, err
		}
		result = mloc.ToResult(o.Doc, o.ID, returned, nil, nil, o.seconds())
		items, _ = result["items"].([]any)
	case "sft", "lora_sft", "ppo", "dpo":
		return trainingResult(o), nil
	default:
		result = mloc.ToResult(o.Doc, o.ID, o.task.Result, nil, nil, o.seconds())
	}
	e, err := parseExport(o.Doc.Spec)
	if err != nil || e == nil || items == nil {
		return result, err
	}
	data, n, err := e.encode(exportItems(o.Doc, items))
	if err != nil {
		return nil, err
	}
	to := filepath.Join(o.dir, filepath.FromSlash(e.Path))
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o644)); err != nil { //nolint:gosec // others read the folder of results
		return nil, muster.Errorf(muster.Internal, "cannot write %s of task %s: %w", e.Path, o.ID, err)
	}
	result["jsonl_export"] = mloc.Object{
		"path": e.Path, "relative_path": e.Path, "worker_path": filepath.Join(o.dir, e.Path), "record_count": n, "fields": slices.Sorted(maps.Keys(e.Fields)),
	}
	return result, nil
}

// predictions returns the result of an inference with all its items: those that found no room in it are in an artifact.
func predictions(o *memberOutcome) (json.RawMessage, error) {
	r := mloc.Object{}
	if err := mloc.Decode(o.task.Result, mloc.MaxResult, &r); err != nil {
		return nil, muster.Errorf(muster.Invalid, "the result of task %s is not an object: %w", o.task.ID, err)
	}
	if whole, exists := r["complete"].(bool); !exists || whole {
		return o.task.Result, nil
	}
	f, err := os.Open(filepath.Join(o.dir, mloc.FolderArtifacts, "predictions.jsonl"))
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "task %s left no predictions.jsonl: %w", o.task.ID, err)
	}
	defer func() { _ = f.Close() }()
	d := json.NewDecoder(io.LimitReader(f, mloc.MaxResult))
	d.UseNumber()
	list := []any{}
	for {
		var one mloc.Object
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, muster.Errorf(muster.TooLarge, "the result of task %s has more than %d bytes, which a host does not take: split its items", o.ID, mloc.MaxResult)
		}
		list = append(list, one)
	}
	r["predictions"] = list
	return mloc.Encode(r)
}

// trainingResult is the result of a training: paths are those of this machine, as a worker of MLOC has them.
func trainingResult(o *memberOutcome) mloc.Object {
	r := mloc.ToResult(o.Doc, o.ID, o.task.Result, nil, nil, o.seconds())
	r["output_dir"] = o.dir
	for _, name := range []string{"final_model", "final_lora"} {
		if at, err := os.Stat(filepath.Join(o.dir, name)); err == nil && at.IsDir() {
			r[name+"_path"] = filepath.Join(o.dir, name)
		}
		archive := filepath.Join(o.dir, name+".tar.gz")
		at, err := os.Stat(archive)
		if err != nil || name == "final_model" && o.dest.Type != "http" {
			continue
		}
		r[name+"_archive"], r[name+"_archive_path"], r[name+"_archive_bytes"] = name+".tar.gz", archive, at.Size()
		link, uploaded := o.links[name+".tar.gz"]
		if uploaded {
			r[name+"_archive_url"] = link
		}
		if o.dest.Type == "http" {
			r[name+"_archive_uploaded"] = uploaded
		}
	}
	return r
}

// mergeUsage makes the parent's result of a merged message: its own items, the usage of all, and those of each child.
func mergeUsage(parent mloc.Object, children map[string]mloc.Object) mloc.Object {
	if len(children) == 0 {
		return parent
	}
	out, all := maps.Clone(parent), maps.Clone(mloc.NonNilObject(mloc.Lookup(parent, "usage")))
	below := mloc.Object{}
	for _, id := range slices.Sorted(maps.Keys(children)) {
		c := children[id]
		part := mloc.Object{"usage": c["usage"]}
		mloc.CopyFields(part, c, "items", "items", "queries", "queries")
		below[id] = part
		for k, v := range mloc.Lookup(c, "usage") {
			if f, ok := toFloat(v); ok {
				have, _ := toFloat(all[k])
				all[k] = have + f
			}
		}
	}
	out["usage"], out["children"] = all, below
	return out
}

func toFloat(v any) (float64, bool) {
	switch n := v.(type) {
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	case int:
		return float64(n), true
	case int64:
		return float64(n), true
	case float64:
		return n, true
	default:
		return 0, false
	}
}

// writeResult writes responses.json, unless there is no result, and the manifest.
func (b *Bridge) writeResult(ctx context.Context, o *memberOutcome) error {
	if o.result != nil {
		if err := mloc.WriteJSON(filepath.Join(o.dir, mloc.FileResponses), o.result); err != nil {
			return err
		}
	}
	m, err := mloc.NewManifest(ctx, o.dir, o.ID, mloc.DeclaredArtifacts(o.Doc.Spec), time.Now())
	if err != nil {
		return err
	}
	return mloc.WriteJSON(filepath.Join(o.dir, mloc.FileManifest), m)
}

// uploadArchives delivers the archives of a task to its destination. One that is refused is only missing in the result.
func (b *Bridge) uploadArchives(ctx context.Context, o *memberOutcome) error {
	o.links = map[string]string{}
	for _, name := range []string{"final_model.tar.gz", "final_lora.tar.gz"} {
		file := filepath.Join(o.dir, name)
		if _, err := os.Stat(file); err != nil {
			continue
		}
		if o.dest.Type != "http" {
			if name == "final_model.tar.gz" { // the folder is there
				_ = os.Remove(file)
			}
			continue
		}
		link, err := b.http.upload(ctx, o.dest, o.ID, file, "application/zip")
		if err == nil {
			o.links[name] = link
			continue
		}
		if _, refused := errors.AsType[*statusError](err); !refused {
			return err
		}
		b.log.Warn("an archive could not be delivered", slog.String("task", o.ID), slog.String("file", name), slog.String("why", err.Error()))
	}
	return nil
}

// cleanup removes models that were delivered, where MODEL_CLEANUP_AFTER_UPLOAD asks for it.
func (b *Bridge) cleanup(o *memberOutcome) {
	if !b.cfg.Cleanup {
		return
	}
	for name := range o.links {
		folder, _ := modelFolder(name)
		for _, p := range []string{name, folder} {
			if err := os.RemoveAll(filepath.Join(o.dir, p)); err != nil {
				b.log.Warn("cannot remove what was delivered", slog.String("task", o.ID), slog.String("why", err.Error()))
			}
		}
	}
}

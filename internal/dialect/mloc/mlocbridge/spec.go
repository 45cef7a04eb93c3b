package mlocbridge

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// member is one task of a message: that which the message is about, or one that was merged into it.
type member struct {
	ID  string
	Doc mloc.Document
}

// members returns the task of a message and those that were merged into it.
func members(m mloc.TaskMessage) []member {
	out := []member{{ID: m.TaskID, Doc: m.Task}}
	for _, c := range m.MergedChildren {
		out = append(out, member{ID: c.TaskID, Doc: mloc.Document{APIVersion: m.Task.APIVersion, Kind: m.Task.Kind, Metadata: c.Metadata, Spec: c.Spec}})
	}
	return out
}

const (
	maxMembers = 64           // tasks that may be merged into one message
	rowsFile   = "data.jsonl" // a data set of lines in the task's folder
)

// prepare makes the Muster job of a message: a stage for each of its tasks, without needs. What the tasks read from this
// machine or from the host is brought to Muster's server as files: the machines of the fleet may not reach either. It
// fails with InvalidSpec if Muster cannot do what a task says.
func (b *Bridge) prepare(ctx context.Context, m mloc.TaskMessage) (muster.Spec, error) {
	list := members(m)
	if len(list) > maxMembers {
		return muster.Spec{}, mloc.InvalidSpec("%d tasks are merged into one: at most %d are taken", len(list)-1, maxMembers-1)
	}
	spec := muster.Spec{Name: jobName(m), Labels: map[string]string{"mloc/task": mloc.Truncate(mloc.SafeID(m.TaskID), muster.MaxNameSize)}}
	for i, one := range list {
		t, err := b.stage(ctx, one)
		switch {
		case err != nil && i > 0:
			return spec, muster.Errorf(muster.CodeOf(err), "task %s, merged into %s: %w", one.ID, m.TaskID, err)
		case err != nil:
			return spec, err
		}
		t.Name = "task"
		if i > 0 {
			t.Name = "child-" + strconv.Itoa(i)
		}
		spec.Tasks = append(spec.Tasks, t)
	}
	return spec, nil
}

// jobName is a task's name where it can be one of a job.
func jobName(m mloc.TaskMessage) string {
	return cmp.Or(lenient.Name(mloc.Text(m.Task.Metadata["name"])), lenient.Name(m.TaskID))
}

func (b *Bridge) stage(ctx context.Context, one member) (muster.TaskSpec, error) {
	if _, _, err := b.taskDir(one); err != nil {
		return muster.TaskSpec{}, err
	}
	if _, err := parseExport(one.Doc.Spec); err != nil {
		return muster.TaskSpec{}, err
	}
	switch kind := mloc.TaskType(one.Doc); kind {
	case "":
		return muster.TaskSpec{}, mloc.InvalidSpec("the task has no spec.taskType")
	case "agent":
		return muster.TaskSpec{}, mloc.InvalidSpec("this worker has no executor for taskType agent: Muster has no kind that runs agents with tools")
	case "rag":
		r, err := parseRetrieval(one.Doc.Spec)
		if err != nil {
			return muster.TaskSpec{}, err
		}
		return r.stage(one.Doc.Spec)
	default:
		return b.nativeStage(ctx, one)
	}
}

// nativeStage makes the stage of a task whose type Muster has as a kind.
func (b *Bridge) nativeStage(ctx context.Context, one member) (muster.TaskSpec, error) {
	dir, err := os.MkdirTemp(b.tmpDir, "task-") // for the task's files
	if err != nil {
		return muster.TaskSpec{}, muster.Errorf(muster.Internal, "cannot make a folder for a task's files: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	d, kind := one.Doc, mloc.TaskType(one.Doc)
	d.Spec = maps.Clone(d.Spec)
	var checkpoint mloc.Object
	switch kind {
	case "inference":
		delete(d.Spec, "postprocess") // done by the bridge
		b.setDefaultModel(d.Spec)
	case "sft", "lora_sft", "ppo", "dpo":
		if load := mloc.Lookup(d.Spec, "checkpoint", "load"); len(load) > 0 {
			name, err := b.fetchWeights(ctx, load, kind, dir)
			if err != nil {
				return muster.TaskSpec{}, err
			}
			checkpoint = mloc.Object{"path": name}
			mloc.CopyFields(checkpoint, load, "subdir", "subdir")
			delete(d.Spec, "checkpoint")
		}
		if lines := mloc.Lookup(d.Spec, "data", "jsonl"); len(lines) > 0 {
			if err := b.fetchRows(ctx, lines, dir); err != nil {
				return muster.TaskSpec{}, err
			}
			data := maps.Clone(mloc.Lookup(d.Spec, "data"))
			delete(data, "jsonl")
			data["path"], d.Spec["data"] = rowsFile, data
		}
	}
	t, err := mloc.ToMuster(d, "")
	if err != nil {
		return t, err
	}
	if checkpoint != nil {
		in := mloc.Object{}
		if err := mloc.Decode(t.Input, mloc.MaxMessage, &in); err != nil {
			return t, err
		}
		in["checkpoint"] = mloc.Object{"load": checkpoint}
		if t.Input, err = mloc.Encode(in); err != nil {
			return t, err
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) == 0 {
		return t, err
	}
	t.Files, err = b.client.UploadFolder(ctx, dir, nil)
	return t, err
}

// setDefaultModel names the model of a task that has none, as HF_MODEL and VLLM_MODEL do.
func (b *Bridge) setDefaultModel(s mloc.Object) {
	if mloc.Text(mloc.Lookup(s, "model", "source")["identifier"]) != "" {
		return
	}
	name := b.cfg.HFModel
	if on, _ := s["enforce_cpu"].(bool); !on && mloc.Lookup(s, "resources", "hardware", "gpu") != nil {
		name = cmp.Or(b.cfg.VLLMModel, name)
	}
	if name != "" {
		s["model"] = mloc.Merge(mloc.Lookup(s, "model"), mloc.Object{"source": mloc.Object{"identifier": name}})
	}
}

// fetchRows brings data.jsonl: a file of this machine, or one that is fetched, with the token of the host if it is the
// host's.
func (b *Bridge) fetchRows(ctx context.Context, lines mloc.Object, dir string) error {
	to := filepath.Join(dir, rowsFile)
	if p := mloc.Text(lines["path"]); p != "" {
		if from, ok := b.localPath(p); ok {
			return linkOrCopy(from, to)
		}
	}
	address := cmp.Or(mloc.Text(lines["download_url"]), mloc.Text(lines["url"]))
	if address == "" {
		return mloc.InvalidSpec("spec.data.jsonl: there is no file %q on this worker, and no url", mloc.Truncate(mloc.Text(lines["path"]), 200))
	}
	header := http.Header{}
	if b.cfg.Token != "" && b.cfg.BaseURL != "" && strings.HasPrefix(address, b.cfg.BaseURL+"/") {
		header.Set("Authorization", "Bearer "+b.cfg.Token)
	}
	return b.fetch(ctx, parseTimeout(lines["timeoutSec"], fetchTimeout), address, header, to, "spec.data.jsonl")
}

// fetchWeights brings checkpoint.load: a path of this machine, the folder of an earlier task's results, a url, or the address
// of an earlier task at a host, in this order. It returns the name in dir.
func (b *Bridge) fetchWeights(ctx context.Context, load mloc.Object, kind, dir string) (string, error) {
	id, file := mloc.Text(load["taskId"]), mloc.Text(load["filename"])
	if id != "" && !mloc.ValidID(id) || file != "" && !mloc.ValidFileName(file) {
		return "", mloc.InvalidSpec("spec.checkpoint.load.taskId or filename is not one")
	}
	names := []string{"final_model", "final_lora", "final_model.tar.gz", "final_lora.tar.gz"}
	if kind == "lora_sft" {
		names = []string{"final_lora", "final_model", "final_lora.tar.gz", "final_model.tar.gz"}
	}
	fallback := names[2]
	if file != "" {
		names = []string{file}
	}
	var candidates []string
	if p := mloc.Text(load["path"]); p != "" {
		candidates = append(candidates, p)
	}
	if id != "" {
		for _, name := range names {
			candidates = append(candidates, filepath.Join(b.cfg.Results, mloc.SafeID(id), name), filepath.Join(b.cfg.Results, mloc.SafeID(id), mloc.FolderArtifacts, name))
		}
	}
	for _, p := range candidates {
		if from, ok := b.localPath(p); ok {
			name := "weights-" + safeFile(filepath.Base(from))
			return name, linkOrCopy(from, filepath.Join(dir, name))
		}
	}
	address := mloc.Text(load["url"])
	if base := strings.TrimRight(cmp.Or(mloc.Text(load["base_url"]), b.cfg.BaseURL), "/"); address == "" && id != "" && base != "" {
		address = base + "/api/v1/results/" + url.PathEscape(id) + "/files/" + url.PathEscape(cmp.Or(file, fallback))
	}
	if address == "" {
		if p := mloc.Text(load["path"]); p != "" {
			return "", mloc.InvalidSpec("spec.checkpoint.load.path: there is no %s on this worker, or it may not be read (see --shared)", mloc.Truncate(p, 200))
		}
		return "", mloc.InvalidSpec("spec.checkpoint.load has no url, no path that exists, and no taskId with the address of a host (base_url or ORCHESTRATOR_BASE_URL)")
	}
	header, err := parseHeaders(load["headers"], "spec.checkpoint.load.headers")
	if err != nil {
		return "", err
	}
	name := archiveName(cmp.Or(file, urlFile(address)), mloc.Text(load["archive_format"]))
	return name, b.fetch(ctx, parseTimeout(load["timeoutSec"], fetchTimeout), address, header, filepath.Join(dir, name), "spec.checkpoint.load")
}

// urlFile returns the last part of an address.
func urlFile(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return path.Base(u.Path)
}

// archiveName gives an archive a name that says how it is packed.
func archiveName(name, format string) string {
	name = "weights-" + safeFile(name)
	known := []string{".tar.gz", ".tgz", ".zip", ".tar"}
	switch {
	case format == "zip", format == "tar":
		return name + "." + format
	case (format == "" || format == "auto") && slices.ContainsFunc(known, func(s string) bool { return strings.HasSuffix(name, s) }):
		return name
	default:
		return name + ".tar.gz"
	}
}

var unsafeInFile = lazyregexp.New("[^A-Za-z0-9._-]")

func safeFile(name string) string {
	return mloc.Truncate(unsafeInFile.Get().ReplaceAllString(name, "_"), 100)
}

// fetch fetches a file. A server that does not answer is tried a few times.
func (b *Bridge) fetch(ctx context.Context, idleTimeout time.Duration, address string, header http.Header, to, field string) error {
	var err error
	for n := range maxTries {
		if n > 0 {
			_ = backoff.Sleep(ctx, b.cfg.RetryDelay<<(n-1))
		}
		if err = b.http.fetch(ctx, idleTimeout, address, header, to); err == nil || ctx.Err() != nil {
			return cmp.Or(ctx.Err(), err)
		}
		if refusal, ok := errors.AsType[*statusError](err); ok && refusal.status < 500 || !ok && muster.CodeOf(err) != muster.Unavailable {
			break
		}
	}
	return mloc.InvalidSpec("%s: %s: %w", field, mloc.Truncate(address, 200), err)
}

// localPath returns the path of a file or folder of this machine that a task may use: any, or only below the folders that
// the owner named.
func (b *Bridge) localPath(p string) (string, bool) {
	if !filepath.IsAbs(p) {
		p = filepath.Join(b.cfg.Results, p)
	}
	found, err := filepath.EvalSymlinks(p)
	if err != nil {
		return "", false
	}
	return found, b.pathAllowed(found)
}

// pathAllowed says whether tasks may name a path. Links in it have been followed.
func (b *Bridge) pathAllowed(p string) bool {
	if b.cfg.AllowAnyPath {
		return true
	}
	for _, root := range append([]string{b.cfg.Results}, b.cfg.Shared...) {
		if in, err := filepath.Rel(resolveExisting(root), p); err == nil && filepath.IsLocal(in) {
			return true
		}
	}
	return false
}

// linkOrCopy puts a file or folder of localPath under another name: without copying it where the file system can.
func linkOrCopy(from, to string) error {
	err := filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		in, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		switch target := filepath.Join(to, in); {
		case d.IsDir():
			return os.MkdirAll(target, 0o700)
		case !d.Type().IsRegular():
			return nil // links may lead anywhere
		case os.Link(p, target) == nil: //nolint:gosec // the same person's folders
			return nil
		default:
			return copyFile(p, target)
		}
	})
	if err != nil {
		return muster.Errorf(muster.Invalid, "cannot read %s: %w", from, err)
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = out.ReadFrom(in)
	return cmp.Or(err, out.Close())
}

package mlocbridge

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// member is one task of a message: that which the message is about, or one that was merged into it.
type member struct {
	ID  string        `json:"id"`
	Doc mloc.Document `json:"doc"`
}

// members returns the task of a message and those that were merged into it.
func members(m mloc.TaskMessage) []member {
	out := []member{{ID: m.TaskID, Doc: m.Task}}
	for _, c := range m.MergedChildren {
		out = append(out, member{ID: c.TaskID, Doc: mloc.Document{APIVersion: m.Task.APIVersion, Kind: m.Task.Kind, Metadata: c.Metadata, Spec: c.Spec}})
	}
	return out
}

// maxMembers is how many tasks may be merged into one message.
const maxMembers = 64

// prepare makes the Muster job of a message: a stage for each of its tasks, without needs. What the tasks read from this
// machine or from the host is brought to Muster's server as files: the machines of the fleet may not reach either. It
// fails with InvalidSpec if Muster cannot do what a task says.
func (b *Bridge) prepare(ctx context.Context, m mloc.TaskMessage) (muster.Spec, error) {
	list := members(m)
	if len(list) > maxMembers {
		return muster.Spec{}, mloc.Cannot("%d tasks are merged into one: at most %d are taken", len(list)-1, maxMembers-1)
	}
	spec := muster.Spec{Name: jobName(m), Labels: map[string]string{"mloc/task": safeLabel(m.TaskID)}}
	for i, one := range list {
		t, err := b.stage(ctx, one)
		if err != nil {
			if i > 0 {
				err = muster.Errorf(muster.CodeOf(err), "task %s, merged into %s: %w", one.ID, m.TaskID, err)
			}
			return spec, err
		}
		t.Name = stageName(i)
		spec.Tasks = append(spec.Tasks, t)
	}
	return spec, nil
}

func stageName(i int) string {
	if i == 0 {
		return "task"
	}
	return "child-" + itoa(i)
}

// jobName is a task's name where it can be one of a job.
func jobName(m mloc.TaskMessage) string {
	name := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, mloc.Text(m.Task.Metadata["name"]))
	return mloc.Cut(cmp.Or(strings.TrimSpace(name), m.TaskID), muster.MaxNameSize)
}

func safeLabel(id string) string { return mloc.Cut(mloc.SafeID(id), muster.MaxNameSize) }

// stage makes the stage of one task.
func (b *Bridge) stage(ctx context.Context, one member) (muster.TaskSpec, error) {
	if _, err := destinationOf(one.Doc.Spec); err != nil {
		return muster.TaskSpec{}, err
	}
	if _, err := b.folder(one); err != nil {
		return muster.TaskSpec{}, err
	}
	if _, err := exportOf(one.Doc.Spec); err != nil {
		return muster.TaskSpec{}, err
	}
	switch kind := mloc.TaskType(one.Doc); kind {
	case "":
		return muster.TaskSpec{}, mloc.Cannot("the task has no spec.taskType")
	case "agent":
		return muster.TaskSpec{}, mloc.Cannot("this worker has no executor for taskType agent: Muster has no kind that runs agents with tools")
	case "rag":
		r, err := retrievalOf(one.Doc.Spec)
		if err != nil {
			return muster.TaskSpec{}, err
		}
		return r.stage(one.Doc.Spec)
	default:
		return b.direct(ctx, one)
	}
}

// direct makes the stage of a task whose type Muster has as a kind.
func (b *Bridge) direct(ctx context.Context, one member) (muster.TaskSpec, error) {
	d, kind := one.Doc, mloc.TaskType(one.Doc)
	d.Spec = maps.Clone(d.Spec)
	extra, brought := mloc.Object{}, map[string]string{} // fields of the input; names in the task's folder and files of this machine
	temporary := ""
	defer func() {
		if temporary != "" {
			_ = os.RemoveAll(temporary)
		}
	}()
	bring := func() (string, error) {
		if temporary != "" {
			return temporary, nil
		}
		var err error
		if temporary, err = os.MkdirTemp(b.temporary, "task-"); err != nil {
			return "", muster.Errorf(muster.Internal, "cannot make a folder for a task's files: %w", err)
		}
		return temporary, nil
	}
	switch kind {
	case "inference":
		delete(d.Spec, "postprocess") // done by the bridge
		b.usualModel(d.Spec)
	case "sft", "lora_sft", "ppo", "dpo":
		if load := mloc.Under(d.Spec, "checkpoint", "load"); len(load) > 0 {
			dir, err := bring()
			if err != nil {
				return muster.TaskSpec{}, err
			}
			name, err := b.weights(ctx, load, kind, dir, brought)
			if err != nil {
				return muster.TaskSpec{}, err
			}
			from := mloc.Object{"path": name}
			mloc.CopyFields(from, load, "subdir", "subdir")
			extra["checkpoint"] = mloc.Object{"load": from}
			delete(d.Spec, "checkpoint")
		}
		if lines := mloc.Under(d.Spec, "data", "jsonl"); len(lines) > 0 {
			dir, err := bring()
			if err != nil {
				return muster.TaskSpec{}, err
			}
			if err := b.rows(ctx, lines, dir); err != nil {
				return muster.TaskSpec{}, err
			}
			data := maps.Clone(mloc.Under(d.Spec, "data"))
			delete(data, "jsonl")
			data["path"], d.Spec["data"] = rowsFile, data
		}
	}
	t, err := mloc.ToMuster(d)
	if err != nil {
		return t, err
	}
	if len(extra) > 0 {
		in := mloc.Object{}
		if err := mloc.Decode(t.Input, mloc.MaxMessage, &in); err != nil {
			return t, err
		}
		maps.Copy(in, extra)
		if t.Input, err = mloc.Encode(in); err != nil {
			return t, err
		}
	}
	if temporary != "" {
		for name, from := range brought {
			if err := link(from, filepath.Join(temporary, name)); err != nil {
				return t, muster.Errorf(muster.Invalid, "cannot read %s: %w", from, err)
			}
		}
		if t.Files, err = b.client.UploadFolder(ctx, temporary, nil); err != nil {
			return t, err
		}
	}
	return t, nil
}

// usualModel names the model of a task that has none, as HF_MODEL and VLLM_MODEL do.
func (b *Bridge) usualModel(s mloc.Object) {
	if mloc.Text(mloc.Under(s, "model", "source")["identifier"]) != "" {
		return
	}
	name := b.cfg.HFModel
	if on, _ := s["enforce_cpu"].(bool); !on && mloc.Under(s, "resources", "hardware", "gpu") != nil {
		name = cmp.Or(b.cfg.VLLMModel, name)
	}
	if name == "" {
		return
	}
	model := maps.Clone(mloc.OrObject(mloc.Under(s, "model")))
	source := maps.Clone(mloc.OrObject(mloc.Under(model, "source")))
	source["identifier"], model["source"] = name, source
	s["model"] = model
}

// rowsFile is a data set of lines in the task's folder.
const rowsFile = "data.jsonl"

// rows brings data.jsonl: a file of this machine, or one that is fetched, with the token of the host if it is the
// host's.
func (b *Bridge) rows(ctx context.Context, lines mloc.Object, dir string) error {
	to := filepath.Join(dir, rowsFile)
	if p := mloc.Text(lines["path"]); p != "" {
		if from, ok := b.local(p); ok {
			return wrapRead(from, link(from, to))
		}
	}
	address := cmp.Or(mloc.Text(lines["download_url"]), mloc.Text(lines["url"]))
	if address == "" {
		return mloc.Cannot("spec.data.jsonl: there is no file %q on this worker, and no url", mloc.Cut(mloc.Text(lines["path"]), 200))
	}
	header := map[string]string{}
	if b.cfg.Token != "" && b.cfg.BaseURL != "" && strings.HasPrefix(address, strings.TrimRight(b.cfg.BaseURL, "/")+"/") {
		header["Authorization"] = "Bearer " + b.cfg.Token
	}
	return b.fetch(ctx, timeout(lines["timeoutSec"], fetchTimeout), address, header, to, "spec.data.jsonl")
}

func wrapRead(name string, err error) error {
	if err != nil {
		return muster.Errorf(muster.Invalid, "cannot read %s: %w", name, err)
	}
	return nil
}

// weights brings checkpoint.load: a path of this machine, the folder of an earlier task's results, a url, or the address
// of an earlier task at a host, in this order. It returns the name in the task's folder, and puts what is of this machine
// into brought.
func (b *Bridge) weights(ctx context.Context, load mloc.Object, kind, dir string, brought map[string]string) (string, error) {
	id, file := mloc.Text(load["taskId"]), mloc.Text(load["filename"])
	if id != "" && !mloc.GoodID(id) || file != "" && !mloc.GoodFile(file) {
		return "", mloc.Cannot("spec.checkpoint.load.taskId or filename is not one")
	}
	names := []string{"final_model", "final_lora", "final_model.tar.gz", "final_lora.tar.gz"}
	if kind == "lora_sft" {
		names = []string{"final_lora", "final_model", "final_lora.tar.gz", "final_model.tar.gz"}
	}
	usual := names[2]
	if file != "" {
		names = []string{file}
	}
	var places []string
	if p := mloc.Text(load["path"]); p != "" {
		places = append(places, p)
	}
	if id != "" {
		for _, name := range names {
			places = append(places, filepath.Join(b.cfg.Results, mloc.SafeID(id), name), filepath.Join(b.cfg.Results, mloc.SafeID(id), mloc.FolderArtifacts, name))
		}
	}
	for _, p := range places {
		if from, ok := b.local(p); ok {
			name := "weights-" + safeFile(filepath.Base(from))
			brought[name] = from
			return name, nil
		}
	}
	address := mloc.Text(load["url"])
	if base := strings.TrimRight(cmp.Or(mloc.Text(load["base_url"]), b.cfg.BaseURL), "/"); address == "" && id != "" && base != "" {
		address = base + "/api/v1/results/" + url.PathEscape(id) + "/files/" + url.PathEscape(cmp.Or(file, usual))
	}
	if address == "" {
		if p := mloc.Text(load["path"]); p != "" {
			return "", mloc.Cannot("spec.checkpoint.load.path: there is no %s on this worker, or it may not be read (see --shared)", mloc.Cut(p, 200))
		}
		return "", mloc.Cannot("spec.checkpoint.load has no url, no path that exists, and no taskId with the address of a host (base_url or ORCHESTRATOR_BASE_URL)")
	}
	header, err := headers(load["headers"], "spec.checkpoint.load.headers")
	if err != nil {
		return "", err
	}
	name := archiveName(cmp.Or(file, addressFile(address)), mloc.Text(load["archive_format"]))
	return name, b.fetch(ctx, timeout(load["timeoutSec"], fetchTimeout), address, header, filepath.Join(dir, name), "spec.checkpoint.load")
}

// addressFile returns the last part of an address.
func addressFile(address string) string {
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
	if slices.ContainsFunc(known, func(s string) bool { return strings.HasSuffix(name, s) }) && (format == "" || format == "auto") {
		return name
	}
	switch format {
	case "zip", "tar":
		return name + "." + format
	default:
		return name + ".tar.gz"
	}
}

// safeFile makes a name one of a file.
func safeFile(name string) string {
	return mloc.Cut(strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name), 100)
}

// fetch fetches a file. A server that does not answer is tried a few times.
func (b *Bridge) fetch(ctx context.Context, silence time.Duration, address string, header map[string]string, to, what string) error {
	var err error
	for n := range maxTried {
		if err = b.web.fetch(ctx, silence, address, header, to); err == nil {
			return nil
		}
		if no, ok := errors.AsType[*refused](err); ok && no.status < 500 || !ok && muster.CodeOf(err) != muster.Unavailable {
			break
		}
		if n+1 < maxTried {
			pause(ctx, b.cfg.Retry<<n)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return mloc.Cannot("%s: %s: %w", what, mloc.Cut(address, 200), err)
}

// local returns the path of a file or folder of this machine that a task may use: any, or only below the folders that
// the owner named.
func (b *Bridge) local(p string) (string, bool) {
	if !filepath.IsAbs(p) {
		p = filepath.Join(b.cfg.Results, p)
	}
	found, err := filepath.EvalSymlinks(p)
	if err != nil {
		return "", false
	}
	return found, b.allowed(found)
}

// allowed says whether tasks may name a path. Links in it have been followed.
func (b *Bridge) allowed(p string) bool {
	if b.cfg.AnyPath {
		return true
	}
	for _, root := range append([]string{b.cfg.Results}, b.cfg.Shared...) {
		if r, err := filepath.EvalSymlinks(root); err == nil {
			root = r
		}
		if in, err := filepath.Rel(root, p); err == nil && filepath.IsLocal(in) {
			return true
		}
	}
	return false
}

// link puts a file or folder under another name: without copying it where the file system can.
func link(from, to string) error {
	at, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !at.IsDir() {
		if os.Link(from, to) == nil {
			return nil
		}
		return copyFile(from, to)
	}
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		in, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		switch there := filepath.Join(to, in); {
		case d.IsDir():
			return os.MkdirAll(there, 0o700)
		case !d.Type().IsRegular():
			return nil // links may lead anywhere
		case os.Link(p, there) == nil: //nolint:gosec // the same person's folders
			return nil
		default:
			return copyFile(p, there)
		}
	})
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

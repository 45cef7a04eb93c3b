package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/crypto/ssh"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/follow"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/signedjob"
	"github.com/muster-dev/muster/internal/spec"
)

type rerunConfig struct {
	remote.QueryOptions
	set      []string
	from     string
	name     string
	priority *int
	follow   bool
	sign     signOptions
}

func (a *runner) rerunCommand() *cli.Command {
	c := &rerunConfig{sign: newSignOptions()}
	priority := app.Option{Name: "priority", Value: "int", Usage: "Priority of the new job, from 0 to 100 (default: that of the old one)"}
	return a.NewCommand(app.Command{
		Examples: []app.HelpRow{
			{Name: "muster rerun 17", Usage: "Submit job 17 again, as a new job"},
			{Name: "muster rerun 17 --set env.SEED=2 --set resources.cpus=4", Usage: "With other values of its spec"},
			{Name: "muster rerun 17 --set train.timeout=2h -f", Usage: "Change the stage train, and show the output"},
			{Name: "muster rerun 17 --from train --set train.env.LR=0.1", Usage: "Run train and what needs it again, with the results of the stages before it"},
		},
		Name: "rerun", Usage: "Submit jobs again as new jobs", Args: "JOB…", Complete: c.CompleteJobs(), Category: app.CategorySubmit,
		Flags: c.Flags(append(c.sign.flags(""),
			app.Option{Name: "set", Value: "path=value", Usage: "Change a field of the spec, such as env.SEED=2; null removes it; may be repeated"}.RepeatedVar(&c.set),
			app.Option{Name: "from", Value: "stage", Usage: "Run only this stage and those that need it, with the results and artifacts of the others"}.StringVar(&c.from),
			app.Option{Name: "name", Usage: "Name of the new job (default: that of the old one)"}.StringVar(&c.name),
			app.Var(priority, &c.priority, parsePriority, app.FormatOptional[int]),
			app.Option{Name: "follow", Short: "f", Usage: "Show the output of the new jobs and exit with the status of the first that fails"}.BoolVar(&c.follow))...),
		Description: "The new job has the spec of the old one, with the uploaded files. A path is that of an error message: name, labels.NAME, tasks[0].env.NAME, or " +
			"train.env.NAME in the stage train; in a job with a single stage, env.NAME is sufficient. A value is JSON or a text. " +
			"With --from the tasks of the other stages appear as succeeded, with the task that they are from, if they succeeded and are not changed; otherwise they run, too. " +
			"Stages before that of --from must have succeeded. To run only the tasks that failed, use muster retry.",
		Run: func(ctx context.Context, args []string) error { return a.rerun(ctx, c, args) },
	})
}

func parsePriority(s string) (*int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < muster.MinPriority || n > muster.MaxPriority {
		return nil, fmt.Errorf("must be an integer from %d to %d", muster.MinPriority, muster.MaxPriority)
	}
	return &n, nil
}

func (a *runner) rerun(ctx context.Context, c *rerunConfig, args []string) error {
	if c.follow && !c.Human() {
		return muster.Errorf(muster.Invalid, "--follow cannot be combined with --output or --quiet")
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	ids, err := remote.ResolveJobs(ctx, server, args)
	if err != nil {
		return err
	}
	specs, signs := make([]*muster.Spec, len(ids)), make([]signOptions, len(ids))
	for i, id := range ids { // nothing is submitted if one of them is wrong
		if specs[i], signs[i], err = c.newSpec(ctx, server, id); err != nil {
			return err
		}
	}
	sigs, release := follow.Signals()
	defer release()
	var jobs []muster.Job
	for i, s := range specs {
		submitted, err := a.submitAll(ctx, server, []document{{spec: s, dir: ".", options: c.submitOptions(ids[i])}}, signs[i])
		if err != nil {
			return explainRerunError(ids[i], err)
		}
		jobs = append(jobs, submitted...)
		if c.Human() {
			if c.follow {
				a.Messagef("job %s is a rerun of job %s", submitted[0].ID, ids[i])
			} else if _, err := fmt.Fprintf(a.Out, "job %s: rerun of job %s\n", submitted[0].ID, ids[i]); err != nil {
				return err
			}
		}
	}
	if c.follow {
		return a.followAll(ctx, server, jobs, sigs)
	}
	return app.PrintItems(a.App, c.OutputOptions, jobs, jobID, func(muster.Job) error { return nil })
}

// submitOptions returns how to submit a job that runs a job again.
func (c *rerunConfig) submitOptions(of muster.JobID) client.SubmitOptions {
	if c.from == "" {
		return client.SubmitOptions{}
	}
	return client.SubmitOptions{Rerun: of, From: c.from}
}

// explainRerunError rewords the error for uploaded files that the server has deleted.
func explainRerunError(id muster.JobID, err error) error {
	if e, ok := errors.AsType[*muster.Error](err); ok {
		for _, f := range e.Fields {
			if strings.HasSuffix(f.Path, "files") && strings.Contains(f.Message, "was not uploaded") {
				return muster.Errorf(muster.InvalidSpec, "the files of job %s were deleted: submit its directory again", id)
			}
		}
	}
	return err
}

// newSpec returns the spec of a job with the changes, and how to sign it.
func (c *rerunConfig) newSpec(ctx context.Context, server *client.Client, id muster.JobID) (*muster.Spec, signOptions, error) {
	job, err := server.Job(ctx, id)
	if err != nil {
		return nil, signOptions{}, err
	}
	if job.Spec == nil {
		return nil, signOptions{}, muster.Errorf(muster.Forbidden, "the spec of job %s is not visible to this key", id)
	}
	sign := c.sign
	if sign.key != "" {
		if sign.sameAs, err = takeSigned(job.Spec); err != nil {
			return nil, signOptions{}, muster.Errorf(muster.Forbidden, "job %s cannot be signed again: %w: submit its file with --sign, or run muster rerun without a key", id, err)
		}
	}
	if err := checkUploaded(job.Spec); err != nil {
		return nil, signOptions{}, muster.Errorf(muster.Invalid, "job %s: %w", id, err)
	}
	s, err := changeSpec(ctx, job.Spec, c.set)
	if err != nil {
		return nil, signOptions{}, err
	}
	s.Signature = nil // of the old job, for which alone it is valid
	if c.name != "" {
		s.Name = c.name
	}
	if c.priority != nil {
		s.Priority = c.priority
	}
	return s, sign, nil
}

// takeSigned replaces what tasks run in a spec that the server sent by what was signed, so that the server cannot choose what is signed now,
// and returns the key of the signature.
func takeSigned(s *muster.Spec) (ssh.PublicKey, error) {
	if s.Signature == nil {
		return nil, errors.New("it has no signature, and the server could have changed it")
	}
	signed, err := signedjob.Open(s.Signature, time.Now())
	if err != nil {
		return nil, err
	}
	s.Name, s.Project, s.Tasks = signed.Name, signed.Project, signed.Tasks
	return signed.Key, nil
}

// checkUploaded returns an error if a spec that the server sent names files of this machine, which would be uploaded.
func checkUploaded(s *muster.Spec) error {
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if isLocalDir(t.Files) || isLocalDir(t.Stdin) || t.Script != nil && t.Script.File != "" {
			return fmt.Errorf("the server's spec names a file of this machine in stage %s: nothing was uploaded", muster.Truncate(t.Name))
		}
	}
	return nil
}

// changeSpec returns a copy of a spec with the changes PATH=VALUE.
func changeSpec(ctx context.Context, s *muster.Spec, changes []string) (*muster.Spec, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "encode spec: %w", err)
	}
	if len(changes) > 0 {
		var tree map[string]any
		if err := json.Unmarshal(data, &tree); err != nil {
			return nil, muster.Errorf(muster.Internal, "decode spec: %w", err)
		}
		for _, change := range changes {
			path, value, ok := strings.Cut(change, "=")
			if !ok || path == "" {
				return nil, muster.Errorf(muster.Invalid, "--set %s: write PATH=VALUE, such as env.SEED=2", muster.Truncate(change))
			}
			if err := setField(tree, specPath(s, path), value); err != nil {
				return nil, muster.Errorf(muster.Invalid, "--set %s: %w", muster.Truncate(change), err)
			}
		}
		if data, err = json.Marshal(tree); err != nil {
			return nil, muster.Errorf(muster.Internal, "encode spec: %w", err)
		}
	}
	specs, err := spec.ParseContext(ctx, data, "the spec", nil)
	if e, ok := errors.AsType[*muster.Error](err); ok {
		fields := slices.Clone(e.Fields)
		for i := range fields {
			fields[i].Line, fields[i].Column = 0, 0 // of a document that the user has not seen
		}
		return nil, &muster.Error{Code: e.Code, Message: "the changed spec is invalid", Fields: fields}
	}
	if err != nil {
		return nil, err
	}
	return specs[0], nil
}

// specPath returns the keys of a path from the root of a spec: that of a field of the job, of a stage by name, or of the only stage.
func specPath(s *muster.Spec, path string) []string {
	keys := strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(path), ".")
	if keys[0] == "tasks" || slices.Contains(jobFieldNames, keys[0]) {
		return keys
	}
	for i := range s.Tasks {
		if s.Tasks[i].Name == keys[0] && len(keys) > 1 {
			return slices.Concat([]string{"tasks", strconv.Itoa(i)}, keys[1:])
		}
	}
	if len(s.Tasks) == 1 {
		return slices.Concat([]string{"tasks", "0"}, keys)
	}
	return keys
}

// setField sets a field of a decoded document to a value, which is JSON or a text, or removes it if the value is null.
func setField(tree map[string]any, keys []string, value string) error {
	var v any
	if d := json.NewDecoder(strings.NewReader(value)); true {
		d.UseNumber()
		if err := d.Decode(&v); err != nil || d.More() {
			v = value
		}
	}
	var node any = tree
	for i, key := range keys {
		last := i == len(keys)-1
		switch parent := node.(type) {
		case map[string]any:
			switch {
			case key == "":
				return muster.Errorf(muster.Invalid, "a part of the path is empty")
			case i == 0 && !knownField(parent, key):
				return muster.Errorf(muster.NotFound, "no field or stage %s: begin with a stage, such as %s", muster.Truncate(key), stageHint(tree))
			case last && v == nil:
				delete(parent, key)
			case last && isText(parent[key], keys):
				parent[key] = value
			case last:
				parent[key] = v
			case parent[key] == nil:
				parent[key] = map[string]any{}
			}
			node = parent[key]
		case []any:
			n, err := strconv.Atoi(key)
			if err != nil || n < 0 || n >= len(parent) {
				return muster.Errorf(muster.NotFound, "%s has no element %s: it has %d", strings.Join(keys[:i], "."), muster.Truncate(key), len(parent))
			}
			if last {
				parent[n] = v
			}
			node = parent[n]
		default:
			return muster.Errorf(muster.Invalid, "%s is not an object", strings.Join(keys[:i], "."))
		}
	}
	return nil
}

// isText reports whether a field has a text, so that its new value is one, too: it is one now, or is a variable or a label.
func isText(now any, keys []string) bool {
	_, text := now.(string)
	return text || len(keys) > 1 && slices.Contains([]string{"env", "labels"}, keys[len(keys)-2])
}

// jobFieldNames are the fields of a job that may be absent from its spec.
var jobFieldNames = []string{"name", "project", "priority", "labels", "notify", "on_failure", "max_failures"}

func knownField(spec map[string]any, key string) bool {
	return spec[key] != nil || slices.Contains(jobFieldNames, key)
}

func stageHint(tree map[string]any) string {
	if stages, ok := tree["tasks"].([]any); ok && len(stages) > 0 {
		if stage, ok := stages[0].(map[string]any); ok {
			if name, ok := stage["name"].(string); ok {
				return name + ".env.SEED"
			}
		}
	}
	return "tasks[0].env.SEED"
}

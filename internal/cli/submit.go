package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/follow"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/kind"
	"github.com/muster-dev/muster/internal/spec"
)

type submitConfig struct {
	remote.QueryOptions
	params map[string]string
	follow bool
	sign   signOptions
}

func (a *runner) submitCommand() *cli.Command {
	c := &submitConfig{sign: newSignOptions()}
	return a.NewCommand(app.Command{
		Examples: []app.HelpRow{
			{Name: "muster submit job.yaml", Usage: "Submit the jobs of a file"},
			{Name: "muster submit --follow job.yaml", Usage: "Show their output until they end"},
			{Name: "muster submit train.yaml -p lr=0.01", Usage: "Give the parameter lr of the spec a value"},
			{Name: "muster job 17 -o json | jq .spec | muster submit -", Usage: "Submit the spec of job 17 again, as muster rerun does"},
		},
		Name: "submit", Usage: "Submit job specs", Args: "FILE…", Category: app.CategorySubmit,
		Flags: c.Flags(append(c.sign.flags(""), paramOption(&c.params),
			app.Option{Name: "follow", Short: "f", Usage: "Show the output of the jobs and exit with the status of the first that fails"}.BoolVar(&c.follow))...),
		Description: "A file is YAML or JSON, with one or more documents; - means standard input. Local paths in a spec (script.file, files) " +
			"are relative to its file and are uploaded with the job. If any file is invalid, nothing is submitted.",
		Run: func(ctx context.Context, args []string) error { return a.submit(ctx, c, args) },
	})
}

func paramOption(params *map[string]string) cli.Flag {
	return app.Option{Name: "param", Short: "p", Usage: "Value of a parameter that the spec declares under params; may be repeated"}.MapVar(params)
}

func (a *runner) submit(ctx context.Context, c *submitConfig, args []string) error {
	if c.follow && !c.Human() {
		return muster.Errorf(muster.Invalid, "--follow cannot be combined with --output or --quiet")
	}
	docs, err := a.loadSpecs(ctx, args, c.params)
	if err != nil {
		return err
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	sigs, release := follow.Signals()
	defer release()
	jobs, err := a.submitAll(ctx, server, docs, c.sign)
	if err != nil {
		return err
	}
	if c.follow {
		return a.followAll(ctx, server, jobs, sigs)
	}
	return app.PrintItems(a.App, c.OutputOptions, jobs, jobID, func(j muster.Job) error {
		_, err := fmt.Fprintf(a.Out, "job %s: %s, %s\n", j.ID, term.Sanitize(j.Name), term.Plural(j.Counts.Total(), "task"))
		return err
	})
}

// followAll follows jobs one after the other, and returns the status of the first that fails.
func (a *runner) followAll(ctx context.Context, server *client.Client, jobs []muster.Job, sigs chan os.Signal) error {
	var first error
	for _, job := range jobs {
		a.Messagef("job %s: %s", job.ID, term.Sanitize(job.Name))
		err := follow.Follow(ctx, a.App, server, job, follow.SummaryFull, sigs)
		if _, ended := errors.AsType[*app.StatusError](err); err != nil && !ended {
			return err
		}
		if len(jobs) > 1 {
			err = a.printJobFailure(job, err)
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// printJobFailure prints the failure of one of several followed jobs and returns its status without a message.
func (a *runner) printJobFailure(job muster.Job, err error) error {
	ended, ok := errors.AsType[*app.StatusError](err)
	if !ok {
		return err
	}
	name := fmt.Sprintf("job %s (%s)", job.ID, term.Sanitize(job.Name))
	if ended.Err == nil {
		a.PrintError(fmt.Errorf("%s failed: exit code %d", name, ended.Status))
	} else {
		a.PrintError(fmt.Errorf("%s: %w", name, ended.Err))
	}
	return &app.StatusError{Status: ended.Status}
}

// submitAll uploads the directories of all documents, signs the documents and then submits them. SIGINT ends it only
// between two submissions, so that their outcome is known.
func (a *runner) submitAll(ctx context.Context, server *client.Client, docs []document, sign signOptions) ([]muster.Job, error) {
	signer, release, err := a.openSigner(ctx, sign, server, docs)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, forceCtx, stop := app.ShutdownContexts(ctx)
	defer stop()
	for _, doc := range docs {
		if len(docs) > 1 && doc.needsServerValidation() {
			if _, err := a.planDocument(ctx, server, doc); err != nil {
				return nil, err
			}
		}
	}
	if err := a.uploadFiles(ctx, server, docs); err != nil {
		return nil, err
	}
	var jobs []muster.Job
	var ids []muster.JobID
	for _, doc := range docs {
		job, err := muster.Job{}, ctx.Err()
		if err == nil {
			err = signer.sign(doc.spec)
		}
		if err == nil {
			err = a.WaitForResponse(ctx, func() error {
				job, err = server.Submit(forceCtx, doc.spec, doc.options)
				return err
			})
		}
		if err != nil {
			if len(ids) > 0 {
				a.Messagef("submitted before the error: %s", app.JoinComma(ids))
			}
			return nil, a.locateErrors(ctx, doc, rejected, err)
		}
		jobs, ids = append(jobs, job), append(ids, job.ID)
	}
	return jobs, nil
}

// uploadFiles uploads the directories and the standard input of all documents, and names them in their specs.
func (a *runner) uploadFiles(ctx context.Context, server *client.Client, docs []document) error {
	uploaded := map[string]string{} // directory → its name in a spec
	for _, doc := range docs {
		for i := range doc.spec.Tasks {
			t := &doc.spec.Tasks[i]
			if t.Stdin != "" && !strings.HasPrefix(t.Stdin, "sha256:") {
				f, err := os.Open(doc.resolve(t.Stdin))
				if err != nil {
					return muster.Errorf(muster.Invalid, "read standard input: %w", err)
				}
				t.Stdin, err = a.uploadStdin(ctx, server, f)
				_ = f.Close()
				if err != nil {
					return err
				}
			}
			if !isLocalDir(t.Files) {
				continue
			}
			dir := doc.resolve(t.Files)
			if uploaded[dir] == "" {
				var err error
				if uploaded[dir], err = a.uploadDir(ctx, server, dir); err != nil {
					return err
				}
			}
			t.Files = uploaded[dir]
		}
	}
	return nil
}

// needsServerValidation reports whether only the server can validate the document: a stage has a kind with an input.
func (d document) needsServerValidation() bool {
	return slices.ContainsFunc(d.spec.Normalize().Tasks, func(t muster.TaskSpec) bool { return !slices.Contains(kind.Core(), t.Kind) })
}

func (a *runner) uploadDir(ctx context.Context, server *client.Client, dir string) (string, error) {
	bar := app.NewTransferBar("uploading "+filepath.Base(dir), -1)
	var name string
	err := a.RunWithStatus(ctx, bar.Line, func(ctx context.Context) error {
		var err error
		name, err = server.UploadFolder(ctx, dir, func(p client.UploadProgress) {
			bar.Total.Store(p.ToSend)
			bar.Done.Store(p.Sent)
		})
		return err
	})
	return name, err
}

// stdinName stands for the standard input in a spec that is checked before its upload.
const stdinName = "-"

// uploadStdin uploads what r has for the standard input of tasks, and returns its name in a spec.
func (a *runner) uploadStdin(ctx context.Context, server *client.Client, r io.Reader) (string, error) {
	bar := app.NewTransferBar("uploading standard input", -1)
	var name string
	err := a.RunWithStatus(ctx, bar.Line, func(ctx context.Context) error {
		var err error
		name, err = server.UploadStdin(ctx, r, bar.Done.Store)
		return err
	})
	return name, err
}

// document is one job spec of a file.
type document struct {
	spec   *muster.Spec
	dir    string // the directory of local paths
	name   string // of the file in messages
	source []byte // content of the file; nil without a file
	params map[string]string
	index  int // of the document in the file, from 0

	options client.SubmitOptions
}

// rejected begins the error for field errors of the server.
const rejected = "the server rejected"

// locateErrors prints field errors with their positions in the file. It returns others unchanged. problem begins the sentence about the job.
func (a *runner) locateErrors(ctx context.Context, d document, problem string, err error) error {
	e, ok := errors.AsType[*muster.Error](err)
	if !ok || e.Code != muster.InvalidSpec || len(e.Fields) == 0 {
		return err
	}
	if d.source == nil {
		short := &muster.Error{Code: e.Code, Message: problem + " the job", Fields: slices.Clone(e.Fields)}
		for i := range short.Fields {
			f := &short.Fields[i]
			f.Path, f.Line, f.Column = strings.TrimPrefix(f.Path, "tasks[0]."), 0, 0
		}
		return short
	}
	n := -1
	_, located := spec.ParseParams(ctx, d.source, d.name, d.params, func(*muster.Spec) []muster.FieldError {
		if n++; n == d.index {
			return e.Fields
		}
		return nil
	})
	if located == nil {
		return err
	}
	a.Messagef("%s", strings.TrimRight(spec.Format(located, string(d.source)), "\n"))
	return &app.StatusError{Status: app.ExitInvalidSpec, Err: fmt.Errorf("%s %s: fix it and submit it again", problem, d.name)}
}

// loadSpecs reads the documents of all files and inlines script files. It prints the errors of all files,
// with their positions, before it returns an error.
func (a *runner) loadSpecs(ctx context.Context, names []string, params map[string]string) ([]document, error) {
	if len(names) == 0 {
		return nil, muster.Errorf(muster.Invalid, "missing file: use the path of a job spec, or - for standard input")
	}
	var docs []document
	var invalid []string
	for _, name := range names {
		source, err := a.readSpec(name)
		if err != nil {
			return nil, err
		}
		parsed, err := parseSpecs(ctx, name, source, params)
		if err != nil {
			if muster.CodeOf(err) != muster.InvalidSpec {
				return nil, err
			}
			if name == "-" {
				name = "standard input"
			}
			invalid = append(invalid, name)
			a.Messagef("%s", strings.TrimRight(spec.Format(err, string(source)), "\n"))
			continue
		}
		docs = append(docs, parsed...)
	}
	if len(invalid) > 0 {
		return nil, &app.StatusError{Status: app.ExitInvalidSpec, Err: fmt.Errorf("nothing was submitted: fix %s first", strings.Join(invalid, ", "))}
	}
	specs := make([]*muster.Spec, len(docs))
	for i, d := range docs {
		specs[i] = d.spec
	}
	return docs, spec.CheckParams(params, specs)
}

// readSpec reads a file, at most muster.MaxSpecSize + 1 bytes.
func (a *runner) readSpec(name string) ([]byte, error) {
	in := a.In
	if name != "-" {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			return nil, muster.Errorf(muster.NotFound, "no such file: %s", name)
		}
		if err != nil {
			return nil, muster.Errorf(muster.Invalid, "read spec: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, muster.MaxSpecSize+1))
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "read %s: %w", name, err)
	}
	return data, nil
}

func parseSpecs(ctx context.Context, name string, source []byte, params map[string]string) ([]document, error) {
	label, dir := name, filepath.Dir(name)
	if name == "-" {
		label, dir = "standard input", "."
	}
	specs, err := spec.ParseParams(ctx, source, label, params, func(s *muster.Spec) []muster.FieldError {
		return document{spec: s, dir: dir}.inlineLocalFiles()
	})
	if err != nil {
		return nil, err
	}
	docs := make([]document, len(specs))
	for i, s := range specs {
		docs[i] = document{spec: s, dir: dir, name: label, source: source, params: params, index: i}
	}
	return docs, nil
}

// isLocalDir reports whether the files field of a stage is a local directory.
func isLocalDir(files string) bool { return files != "" && !strings.HasPrefix(files, "sha256:") }

func (d document) resolve(name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(d.dir, filepath.FromSlash(name))
}

// inlineLocalFiles inlines script files, checks local directories, and returns the errors.
func (d document) inlineLocalFiles() []muster.FieldError {
	var problems []muster.FieldError
	for i := range d.spec.Tasks {
		t := &d.spec.Tasks[i]
		prefix := fmt.Sprintf("tasks[%d].", i)
		if t.Script != nil && t.Script.File != "" {
			script, err := d.inlineScript(t.Script)
			if err != nil {
				problems = append(problems, muster.FieldError{Path: prefix + "script.file", Message: err.Error()})
			} else {
				t.Script = script
			}
		}
		if isLocalDir(t.Files) {
			if f := d.checkFiles(t); f.Message != "" {
				f.Path = prefix + f.Path
				problems = append(problems, f)
			}
		}
	}
	return problems
}

// checkFiles returns the error in the directory of a stage, one without a message if there is none.
func (d document) checkFiles(t *muster.TaskSpec) muster.FieldError {
	dir := d.resolve(t.Files)
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return muster.FieldError{Path: "files", Message: fmt.Sprintf("cannot read the directory: %v", err)}
	case !info.IsDir():
		return muster.FieldError{Path: "files", Message: dir + " is a file: use its directory"}
	case t.Python == nil:
		return muster.FieldError{}
	}
	missing := func(at, name string) muster.FieldError {
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name))); err == nil {
			return muster.FieldError{}
		}
		return muster.FieldError{Path: at, Message: fmt.Sprintf("no file %s in the directory %s", name, dir), Hint: "the path is relative to files"}
	}
	if p := t.Python.Project; p != "" {
		if e := missing("python.project", path.Join(p, "pyproject.toml")); e.Message != "" {
			return e
		}
	}
	for i, pkg := range t.Python.Packages {
		if name, _, _ := strings.Cut(pkg, "["); muster.IsLocalPackage(pkg) {
			if e := missing(fmt.Sprintf("python.packages[%d]", i), path.Clean(name)); e.Message != "" {
				return e
			}
		}
	}
	if t.Python.Requirements == "" {
		return muster.FieldError{}
	}
	return missing("python.requirements", t.Python.Requirements)
}

// inlineScript returns a script with the text of its file, and the interpreter for the extension of its name.
func (d document) inlineScript(s *muster.Script) (*muster.Script, error) {
	name := d.resolve(s.File)
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	if info.Size() > muster.MaxSpecSize {
		return nil, fmt.Errorf("the script %s has %s, the limit is %s: upload its directory with files, and start it with run",
			name, muster.Size(info.Size()), muster.Size(muster.MaxSpecSize))
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("the script %s is empty", name)
	}
	inlined := *s
	inlined.Text, inlined.File = string(text), ""
	if len(inlined.Interpreter) == 0 && !strings.HasPrefix(inlined.Text, "#!") {
		inlined.Interpreter = interpreter(path.Ext(filepath.ToSlash(name)))
	}
	return &inlined, nil
}

// interpreter returns the interpreter of scripts with an extension; nil means sh.
func interpreter(extension string) []string {
	program := map[string]string{".py": "python3", ".bash": "bash", ".js": "node", ".rb": "ruby", ".pl": "perl", ".r": "Rscript"}[strings.ToLower(extension)]
	if program == "" {
		return nil
	}
	return []string{program}
}

type planConfig struct {
	remote.QueryOptions
	params map[string]string
}

func (a *runner) planCommand() *cli.Command {
	c := &planConfig{}
	return a.NewCommand(app.Command{
		Name: "plan", Usage: "Validate job specs and show where their tasks would run", Args: "FILE…", Category: app.CategorySubmit,
		Flags: c.Flags(paramOption(&c.params)), Description: "The exit status is 1 if no worker can run one of the stages.",
		Run: func(ctx context.Context, args []string) error { return a.plan(ctx, c, args) },
	})
}

// jobPlan is the plan of a document, with the first task of each stage.
type jobPlan struct {
	Name   string      `json:"name"`
	Stages []stagePlan `json:"stages"`
}

// stagePlan is the explanation of a stage's first task, and its tasks.
type stagePlan struct {
	muster.Explanation
	Tasks    int      `json:"tasks"`
	Elements []string `json:"elements,omitempty"` // the first maxPlanElements
}

const maxPlanElements = 100

func newStagePlan(t *muster.TaskSpec, x muster.Explanation) stagePlan {
	p := stagePlan{Explanation: x, Tasks: t.Size()}
	if t.HasElements() {
		for i := range min(p.Tasks, maxPlanElements) {
			p.Elements = append(p.Elements, t.Element(i))
		}
	}
	return p
}

// describeTasks describes the tasks of a stage with elements: their number, the first and the last one, or all with -o wide.
func (p *stagePlan) describeTasks(t *muster.TaskSpec, wide bool) string {
	switch last := len(p.Elements) - 1; {
	case last < 0:
		return ""
	case wide && p.Tasks > maxPlanElements:
		return fmt.Sprintf("%d: %s, %d more", p.Tasks, strings.Join(p.Elements, "; "), p.Tasks-maxPlanElements)
	case wide || last < 2:
		return fmt.Sprintf("%d: %s", p.Tasks, strings.Join(p.Elements, "; "))
	default:
		return fmt.Sprintf("%d: %s … %s", p.Tasks, p.Elements[0], t.Element(p.Tasks-1))
	}
}

// planDocument returns the server's plan for a document.
func (a *runner) planDocument(ctx context.Context, server *client.Client, doc document) (jobPlan, error) {
	spec := doc.spec.Normalize() // before files is cleared, because it determines the kind
	for i := range spec.Tasks {
		if isLocalDir(spec.Tasks[i].Files) {
			spec.Tasks[i].Files = ""
		}
	}
	stages, err := server.Plan(ctx, spec)
	if err != nil {
		return jobPlan{}, a.locateErrors(ctx, doc, rejected, err)
	}
	plan := jobPlan{Name: spec.Name}
	for i, x := range stages[:min(len(stages), len(spec.Tasks))] {
		plan.Stages = append(plan.Stages, newStagePlan(&spec.Tasks[i], x))
	}
	return plan, nil
}

func (a *runner) plan(ctx context.Context, c *planConfig, args []string) error {
	docs, err := a.loadSpecs(ctx, args, c.params)
	if err != nil {
		return err
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	all := make([]jobPlan, len(docs))
	for i, doc := range docs {
		if all[i], err = a.planDocument(ctx, server, doc); err != nil {
			return err
		}
	}
	doc := 0
	err = app.PrintItems(a.App, c.OutputOptions, all, func(p jobPlan) string { return p.Name }, app.WithBlankLines(a.App, func(p jobPlan) error {
		spec := docs[doc].spec
		doc++
		return a.drawPlan(p, spec, c.Wide())
	}))
	if err != nil {
		return err
	}
	for _, p := range all {
		for i := range p.Stages {
			if x := &p.Stages[i]; x.Unschedulable() {
				return &app.StatusError{Status: app.ExitFailed, Err: fmt.Errorf("stage %s: %s", term.Sanitize(x.Stage), term.Sanitize(x.Summary))}
			}
		}
	}
	return nil
}

func (a *runner) drawPlan(p jobPlan, spec *muster.Spec, wide bool) error {
	fmt.Fprintln(a.Out, a.Out.Paint(term.Bold, term.Sanitize(p.Name)))
	total := 0
	for i := range p.Stages {
		x := &p.Stages[i]
		total += x.Tasks
		if err := a.drawExplanation(explanationView{Explanation: x.Explanation, tasks: x.describeTasks(&spec.Tasks[i], wide)}, wide); err != nil {
			return err
		}
	}
	if len(p.Stages) > 1 && total > len(p.Stages) {
		a.Messagef("%d tasks in %d stages", total, len(p.Stages))
	}
	return nil
}

// Package importer has the command that translates job files of other systems.
package importer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/dialect/trainforge"
	"github.com/muster-dev/muster/internal/kind"
	"github.com/muster-dev/muster/internal/spec"
)

type runner struct{ *app.App }

type config struct {
	format string
	output string
	check  bool
	force  bool
}

// The formats.
const (
	formatMLOC       = "mloc"
	formatTrainForge = "trainforge"
)

// Command returns the command import.
func Command(a *app.App) *cli.Command {
	r, c := &runner{a}, &config{}
	return a.NewCommand(app.Command{
		Examples: []app.HelpRow{
			{Name: "muster import pipeline.yaml -o job.yaml", Usage: "Translate a file of MLOC"},
			{Name: "muster import digits/trainforge.yaml | muster submit -", Usage: "Run a project of TrainForge"},
			{Name: "muster import --check pipeline.yaml", Usage: "Show what has no equivalent"},
		},
		Name: "import", Usage: "Translate a job file of MLOC or TrainForge into a job spec", Args: "FILE", Category: app.CategorySubmit, Complete: app.Files,
		Flags: []cli.Flag{
			app.Option{Name: "output", Short: "o", Value: "path", Usage: "Write the job spec to this file (default: standard output)"}.StringVar(&c.output),
			app.Option{Name: "force", Short: "f", Usage: "Replace the file if it exists"}.BoolVar(&c.force),
			app.Option{Name: "format", Usage: "Format of the file: mloc or trainforge (default: detected)"}.EnumVar(&c.format, formatMLOC, formatTrainForge),
			app.Option{Name: "check", Usage: "Print no job spec, only what has no equivalent"}.BoolVar(&c.check),
		},
		Description: "The file of MLOC is a YAML document with a task, stages or a graph; that of TrainForge is the trainforge.yaml of a project, whose directory becomes the files of the job. - means standard input. " +
			"Each field without an equivalent is listed on standard error, with what to do; the job spec is without it, and the exit status is 6. No server is contacted.",
		Run: func(ctx context.Context, args []string) error { return r.run(ctx, c, args) },
	})
}

func (r *runner) run(ctx context.Context, c *config, args []string) error {
	if len(args) != 1 {
		return muster.Errorf(muster.Invalid, "give one file of MLOC or TrainForge, or - for standard input")
	}
	data, err := r.read(args[0])
	if err != nil {
		return err
	}
	s, lost, err := translate(c, args[0], data) //nolint:contextcheck // the file is small
	if err != nil {
		return err
	}
	text, err := app.YAML(s)
	if err != nil {
		return err
	}
	catalog := kind.NewCatalog()
	if _, err := spec.ParseContext(ctx, text, "the translation of "+args[0], func(s *muster.Spec) (wrong []muster.FieldError) {
		for i := range s.Tasks {
			for _, f := range catalog.Check(&s.Tasks[i]) {
				f.Path = fmt.Sprintf("tasks[%d].%s", i, f.Path)
				wrong = append(wrong, f)
			}
		}
		return wrong
	}); err != nil {
		return err
	}
	if err := r.write(c, text); err != nil || len(lost) == 0 {
		return err
	}
	fields := "1 field has"
	if n := len(lost); n > 1 {
		fields = fmt.Sprintf("%d fields have", n)
	}
	return &muster.Error{Code: muster.InvalidSpec, Message: fmt.Sprintf("%s: %s no equivalent, and the job spec is without", args[0], fields), Fields: lost}
}

// maxFile is how much of a file is read, in bytes: more than the formats permit.
const maxFile = mloc.MaxYAML + 1

func (r *runner) read(name string) ([]byte, error) {
	in := r.In
	if name != "-" {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			return nil, muster.Errorf(muster.NotFound, "no such file: %s", name)
		}
		if err != nil {
			return nil, muster.Errorf(muster.Invalid, "%w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFile))
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "read %s: %w", name, err)
	}
	return data, nil
}

// translate returns the job spec of a file, and its fields without an equivalent.
func translate(c *config, name string, data []byte) (*muster.Spec, []muster.FieldError, error) {
	switch format := cmp.Or(c.format, detect(data)); format {
	case formatMLOC:
		return mloc.Import(data)
	case formatTrainForge:
		dir := "."
		if name != "-" {
			dir = filepath.Dir(name)
		}
		s, lost, err := trainforge.Import(data, dir)
		if err != nil {
			return nil, nil, err
		}
		s.Tasks[0].Files, err = relativeTo(c.output, dir)
		return s, lost, err
	default:
		return nil, nil, muster.Errorf(muster.InvalidSpec, "%s is neither a file of MLOC (apiVersion: mloc/v1) nor the trainforge.yaml of a project: use --format if it is", name)
	}
}

// relativeTo returns a directory as a job spec in the file output, or in the current directory if that is "", names it.
func relativeTo(output, dir string) (string, error) {
	from, err := filepath.Abs(filepath.Dir(cmp.Or(output, "./x")))
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return "", muster.Errorf(muster.Invalid, "%w", err)
	}
	if rel, err := filepath.Rel(from, dir); err == nil {
		return filepath.ToSlash(rel), nil
	}
	return dir, nil // on another volume
}

// detect returns the format of a file, or "" if it is unknown or the file cannot be read.
func detect(data []byte) string {
	var raw json.RawMessage
	var top struct {
		Version json.RawMessage `json:"apiVersion"`
		Project json.RawMessage `json:"project"`
		Tasks   json.RawMessage `json:"tasks"`
	}
	if spec.DecodeObject(data, "the file", &raw, func() []muster.FieldError { return nil }) != nil || json.Unmarshal(raw, &top) != nil {
		return ""
	}
	switch {
	case top.Version != nil:
		return formatMLOC
	case len(top.Project) > 0 && top.Project[0] == '{' && top.Tasks == nil:
		return formatTrainForge
	default:
		return ""
	}
}

func (r *runner) write(c *config, text []byte) error {
	switch {
	case c.check:
		return nil
	case c.output == "":
		_, err := r.Out.Write(text)
		return err
	}
	if _, err := os.Lstat(c.output); err == nil && !c.force {
		return muster.Errorf(muster.Conflict, "%s already exists: use --force to replace it", c.output)
	}
	if err := atomicfile.Write(c.output, text, 0o644); err != nil {
		return muster.Errorf(muster.Invalid, "write %s: %w", c.output, err)
	}
	return nil
}

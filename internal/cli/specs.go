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

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/spec"
)

// document is one job spec of a file.
type document struct {
	spec   *muster.Spec
	dir    string // what the names of local files are relative to
	name   string // of the file in messages
	source []byte // of the file; nil if there is none
	n      int    // which of its documents this is, from 0
}

// refused says what the server found wrong with the document where it stands in the file. Other errors stay as they are.
func (a *app) refused(ctx context.Context, d document, err error) error {
	e, ok := errors.AsType[*muster.Error](err)
	if !ok || e.Code != muster.InvalidSpec || len(e.Fields) == 0 {
		return err
	}
	if d.source == nil {
		told := &muster.Error{Code: e.Code, Message: "the server does not take the job", Fields: slices.Clone(e.Fields)}
		for i := range told.Fields {
			f := &told.Fields[i]
			f.Path, f.Line, f.Column = strings.TrimPrefix(f.Path, "tasks[0]."), 0, 0
		}
		return told
	}
	n := -1
	_, placed := spec.ParseContext(ctx, d.source, d.name, func(*muster.Spec) []muster.FieldError {
		if n++; n == d.n {
			return e.Fields
		}
		return nil
	})
	if placed == nil {
		return err
	}
	a.Say("%s", strings.TrimRight(spec.Format(placed, string(d.source)), "\n"))
	return &frame.StatusError{Status: frame.ExitInvalidSpec, Err: fmt.Errorf("the server does not take it: mend %s first", d.name)}
}

// loadSpecs reads every document of every file and replaces script files by
// their text. It says everything that is wrong, with its place, before it returns
// an error.
func (a *app) loadSpecs(ctx context.Context, names []string) ([]document, error) {
	if len(names) == 0 {
		return nil, muster.Errorf(muster.Invalid, "no file is named: write the name of a job spec, or - for standard input")
	}
	var docs []document
	var bad []string
	for _, name := range names {
		source, err := a.readSpec(name)
		if err != nil {
			return nil, err
		}
		found, err := parseSpecs(ctx, name, source)
		if err != nil {
			if muster.CodeOf(err) != muster.InvalidSpec {
				return nil, err
			}
			bad = append(bad, name)
			a.Say("%s", strings.TrimRight(spec.Format(err, string(source)), "\n"))
			continue
		}
		docs = append(docs, found...)
	}
	if len(bad) > 0 {
		return nil, &frame.StatusError{Status: frame.ExitInvalidSpec, Err: fmt.Errorf("nothing was sent to the server: mend %s first", strings.Join(bad, ", "))}
	}
	return docs, nil
}

// readSpec reads a file, at most one byte more than a spec may have.
func (a *app) readSpec(name string) ([]byte, error) {
	in := a.In
	if name != "-" {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			return nil, muster.Errorf(muster.NotFound, "there is no file %s", name)
		}
		if err != nil {
			return nil, muster.Errorf(muster.Invalid, "the spec cannot be read: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, muster.MaxSpecSize+1))
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "%s cannot be read: %w", name, err)
	}
	return data, nil
}

func parseSpecs(ctx context.Context, name string, source []byte) ([]document, error) {
	shown, dir := name, filepath.Dir(name)
	if name == "-" {
		shown, dir = "standard input", "."
	}
	specs, err := spec.ParseContext(ctx, source, shown, func(s *muster.Spec) []muster.FieldError {
		return document{spec: s, dir: dir}.check()
	})
	if err != nil {
		return nil, err
	}
	docs := make([]document, len(specs))
	for i, s := range specs {
		docs[i] = document{spec: s, dir: dir, name: shown, source: source, n: i}
	}
	return docs, nil
}

// isLocal says whether the files field of a stage names a folder of this
// machine.
func isLocal(files string) bool { return files != "" && !strings.HasPrefix(files, "sha256:") }

func (d document) path(name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(d.dir, filepath.FromSlash(name))
}

// check takes what the spec names of this machine into the spec, as far as that
// needs no server, and returns what is wrong with it.
func (d document) check() []muster.FieldError {
	var wrong []muster.FieldError
	for i := range d.spec.Tasks {
		t := &d.spec.Tasks[i]
		at := fmt.Sprintf("tasks[%d].", i)
		if t.Script != nil && t.Script.File != "" {
			script, err := d.script(t.Script)
			if err != nil {
				wrong = append(wrong, muster.FieldError{Path: at + "script.file", Message: err.Error()})
			} else {
				t.Script = script
			}
		}
		if isLocal(t.Files) {
			if f := d.folder(t); f.Message != "" {
				f.Path = at + f.Path
				wrong = append(wrong, f)
			}
		}
	}
	return wrong
}

// folder says what is wrong with the folder of a stage.
func (d document) folder(t *muster.TaskSpec) muster.FieldError {
	dir := d.path(t.Files)
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return muster.FieldError{Path: "files", Message: fmt.Sprintf("the folder cannot be read: %v", err)}
	case !info.IsDir():
		return muster.FieldError{Path: "files", Message: dir + " is a file: name the folder that it is in"}
	case t.Python == nil || t.Python.Requirements == "":
		return muster.FieldError{}
	}
	if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(t.Python.Requirements))); err != nil {
		return muster.FieldError{
			Path: "python.requirements", Message: fmt.Sprintf("the folder %s has no file %s", dir, t.Python.Requirements),
			Hint: "the name is relative to the folder in files",
		}
	}
	return muster.FieldError{}
}

// script returns a script with the text of its file. What its name said of the
// language is kept as the interpreter.
func (d document) script(s *muster.Script) (*muster.Script, error) {
	name := d.path(s.File)
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("the script cannot be read: %w", err)
	}
	if info.Size() > muster.MaxSpecSize {
		return nil, fmt.Errorf("%s has %s, but a script in a spec may have %s: bring it along in a folder with files, and name it in run",
			name, muster.Size(info.Size()), muster.Size(muster.MaxSpecSize))
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("the script cannot be read: %w", err)
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("the script %s is empty", name)
	}
	whole := *s
	whole.Text, whole.File = string(text), ""
	if len(whole.Interpreter) == 0 && !strings.HasPrefix(whole.Text, "#!") {
		whole.Interpreter = interpreter(path.Ext(filepath.ToSlash(name)))
	}
	return &whole, nil
}

// interpreter returns what runs scripts with a suffix; nil means sh.
func interpreter(suffix string) []string {
	for _, known := range [][]string{{".py", "python3"}, {".bash", "bash"}, {".js", "node"}, {".rb", "ruby"}, {".pl", "perl"}, {".r", "Rscript"}} {
		if strings.EqualFold(suffix, known[0]) {
			return slices.Clone(known[1:])
		}
	}
	return nil
}

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
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/spec"
)

// document is one job spec of a file.
type document struct {
	spec   *muster.Spec
	dir    string // what the names of local files are relative to
	name   string // of the file in messages
	source []byte // of the file; nil if there is none
	index  int    // which of its documents this is, from 0
}

// locateErrors says what the server found wrong with the document where it stands in the file. Other errors stay as they are.
func (a *runner) locateErrors(ctx context.Context, d document, err error) error {
	e, ok := errors.AsType[*muster.Error](err)
	if !ok || e.Code != muster.InvalidSpec || len(e.Fields) == 0 {
		return err
	}
	if d.source == nil {
		rejected := &muster.Error{Code: e.Code, Message: "the server does not take the job", Fields: slices.Clone(e.Fields)}
		for i := range rejected.Fields {
			f := &rejected.Fields[i]
			f.Path, f.Line, f.Column = strings.TrimPrefix(f.Path, "tasks[0]."), 0, 0
		}
		return rejected
	}
	n := -1
	_, located := spec.ParseContext(ctx, d.source, d.name, func(*muster.Spec) []muster.FieldError {
		if n++; n == d.index {
			return e.Fields
		}
		return nil
	})
	if located == nil {
		return err
	}
	a.Messagef("%s", strings.TrimRight(spec.Format(located, string(d.source)), "\n"))
	return &app.StatusError{Status: app.ExitInvalidSpec, Err: fmt.Errorf("the server does not take it: mend %s first", d.name)}
}

// loadSpecs reads every document of every file and replaces script files by
// their text. It says everything that is wrong, with its place, before it returns
// an error.
func (a *runner) loadSpecs(ctx context.Context, names []string) ([]document, error) {
	if len(names) == 0 {
		return nil, muster.Errorf(muster.Invalid, "no file is named: write the name of a job spec, or - for standard input")
	}
	var docs []document
	var invalid []string
	for _, name := range names {
		source, err := a.readSpec(name)
		if err != nil {
			return nil, err
		}
		parsed, err := parseSpecs(ctx, name, source)
		if err != nil {
			if muster.CodeOf(err) != muster.InvalidSpec {
				return nil, err
			}
			invalid = append(invalid, name)
			a.Messagef("%s", strings.TrimRight(spec.Format(err, string(source)), "\n"))
			continue
		}
		docs = append(docs, parsed...)
	}
	if len(invalid) > 0 {
		return nil, &app.StatusError{Status: app.ExitInvalidSpec, Err: fmt.Errorf("nothing was sent to the server: mend %s first", strings.Join(invalid, ", "))}
	}
	return docs, nil
}

// readSpec reads a file, at most one byte more than a spec may have.
func (a *runner) readSpec(name string) ([]byte, error) {
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
	label, dir := name, filepath.Dir(name)
	if name == "-" {
		label, dir = "standard input", "."
	}
	specs, err := spec.ParseContext(ctx, source, label, func(s *muster.Spec) []muster.FieldError {
		return document{spec: s, dir: dir}.inlineLocalFiles()
	})
	if err != nil {
		return nil, err
	}
	docs := make([]document, len(specs))
	for i, s := range specs {
		docs[i] = document{spec: s, dir: dir, name: label, source: source, index: i}
	}
	return docs, nil
}

// isLocalDir says whether the files field of a stage names a folder of this
// machine.
func isLocalDir(files string) bool { return files != "" && !strings.HasPrefix(files, "sha256:") }

func (d document) resolve(name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(d.dir, filepath.FromSlash(name))
}

// inlineLocalFiles takes what the spec names of this machine into the spec, as far as that
// needs no server, and returns what is wrong with it.
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

// checkFiles says what is wrong with the folder of a stage.
func (d document) checkFiles(t *muster.TaskSpec) muster.FieldError {
	dir := d.resolve(t.Files)
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

// inlineScript returns a script with the text of its file. What its name said of the
// language is kept as the interpreter.
func (d document) inlineScript(s *muster.Script) (*muster.Script, error) {
	name := d.resolve(s.File)
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
	inlined := *s
	inlined.Text, inlined.File = string(text), ""
	if len(inlined.Interpreter) == 0 && !strings.HasPrefix(inlined.Text, "#!") {
		inlined.Interpreter = interpreter(path.Ext(filepath.ToSlash(name)))
	}
	return &inlined, nil
}

// interpreter returns what runs scripts with a suffix; nil means sh.
func interpreter(suffix string) []string {
	for _, entry := range [][]string{{".py", "python3"}, {".bash", "bash"}, {".js", "node"}, {".rb", "ruby"}, {".pl", "perl"}, {".r", "Rscript"}} {
		if strings.EqualFold(suffix, entry[0]) {
			return slices.Clone(entry[1:])
		}
	}
	return nil
}

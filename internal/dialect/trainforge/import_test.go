package trainforge

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/specvalidate"
	"github.com/muster-dev/muster/internal/testkit"
)

func TestImport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"fit.py": "print()", "requirements.txt": "numpy\n", "empty.txt": "# none\n"} {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for name, c := range map[string]struct {
		doc   string
		want  string // the command and the environment
		lost  []string
		check func(*muster.TaskSpec) bool
	}{
		"a project": {
			"project: {name: digits}\ntraining: {script: fit.py}\nresources: {gpu: 1, cpu: 2, memory: 4Gi}\nenvironment: {python_version: 3.10}", "python3 fit.py", nil,
			func(s *muster.TaskSpec) bool {
				return s.Resources.GPUs.Count == 1 && s.Resources.CPUs == 2 && s.Resources.Memory == 4<<30 && s.Python != nil && s.Python.Version == "3.10" && s.Python.Requirements == "requirements.txt"
			},
		},
		"a command, and no requirements": {
			"project: {name: digits}\ntraining: {script: python fit.py --epochs 3, requirements: empty.txt}", "python3 fit.py --epochs 3", nil,
			func(s *muster.TaskSpec) bool { return s.Python == nil && s.Resources == muster.Request{} },
		},
		"an image": {
			"project: {name: digits, description: d}\ntraining: {script: fit.py, requirements: empty.txt, epochs: 5}\nenvironment: {base_image: 'python:3.12', python_version: '3.9'}\nresources: {gpu: true}\nnotify: {a: b}", "python3 fit.py",
			[]string{"notify", "project.description", "training.epochs", "resources.gpu", "environment.python_version"},
			func(s *muster.TaskSpec) bool {
				return s.Image == "python:3.12" && s.Isolation == muster.IsolationAuto && s.Resources.GPUs.Count == 0
			},
		},
	} {
		s, lost, err := Import([]byte(c.doc), dir)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var paths []string
		for _, f := range lost {
			paths = append(paths, f.Path)
			if f.Message == "" || f.Hint == "" {
				t.Errorf("%s: %+v does not say what to do", name, f)
			}
		}
		task := &s.Tasks[0]
		if s.Name != "digits" || len(s.Labels) > 0 || task.Files != dir || strings.Join(task.Run.Argv, " ") != c.want || strings.Join(paths, " ") != strings.Join(c.lost, " ") || !c.check(task) {
			t.Errorf("%s: %+v, %q", name, task, paths)
		}
		if wrong := specvalidate.Spec(s); len(wrong) > 0 {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}

func TestImportOfAnInvalidProject(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for doc, want := range map[string]string{
		"": "", "a: [": "", "training: {script: fit.py}": "Project name is required",
		"project: {name: p}\ntraining: {script: fit.py}":          "the training script fit.py is not in the project",
		"project: {name: p}\ntraining: {script: ../../etc/x.py}":  "is not in the project",
		"project: {name: p}\nresources: {memory: much}":           "resources.memory",
		"project: {name: " + strings.Repeat("a", MaxImport) + "}": "at most",
	} {
		_, _, err := Import([]byte(doc), dir)
		if e, ok := errors.AsType[*muster.Error](err); !ok || e.Code != muster.InvalidSpec && e.Code != muster.TooLarge || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v", doc, err)
		}
	}
}

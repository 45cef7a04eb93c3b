package trainforge

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
)

// byInit is the file of "trainforge init", as JSON.
const byInit = `{"environment":{"base_image":"pytorch/pytorch:latest","python_version":"3.9"},"project":{"description":"AI training project created with TrainForge","name":"p"},
	"resources":{"cpu":2,"gpu":1,"memory":"4Gi"},"training":{"requirements":"requirements.txt","script":"train.py"}}`

func TestProjectsBecomeJobs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config  string
		files   map[string]string
		gpus    bool // a worker has one
		members int
		refused string
		check   func(*muster.TaskSpec) bool
	}{
		"a program": {
			config: `{"project":{"name":"p"},"training":{"script":"a/fit.py"}}`, files: map[string]string{"a/fit.py": ""},
			check: func(s *muster.TaskSpec) bool {
				return slices.Equal(s.Run.Argv, []string{"python3", "a/fit.py"}) && s.Image == "" && s.Python == nil && s.Resources.GPUs.Count == 0 && s.Resources.CPUs == 0
			},
		},
		"what it asks for": {
			config: `{"project":{"name":"p"},"resources":{"gpu":2,"cpu":1.5,"memory":"4Gi"}}`, files: map[string]string{"train.py": ""},
			check: func(s *muster.TaskSpec) bool {
				return s.Resources.GPUs.Count == 2 && s.Resources.CPUs == 1.5 && s.Resources.Memory == 4<<30
			},
		},
		"packages": {
			config: `{"project":{"name":"p"}}`, files: map[string]string{"train.py": "", "requirements.txt": "# none of torch\nnumpy\n"},
			check: func(s *muster.TaskSpec) bool { return s.Python != nil && s.Python.Requirements == "requirements.txt" },
		},
		"no packages but comments": {
			config: `{"project":{"name":"p"}}`, files: map[string]string{"train.py": "", "requirements.txt": "# none\n\n"},
			check: func(s *muster.TaskSpec) bool { return s.Python == nil },
		},
		"a container where there is an engine": {
			config: `{"project":{"name":"p"},"environment":{"base_image":"pytorch/pytorch:2"}}`, files: map[string]string{"train.py": ""},
			check: func(s *muster.TaskSpec) bool {
				return s.Image == "pytorch/pytorch:2" && s.Isolation == muster.IsolationAuto && slices.Equal(s.Run.Argv, []string{"python3", "train.py"})
			},
		},
		"a container with packages": {
			config: `{"project":{"name":"p"},"training":{"script":"it's.py"},"environment":{"base_image":"python:3"}}`,
			files:  map[string]string{"it's.py": "", "requirements.txt": "numpy"},
			check: func(s *muster.TaskSpec) bool {
				return s.Python == nil && strings.Contains(s.Run.Shell, "pip install") && strings.HasSuffix(s.Run.Shell, `exec python3 'it'\''s.py'`)
			},
		},
		"a distributed one": {
			config: `{"project":{"name":"p"}}`, files: map[string]string{"train.py": ""}, members: 3,
			check: func(s *muster.TaskSpec) bool { return s.Gang != nil && s.Gang.Size == 3 },
		},
		"what trainforge init writes, without a GPU": {
			config: byInit, files: map[string]string{"train.py": ""},
			check: func(s *muster.TaskSpec) bool {
				return s.Resources.GPUs.Count == 0 && s.Resources.CPUs == 0 && s.Resources.Memory == 0 && s.Python == nil && s.Image == "pytorch/pytorch:latest" &&
					slices.Equal(s.Run.Argv, []string{"python3", "train.py"})
			},
		},
		"what trainforge init writes, with a GPU": {
			config: byInit, files: map[string]string{"train.py": ""}, gpus: true,
			check: func(s *muster.TaskSpec) bool { return s.Resources.GPUs.Count == 1 && s.Resources.CPUs == 0 },
		},
		"what trainforge submit guesses": {
			config: `{"project":{"name":"p"},"training":{"setup_command":"","script":"train.py --epochs ${n}"},"resources":{"gpu":true}}`, files: map[string]string{"train.py": ""},
			check: func(s *muster.TaskSpec) bool {
				return s.Resources.GPUs.Count == 0 && slices.Equal(s.Run.Argv, []string{"python3", "train.py", "--epochs", "$${n}"})
			},
		},
		"no GPU": {
			config: `{"project":{"name":"p"},"resources":{"gpu":false,"cpu":"1"}}`, files: map[string]string{"train.py": ""}, gpus: true,
			check: func(s *muster.TaskSpec) bool { return s.Resources.GPUs.Count == 0 && s.Resources.CPUs == 1 },
		},
		"the program that worker C would run": {
			config: `{"project":{"name":"p"}}`, files: map[string]string{"main.py": "", "a.py": ""},
			check: func(s *muster.TaskSpec) bool { return slices.Equal(s.Run.Argv, []string{"python3", "main.py"}) },
		},
		"no such program": {config: `{"project":{"name":"p"},"training":{"script":"fit.py"}}`, files: map[string]string{"train.py": ""}, refused: "fit.py is not in the project"},
		"a program of the machine": {
			config: `{"project":{"name":"p"},"training":{"script":"/bin/sh"}}`, files: map[string]string{"train.py": ""}, refused: "is not in the project",
		},
		"no program":      {config: `{"project":{"name":"p"}}`, files: map[string]string{"main.txt": ""}, refused: "no Python program"},
		"no requirements": {config: `{"project":{"name":"p"},"training":{"requirements":"r.txt"}}`, files: map[string]string{"train.py": ""}, refused: "r.txt is not in the project"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for path, text := range c.files {
				full := filepath.Join(dir, path)
				if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			conf, err := parseConfig(c.config)
			if err != nil {
				t.Fatal(err)
			}
			spec, err := projectSpec(dir, conf, c.gpus, c.members)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("it is refused with %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s := &spec.Tasks[0]; spec.Name != "p" || s.Kind != muster.KindScript || !c.check(s) {
				t.Errorf("%+v", s)
			}
		})
	}
}

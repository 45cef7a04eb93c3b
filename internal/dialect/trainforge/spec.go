package trainforge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/dialect/trainforge/archive"
)

// defaultPrograms are the programs that worker C looks for, in this order; then it takes any.
var defaultPrograms = []string{"train.py", "main.py", "run.py"} //nolint:gochecknoglobals // constants

// defaultOutputs are what is kept of a project: folders by their names, and the files that the worker for Kaggle uploads.
var defaultOutputs = []string{ //nolint:gochecknoglobals // constants
	"outputs/**", "results/**", "checkpoints/**", "models/**", "*.pth", "*.pt", "*.h5", "*.pkl", "*.json",
}

// projectSpec makes a job of an unpacked project. gpus says whether a worker has a GPU: then those that TrainForge's tools ask for by default are asked for,
// too. members is the size of a distributed job, else 0.
func projectSpec(dir string, conf *config, gpus bool, members int) (*muster.Spec, error) {
	request, err := conf.Resources.request(gpus)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	argv, err := findProgram(root, conf.Training.Script)
	if err != nil {
		return nil, err
	}
	t := muster.TaskSpec{
		Name: "train", Kind: muster.KindScript, Resources: request, Run: &muster.Command{Argv: []string{"python3"}},
		Env: map[string]string{}, Outputs: slices.Clone(defaultOutputs),
	}
	for _, arg := range argv {
		t.Run.Argv = append(t.Run.Argv, escape(arg))
	}
	requirements := cmp.Or(conf.Training.Requirements, defaultRequirements)
	switch b, found, err := readFile(root, requirements); {
	case err != nil:
		return nil, err
	case !found && requirements != defaultRequirements:
		return nil, muster.Errorf(muster.Invalid, "the file of requirements %s is not in the project", lenient.Text(requirements, 200))
	case !hasRequirements(b): // or it is not there: TrainForge's tools name it always
		requirements = ""
	}
	image := conf.Environment.BaseImage
	switch {
	case image != "":
		t.Image, t.Isolation = image, muster.IsolationAuto
		if requirements != "" { // an environment of Muster's is for processes only; this works with both
			t.Run = &muster.Command{Shell: "python3 -m pip install --quiet --disable-pip-version-check --target .trainforge-packages -r " + quote(requirements) +
				` && PYTHONPATH="$PWD/.trainforge-packages${PYTHONPATH:+:$PYTHONPATH}"` + execPython + quote(argv...)}
			t.Run.Shell = escape(t.Run.Shell)
		}
	case requirements != "":
		t.Python = &muster.Python{Requirements: requirements}
	}
	if members > 0 {
		t.Gang = &muster.Gang{Size: members, OnLoss: muster.GangEnd}
	}
	return &muster.Spec{Name: lenient.Text(conf.Project.Name, 200), Tasks: []muster.TaskSpec{t}, Labels: map[string]string{systemLabel: Name}}, nil
}

const (
	defaultRequirements = "requirements.txt"
	execPython          = " exec python3 " // before a program and its arguments
)

// readFile returns what a file of the project holds, and whether it is there.
func readFile(root *os.Root, name string) (text []byte, found bool, err error) {
	clean, err := archive.Path("training.requirements", name)
	if err != nil {
		return nil, false, err
	}
	text, err = root.ReadFile(filepath.FromSlash(clean))
	return text, err == nil, nil
}

// findProgram returns the path of a project's program, and its arguments. script is what the job names: a file, or a command with one. Where it
// names nothing, or what TrainForge's tools name by default and is not there, it is the program that worker C would run.
func findProgram(root *os.Root, script string) ([]string, error) {
	if name := findFile(root, cmp.Or(script, defaultPrograms[0])); name != "" {
		return []string{name}, nil
	}
	words := strings.Fields(script)
	if len(words) > 1 && (words[0] == "python" || words[0] == "python3") {
		words = words[1:]
	}
	if len(words) > 0 {
		if name := findFile(root, words[0]); name != "" {
			return append([]string{name}, words[1:]...), nil
		}
	}
	if script != "" && !slices.Contains(defaultPrograms, script) {
		return nil, muster.Errorf(muster.Invalid, "the training script %s is not in the project", lenient.Text(script, 200))
	}
	list, _ := fs.Glob(root.FS(), "*.py") // the pattern is right
	for _, name := range slices.Concat(defaultPrograms, list) {
		if findFile(root, name) != "" {
			return []string{name}, nil
		}
	}
	return nil, muster.Errorf(muster.Invalid, "there is no Python program in the project")
}

// findFile returns the clean path of a file of the project, "" if there is none of this name.
func findFile(root *os.Root, name string) string {
	clean, err := archive.Path("training.script", name)
	if err != nil {
		return ""
	}
	if info, err := root.Stat(filepath.FromSlash(clean)); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return clean
}

// hasRequirements reports whether a requirements.txt has more than comments.
func hasRequirements(b []byte) bool {
	for line := range bytes.Lines(b) {
		if line := bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return true
		}
	}
	return false
}

// quote writes words for sh.
func quote(words ...string) string {
	quoted := make([]string, len(words))
	for i, s := range words {
		quoted[i] = "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// escape keeps Muster from reading a reference in a text.
func escape(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// jobConfig is the job's config, with what the job itself says where it says nothing.
func jobConfig(j *job) *config {
	conf := &config{}
	if len(j.Config) == 0 || json.Unmarshal(j.Config, conf) != nil {
		conf = &config{Resources: j.Resources}
	}
	conf.Project.Name = cmp.Or(strings.TrimSpace(cmp.Or(conf.Project.Name, j.Project)), "trainforge")
	conf.Training.Script = cmp.Or(conf.Training.Script, j.Script)
	return conf
}

// dropMissing makes a config one that TrainForge's own workers would run: where its program or its requirements are not there, they take another one, and none.
func (c *config) dropMissing(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if _, found, err := readFile(root, cmp.Or(c.Training.Requirements, defaultRequirements)); err != nil || !found {
		c.Training.Requirements = ""
	}
	if _, err := findProgram(root, c.Training.Script); err != nil {
		c.Training.Script = ""
	}
	return nil
}

// unfitReason says why the workers cannot run a job, "" if they can.
func unfitReason(j *job, c *bridge.Capacity) string {
	q, err := jobConfig(j).Resources.request(len(c.Resources.GPUs) > 0)
	if err != nil {
		return err.Error()
	}
	gpus, cpus, memory := 0, 0.0, muster.Size(0) // the most of a worker
	for _, w := range c.Workers {
		gpus, cpus, memory = max(gpus, len(w.Resources.GPUs)), max(cpus, w.Resources.CPUs), max(memory, w.Resources.Memory)
	}
	switch {
	case q.GPUs.Count > gpus:
		return fmt.Sprintf("it asks for %d GPUs, and no worker has more than %d", q.GPUs.Count, gpus)
	case q.CPUs > cpus:
		return fmt.Sprintf("it asks for %g cores, and no worker has more than %g", q.CPUs, cpus)
	case q.Memory > memory:
		return fmt.Sprintf("it asks for %s of memory, and no worker has more than %s", q.Memory, memory)
	}
	return ""
}

// applyTo starts the program as worker C does in a distributed job.
func (d *dist) applyTo(t *muster.TaskSpec) {
	rank, size, port := strconv.Itoa(d.Rank), strconv.Itoa(d.WorldSize), strconv.Itoa(d.MasterPort)
	launch := []string{"-m", "torch.distributed.run", "--nproc_per_node=1", "--nnodes=" + size, "--node_rank=" + rank, "--master_addr=" + d.MasterAddr, "--master_port=" + port}
	if argv := t.Run.Argv; len(argv) > 1 {
		t.Run = &muster.Command{Argv: slices.Concat(argv[:1], launch, argv[1:])}
	} else {
		head, tail, _ := strings.Cut(t.Run.Shell, execPython)
		t.Run = &muster.Command{Shell: head + execPython + quote(launch...) + " " + tail}
	}
	maps.Copy(t.Env, map[string]string{"MASTER_ADDR": d.MasterAddr, "MASTER_PORT": port, "NODE_RANK": rank, "WORLD_SIZE": size})
}

// Package project makes projects of TrainForge of Muster's tasks: archives and folders with a program, runner.py, that runs the task's command and writes what Muster is
// to know to its output.
package project

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/dialect/trainforge/archive"
)

//go:embed runner.py
var runner []byte

// What a project has.
const (
	Runner     = "train.py"              // the program, which every worker of TrainForge would run
	MetaDir    = ".trainforge"           // the program's own files: folders leave out .muster when they travel
	OutputFile = MetaDir + "/output.log" // what a program with a file for it writes
	TaskDir    = "task"                  // the task's files

	taskFile = MetaDir + "/task.json"

	aliveInterval = 30 // seconds
	uploadTries   = 5
)

// MaxBytes is what a project's archive may hold, in bytes of files.
const MaxBytes = 100 << 20

// Limits are what a project may unpack to: it may be compressed to a tenth.
var Limits = archive.Limits{Files: 20_000, Bytes: 10 * MaxBytes} //nolint:gochecknoglobals // constants

// runnerConfig is what the runner reads: see runner.py.
type runnerConfig struct {
	JobID   string            `json:"job_id"`
	URL     string            `json:"url"` // of the server, where TRAINFORGE_API_URL does not say it
	Log     string            `json:"log"` // file or stdout
	Argv    []string          `json:"argv"`
	Shell   string            `json:"shell"`
	Env     map[string]string `json:"env"`
	GangEnv map[string]string `json:"gang_env"`
	Outputs []string          `json:"outputs"`
	Python  string            `json:"python_version"`
	Timeout float64           `json:"timeout_seconds"`
	Signal  string            `json:"kill_signal"`
	Grace   float64           `json:"grace_seconds"`
	Alive   float64           `json:"alive_seconds"`
	Tries   int               `json:"upload_tries"`
}

// Project is a task as a folder for TrainForge's workers.
type Project struct {
	config       runnerConfig
	folder       string            // of the task's files and inputs
	files        map[string][]byte // beside them
	requirements []byte            // for workers that install packages
}

// New describes a task. id is the job's, and url that of the server for workers without the variable TRAINFORGE_API_URL. With toFile the program writes its
// output to a file. folder has its files and inputs. devices are the numbers by which its worker knows the GPUs of
// the grant. The errors are run.TaskErrors.
func New(t *run.Task, id, url, folder string, devices []string, toFile bool) (*Project, error) {
	s := t.Spec
	p := &Project{folder: folder, files: map[string][]byte{}, config: runnerConfig{
		JobID: id, URL: url, Log: "stdout", Env: environment(t, devices), GangEnv: map[string]string{}, Outputs: append([]string{}, s.Outputs...),
		Timeout: s.Timeout.Std().Seconds(), Signal: cmp.Or(s.Kill.Signal, muster.DefaultKillSignal), Grace: s.Kill.Grace.Or(muster.DefaultKillGrace).Std().Seconds(),
		Alive: aliveInterval, Tries: uploadTries,
	}}
	if toFile {
		p.config.Log = "file"
	}
	if g := t.Gang; g != nil {
		rank, size, port := strconv.Itoa(g.Rank), strconv.Itoa(g.Size), strconv.Itoa(g.Port)
		p.config.GangEnv = map[string]string{"RANK": rank, "LOCAL_RANK": "0", "WORLD_SIZE": size, "MASTER_ADDR": g.Master, "MASTER_PORT": port}
	}
	switch {
	case s.Script != nil:
		if err := p.addScript(s.Script); err != nil {
			return nil, err
		}
	case s.Run == nil:
		return nil, run.Failf(muster.TaskInvalid, "the task has nothing that a TrainForge worker can run")
	case len(s.Run.Argv) > 0:
		p.config.Argv = s.Run.Argv
	default:
		p.config.Shell = s.Run.Shell
	}
	return p, p.addRequirements(s.Python)
}

// environment returns what Muster tells a task by variables, and those of its spec.
func environment(t *run.Task, devices []string) map[string]string {
	s, env := t.Spec, map[string]string{}
	maps.Copy(env, s.Env)
	maps.DeleteFunc(env, func(name, _ string) bool { return strings.HasPrefix(name, "MUSTER_") && name != muster.EnvItem })
	rank, size := "0", "1"
	if g := t.Gang; g != nil {
		rank, size = strconv.Itoa(g.Rank), strconv.Itoa(g.Size)
		env["MUSTER_MASTER_ADDR"], env["MUSTER_MASTER_PORT"] = g.Master, strconv.Itoa(g.Port)
	}
	env["CUDA_VISIBLE_DEVICES"] = "-1"
	if len(devices) > 0 {
		env["CUDA_VISIBLE_DEVICES"] = strings.Join(devices, ",")
	}
	env["MUSTER_JOB"], env["MUSTER_TASK"], env["MUSTER_ATTEMPT"] = t.Attempt.Task.Job.String(), t.Attempt.Task.String(), strconv.Itoa(t.Attempt.N)
	env["MUSTER_RANK"], env["MUSTER_WORLD_SIZE"] = rank, size
	env["MUSTER_GPUS"] = strings.Join(t.Grant.GPUs, ",")
	index, values := run.ElementEnv(s, t.Element)
	for _, entry := range append(values, "MUSTER_INDEX="+index) {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	return env
}

// addScript adds the program to the task's folder, under its name unless the project has a file of that name.
func (p *Project) addScript(s *muster.Script) error {
	if s.URL != "" {
		return run.Failf(muster.TaskInvalid, "TrainForge workers do not fetch scripts")
	}
	name := path.Base(strings.ReplaceAll(s.File, `\`, "/"))
	if strings.Trim(name, "./") == "" {
		name = "script"
	}
	if p.folder != "" {
		if _, err := os.Lstat(filepath.Join(p.folder, name)); err == nil {
			name = ".muster-" + name
		}
	}
	p.files[name] = []byte(s.Text)
	p.config.Argv = append(run.Interpreter(s, p.files[name], name), s.Args...)
	return nil
}

// addRequirements writes the requirements that workers install from the project's top.
func (p *Project) addRequirements(s *muster.Python) error {
	if s == nil {
		return nil
	}
	p.config.Python = s.Version
	lines := append([]string(nil), s.Packages...)
	if s.Requirements != "" {
		root, err := os.OpenRoot(p.folder)
		var b []byte
		if err == nil {
			b, err = root.ReadFile(filepath.FromSlash(path.Clean(s.Requirements)))
			_ = root.Close()
		}
		if err != nil {
			return run.Failf(muster.TaskInvalid, "%s is not in the task's folder: %w", s.Requirements, err)
		}
		lines = append([]string{string(b)}, lines...)
	}
	if len(lines) > 0 {
		p.requirements = []byte(strings.Join(lines, "\n") + "\n")
	}
	return nil
}

// Write makes the project's archive, of at most maxBytes of files.
func (p *Project) Write(ctx context.Context, w io.Writer, maxBytes int64) error {
	b, err := json.Marshal(p.config)
	if err != nil {
		return err
	}
	z := archive.NewWriter(w, maxBytes)
	err = errors.Join(z.Add(Runner, runner), z.Add(taskFile, b))
	if p.requirements != nil {
		err = errors.Join(err, z.Add("requirements.txt", p.requirements))
	}
	for name, content := range p.files {
		err = errors.Join(err, z.Add(TaskDir+"/"+name, content))
	}
	if err == nil && p.folder != "" {
		err = z.AddDir(ctx, p.folder, TaskDir+"/")
	}
	if err != nil {
		return err
	}
	return z.Close()
}

// WriteShared puts the project into the shared folder: as <shared>/<id>/project.zip, and for worker A unpacked beside it.
// Nothing is there under its name before all of it is.
func (p *Project) WriteShared(ctx context.Context, shared string, unpacked bool) error {
	id := p.config.JobID
	if _, err := os.Lstat(filepath.Join(shared, id)); err == nil {
		return nil
	}
	tmp, err := os.MkdirTemp(shared, ".new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()     // after the rename there is nothing
	if err := os.Chmod(tmp, 0o755); err != nil { //nolint:gosec // the worker may be another user of a shared file system
		return err
	}
	if err := p.writeInto(ctx, tmp, unpacked); err != nil {
		return err
	}
	err = os.Rename(tmp, filepath.Join(shared, id))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func (p *Project) writeInto(ctx context.Context, dir string, unpacked bool) error {
	f, err := os.OpenFile(filepath.Join(dir, "project.zip"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as above
	if err != nil {
		return err
	}
	defer f.Close()
	maxBytes := int64(MaxBytes)
	if unpacked {
		maxBytes = Limits.Bytes
	}
	if err := p.Write(ctx, f, maxBytes); err != nil || !unpacked {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := archive.Unpack(ctx, f, info.Size(), dir, archive.Limits{Files: 2 * Limits.Files, Bytes: Limits.Bytes + 1<<20}); err != nil {
		return err
	}
	return os.Remove(f.Name())
}

package app

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// Build identifies the build of the binary.
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// version is set by the linker for releases.
var version string

// CurrentBuild returns the build of this binary.
func CurrentBuild() Build {
	b := Build{Version: cmp.Or(version, "devel"), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; version == "" && v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// Program is how this process was started.
type Program struct {
	path string
	args []string
	env  []string
}

// CurrentProgram returns how this process was started. Check and Exec use the file that has the path then,
// which may be a newer version. Exec passes the given secrets in the environment.
func CurrentProgram(secrets ...*Secret) (Program, error) {
	p := Program{args: os.Args, env: os.Environ()}
	for _, s := range secrets {
		p.args = s.RemoveFlags(p.args)
		if s.text != "" {
			p.env = append(p.env, s.env+"="+s.text)
		}
	}
	var err error
	p.path, err = ProgramPath()
	return p, err
}

// ProgramPath returns the absolute path by which this program was started; it stays the same when the file is replaced.
func ProgramPath() (string, error) {
	path, err := exec.LookPath(os.Args[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil { // argv[0] is another name
		path, err = os.Executable()
	}
	if err != nil {
		return "", muster.Errorf(muster.Internal, "cannot find the path of the program: %w", err)
	}
	return path, nil
}

// checkTimeout limits the version command of a replaced program.
const checkTimeout = 10 * time.Second

// Check runs the version command of the current file and returns its first line.
func (p Program) Check(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, p.path, "version").CombinedOutput()
	first, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n"))
	if err != nil {
		return "", muster.Errorf(muster.Invalid, "run %s: %w: %s", p.path, err, first)
	}
	return strings.ToValidUTF8(string(first), "?"), nil
}

// Exec replaces this process by the current file, with the same arguments and environment.
// It returns only on failure.
func (p Program) Exec() error {
	if err := execProgram(p.path, p.args, p.env); err != nil {
		return muster.Errorf(muster.Internal, "exec %s: %w", p.path, err)
	}
	return nil
}

// SelfPath returns a path of the running binary, also after the file was replaced.
func SelfPath() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	path, err := os.Executable()
	if err != nil {
		return "", muster.Errorf(muster.Internal, "cannot find the path of the program: %w", err)
	}
	return path, nil
}

// DataDir returns the absolute path of dir, by default that of muster/subdir in the user's data directory.
func DataDir(dir, subdir string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	root := os.Getenv("XDG_DATA_HOME")
	if root == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", muster.Errorf(muster.Invalid, "no default data directory: %w; set --data", err)
		}
		root = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(root, "muster", subdir), nil
}

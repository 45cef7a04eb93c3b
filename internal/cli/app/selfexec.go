package app

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// Program is how this process was started.
type Program struct {
	path string
	args []string
	env  []string
}

// CurrentProgram returns how this process was started. Its file may be replaced later:
// then it is the new one that Check and Become take. Secrets that were taken are passed on
// in the environment, by however they came.
func CurrentProgram(secrets ...*Secret) (Program, error) {
	p := Program{args: os.Args, env: os.Environ()}
	for _, s := range secrets {
		p.args = s.removeFlags(p.args)
		if s.text != "" {
			p.env = append(p.env, s.env+"="+s.text)
		}
	}
	path, err := exec.LookPath(os.Args[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil { // started under another name
		path, err = os.Executable()
	}
	if err != nil {
		return p, muster.Errorf(muster.Internal, "the program's own file cannot be found: %w", err)
	}
	p.path = path
	return p, nil
}

// checkTimeout is how long a program may take to say its version.
const checkTimeout = 10 * time.Second

// Check says whether what is in the program's file now can be started, and what
// version it says that it is.
func (p Program) Check(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, p.path, "version").CombinedOutput()
	first, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n"))
	if err != nil {
		return "", muster.Errorf(muster.Invalid, "%s does not run here: %w: %s", p.path, err, first)
	}
	return strings.ToValidUTF8(string(first), "?"), nil
}

// Exec replaces this process by what is in the program's file now, with the same
// arguments and environment. It returns only if that fails.
func (p Program) Exec() error {
	if err := execProgram(p.path, p.args, p.env); err != nil {
		return muster.Errorf(muster.Internal, "%s cannot be started: %w", p.path, err)
	}
	return nil
}

// SelfPath is a name for the file that this process runs, also after another one was put
// in its place.
func SelfPath() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	path, err := os.Executable()
	if err != nil {
		return "", muster.Errorf(muster.Internal, "the program's own file cannot be found: %w", err)
	}
	return path, nil
}

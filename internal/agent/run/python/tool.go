package python

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// tool finds and runs uv.
type tool struct {
	given  string        // by the operator, or ""
	data   string        // the worker's data dir
	apart  bool          // what is run is not the worker's
	path   string        // run.Env.Path
	limits run.Limiter   // nil: nothing is held
	lock   chan struct{} // held while uv is being fetched
}

// find returns the path of uv: the one given, $MUSTER_UV, the one on the PATH, or
// one that is fetched into the data dir, once.
func (t *tool) find(ctx context.Context, watch run.Watch) (string, error) {
	for _, name := range []string{t.given, os.Getenv("MUSTER_UV")} {
		if name == "" {
			continue
		}
		path, err := exec.LookPath(name)
		if err != nil {
			return "", run.Failf(muster.Dependency, "the worker is told to use uv at %s, where it is not: %w", name, err)
		}
		return path, nil
	}
	if path, err := exec.LookPath("uv"); err == nil {
		return path, nil
	}
	select {
	case t.lock <- struct{}{}:
		defer func() { <-t.lock }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	path := filepath.Join(t.data, "tools", "uv", "bin", "uv")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, t.fetch(ctx, watch)
}

// fetch installs uv into the data dir with the machine's pip.
func (t *tool) fetch(ctx context.Context, watch run.Watch) error {
	const advice = "install uv on the worker (https://docs.astral.sh/uv) or name it in MUSTER_UV"
	watch.Step("python environment: fetching uv")
	python, err := exec.LookPath("python3")
	if err != nil {
		return run.Failf(muster.Dependency, "this worker has no uv, and no python3 to fetch it with: %s", advice)
	}
	tools := filepath.Join(t.data, "tools")
	if err := os.MkdirAll(tools, 0o700); err != nil {
		return run.Failf(muster.WorkerInternal, "the folder for tools cannot be made: %w", err)
	}
	tmp, err := os.MkdirTemp(tools, ".uv-")
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the folder for tools cannot be made: %w", err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // it is of no use, and a later fetch takes another
	var last string
	say := func(line string) {
		if strings.TrimSpace(line) != "" {
			last = line
		}
		watch.Say("pip: " + line)
	}
	target := filepath.Join(tmp, "uv")
	err = command(ctx, tmp, t.environment(), listener{say: say}, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", target, "uv")
	if err != nil {
		return run.Failf(muster.Dependency, "this worker has no uv and pip cannot fetch it (%s): %s", strings.TrimSpace(last+" "+err.Error()), advice)
	}
	final := filepath.Join(tools, "uv")
	if err := os.RemoveAll(final); err != nil {
		return run.Failf(muster.WorkerInternal, "an older uv cannot be removed: %w", err)
	}
	if err := os.Rename(target, final); err != nil && !errors.Is(err, fs.ErrExist) { // another process was first
		return run.Failf(muster.WorkerInternal, "uv cannot be moved to its place: %w", err)
	}
	return nil
}

// uv runs uv and passes on its lines.
func (t *tool) uv(ctx context.Context, path string, say func(string), args ...string) error {
	env := t.environment()
	if t.path != "" {
		env = append(env, "PATH="+t.path) // the last one counts
	}
	return command(ctx, "", env, listener{say: say}, path, args...)
}

// environment is what uv and pip see: how to reach package indexes, and folders of
// the worker's for what they keep.
func (t *tool) environment() []string {
	var env []string
	have := map[string]bool{}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if value == "" {
			continue // uv takes some for a mistake
		}
		switch up := strings.ToUpper(name); {
		case strings.HasPrefix(name, "PIP_"), strings.HasPrefix(name, "UV_"),
			up == "HTTP_PROXY", up == "HTTPS_PROXY", up == "ALL_PROXY", up == "NO_PROXY",
			name == "SSL_CERT_FILE", name == "SSL_CERT_DIR", name == "REQUESTS_CA_BUNDLE",
			name == "PATH", name == "LANG", name == "TMPDIR":
			env = append(env, entry)
			have[name] = true
		}
	}
	set := func(name, value string) {
		if value != "" && !have[name] {
			env = append(env, name+"="+value)
		}
	}
	// uv does not read pip's settings.
	set("UV_DEFAULT_INDEX", os.Getenv("PIP_INDEX_URL"))
	set("UV_INDEX", os.Getenv("PIP_EXTRA_INDEX_URL"))
	set("UV_FIND_LINKS", existing(os.Getenv("PIP_FIND_LINKS")))
	set("UV_CACHE_DIR", t.cache())
	set("UV_PYTHON_INSTALL_DIR", filepath.Join(t.data, "tools", "python"))
	if runtime.GOOS == "linux" {
		set("UV_LINK_MODE", "hardlink") // what it prefers, copies on write, cannot be told from files of their own
	}
	set("UV_NO_CONFIG", "1")
	set("PIP_ROOT_USER_ACTION", "ignore") // the folder is the worker's own
	if !t.apart {
		env = append(env, Mark(t.data))
	}
	return append(env, "HOME="+filepath.Join(t.data, "tools"), "NO_COLOR=1")
}

// cache is where uv keeps what it fetched, unless the operator names another place.
func (t *tool) cache() string { return filepath.Join(t.data, "cache", "uv") }

// Mark is in the environment of the tools that the worker with this data dir uses,
// and of nothing else.
func Mark(data string) string { return "MUSTER_TOOL_OF=" + data }

// existing leaves the folders and URLs of pip's find-links that uv would accept: it
// refuses folders that are not there.
func existing(links string) string {
	var keep []string
	for l := range strings.FieldsSeq(links) {
		if _, err := os.Stat(l); err == nil || strings.Contains(l, "://") {
			keep = append(keep, l)
		}
	}
	return strings.Join(keep, ",")
}

// listener is told what a program does.
type listener struct {
	say   func(line string) // it prints
	began func(pid int)     // nil if nobody wants to know
}

func (l *listener) started(pid int) {
	if l.began != nil {
		l.began(pid)
	}
}

// command runs a program and tells each line that it prints. It is killed
// with its children when ctx ends.
func command(ctx context.Context, dir string, env []string, to listener, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Env = dir, env
	ownGroup(cmd)
	cmd.WaitDelay = 5 * time.Second
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	read := make(chan struct{})
	go func() {
		defer close(read)
		sayLines(r, to.say)
	}()
	err := cmd.Start()
	if err == nil {
		to.started(cmd.Process.Pid)
		err = cmd.Wait()
	}
	_ = w.Close()
	<-read
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	if x, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("%s ended with %s", filepath.Base(path), x.ProcessState)
	}
	return err
}

// sayLines says each line of what a program prints until its end.
func sayLines(r io.Reader, say func(string)) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<10)
	for lines.Scan() {
		say(lines.Text())
	}
	_, _ = io.Copy(io.Discard, r) // a line too long must not block the program
}

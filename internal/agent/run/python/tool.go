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
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/run"
)

// tool finds and runs uv.
type tool struct {
	deps       *run.Deps
	standalone bool          // see Config
	lock       chan struct{} // held while uv is being fetched
}

// installed returns the path of uv: the configured one, $MUSTER_UV, the one in PATH, or the one in the data dir; and "" if there is none.
func (t *tool) installed() (string, error) {
	for _, name := range []string{t.deps.UV, os.Getenv("MUSTER_UV")} {
		if name == "" {
			continue
		}
		path, err := exec.LookPath(name)
		if err != nil {
			return "", run.Failf(muster.Dependency, "find uv at the configured path %s: %w", name, err)
		}
		return path, nil
	}
	if path, err := exec.LookPath("uv"); err == nil {
		return path, nil
	}
	if path := t.fetchedPath(); isFile(path) {
		return path, nil
	}
	return "", nil
}

// fetchedPath is where uv is fetched to.
func (t *tool) fetchedPath() string { return filepath.Join(t.deps.Dir, "tools", "uv", "bin", "uv") }

func isFile(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// find returns the path of uv. It fetches uv once if it is not installed.
func (t *tool) find(ctx context.Context, observer run.Observer) (string, error) {
	if path, err := t.installed(); path != "" || err != nil {
		return path, err
	}
	select {
	case t.lock <- struct{}{}:
		defer func() { <-t.lock }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if path := t.fetchedPath(); isFile(path) { // meanwhile
		return path, nil
	}
	return t.fetchedPath(), t.fetch(ctx, observer)
}

// checkTimeout limits the check for pip.
const checkTimeout = 30 * time.Second

const advice = "install uv on the worker (https://docs.astral.sh/uv) or set MUSTER_UV to its path"

// Buildable returns why no environment can be built on this machine: it has neither uv nor a pip to fetch it with. It executes pip only if
// uv is not installed.
func (e *Envs) Buildable(ctx context.Context) error {
	if path, err := e.tool.installed(); path != "" || err != nil {
		return err
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return run.Failf(muster.Dependency, "this worker has neither uv nor a python3 to fetch it with: %s", advice)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := command(ctx, nil, "", e.tool.env(), outputHandler{onLine: func(string) {}}, python, "-m", "pip", "--version"); err != nil {
		return run.Failf(muster.Dependency, "this worker has neither uv nor a pip to fetch it with: %s", advice)
	}
	return nil
}

// HasTools reports whether uv is installed, or a python3 that may have pip. It executes nothing.
func (e *Envs) HasTools() bool {
	path, err := e.tool.installed()
	if path == "" && err == nil {
		_, err = exec.LookPath("python3")
	}
	return err == nil
}

// fetch installs uv into the data dir with the machine's pip.
func (t *tool) fetch(ctx context.Context, observer run.Observer) error {
	observer.Step("python environment: fetching uv")
	python, err := exec.LookPath("python3")
	if err != nil {
		return run.Failf(muster.Dependency, "this worker has neither uv nor a python3 to fetch it with: %s", advice)
	}
	tools := filepath.Join(t.deps.Dir, "tools")
	if err := os.MkdirAll(tools, 0o700); err != nil {
		return run.Failf(muster.WorkerInternal, "create the folder for tools: %w", err)
	}
	tmp, err := os.MkdirTemp(tools, ".uv-")
	if err != nil {
		return run.Failf(muster.WorkerInternal, "create the folder for tools: %w", err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // a leftover is harmless
	var last string
	logLine := func(line string) {
		if strings.TrimSpace(line) != "" {
			last = line
		}
		observer.LogLine("pip: " + line)
	}
	target := filepath.Join(tmp, "uv")
	err = command(ctx, nil, tmp, t.env(), outputHandler{onLine: logLine}, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", target, "uv")
	if err != nil {
		return run.Failf(muster.Dependency, "this worker has no uv and pip cannot fetch it (%s): %s", strings.TrimSpace(last+" "+err.Error()), advice)
	}
	final := filepath.Join(tools, "uv")
	if err := os.RemoveAll(final); err != nil {
		return run.Failf(muster.WorkerInternal, "remove an older uv: %w", err)
	}
	if err := os.Rename(target, final); err != nil && !errors.Is(err, fs.ErrExist) { // another process was first
		return run.Failf(muster.WorkerInternal, "move uv to its path: %w", err)
	}
	return nil
}

// uv runs uv and passes each line of its output to logLine.
func (t *tool) uv(ctx context.Context, path string, logLine func(string), args ...string) error {
	return command(ctx, nil, "", t.env(), outputHandler{onLine: logLine}, path, args...)
}

// env returns the environment of uv and pip: the settings of package indexes, and folders of the worker for their files.
func (t *tool) env() []string {
	var env []string
	isSet := map[string]bool{}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if value == "" {
			continue // uv rejects some empty values
		}
		switch up := strings.ToUpper(name); {
		case strings.HasPrefix(name, "PIP_"), strings.HasPrefix(name, "UV_"),
			up == "HTTP_PROXY", up == "HTTPS_PROXY", up == "ALL_PROXY", up == "NO_PROXY",
			name == "SSL_CERT_FILE", name == "SSL_CERT_DIR", name == "REQUESTS_CA_BUNDLE",
			name == "PATH", name == "LANG", name == "TMPDIR":
			env = append(env, entry)
			isSet[name] = true
		}
	}
	set := func(name, value string) {
		if value != "" && !isSet[name] {
			env = append(env, name+"="+value)
		}
	}
	// uv does not read pip's settings.
	set("UV_DEFAULT_INDEX", os.Getenv("PIP_INDEX_URL"))
	set("UV_INDEX", os.Getenv("PIP_EXTRA_INDEX_URL"))
	set("UV_FIND_LINKS", existingLinks(os.Getenv("PIP_FIND_LINKS")))
	set("UV_CACHE_DIR", t.cacheDir())
	set("UV_PYTHON_INSTALL_DIR", filepath.Join(t.deps.Dir, "tools", "python"))
	if runtime.GOOS == "linux" {
		set("UV_LINK_MODE", "hardlink") // disk usage cannot detect uv's default, copies on write
	}
	set("UV_NO_CONFIG", "1")
	set("PIP_ROOT_USER_ACTION", "ignore") // the folder is the worker's own
	if !t.standalone {
		env = append(env, EnvTag(t.deps.Dir))
	}
	if t.deps.Path != "" {
		env = append(env, "PATH="+t.deps.Path) // the last one counts
	}
	return append(env, "HOME="+filepath.Join(t.deps.Dir, "tools"), "NO_COLOR=1")
}

// cacheDir is uv's cache of packages without a build step, which only uv writes, unless the operator sets another one.
func (t *tool) cacheDir() string { return filepath.Join(t.deps.Dir, "cache", "uv") }

// projectCaches is the folder of the caches of projects.
func (t *tool) projectCaches() string { return filepath.Join(t.deps.Dir, "cache", "uv-projects") }

// cacheOf is uv's cache for a spec, "" for cacheDir or the operator's. Code of packages that are built can change the cache, and files of
// environments are links to it: so each project has its own.
func (t *tool) cacheOf(s *Spec) string {
	if s.Prebuilt {
		return ""
	}
	owner := s.Project
	if s.Image != "" {
		owner += "\n" + s.Image // what is built in one image may not work in another
	}
	return filepath.Join(t.projectCaches(), run.ProjectFolder(owner))
}

// EnvTag returns the environment entry that identifies the tools of the worker with this data dir.
func EnvTag(data string) string { return "MUSTER_TOOL_OF=" + data }

// existingLinks removes missing folders from pip's find-links, because uv rejects them.
func existingLinks(links string) string {
	var kept []string
	for l := range strings.FieldsSeq(links) {
		if _, err := os.Stat(l); err == nil || strings.Contains(l, "://") {
			kept = append(kept, l)
		}
	}
	return strings.Join(kept, ",")
}

// outputHandler receives the output and the process ID of a program.
type outputHandler struct {
	onLine  func(line string)
	onStart func(pid int) // may be nil
}

func scanLines(r io.Reader, onLine func(string)) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<10)
	for lines.Scan() {
		onLine(lines.Text())
	}
	_, _ = io.Copy(io.Discard, r) // after a line that is too long, do not block the program
}

// runBuild runs uv for packages that a task chose. Installing a package may execute its code, so uv can only write to tmp and to its
// cache: see cacheOf.
func (t *tool) runBuild(ctx context.Context, uv, tmp, cache string, read, extra []string, handler outputHandler, args ...string) error {
	env := run.MergeEnv(append(t.env(), "HOME="+tmp, "TMPDIR="+tmp), extra)
	if cache != "" {
		env = run.MergeEnv(env, []string{"UV_CACHE_DIR=" + cache})
	}
	write := []string{tmp}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case "UV_CACHE_DIR":
			if err := os.MkdirAll(value, 0o700); err != nil {
				return run.Failf(muster.WorkerInternal, "create the folder for fetched packages: %w", err)
			}
			write = append(write, value)
		case "UV_FIND_LINKS":
			read = append(read, strings.Split(value, ",")...)
		case "UV_PYTHON_INSTALL_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE":
			read = append(read, value)
		}
	}
	return t.runIsolated(ctx, read, write, tmp, env, handler, uv, args...)
}

// runIsolated runs a program that may execute code of tasks. It sees what tasks see, and the paths in read and write.
func (t *tool) runIsolated(ctx context.Context, read, write []string, dir string, env []string, handler outputHandler, path string, args ...string) error {
	if t.deps.Isolator == nil {
		return command(ctx, nil, dir, env, handler, path, args...)
	}
	read = append(read, programDirs(path)...)
	for i, arg := range args {
		if arg == "--python" && i+1 < len(args) {
			read = append(read, programDirs(args[i+1])...)
		}
	}
	c := t.deps.Isolator.PrepareTool(read, write)
	if c.Sandbox == nil && c.User == nil {
		c = nil
	}
	return command(ctx, c, dir, env, handler, path, args...)
}

// programDirs returns the folders that a program needs: of its file, and of its installation.
func programDirs(path string) []string {
	list := []string{filepath.Dir(path)}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		list = append(list, filepath.Dir(target))
		if bin := filepath.Dir(target); filepath.Base(bin) == "bin" && filepath.Dir(bin) != "/" {
			list = append(list, filepath.Dir(bin))
		}
	}
	return list
}

// command runs a program within c, which may be nil, and passes each line of its output to the handler. It kills the program and its
// children when ctx ends, and its children when it exits.
func command(ctx context.Context, c *run.IsolationSpec, dir string, env []string, handler outputHandler, path string, args ...string) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	pid, handle, err := isolation.Spawn(c, isolation.Program{Path: path, Argv: append([]string{path}, args...), Env: env, Dir: dir, Stdin: null, Stdout: w, Stderr: w})
	_ = w.Close()
	if err != nil {
		return err
	}
	if handler.onStart != nil {
		handler.onStart(pid)
	}
	if handle >= 0 {
		_ = os.NewFile(uintptr(handle), "pidfd").Close()
	}
	readDone := make(chan struct{})
	go func() {
		defer close(readDone)
		scanLines(r, handler.onLine)
	}()
	proc, err := os.FindProcess(pid) // which is not reaped yet
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { killGroup(pid) })
	st, err := proc.Wait()
	stop()
	killGroup(pid)                                         // its children
	_ = r.SetReadDeadline(time.Now().Add(5 * time.Second)) // an escaped process may hold the pipe open
	<-readDone
	switch cause := context.Cause(ctx); {
	case cause != nil && (err != nil || !st.Success()):
		return cause
	case err != nil:
		return err
	case !st.Success():
		return fmt.Errorf("%s ended with %s", filepath.Base(path), st)
	}
	return nil
}

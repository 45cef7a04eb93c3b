package python

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
	"github.com/muster-dev/muster/internal/agent/run"
)

// fetchFiles writes the task's files to the build's folder, if packages are built from them: a copy, which build backends may change.
func (b *build) fetchFiles(ctx context.Context) error {
	if b.spec.Files == "" {
		return nil
	}
	dir := filepath.Join(b.tmp, filesFolder)
	err := run.RemoveAll(dir) // of a build that is repeated
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return run.Failf(muster.WorkerInternal, "create a folder for the task's files: %w", err)
	}
	return b.spec.Request.Fetch(ctx, dir)
}

// syncProject installs the project of the task's files and its dependencies, as its uv.lock says if there is one.
func (b *build) syncProject(ctx context.Context, p *progress, dir string) error {
	s := b.spec.Source
	args := []string{
		"sync", "--no-progress", "--no-editable", "--no-default-groups", "--python", b.seen(InterpreterPath(dir)),
		"--project", b.seen(filepath.Join(b.tmp, filesFolder, filepath.FromSlash(s.Folder))),
	}
	if b.locked() {
		args = append(args, "--frozen")
	}
	if b.spec.NoCache {
		args = append(args, "--no-cache")
	}
	for _, name := range s.Extras {
		args = append(args, "--extra="+name)
	}
	for _, name := range s.Groups {
		args = append(args, "--group="+name)
	}
	// The project may configure uv, such as its indexes.
	return b.runUV(ctx, p, []string{"UV_PROJECT_ENVIRONMENT=" + b.seen(dir), "UV_NO_CONFIG=0"}, args...)
}

// locked reports whether the project has a uv.lock, which is in its own folder or in that of its workspace.
func (b *build) locked() bool {
	for folder := b.spec.Source.Folder; ; folder = path.Dir(folder) {
		if isFile(filepath.Join(b.tmp, filesFolder, filepath.FromSlash(folder), "uv.lock")) {
			return true
		}
		if folder == "." {
			return false
		}
	}
}

// seen returns a path in the build's folder as uv sees it.
func (b *build) seen(path string) string {
	if b.spec.Image == "" {
		return path
	}
	return imageRoot + strings.TrimPrefix(path, b.tmp)
}

// execUV runs uv where the environment is used: on this machine, or in a container.
func (b *build) execUV(ctx context.Context, env []string, handler outputHandler, args ...string) error {
	if b.spec.Image != "" {
		return b.runInImage(ctx, env, handler, args...)
	}
	var read []string
	if b.spec.Wheels != "" {
		read = append(read, b.spec.Wheels)
	}
	return b.tool.runBuild(ctx, b.uv, b.tmp, b.tool.cacheOf(b.spec), read, env, handler, args...)
}

// Paths in the container of a build.
const (
	imageRoot  = "/muster" // the build's folder
	imageUV    = imageRoot + "/uv"
	imageCache = imageRoot + "/cache"
)

// runInImage runs uv in a container of the image.
func (b *build) runInImage(ctx context.Context, extra []string, handler outputHandler, args ...string) error {
	image := b.spec.Request.Image
	t := &run.ImageTool{Argv: append([]string{imageUV}, args...), Dir: imageRoot}
	mount := func(source, target string, write bool) error {
		t.Mounts = append(t.Mounts, run.Mount{Source: source, Target: target, ReadOnly: !write})
		if source == b.tmp {
			return nil
		}
		point := filepath.Join(b.tmp, strings.TrimPrefix(target, imageRoot)) // an engine would create it as root
		info, err := os.Stat(source)
		switch {
		case err != nil:
			return err
		case info.IsDir():
			return os.MkdirAll(point, 0o700)
		}
		return os.WriteFile(point, nil, 0o600)
	}
	uv, err := filepath.EvalSymlinks(b.uv)
	cache := b.tool.cacheOf(b.spec)
	for _, step := range []func() error{
		func() error { return os.MkdirAll(cache, 0o700) },
		func() error { return mount(b.tmp, imageRoot, true) },
		func() error { return mount(cache, imageCache, true) },
		func() error { return mount(uv, imageUV, false) },
	} {
		if err == nil {
			err = step()
		}
	}
	// Of the worker's settings, those of files are mounted at other paths.
	for _, entry := range b.tool.env() {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case name == "UV_FIND_LINKS":
			var links []string
			for i, link := range strings.Split(value, ",") {
				if !strings.Contains(link, "://") && err == nil {
					target := fmt.Sprintf("%s/links-%d", imageRoot, i)
					err = mount(link, target, false)
					link = target
				}
				links = append(links, link)
			}
			t.Env = append(t.Env, name+"="+strings.Join(links, ","))
		case name == "SSL_CERT_FILE" && err == nil:
			err = mount(value, imageRoot+"/certificates.pem", false)
			t.Env = append(t.Env, name+"="+imageRoot+"/certificates.pem")
		case strings.HasPrefix(name, "UV_PYTHON"), name == "UV_CACHE_DIR", name == "UV_LINK_MODE":
		case strings.HasPrefix(name, "UV_"), strings.HasSuffix(strings.ToUpper(name), "_PROXY"), name == "NO_COLOR":
			t.Env = append(t.Env, entry)
		}
	}
	if err != nil {
		return run.Failf(muster.WorkerInternal, "prepare the container that builds a Python environment: %w", err)
	}
	t.Env = slices.Concat(t.Env, []string{
		"HOME=" + imageRoot, "TMPDIR=" + imageRoot, "UV_CACHE_DIR=" + imageCache, "UV_LINK_MODE=copy", // the cache is another mount
		"UV_PYTHON_DOWNLOADS=never", "UV_PYTHON_PREFERENCE=only-system",
	})
	t.Env = run.MergeEnv(t.Env, extra)
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		scanLines(r, handler.onLine)
	}()
	code, err := image.Run(ctx, t, w)
	_ = w.Close()
	<-done
	if err == nil && code != 0 {
		err = fmt.Errorf("uv ended with exit code %d", code)
	}
	return err
}

// imageError returns the error of uv in a container, nil for one that uv itself reports. text has its last output.
func (b *build) imageError(err error, text string) error {
	failed, ok := errors.AsType[*run.TaskError](err)
	switch {
	case ok && failed.Reason == muster.StartFailed, strings.Contains(text, "exec "+imageUV+":"): // runc's text
		return run.Failf(muster.Dependency, "uv cannot run in the image %s: use an image with the GNU C library, such as python:3.12, or set MUSTER_UV on the worker to a static uv", b.spec.Request.Image.Name)
	case ok:
		return failed
	case strings.Contains(text, "o interpreter found"):
		return run.Failf(muster.Dependency, "the image %s has no Python %s: use an image that has it, such as python:3.12, or leave python out", b.spec.Request.Image.Name, b.interpreter)
	}
	return nil
}

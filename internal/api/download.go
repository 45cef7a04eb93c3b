package api

import (
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"runtime"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/streaming"
	"github.com/muster-dev/muster/internal/auth"
)

const pathDownload = "/download/muster"

func (s *server) downloadRoutes() {
	rest.Stream(s.router, rest.Route{ID: "download-muster", Method: http.MethodGet, Path: pathDownload, Tag: "workers", Verb: auth.JoinWorkers, ContentType: "application/octet-stream",
		Summary: "Download the server's executable, to start a worker on a machine of the same platform"}, s.download)
}

type downloadInput struct {
	OS   string `query:"os" maxLength:"20" doc:"required operating system" example:"linux"`
	Arch string `query:"arch" maxLength:"20" doc:"required architecture" example:"amd64"`
}

// archNames maps the names of uname -m to Go's.
var archNames = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

func (s *server) download(w http.ResponseWriter, r *http.Request, in *downloadInput) error {
	arch := in.Arch
	if goarch, ok := archNames[arch]; ok {
		arch = goarch
	}
	if in.OS != "" && in.OS != runtime.GOOS || arch != "" && arch != runtime.GOARCH {
		return muster.Errorf(muster.NotFound, "the server has an executable for %s/%s, not for %s/%s: build it there, or use a release build for that platform", runtime.GOOS, runtime.GOARCH, in.OS, in.Arch)
	}
	name, err := os.Executable()
	if err != nil {
		return err
	}
	if runtime.GOOS == "linux" {
		name = "/proc/self/exe" // works also after the file was replaced
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": "muster" + filepath.Ext(name)}))
	h.Set("Cache-Control", "private, no-cache")
	h.Set("X-Muster-OS", runtime.GOOS)
	h.Set("X-Muster-Arch", runtime.GOARCH)
	http.ServeContent(streaming.NewWriter(w, r), r, "", info.ModTime(), f)
	return nil
}

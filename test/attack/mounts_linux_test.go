package attack

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// proxyEngine serves a container engine at another socket, and calls before for each request.
func proxyEngine(t *testing.T, host string, before func(*http.Request)) string {
	t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(host, "unix://"))
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "engine"})
	transport := &http.Transport{DialContext: dial}
	proxy.Transport, proxy.FlushInterval = transport, -1
	dir, err := os.MkdirTemp("", "engine") //nolint:usetesting // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before(r)
		proxy.ServeHTTP(w, r)
	})}
	done := make(chan struct{})
	go func() { _ = server.Serve(l); close(done) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
		transport.CloseIdleConnections()
		_ = os.RemoveAll(dir)
	})
	return "unix://" + path
}

// TestMountsCannotBeReplacedAfterTheirCheck states that a container has the folder that its worker's owner allows, also if a task that may write to a
// folder above it replaces it by a link to another one, after the worker has checked it and before the engine opens it.
func TestMountsCannotBeReplacedAfterTheirCheck(t *testing.T) { //nolint:tparallel // they write the same forbidden file
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only a worker of root can bind a mount before the engine does")
	}
	host := containertest.SharedEngine(t)
	image := containertest.LoadBusybox(t, host)
	shared, forbidden := mustertest.SharedDir(t), mustertest.SharedDir(t)
	for _, when := range []string{"/containers/create", "/start"} {
		t.Run("before "+when, func(t *testing.T) {
			set := filepath.Join(shared, strings.ReplaceAll(when, "/", "-"))
			if err := errors.Join(os.Mkdir(set, 0o755), os.WriteFile(filepath.Join(set, "f"), []byte("allowed"), 0o644), os.WriteFile(filepath.Join(forbidden, "f"), []byte("forbidden"), 0o644)); err != nil {
				t.Fatal(err)
			}
			replaced := false
			engine := proxyEngine(t, host, func(r *http.Request) {
				if !replaced && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, when) {
					replaced = true
					if err := errors.Join(os.Rename(set, set+".moved"), os.Symlink(forbidden, set)); err != nil {
						t.Error(err)
					}
				}
			})
			e := newEnv(t)
			e.StartWorker("w", mustertest.SharedDir(t), "--engine", engine, "--allow-mounts", shared)
			job := e.Submit(&muster.Spec{Tasks: []muster.TaskSpec{{
				Image: image, Run: &muster.Command{Shell: "cat /data/f"}, Container: &muster.Container{Mounts: []muster.Mount{{Source: set, Target: "/data"}}},
			}}})
			e.Wait(job.ID, 2*awaitTimeout)
			task := e.Tasks(job.ID)[0]
			if log := e.Output(task.ID); !replaced || task.State != muster.Succeeded || !strings.Contains(log, "allowed") || strings.Contains(log, "forbidden") {
				t.Errorf("replaced: %v, %s: %s\n%s", replaced, task.State, task.Message, log)
			}
		})
	}
}

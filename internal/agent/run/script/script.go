// Package script runs tasks of kind script: process tasks whose program is uploaded with the job or fetched by the worker, and that
// may ask for a Python environment.
package script

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/outbound"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/python"
)

// New returns the executor of the kind script.
func New(deps *process.Deps) (*process.Executor, error) {
	f := newFetcher(deps.AllowPrivateURLs)
	return process.NewKind(deps, muster.KindScript, process.KindHooks{Program: f.writeScript, Python: python.New(&deps.Deps).GetFor})
}

// writeScript writes the script into the task's folder and returns the command that runs it; nil if the spec has no script.
func (f *fetcher) writeScript(ctx context.Context, a *process.Attempt) ([]string, error) {
	s := a.Task.Spec.Script
	if s == nil {
		return nil, nil
	}
	text, name := []byte(s.Text), fileName(s.File)
	if s.URL != "" {
		a.SetStep("fetching the script")
		var err error
		if text, err = f.get(ctx, s.URL, s.SHA256); err != nil {
			return nil, err
		}
		name = fileName(urlPath(s.URL))
	}
	name, err := writeFile(a, name, text)
	if err != nil {
		return nil, err
	}
	return append(run.Interpreter(s, text, name), s.Args...), nil
}

// writeFile writes the script into the task's folder, beside the files of its project, and returns its name.
func writeFile(a *process.Attempt, name string, text []byte) (string, error) {
	root, err := a.OpenRoot()
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if errors.Is(err, fs.ErrExist) {
		// Keep the project's file.
		name = ".muster-" + name
		f, err = root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o700)
	}
	if err != nil {
		return "", run.Failf(muster.WorkerInternal, "write the script: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", run.Failf(muster.WorkerInternal, "write the script: %w", err)
	}
	return name, nil
}

// fileName converts a path to a plain file name.
func fileName(p string) string {
	base := path.Base(strings.ReplaceAll(p, "\\", "/"))
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-+", r) {
			return r
		}
		return '_'
	}, base)
	if len(clean) > 100 {
		clean = clean[len(clean)-100:] // the end has the suffix
	}
	if strings.Trim(clean, "._") == "" {
		return "script"
	}
	return clean
}

const (
	maxScript    = 16 << 20
	fetchTimeout = 60 * time.Second
	maxRedirects = 5
)

type fetcher struct{ client *http.Client }

// newFetcher returns a fetcher that connects to private addresses only with allowPrivate.
func newFetcher(allowPrivate bool) *fetcher {
	return &fetcher{&http.Client{Transport: outbound.Transport(allowPrivate), CheckRedirect: outbound.Redirects(maxRedirects), Timeout: fetchTimeout}}
}

// get returns the content of the URL. It fails if wantHash is set and is not its SHA-256.
func (f *fetcher) get(ctx context.Context, rawURL, wantHash string) ([]byte, error) {
	u, err := url.Parse(rawURL)
	if err == nil {
		err = outbound.CheckScheme(u)
	}
	if err != nil {
		return nil, run.Failf(muster.TaskInvalid, "script.url: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rawURL, http.NoBody)
	if err != nil {
		return nil, run.Failf(muster.TaskInvalid, "script.url: %w", err)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		reason := muster.FetchFailed
		if _, ok := errors.AsType[*outbound.DeniedError](err); ok {
			reason = muster.TaskInvalid // a retry would fail the same way
		}
		if urlErr, ok := errors.AsType[*url.Error](err); ok {
			err = urlErr.Err // its own text repeats the URL
		}
		return nil, run.Failf(reason, "fetch the script from %s: %w", muster.RedactURL(rawURL), err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return nil, run.Failf(muster.FetchFailed, "fetch the script: %s returned %s", muster.RedactURL(rawURL), resp.Status)
	case resp.StatusCode != http.StatusOK:
		return nil, run.Failf(muster.TaskInvalid, "fetch the script: %s returned %s", muster.RedactURL(rawURL), resp.Status)
	}
	script, err := io.ReadAll(io.LimitReader(resp.Body, maxScript+1))
	if err != nil {
		return nil, run.Failf(muster.FetchFailed, "fetch the script: %w", err)
	}
	if len(script) > maxScript {
		return nil, run.Failf(muster.TaskInvalid, "the script at %s is larger than %s", muster.RedactURL(rawURL), muster.Size(maxScript))
	}
	sum := sha256.Sum256(script)
	if got := hex.EncodeToString(sum[:]); wantHash != "" && !strings.EqualFold(got, wantHash) {
		return nil, run.Failf(muster.TaskInvalid, "the script at %s has SHA-256 %s, but the spec requires %s", muster.RedactURL(rawURL), got, wantHash)
	}
	return script, nil
}

func urlPath(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Path
}

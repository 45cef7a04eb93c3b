package trainforge

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/trainforge/project"
)

const (
	callTimeout     = 15 * time.Second
	transferTimeout = 15 * time.Minute // of projects and results
)

// answerCodes are the codes of answers that the server does not change when a request is repeated.
var answerCodes = map[int]muster.Code{ //nolint:gochecknoglobals // a constant table
	http.StatusBadRequest: muster.Invalid, http.StatusUnprocessableEntity: muster.Invalid, http.StatusRequestEntityTooLarge: muster.Invalid,
	http.StatusNotFound: muster.NotFound, http.StatusGone: muster.NotFound, http.StatusConflict: muster.Conflict,
}

type serverClient struct{ *bridge.Remote }

func newServerClient(cfg *BridgeConfig) (*serverClient, error) {
	header := http.Header{"User-Agent": {"TrainForge-Worker/2.0 muster/" + cmp.Or(cfg.Version, "dev")}, "Ngrok-Skip-Browser-Warning": {"true"}}
	if cfg.Token != "" {
		header.Set("Authorization", "Bearer "+cfg.Token)
	}
	r, err := bridge.NewRemote(bridge.RemoteConfig{
		Name: "the TrainForge server", URL: cmp.Or(cfg.Scheduler, DefaultScheduler), Option: "--scheduler",
		Transport: &rateLimit{}, Header: header, Codes: answerCodes,
	})
	return &serverClient{r}, err
}

// call sends JSON and returns the answer. It fails with Unavailable.
func (r *serverClient) call(ctx context.Context, method, path string, body any) (*bridge.Response, error) {
	return fixStatus(r.Call(ctx, method, path, body, callTimeout))
}

// fixStatus sets the status 404 where the current server answers 500 for an unknown job.
func fixStatus(a *bridge.Response, err error) (*bridge.Response, error) {
	if a.Status == http.StatusInternalServerError && strings.Contains(string(a.Body), jobNotFoundText) {
		a.Status = http.StatusNotFound
	}
	return a, err
}

// rateLimit sends no requests for a while after the status 429: TrainForge accepts 1000 requests of an address in 15 minutes, older
// versions 100.
type rateLimit struct {
	mu      sync.Mutex
	retryAt time.Time
	hits    int // in a row
}

// RoundTrip implements http.RoundTripper.
func (l *rateLimit) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	wait := time.Until(l.retryAt)
	l.mu.Unlock()
	if wait > 0 {
		return nil, muster.Errorf(muster.Unavailable, "it accepts no requests for another %s", wait.Round(time.Second))
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if res.StatusCode != http.StatusTooManyRequests {
		l.hits = 0
		return res, nil
	}
	wait = min(5*time.Second<<min(l.hits, 5), 2*time.Minute)
	l.hits++
	if named := backoff.RetryAfter(res.Header, time.Now()); named > 0 {
		wait = min(named, 15*time.Minute)
	}
	l.retryAt = time.Now().Add(wait)
	return res, nil
}

func (r *serverClient) download(ctx context.Context, path, dir string) (*os.File, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	res, err := r.Do(ctx, http.MethodGet, path, "application/json", nil, 0)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		a, err := fixStatus(r.Read(res))
		return nil, 0, cmp.Or(err, a.Err("the request for the project"))
	}
	f, err := os.CreateTemp(dir, "project-*.zip")
	if err != nil {
		return nil, 0, err
	}
	n, err := io.Copy(f, io.LimitReader(res.Body, project.MaxBytes+1))
	switch {
	case err != nil:
		err = muster.Errorf(muster.Unavailable, "cannot read the project: %w", err)
	case n > project.MaxBytes:
		err = muster.Errorf(muster.Invalid, "the project exceeds %s", muster.Size(project.MaxBytes))
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name()) // at the next start at the latest
		return nil, 0, err
	}
	return f, n, nil
}

func (r *serverClient) upload(ctx context.Context, path, field, name string, f *os.File, size int64) (*bridge.Response, error) {
	body, contentType, length, err := bridge.FileForm(field, name, "application/octet-stream", io.NewSectionReader(f, 0, size), size)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	res, err := r.Do(ctx, http.MethodPost, path, contentType, body, length) //nolint:bodyclose // Read closes it
	if err != nil {
		return nil, err
	}
	return fixStatus(r.Read(res))
}

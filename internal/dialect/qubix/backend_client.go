package qubix

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/bridge"
)

// response is an answer of the backend.
type response struct{ bridge.Response }

// newBackend returns a client of the backend.
func newBackend(cfg *BridgeConfig) (*bridge.Remote, error) {
	client := http.Client{}
	if cfg.HTTP != nil {
		client = *cfg.HTTP
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the 301 of the TS backend has no target
	r, err := bridge.NewRemote("the QUBIX backend", cfg.Backend, &client, http.Header{"User-Agent": {"muster/" + cmp.Or(cfg.Version, "dev")}})
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "--backend: %w", err)
	}
	return r, nil
}

// call sends a request to the backend.
func (b *Bridge) call(ctx context.Context, method, path string, body any, timeout time.Duration) (response, error) {
	a, err := b.backend.Call(ctx, method, path, body, timeout)
	a.RetryAfter = min(a.RetryAfter, maxRetryAfter)
	return response{a}, err
}

const maxRetryAfter = 5 * time.Minute

// asError returns the error of an answer, nil for 2xx.
func (a *response) asError(action string) error {
	if a.OK() {
		return nil
	}
	detail := sanitize(a.ErrorText(), 300)
	if detail != "" {
		detail = ": " + detail
	}
	switch a.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		return muster.Errorf(muster.Invalid, "the QUBIX backend refused the %s (HTTP %d)%s", action, a.Status, detail)
	case http.StatusUnauthorized: // retried, since the key may become valid again
		return muster.Errorf(muster.Unauthenticated, "the QUBIX backend refused the %s (HTTP 401)%s; write a key into --backend, as http://HOST:3001/k/KEY", action, detail)
	case http.StatusForbidden:
		return muster.Errorf(muster.Forbidden, "the QUBIX backend refused the %s (HTTP 403)%s", action, detail)
	case http.StatusNotFound:
		return muster.Errorf(muster.NotFound, "the QUBIX backend refused the %s (HTTP 404)%s", action, detail)
	case http.StatusConflict:
		return muster.Errorf(muster.Conflict, "the QUBIX backend refused the %s (HTTP 409)%s", action, detail)
	case http.StatusInternalServerError:
		return muster.Errorf(muster.Internal, "the QUBIX backend failed the %s (HTTP 500)%s", action, detail)
	case http.StatusTooManyRequests:
		return muster.Errorf(muster.Unavailable, "the QUBIX backend limits requests (HTTP 429): retry in %s", max(a.RetryAfter, time.Second))
	}
	return muster.Errorf(muster.Unavailable, "the QUBIX backend failed the %s (HTTP %d)%s", action, a.Status, detail)
}

// parseJobs reads a list of jobs. It ignores other items.
func parseJobs(raw json.RawMessage) []job {
	var rows []json.RawMessage
	if json.Unmarshal(raw, &rows) != nil {
		return nil
	}
	var list []job
	for _, row := range rows[:min(len(rows), maxListedJobs)] {
		var j job
		if json.Unmarshal(row, &j) == nil && j.ID != "" {
			list = append(list, j)
		}
	}
	return list
}

const maxListedJobs = 1000 // of one answer: the mock server offers all of its jobs

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

// response is an answer of a backend.
type response struct{ bridge.Response }

// newBackend checks a backend's address.
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

// asError is what an answer says is wrong, as an error that says what can be done; nil for 2xx.
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
		return muster.Errorf(muster.Invalid, "the QUBIX backend refuses the %s with status %d%s", action, a.Status, detail)
	case http.StatusUnauthorized: // a key may be changed back: nothing is given up for it
		return muster.Errorf(muster.Unauthenticated, "the QUBIX backend answers the %s with status 401%s; a key is a part of --backend, http://HOST:3001/k/KEY", action, detail)
	case http.StatusForbidden:
		return muster.Errorf(muster.Forbidden, "the QUBIX backend answers the %s with status 403%s", action, detail)
	case http.StatusNotFound:
		return muster.Errorf(muster.NotFound, "the QUBIX backend answers the %s with status 404%s", action, detail)
	case http.StatusConflict:
		return muster.Errorf(muster.Conflict, "the QUBIX backend answers the %s with status 409%s", action, detail)
	case http.StatusInternalServerError:
		return muster.Errorf(muster.Internal, "the QUBIX backend answers the %s with status 500%s", action, detail)
	case http.StatusTooManyRequests:
		return muster.Errorf(muster.Unavailable, "the QUBIX backend takes no more requests for now (429): asking again in %s", max(a.RetryAfter, time.Second))
	}
	return muster.Errorf(muster.Unavailable, "the QUBIX backend answers the %s with status %d%s", action, a.Status, detail)
}

// parseJobs reads a list of jobs. What is none is left aside.
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

// maxListedJobs is how many jobs of one answer are looked at: the mock server offers every job that there is.
const maxListedJobs = 1000

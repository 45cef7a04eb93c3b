package dialect_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect"
)

func TestHTTPStatus(t *testing.T) {
	t.Parallel()
	for code, want := range map[muster.Code]int{
		muster.Invalid: 400, muster.InvalidSpec: 400, muster.Unauthenticated: 401, muster.Forbidden: 403, muster.NotFound: 404, muster.Conflict: 409,
		muster.TooLarge: 413, muster.Unavailable: 503, muster.Undetermined: 503, muster.StorageFull: 507, muster.Internal: 500, "": 500,
	} {
		if got := dialect.HTTPStatus(httptest.NewRecorder(), fmt.Errorf("a request: %w", muster.Errorf(code, "a problem"))); got != want {
			t.Errorf("%q is answered with %d, want %d", code, got, want)
		}
	}
	rec := httptest.NewRecorder()
	if got := dialect.HTTPStatus(rec, &muster.Error{Code: muster.Unavailable, Err: &backoff.DelayError{Delay: 1500 * time.Millisecond}}); got != http.StatusTooManyRequests || rec.Header().Get("Retry-After") != "2" {
		t.Errorf("a request beyond a limit is answered with %d, %v", got, rec.Header())
	}
	if got := dialect.HTTPStatus(httptest.NewRecorder(), errors.New("a bug")); got != 500 {
		t.Errorf("an error without a code is answered with %d", got)
	}
}

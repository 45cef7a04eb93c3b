package dialect_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
)

func TestHTTPStatus(t *testing.T) {
	t.Parallel()
	for code, want := range map[muster.Code]int{
		muster.Invalid: 400, muster.InvalidSpec: 400, muster.Unauthenticated: 401, muster.Forbidden: 403, muster.NotFound: 404, muster.Conflict: 409,
		muster.TooLarge: 413, muster.Unavailable: 503, muster.Undetermined: 503, muster.StorageFull: 507, muster.Internal: 500, "": 500,
	} {
		if got := dialect.HTTPStatus(fmt.Errorf("a request: %w", muster.Errorf(code, "a problem"))); got != want {
			t.Errorf("%q is answered with %d, want %d", code, got, want)
		}
	}
	if got := dialect.HTTPStatus(errors.New("a bug")); got != 500 {
		t.Errorf("an error without a code is answered with %d", got)
	}
}

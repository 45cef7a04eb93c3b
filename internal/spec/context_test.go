package spec_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/spec"
)

// A parse ends at the next document after its context ends.
func TestParseEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	checks := 0
	specs, err := spec.ParseContext(ctx, []byte(strings.Repeat("run: a\n---\n", 900)), "job.yaml", func(*muster.Spec) []muster.FieldError {
		checks++
		if checks == 3 {
			cancel()
		}
		return nil
	})
	if specs != nil || muster.CodeOf(err) != muster.Unavailable || !errors.Is(err, context.Canceled) {
		t.Errorf("%d specs, %v", len(specs), err)
	}
	if checks != 3 {
		t.Errorf("%d documents were checked, want 3", checks)
	}
	checks = 0
	if _, err := spec.ParseContext(ctx, []byte("run: a"), "job.yaml", func(*muster.Spec) []muster.FieldError { checks++; return nil }); !errors.Is(err, context.Canceled) || checks > 0 {
		t.Errorf("%v after %d checks", err, checks)
	}
}

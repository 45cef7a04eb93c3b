package kind_test

import (
	"testing"

	"github.com/muster-dev/muster/internal/kind"
)

func TestEveryEmbeddedKindIsValid(t *testing.T) {
	for _, k := range kind.Embedded() {
		if k.About == "" {
			t.Errorf("%s does not say what it is for", k.Name)
		}
	}
}

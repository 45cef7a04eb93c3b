package storetest

import (
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

func secrets(t *testing.T, f *fixture) {
	t.Helper()
	if none := must(f.Secrets(t.Context()))(t); len(none) > 0 {
		t.Errorf("at first: %v", none)
	}
	last := store.Secret{Project: "vision", Name: "A", Version: 1, Sealed: []byte{0, 0xff, 1}, UpdatedAt: 5, UpdatedBy: "ci"}
	first := store.Secret{Project: "default", Name: "B", Version: 3, Workers: []string{"trusted", "gpu"}, Sealed: []byte("x"), UpdatedAt: 6, UpdatedBy: "admin"}
	for _, s := range []store.Secret{last, first} {
		noError(t, f.PutSecret(t.Context(), s))
	}
	f.reopen(t)
	wantEqual(t, "both", []store.Secret{first, last}, must(f.Secrets(t.Context()))(t))

	first = store.Secret{Project: "default", Name: "B", Version: 4, Sealed: []byte("y"), UpdatedAt: 7, UpdatedBy: "other"}
	noError(t, f.PutSecret(t.Context(), first))
	wantEqual(t, "replaced", []store.Secret{first, last}, must(f.Secrets(t.Context()))(t))

	noError(t, f.DeleteSecret(t.Context(), "default", "B"))
	for _, name := range []string{"B", "A"} { // A is of another project
		if err := f.DeleteSecret(t.Context(), "default", name); muster.CodeOf(err) != muster.NotFound {
			t.Errorf("delete %s: %v", name, err)
		}
	}
	f.reopen(t)
	wantEqual(t, "one left", []store.Secret{last}, must(f.Secrets(t.Context()))(t))
}

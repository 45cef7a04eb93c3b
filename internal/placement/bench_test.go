package placement_test

import (
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
)

// BenchmarkFitsOwner measures a look at a worker whose owner allows some images only.
func BenchmarkFitsOwner(b *testing.B) {
	n := new(placement.Limits).Need("", &muster.TaskSpec{
		Kind: "container", Isolation: "container", Image: "ghcr.io/acme/train:v1", Env: map[string]string{"APP_A": "", "APP_B": ""},
	})
	for name, allow := range map[string]*muster.Allow{"all": nil, "some": testWorker().Allow} {
		w := testWorker()
		w.Kinds, w.Allow = []string{"container"}, allow
		usage := placement.NewWorkerUsage(w)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if f := usage.Fits(n); f != placement.Fits {
					b.Fatal(f)
				}
			}
		})
	}
}

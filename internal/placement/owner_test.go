package placement_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/policy"
)

// drawRefusable draws stages that owners of workers may refuse, or may not, as they are
// once they are normalized.
func drawRefusable(t *rapid.T) *muster.TaskSpec {
	s := &muster.TaskSpec{Kind: rapid.SampledFrom([]string{"process", "script", "container"}).Draw(t, "kind")}
	if rapid.Bool().Draw(t, "env") {
		s.Env = rapid.MapOfN(rapid.SampledFrom([]string{"A", "B", "AB"}), rapid.StringN(0, 3, -1), 0, 2).Draw(t, "variables")
	}
	s.Secrets = rapid.SampledFrom([][]muster.Secret{nil, {{Name: "KEY"}}, {{Name: "KEY", Env: "B"}}, {{Name: "KEY", File: "key"}, {Name: "A"}}}).Draw(t, "secrets")
	s.SignedBy = rapid.SampledFrom([]string{"", "SHA256:a", "SHA256:b"}).Draw(t, "signed by")
	s.Timeout = rapid.SampledFrom([]muster.Duration{0, 1, 2, 3}).Draw(t, "timeout")
	s.Isolation = rapid.SampledFrom([]string{"", "process", "auto", "container"}).Draw(t, "isolation")
	if s.Kind == muster.KindContainer {
		s.Isolation = muster.IsolationContainer
	}
	if s.Isolation == "auto" || s.Isolation == "container" {
		s.Image = rapid.SampledFrom([]string{"python:3.12", "ghcr.io/acme/train", "ghcr.io/acme/eval"}).Draw(t, "image")
		s.Network = rapid.SampledFrom([]string{"", "host", "none"}).Draw(t, "network")
	}
	if rapid.Bool().Draw(t, "container") {
		s.Container = &muster.Container{
			User: rapid.SampledFrom([]string{"", "root", "1000"}).Draw(t, "user"), ReadOnly: rapid.Bool().Draw(t, "read only"),
			Mounts: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) muster.Mount {
				return muster.Mount{Source: rapid.SampledFrom([]string{"/data", "/etc"}).Draw(t, "source"), Target: "/mnt", ReadOnly: rapid.Bool().Draw(t, "ro")}
			}), 0, 2).Draw(t, "mounts"),
		}
	}
	return s
}

func drawAllow(t *rapid.T) *muster.Allow {
	list := func(name string, values ...string) []string {
		return rapid.SampledFrom([][]string{nil, {}, values, values[:1]}).Draw(t, name)
	}
	return rapid.Ptr(rapid.Custom(func(t *rapid.T) muster.Allow {
		return muster.Allow{
			Images: list("images", "ghcr.io/acme/*", "python"), Users: list("users", "1000", ""), Mounts: list("mounts", "/data:ro", "/etc"),
			Env: list("env", "A*", "B"), HostNetwork: rapid.Bool().Draw(t, "host network"),
			Secrets: list("secrets", "K*", "A"), SignedBy: list("signers", "SHA256:a", "SHA256:b"),
			MaxTaskTimeout: rapid.SampledFrom([]muster.Duration{0, 1, 2}).Draw(t, "maximum timeout"),
		}
	}), true).Draw(t, "allow")
}

// TestOwnerPolicyOnNeedsMatchesPolicyOnSpecs checks that a Need keeps everything that
// package policy checks, and that tasks with equal keys get the same result.
func TestOwnerPolicyOnNeedsMatchesPolicyOnSpecs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := testWorker()
		w.Kinds, w.Allow = []string{"process", "script", "container"}, drawAllow(t)
		b := placement.NewWorkerUsage(w)
		one, other := drawRefusable(t), drawRefusable(t)
		l := new(placement.Limits)
		l.Count(w, 1)
		n, m := l.Need("", one), l.Need("", other)
		want := policy.Check(w.Allow, one)
		switch f := b.Fits(n); {
		case (f == placement.Owner) != (want != ""):
			t.Fatalf("filter %q, want the refusal %q", f, want)
		case f == placement.Owner && b.Explain(n, f) != want:
			t.Fatalf("%q, want %q", b.Explain(n, f), want)
		}
		if n.Key() == m.Key() && want != policy.Check(w.Allow, other) {
			t.Fatalf("%+v and %+v have one key, and are not refused alike", one, other)
		}
	})
}

// TestPlainTasksShareOneClass checks that what no owner can refuse is not in the key.
func TestPlainTasksShareOneClass(t *testing.T) {
	t.Parallel()
	plain := muster.TaskSpec{Kind: muster.KindProcess}
	maybe := muster.TaskSpec{
		Kind: muster.KindProcess, Image: "python:3.12", Isolation: muster.IsolationAuto, Network: muster.NetworkNone, Container: &muster.Container{User: "1000"},
	}
	if x, y := new(placement.Limits).Need("", &plain).Key(), new(placement.Limits).Need("", &maybe).Key(); x != y {
		t.Errorf("%q and %q", x, y)
	}
	plain.Env, maybe.Env = map[string]string{"SEED": "1"}, map[string]string{"SEED": "2"}
	if x, y := new(placement.Limits).Need("", &plain).Key(), new(placement.Limits).Need("", &maybe).Key(); x != y {
		t.Errorf("%q and %q", x, y)
	}
}

// TestOwnerPolicyCache checks more images than the cache holds, twice.
func TestOwnerPolicyCache(t *testing.T) {
	t.Parallel()
	w := testWorker()
	w.Kinds, w.Allow = []string{"container"}, &muster.Allow{Images: []string{"acme/*7"}}
	b := placement.NewWorkerUsage(w)
	needs := make([]*placement.Need, 1000)
	for i := range needs {
		needs[i] = need(func(s *muster.TaskSpec) {
			s.Kind, s.Isolation, s.Image = "container", "container", fmt.Sprintf("acme/%d", i)
		})
	}
	for i, n := range slices.Concat(needs, needs) {
		if f := b.Fits(n); (f == placement.Fits) != (i%10 == 7) {
			t.Fatalf("image %d: %q", i, f)
		}
	}
}

func TestExplainNamesOwnerOptions(t *testing.T) {
	t.Parallel()
	contained := func(s *muster.TaskSpec) { s.Kind, s.Image, s.Isolation = "process", "python:3.12", "container" }
	worker := func(name string, change func(*muster.Worker)) *placement.WorkerUsage {
		w := testWorker()
		w.Name, w.Allow = name, nil
		change(w)
		return placement.NewWorkerUsage(w)
	}
	bare := worker("bare", func(*muster.Worker) {})
	small := worker("small", func(w *muster.Worker) { w.Resources.Slots = 0 })
	engine := worker("engine", func(w *muster.Worker) {
		w.Kinds, w.Allow = append(w.Kinds, "container"), &muster.Allow{Images: []string{"ghcr.io/acme/*"}}
	})
	for name, c := range map[string]struct {
		books            []*placement.WorkerUsage
		gang             int
		summary, nearest string
	}{
		"no engine": {
			[]*placement.WorkerUsage{small, bare}, 0,
			"waits for a container engine: 1 worker could run it with one, but none is ready",
			"start Docker or Podman on worker bare (run muster doctor there to find the cause)",
		},
		"nothing would do": {
			[]*placement.WorkerUsage{small}, 0,
			"no worker can run it: 1 filtered out by engine",
			"no change of the request is enough: see what each worker lacks, or start a worker that fits",
		},
		"not allowed": {
			[]*placement.WorkerUsage{engine}, 0,
			"no worker can run it: 1 filtered out by owner",
			"ask the owner of worker engine to allow it",
		},
		"a gang without engines": {
			[]*placement.WorkerUsage{bare, engine, small}, 2,
			"waits for container engines: the gang needs room for 2 tasks at once, and the workers with one that is ready have room for 0",
			"start Docker or Podman on worker bare (run muster doctor there to find the cause)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := need(func(s *muster.TaskSpec) {
				contained(s)
				if c.gang > 0 {
					s.Gang = &muster.Gang{Size: c.gang}
				}
			})
			answers := make([]placement.Evaluation, len(c.books))
			for i, b := range c.books {
				answers[i] = placement.Evaluate(b, n)
			}
			placement.SortEvaluations(answers)
			if got := placement.Summarize(answers); got != c.summary {
				t.Errorf("summary: %s", got)
			}
			if got := placement.Nearest(answers); got != c.nearest {
				t.Errorf("nearest: %s", got)
			}
		})
	}
}

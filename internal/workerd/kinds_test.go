package workerd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
)

func TestAIKindProblems(t *testing.T) {
	for _, ai := range []AI{{}, {CUDAStreams: 4, OptimizeFor: OptimizeLatency, CacheTTL: time.Minute}} {
		if err := ai.check(); err != nil {
			t.Errorf("%+v: %v", ai, err)
		}
	}
	for _, ai := range []AI{{CUDAStreams: -1}, {OptimizeFor: "speed"}, {CacheTTL: -1}} {
		if err := ai.check(); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%+v: %v", ai, err)
		}
	}
}

func TestEnvironmentOfTasks(t *testing.T) {
	if env := (&AI{CacheModels: true}).environ(0); len(env) > 0 {
		t.Errorf("without a policy of the owner: %q", env)
	}
	ai := AI{CUDAStreams: 4, OptimizeFor: OptimizeThroughput, MixedPrecision: true, EnableSwap: true}
	want := []string{"MUSTER_CUDA_STREAMS=4", "MUSTER_OPTIMIZE_FOR=throughput", "MUSTER_MIXED_PRECISION=1", "MUSTER_MEMORY_BUFFER=0.25", "MUSTER_ENABLE_SWAP=1"}
	if env := ai.environ(0.25); !slices.Equal(env, want) {
		t.Errorf("%q", env)
	}
}

// TestAllowedKindsAreKnown checks that an owner's list of kinds may have built-in and custom kinds.
func TestAllowedKindsAreKnown(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "resize"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "name: resize\nabout: Make images smaller.\nentry: [convert]\n"
	if err := os.WriteFile(filepath.Join(dir, "resize", "kind.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &Worker{cfg: Config{AI: AI{Kinds: dir}, Kinds: []string{"resize", "echo", "process"}}, log: slog.New(slog.DiscardHandler)}
	if err := w.cfg.checkKinds(); err != nil {
		t.Error(err)
	}
	w.cfg.Kinds = []string{"resise"}
	if err := w.cfg.checkKinds(); err == nil || !strings.Contains(err.Error(), "unknown kind resise (did you mean resize?)") {
		t.Errorf("%v", err)
	}
	if _, err := ParseKind("Resize me"); err == nil {
		t.Error("Resize me is accepted as a kind")
	}
}

func TestChangedCustomKindsAreReported(t *testing.T) { synctest.Test(t, changedKinds) }

func changedKinds(t *testing.T) {
	var lines bytes.Buffer
	dir := filepath.Join(t.TempDir(), "[own]") // no pattern
	w := &Worker{cfg: Config{AI: AI{Kinds: dir}}, log: slog.New(slog.NewTextHandler(&lines, nil))}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.watchKinds(ctx) }()
	synctest.Wait()               // it has looked for the first time
	time.Sleep(kindsInterval / 2) // the changes come between two looks
	for _, text := range []string{"", "name: words", "name: words2", ""} {
		if text != "" {
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, "words"), 0o700), os.WriteFile(filepath.Join(dir, "words", "kind.yaml"), []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * kindsInterval)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := strings.Count(lines.String(), "custom kinds changed on disk"); n != 2 {
		t.Errorf("two changes are logged %d times: %s", n, &lines)
	}
}

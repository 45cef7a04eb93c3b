package ml

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest/engines"
)

// boxed has a worker with the engine that tests share.
func boxed(t *testing.T, flags ...string) *world {
	t.Helper()
	return start(t, t.TempDir(), append([]string{"--engine", engines.Shared(t)}, flags...)...)
}

// image puts one made from scratch into the engine.
func image(t *testing.T, name string, b engines.Build) string {
	t.Helper()
	return engines.Image(t, engines.Shared(t), fmt.Sprintf("muster-test/%s:%d", name, os.Getpid()), b)
}

// within runs a task in an image, as an ordinary user, who cannot change it.
func within(image string) func(*muster.TaskSpec) {
	return func(s *muster.TaskSpec) {
		s.Image, s.Container = image, &muster.Container{User: "1000:1000", ReadOnly: true}
	}
}

// TestKindsInContainers has the kinds whose program is the worker's own in images that have nothing of theirs, and says what
// an image lacks for the others.
func TestKindsInContainers(t *testing.T) {
	before := engines.Census(t, engines.Shared(t))
	w := boxed(t, "--allow-private-addresses", "--allow-host-network", "--mixed-precision")
	shell := engines.Busybox(t, engines.Shared(t))
	empty := image(t, "empty", engines.Build{Folders: []string{"/tmp"}})

	var back map[string]string
	done := w.do("echo", map[string]string{"a": "b"}, within(empty))
	if done.succeeded(&back); back["a"] != "b" || done.Image == "" {
		t.Errorf("echo gave back %v, in %q", back, done.Image)
	}

	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"id": 7}`) }))
	defer site.Close()
	var called struct{ Response struct{ JSON map[string]int } }
	w.do("api", map[string]string{"url": site.URL}, within(empty), func(s *muster.TaskSpec) { s.Network = muster.NetworkHost }).succeeded(&called)
	if called.Response.JSON["id"] != 7 {
		t.Errorf("api got %+v", called)
	}

	run := func(script string) func(*muster.TaskSpec) {
		return func(s *muster.TaskSpec) { s.Run = &muster.Command{Shell: script} }
	}
	var computed struct{ Values []int }
	done = w.do("compute", map[string]int{"iterations": 3}, within(shell), run(`echo "$(id -u) $MUSTER_MIXED_PRECISION"; touch /no 2>/dev/null && exit 9; echo $((MUSTER_ITERATION * 2))`))
	if done.succeeded(&computed); !slices.Equal(computed.Values, []int{0, 2, 4}) {
		t.Errorf("compute has the values %v: %s", computed.Values, done.Result)
	}
	if out := w.Output(done.ID); out[:7] != "1000 1\n" {
		t.Errorf("it prints %q", out)
	}

	junit := `echo '<testsuite><testcase name="a"/><testcase name="b"><failure message="it is not"/></testcase></testsuite>' > junit.xml; exit 1`
	done = w.do("test", map[string]any{"junit": "junit.xml"}, within(shell), run(junit))
	done.failed(muster.ExitCode, "1 of 2 cases failed: b")
	w.do("test", map[string]any{}, within(shell)).failed(muster.Dependency, "no Python")
	w.do("mnist_training", map[string]any{"dataset": "digits"}, within(shell)).failed(muster.Dependency, "no python3 in the image")
	engines.NothingLeft(t, engines.Shared(t), before)
}

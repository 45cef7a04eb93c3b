package ml

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// newContainerEnv starts a worker with the engine that tests share.
func newContainerEnv(t *testing.T, flags ...string) *env {
	t.Helper()
	return newEnv(t, t.TempDir(), append([]string{"--engine", containertest.SharedEngine(t)}, flags...)...)
}

// loadImage puts one made from scratch into the engine.
func loadImage(t *testing.T, name string, b containertest.ImageSpec) string {
	t.Helper()
	return containertest.LoadImage(t, containertest.SharedEngine(t), fmt.Sprintf("muster-test/%s:%d", name, os.Getpid()), b)
}

// inImage runs a task in an image, as an ordinary user, who cannot change it.
func inImage(image string) func(*muster.TaskSpec) {
	return func(s *muster.TaskSpec) {
		s.Image, s.Container = image, &muster.Container{User: "1000:1000", ReadOnly: true}
	}
}

// TestKindsInContainers runs kinds with a program of the worker in images without Python, and checks which packages an image lacks for the
// others.
func TestKindsInContainers(t *testing.T) {
	w := newContainerEnv(t, "--allow-private-addresses", "--allow-host-network", "--mixed-precision")
	before := containertest.ListResources(t, containertest.SharedEngine(t), w.Data)
	shell := containertest.LoadBusybox(t, containertest.SharedEngine(t))
	empty := loadImage(t, "empty", containertest.ImageSpec{Folders: []string{"/tmp"}})

	var back map[string]string
	done := w.runTask("echo", map[string]string{"a": "b"}, inImage(empty))
	if done.requireSucceeded(&back); back["a"] != "b" || done.Image == "" {
		t.Errorf("echo returned %v, in %q", back, done.Image)
	}

	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"id": 7}`) }))
	defer site.Close()
	var called struct{ Response struct{ JSON map[string]int } }
	w.runTask("api", map[string]string{"url": site.URL}, inImage(empty), func(s *muster.TaskSpec) { s.Network = muster.NetworkHost }).requireSucceeded(&called)
	if called.Response.JSON["id"] != 7 {
		t.Errorf("api got %+v", called)
	}

	run := func(script string) func(*muster.TaskSpec) {
		return func(s *muster.TaskSpec) { s.Run = &muster.Command{Shell: script} }
	}
	var computed struct{ Values []int }
	done = w.runTask("compute", map[string]int{"iterations": 3}, inImage(shell), run(`echo "$(id -u) $MUSTER_MIXED_PRECISION"; touch /no 2>/dev/null && exit 9; echo $((MUSTER_ITERATION * 2))`))
	if done.requireSucceeded(&computed); !slices.Equal(computed.Values, []int{0, 2, 4}) {
		t.Errorf("compute has the values %v: %s", computed.Values, done.Result)
	}
	if out := w.Output(done.ID); out[:7] != "1000 1\n" {
		t.Errorf("it prints %q", out)
	}

	junit := `echo '<testsuite><testcase name="a"/><testcase name="b"><failure message="it is not"/></testcase></testsuite>' > junit.xml; exit 1`
	done = w.runTask("test", map[string]any{"junit": "junit.xml"}, inImage(shell), run(junit))
	done.requireFailed(muster.ExitCode, "1 of 2 cases failed: b")
	w.runTask("test", map[string]any{}, inImage(shell)).requireFailed(muster.Dependency, "Python is not installed")
	w.runTask("mnist_training", map[string]any{"dataset": "digits"}, inImage(shell)).requireFailed(muster.Dependency, "has no python3")
	containertest.AwaitCleanup(t, containertest.SharedEngine(t), w.Data, before)
}

// debianImage creates an image of packages of this machine's Debian, with all of their dependencies, from its installed files.
func debianImage(t *testing.T, name string, packages ...string) string {
	t.Helper()
	for _, program := range []string{"apt-cache", "dpkg", "tar"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: %s is not installed", program)
		}
	}
	// Paths are those of a system whose /bin, /lib, /lib64 and /sbin lead to /usr; what leads from there to alternatives belongs to no package.
	const pack = `
		set -e
		apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$@" |
			grep '^[[:alnum:]]' | sort -u | xargs dpkg -L 2>/dev/null >"$LIST.all" || true
		{
			sed -E 's#^/(bin|lib|lib64|sbin)/#/usr/\1/#' "$LIST.all" |
				grep -vE '^/(bin|lib|lib64|sbin|\.|dev|proc|sys)$|^/(etc/(shadow|gshadow)|usr/(share/(doc|man|locale|unicode|proj)|include|src|lib/gcc|bin/.*-linux-gnu-)|usr/lib/[^/]*/dri)|\.a$'
			find /etc/alternatives
			find /usr/lib /usr/bin -lname '/etc/alternatives/*'
		} | sort -u | while read -r path; do [ ! -e "$path" ] && [ ! -L "$path" ] || printf '%s\n' "$path"; done >"$LIST"
		mkdir "$LIST.root" "$LIST.root/tmp"; chmod 1777 "$LIST.root/tmp"
		for dir in bin lib lib64 sbin; do ln -s "usr/$dir" "$LIST.root/$dir"; done
		tar -c --ignore-failed-read -C "$LIST.root" bin lib lib64 sbin tmp -C / --no-recursion --files-from "$LIST"`
	tar := exec.CommandContext(t.Context(), "bash", append([]string{"-c", pack, "pack"}, packages...)...)
	tar.Env = append(os.Environ(), "LIST="+t.TempDir()+"/list", "LC_ALL=C")
	var output strings.Builder
	tar.Stderr = &output
	files, err := tar.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tar.Start(); err != nil {
		t.Fatal(err)
	}
	host := containertest.SharedEngine(t)
	name = fmt.Sprintf("muster-test/%s:%d", name, os.Getpid())
	created, err := containertest.API(t, host).ImageImport(t.Context(), client.ImageImportSource{Source: files, SourceName: "-"}, name, client.ImageImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer created.Close()
	b, err := io.ReadAll(created)
	if tarred := tar.Wait(); err != nil || tarred != nil || strings.Contains(string(b), `"error"`) {
		t.Fatalf("the image %s: %v, %v: %s %s", name, err, tarred, b, output.String())
	}
	t.Cleanup(func() {
		api, err := client.New(client.WithHost(host))
		if err != nil {
			return
		}
		defer api.Close()
		_, _ = api.ImageRemove(context.Background(), name, client.ImageRemoveOptions{Force: true}) // the engine may be gone
	})
	return name
}

// TestTrainingInAContainer trains with the PyTorch of an image, as an ordinary user who cannot change it, and checks the error for missing
// packages.
func TestTrainingInAContainer(t *testing.T) {
	if os.Getenv("MUSTER_TEST_ML") == "" {
		t.Skip("skipped: it makes an image of a GiB: run make test-ml")
	}
	requireModules(t, "torch", "sklearn", "pandas", "matplotlib", "PIL")
	w := newContainerEnv(t)
	bare := debianImage(t, "bare", "python3", "python3-numpy")
	input := map[string]any{"dataset": "digits", "epochs": 5}
	w.runTask("mnist_training", input, inImage(bare)).requireFailed(muster.Dependency, bare+" lacks torch>=1.13 and scikit-learn", "for runtime torch", "leave image out")

	torch := debianImage(t, "torch", "python3-torch", "python3-sklearn", "python3-pandas", "python3-matplotlib", "python3-pil")
	var result struct {
		FinalAccuracy float64
		ModelURL      string
	}
	done := w.runTask("mnist_training", input, inImage(torch))
	done.requireSucceeded(&result)
	if result.FinalAccuracy < 0.95 || !strings.HasPrefix(result.ModelURL, "ipfs://Qm") || done.Image == "" || done.Progress == nil || *done.Progress != 1 {
		t.Errorf("in %q it came to %v: %s", done.Image, done.Progress, done.Result)
	}
	if model := done.file("model.pt"); len(model) < 10_000 {
		t.Errorf("model.pt has %d bytes", len(model))
	}
	if done.Metrics["val_accuracy"] != result.FinalAccuracy {
		t.Errorf("its figures are %v", done.Metrics)
	}
	input["learning_rate"] = 1e30
	w.runTask("mnist_training", input, inImage(torch)).requireFailed(muster.Diverged, "take a smaller learning_rate")
}

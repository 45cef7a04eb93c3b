package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
	"github.com/muster-dev/muster/internal/testkit"
)

// pushImage pushes a new image to a registry, and removes it from the engine after the test.
func pushImage(w *testEnv, r *containertest.Registry, name string, size int) (ref, digest string) {
	w.t.Helper()
	b := containertest.ShellImage(w.t)
	filler := make([]byte, size) // which packs badly
	x := uint32(testSeq.Add(1))<<1 | 1
	for i := range filler {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		filler[i] = byte(x)
	}
	b.Texts = map[string]string{"/filler": string(filler)}
	ref, digest = r.Push(w.t, name, b)
	w.t.Cleanup(func() {
		ctx := context.WithoutCancel(w.t.Context())
		for _, name := range []string{ref, strings.TrimSuffix(ref, ref[strings.LastIndex(ref, ":"):]) + "@" + digest} {
			_, _ = w.api.ImageRemove(ctx, name, client.ImageRemoveOptions{Force: true, PruneChildren: true})
		}
	})
	return ref, digest
}

func TestImageIsPulledOnceAndPinnedByDigest(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	ref, digest := pushImage(w, r, "acme/tool:1", 1000)
	r.Throttle(2 * time.Millisecond) // for each of about 300 chunks: only slow pulls are logged
	want := strings.TrimSuffix(ref, ":1") + "@" + digest
	for range 2 {
		if c := w.mustCreate(newSpec(ref, "true")); c.Image != want || c.Engine != w.host {
			t.Errorf("the container is %+v: want the image %s", c, want)
		}
	}
	if n := r.Requests("GET /v2/acme/tool/blobs/"); n != 2 {
		t.Errorf("%d blobs were requested, want the configuration and one layer", n)
	}
	if !strings.Contains(w.lines.String(), "pulled the image "+ref) {
		t.Errorf("the task log does not mention the pull: %s", &w.lines)
	}
}

func TestDigestPinsAnImage(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	ref, digest := pushImage(w, r, "acme/pin:1", 1000)
	name := strings.TrimSuffix(ref, ":1")
	for _, pinned := range []string{name + "@" + digest, ref + "@" + digest} {
		if c := w.mustCreate(newSpec(pinned, "true")); c.Image != name+"@"+digest {
			t.Errorf("%s became %s", pinned, c.Image)
		}
	}
	_, err := w.create(newSpec(name+"@sha256:"+strings.Repeat("0", 64), "true"))
	wantTaskError(t, err, muster.ImageMissing, "acme/pin@sha256:000")
}

func TestPullPolicies(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	ref, first := pushImage(w, r, "acme/policy:1", 1000)
	by := func(policy string) (*run.Container, error) {
		b := newSpec(ref, "true")
		b.Task.Spec.Container = &muster.Container{Pull: policy}
		return w.create(b)
	}
	_, err := by(muster.PullNever)
	wantTaskError(t, err, muster.ImageMissing, "container.pull is never")
	if r.Requests("") != 0 {
		t.Error("the registry was queried although the policy is never")
	}
	if _, err := by(muster.PullMissing); err != nil {
		t.Fatal(err)
	}
	_, second := pushImage(w, r, "acme/policy:1", 1000)
	for _, c := range []struct{ policy, digest string }{
		{muster.PullMissing, first}, {muster.PullNever, first}, {muster.PullAlways, second}, {muster.PullNever, second},
	} {
		got, err := by(c.policy)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(got.Image, c.digest) {
			t.Errorf("with %s the image is %s: want %s", c.policy, got.Image, c.digest)
		}
	}
	r.SetFault(containertest.Failing)
	_, err = by(muster.PullAlways)
	wantTaskError(t, err, muster.ImagePull)
	if _, err := by(muster.PullMissing); err != nil {
		t.Errorf("a local image required the registry: %v", err)
	}
}

func TestMissingImages(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	pushImage(w, r, "acme/there:1", 1000)
	for _, c := range []struct {
		image  string
		reason muster.Reason
		part   string
	}{
		{r.Addr + "/acme/there:2", muster.ImageMissing, "check its name and tag"},
		{r.Addr + "/acme/nothere:1", muster.ImageMissing, "check its name and tag"},
		{"127.0.0.1:1/acme/tool:1", muster.ImagePull, "check that the worker can reach the registry"},
	} {
		_, err := w.create(newSpec(c.image, "true"))
		wantTaskError(t, err, c.reason, c.part, c.image)
	}
}

func TestFailingRegistries(t *testing.T) {
	for name, c := range map[string]struct {
		fault containertest.Fault
		part  string
		stall time.Duration
	}{
		"failing": {containertest.Failing, "500", time.Minute}, "limited": {containertest.RateLimited, "rate limit", time.Minute}, "corrupt": {containertest.Corrupt, "verification failed", time.Minute},
		"cut": {containertest.Truncated, "no data received for", 700 * time.Millisecond}, // the engine tries by itself, for more than a minute
	} {
		t.Run(name, func(t *testing.T) {
			w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
			w.timeouts.stall = c.stall
			ref, _ := pushImage(w, r, "acme/"+name+":1", 1000)
			r.SetFault(c.fault)
			_, err := w.create(newSpec(ref, "true"))
			wantTaskError(t, err, muster.ImagePull, ref, c.part)
			if n := strings.Count(w.lines.String(), "retrying"); n != len(testTimeouts.retryDelays) {
				t.Errorf("it was retried %d times: want %d", n, len(testTimeouts.retryDelays))
			}
			r.SetFault(containertest.NoFault)
			w.timeouts.stall = time.Minute
			w.mustCreate(newSpec(ref, "true"))
		})
	}
}

func TestCredentialsAreSentOnlyToTheirRegistry(t *testing.T) {
	r := containertest.NewRegistry(t)
	r.RequireAuth("ann", "s3cret-of-ann")
	right := newTestEnv(t, func(c *Config) { c.Credentials = writeAuthFile(t, map[string]string{r.Addr: "ann:s3cret-of-ann"}) })
	ref, _ := pushImage(right, r, "acme/private:1", 1000)
	for _, by := range map[string]map[string]string{"none": nil, "wrong": {r.Addr: "ann:no-s3cret"}, "of another": {"127.0.0.2:5000": "ann:s3cret-of-ann"}} {
		w := newTestEnv(t, func(c *Config) { c.Credentials = writeAuthFile(t, by) })
		_, err := w.create(newSpec(ref, "true"))
		wantTaskError(t, err, muster.ImageMissing, "docker login", ref)
		if strings.Contains(w.lines.String()+err.Error(), "s3cret") {
			t.Errorf("a secret was logged: %v\n%s", err, &w.lines)
		}
	}
	b := newSpec(ref, "env")
	out, _ := right.runContainer(b)
	if strings.Contains(out+right.lines.String(), "s3cret") {
		t.Errorf("the secret was logged: %s\n%s", out, &right.lines)
	}
}

// TestPublicImagesNeedNoCredentials checks that a damaged file of credentials, and a failing helper,
// do not prevent pulls that need none, and are reported: to the task, in the log, and in the error of a failed pull.
func TestPublicImagesNeedNoCredentials(t *testing.T) {
	r := containertest.NewRegistry(t)
	for name, c := range map[string]struct{ file, part string }{
		"damaged":              {`{"auths":`, "is not a config.json of Docker"},
		"a damaged entry":      {`{"auths": {"` + r.Addr + `": {"auth": "%%"}}}`, "log in again"},
		"a helper that is not": {`{"credsStore": "no-such-program"}`, "docker-credential-no-such-program"},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeAuthFile(t, nil)
			w := newTestEnv(t, func(c *Config) { c.Credentials = path })
			if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil { // after the worker's start
				t.Fatal(err)
			}
			r.RequireAuth("", "")
			ref, _ := pushImage(w, r, "acme/public:1", 1000)
			w.mustCreate(newSpec(ref, "true"))
			for _, part := range []string{"level=WARN", "pulled " + ref + " without credentials: ", c.part} {
				if n := strings.Count(w.lines.String(), part); n == 0 || part != c.part && n > 1 {
					t.Errorf("%q is logged %d times: %s", part, n, &w.lines)
				}
			}
			private, _ := pushImage(w, r, "acme/private:2", 1000)
			r.RequireAuth("ann", "s3cret-of-ann")
			_, err := w.create(newSpec(private, "true"))
			wantTaskError(t, err, muster.ImageMissing, "docker login", c.part)
		})
	}
}

func TestStalledPullIsRetried(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	w.timeouts.stall = 300 * time.Millisecond
	ref, _ := pushImage(w, r, "acme/stall:1", 200_000)
	r.Stall(50_000)
	_, err := w.create(newSpec(ref, "true"))
	wantTaskError(t, err, muster.ImagePull, "no data received for 300ms")
	if n := strings.Count(w.lines.String(), "retrying"); n != len(testTimeouts.retryDelays) {
		t.Errorf("it was retried %d times: want %d", n, len(testTimeouts.retryDelays))
	}
	r.Resume()
	w.timeouts.stall = time.Minute
	w.mustCreate(newSpec(ref, "true"))
}

// TestSlowPullFails checks that a pull that is too slow is cancelled, so that waiting pulls get its slot.
func TestSlowPullFails(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	w.timeouts.slowWindow, w.timeouts.minRate = 300*time.Millisecond, 1<<30
	ref, _ := pushImage(w, r, "acme/trickle:1", 1<<20)
	r.Throttle(20 * time.Millisecond)
	_, err := w.create(newSpec(ref, "true"))
	wantTaskError(t, err, muster.ImagePull, "less than 1GiB per second for 300ms")
	if n := strings.Count(w.lines.String(), "retrying"); n != len(testTimeouts.retryDelays) {
		t.Errorf("it was retried %d times: want %d", n, len(testTimeouts.retryDelays))
	}
	if n := len(w.puller.slots); n != 0 {
		t.Errorf("%d places are still taken", n)
	}
	w.timeouts.minRate = 0
	r.Throttle(0)
	w.mustCreate(newSpec(ref, "true"))
}

// TestRateWindow checks what counts as too slow.
func TestRateWindow(t *testing.T) {
	const kib = 1 << 10
	type step struct {
		after time.Duration
		at    docker.PullProgress
		slow  bool
	}
	at := func(done int64) docker.PullProgress { return docker.PullProgress{Done: done, Total: 1 << 40} }
	unpacking := docker.PullProgress{Done: 5 * kib, Total: 5 * kib, Unpacking: true}
	for name, steps := range map[string][]step{
		"fast enough":           {{0, at(0), false}, {5 * time.Minute, at(3000 * kib), false}, {5 * time.Minute, at(6000 * kib), false}},
		"too slow":              {{0, at(0), false}, {4 * time.Minute, at(kib), false}, {time.Minute, at(2999 * kib), true}},
		"too slow later":        {{0, at(0), false}, {5 * time.Minute, at(9000 * kib), false}, {5 * time.Minute, at(9001 * kib), true}},
		"unpacking":             {{0, at(0), false}, {20 * time.Minute, unpacking, false}, {20 * time.Minute, unpacking, false}},
		"a layer after it":      {{0, unpacking, false}, {20 * time.Minute, unpacking, false}, {time.Minute, at(5 * kib), false}},
		"sizes are not known":   {{0, docker.PullProgress{}, false}, {20 * time.Minute, docker.PullProgress{}, false}},
		"the first word late":   {{20 * time.Minute, at(kib), false}},
		"a long pause, made up": {{0, at(0), false}, {10 * time.Minute, at(6000 * kib), false}},
	} {
		p, now := rateWindow{}, time.Now()
		for i, s := range steps {
			now = now.Add(s.after)
			if got := p.tooSlow(s.at, now, &defaultTimeouts); got != s.slow {
				t.Errorf("%s, step %d: too slow %t", name, i, got)
			}
		}
	}
}

func TestConcurrentPullsAreShared(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	ref, _ := pushImage(w, r, "acme/many:1", 200_000)
	r.Stall(50_000)
	var wait sync.WaitGroup
	errs := make([]error, 50)
	for i := range errs {
		wait.Go(func() { _, errs[i] = w.ensureImage(t.Context(), ref, "", workerAccess(ref), w.lines.add, w.lines.add) })
	}
	w.await("all wait", func() bool { return w.waiters(ref) == len(errs) })
	r.Resume()
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if n := r.Requests("GET /v2/acme/many/blobs/"); n != 2 {
		t.Errorf("%d blobs were requested, want the configuration and one layer", n)
	}
}

func TestConcurrentPullsOfMissingImageAreShared(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	ref := r.Addr + "/acme/nowhere:1"
	var wait sync.WaitGroup
	errs := make([]error, 50)
	for i := range errs {
		wait.Go(func() { _, errs[i] = w.ensureImage(t.Context(), ref, "", workerAccess(ref), w.lines.add, w.lines.add) })
	}
	wait.Wait()
	for _, err := range errs {
		wantTaskError(t, err, muster.ImageMissing)
	}
	if n := r.Requests("/v2/acme/nowhere/manifests/"); n > 4 {
		t.Errorf("the registry received %d requests", n)
	}
}

func TestPullEndsWithoutWaiters(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	ref, _ := pushImage(w, r, "acme/leave:1", 200_000)
	r.Stall(50_000)
	stopped := &run.Stopped{Outcome: muster.AttemptCancelled, Reason: muster.CancelledByUser}
	one, endOne := context.WithCancelCause(t.Context())
	two, endTwo := context.WithCancelCause(t.Context())
	ends := make(chan error, 2)
	for _, ctx := range []context.Context{one, two} {
		go func() {
			_, err := w.ensureImage(ctx, ref, "", workerAccess(ref), w.lines.add, w.lines.add)
			ends <- err
		}()
	}
	w.await("both wait", func() bool { return w.waiters(ref) == 2 })
	w.await("bytes came", func() bool { return strings.Contains(w.lines.String(), "% of") })
	endOne(stopped)
	if err := <-ends; !errors.Is(err, stopped) {
		t.Errorf("the displaced client got %v", err)
	}
	if n := w.waiters(ref); n != 1 {
		t.Fatalf("%d wait: want only the other task, whose pull continues", n)
	}
	endTwo(stopped)
	if err := <-ends; !errors.Is(err, stopped) {
		t.Errorf("the displaced client got %v", err)
	}
	if w.waiters(ref) != 0 || len(w.puller.slots) != 0 {
		t.Error("the pull did not end")
	}
	r.Resume()
	w.mustCreate(newSpec(ref, "true"))
}

func TestAtMostThreeConcurrentPulls(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	var refs []string
	for i := range maxPulls + 1 {
		ref, _ := pushImage(w, r, fmt.Sprintf("acme/turn%d:1", i), 100_000)
		refs = append(refs, ref)
	}
	r.Stall(20_000)
	var wait sync.WaitGroup
	for _, ref := range refs {
		wait.Go(func() {
			if _, err := w.ensureImage(t.Context(), ref, "", workerAccess(ref), w.lines.add, w.lines.add); err != nil {
				t.Error(err)
			}
		})
	}
	w.await("one waits for its turn", func() bool {
		return strings.Contains(w.lines.String(), "waiting for other pulls") && len(w.puller.slots) == maxPulls
	})
	r.Resume()
	wait.Wait()
}

// waiters is how many wait for an image.
func (w *testEnv) waiters(ref string) int {
	w.puller.mu.Lock()
	defer w.puller.mu.Unlock()
	if f := w.puller.inFlight[pullKey{ref: ref}]; f != nil {
		return f.waiters
	}
	return 0
}

// await waits until cond is true, and shows the lines of the log if it is not.
func (w *testEnv) await(desc string, cond func() bool) {
	w.t.Helper()
	err := testkit.Poll(w.t.Context(), testkit.Limit, func() error {
		if !cond() {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", desc, err, &w.lines)
	}
}

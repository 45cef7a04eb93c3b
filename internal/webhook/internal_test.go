package webhook

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/wake"
)

// The logged error of a failed attempt has neither the URL, which may contain a secret, nor the address of the server's resolver.
func TestPlain(t *testing.T) {
	lookup := &net.DNSError{Err: "no such host", Name: "hooks.example", Server: "10.255.255.53:53", IsNotFound: true}
	inside, anywhere := &Sender{}, &Sender{allowAny: true}
	for _, err := range []error{
		&url.Error{Op: "Post", URL: "https://hooks.example/secret", Err: &net.OpError{Op: "dial", Net: "tcp", Err: lookup}},
		&url.Error{Op: "Post", URL: "https://hooks.example/secret", Err: errors.New("connection reset")},
	} {
		if text := anywhere.redactError(err).Error(); strings.Contains(text, "secret") || strings.Contains(text, "10.255") || text == "" {
			t.Errorf("%v is shown as %q", err, text)
		}
	}
	if got, want := anywhere.redactError(lookup).Error(), "the host hooks.example: no such host"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	refused := &url.Error{Op: "Post", URL: "https://wiki.internal/", Err: &net.OpError{Op: "dial", Net: "tcp", Err: checkAddress("10.0.0.7:443", nil)}}
	if a, b := inside.redactError(refused).Error(), inside.redactError(lookup).Error(); a != b || strings.Contains(a, "10.0") {
		t.Errorf("a known name is reported as %q, an unknown one as %q", a, b)
	}
}

// Addresses are refused in every notation.
func TestAllowed(t *testing.T) {
	lan := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:1::/32")}
	for address, want := range map[string]struct{ usually, lan bool }{
		"8.8.8.8":                {true, true},
		"2606:4700:4700::1111":   {true, true},
		"::ffff:8.8.8.8":         {true, true},
		"10.1.2.3":               {false, true},
		"::ffff:10.1.2.3":        {false, true},
		"::ffff:0a01:0203":       {false, true},
		"fd00:1::7":              {false, true},
		"fd00:2::7":              {false, false},
		"192.168.0.1":            {false, false},
		"127.0.0.1":              {false, false},
		"::1":                    {false, false},
		"::":                     {false, false},
		"0.0.0.0":                {false, false},
		"169.254.169.254":        {false, false},
		"::ffff:169.254.169.254": {false, false},
		"fe80::1":                {false, false},
		"fe80::1%eth0":           {false, false},
		"fc00::1":                {false, false},
		"fec0::1":                {false, false},
		"ff02::1":                {false, false},
		"::ffff:127.0.0.1":       {false, false},
		"::127.0.0.1":            {false, false}, // IPv4-compatible
		"::ffff:0:10.0.0.1":      {false, false}, // IPv4-translated
		"64:ff9b::10.0.0.1":      {false, false}, // NAT64
		"64:ff9b::a9fe:a9fe":     {false, false},
		"64:ff9b:1::10.0.0.1":    {false, false},
		"2002:a00:1::1":          {false, false}, // 6to4 of 10.0.0.1
		"2002:7f00:1::":          {false, false},
		"2001:0:4136:e378::":     {false, false}, // Teredo
		"2001:10::1":             {false, false},
		"2001:db8::1":            {false, false},
		"3fff::1":                {false, false},
		"5f00::1":                {false, false},
		"100::1":                 {false, false},
		"100.64.0.1":             {false, false},
	} {
		ip := netip.MustParseAddr(address)
		if got := addressAllowed(ip, nil); got != want.usually {
			t.Errorf("%s: %t, want %t", address, got, want.usually)
		}
		if got := addressAllowed(ip, lan); got != want.lan {
			t.Errorf("%s with 10.0.0.0/8 and fd00:1::/32 allowed: %t, want %t", address, got, want.lan)
		}
	}
}

// singleJobStore is a store with one job.
type singleJobStore struct {
	Store

	job muster.Job
}

func (s *singleJobStore) Job(context.Context, muster.JobID) (muster.Job, error) { return s.job, nil }

func (s *singleJobStore) ProjectNotify(context.Context, string) ([]muster.Notify, error) {
	return nil, nil
}

func (s *singleJobStore) Tasks(context.Context, store.TaskQuery) ([]muster.Task, string, error) {
	return nil, "", nil
}

// A job that is cancelled and retried between two rounds is not looked at when the wait before it was to be.
func TestRetryIsSentInTime(t *testing.T) {
	n := muster.Notify{URL: "https://hooks.example/", On: []string{muster.OnWaitingLong}, After: muster.Duration(10 * time.Minute)}
	s := &singleJobStore{job: muster.Job{ID: 1, CreatedAt: 1_000, Counts: muster.Counts{muster.Queued: 1}, Spec: &muster.Spec{Notify: []muster.Notify{n}}}}
	w, err := New(t.Context(), Config{Store: s, KeyFile: filepath.Join(t.TempDir(), "webhook.key")})
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{Sender: w, nextChecks: map[muster.JobID]nextCheck{}}
	at := func(now muster.Time, idle store.IdleJob) store.EnqueueBatch {
		t.Helper()
		var x store.EnqueueBatch
		if err := l.checkWait(t.Context(), &x, &store.WatchedJob{Job: s.job, Idle: idle}, now, map[string][]muster.Notify{}); err != nil {
			t.Fatal(err)
		}
		return x
	}
	minute := muster.Time(time.Minute.Milliseconds())
	x := at(1_000+10*minute, store.IdleJob{})
	if len(x.Deliveries) != 1 || len(x.Idle) != 1 {
		t.Fatalf("after 10 minutes: %+v", x)
	}
	if x := at(1_000+11*minute, x.Idle[0]); len(x.Deliveries) != 0 {
		t.Errorf("a minute later: %+v", x)
	}
	s.job.RetriedAt = 1_000 + 12*minute
	if x := at(1_000+13*minute, store.IdleJob{}); len(x.Deliveries) != 0 {
		t.Errorf("a minute after the retry: %+v", x)
	}
	if x := at(1_000+22*minute, store.IdleJob{}); len(x.Deliveries) != 1 || x.Idle[0].Since != s.job.RetriedAt {
		t.Errorf("10 minutes after the retry: %+v", x)
	}
}

// slowStore is an empty store with slow calls.
type slowStore struct {
	Store

	rounds int
}

func (s *slowStore) JobEnds(ctx context.Context, _ int) ([]store.JobEnd, error) {
	if ctx.Err() == nil {
		s.rounds++
		time.Sleep(time.Second)
	}
	return nil, ctx.Err()
}

func (s *slowStore) WatchedJobs(context.Context, muster.JobID, int) ([]store.WatchedJob, error) {
	return nil, nil
}

func (s *slowStore) Due(context.Context, muster.Time, int, map[int64]bool) ([]store.Delivery, muster.Time, error) {
	return nil, 0, nil
}

// Rounds take a fifth of the time at most, whatever wakes the loop.
func TestRoundsAreThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{}
		l := &loop{Sender: &Sender{cfg: Config{Store: s}, wake: wake.New()}, done: make(chan store.Delivery, maxAttempts)}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		var running sync.WaitGroup
		running.Go(func() { l.run(ctx) })
		for ctx.Err() == nil {
			<-tick.C
			wake.Set(l.wake)
		}
		running.Wait()
		if s.rounds < 15 || s.rounds > 20 {
			t.Errorf("%d rounds of a second in 100 seconds, want 20 at most", s.rounds)
		}
	})
}

package auditlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/audit"
)

// memory is a store whose transactions take 10 ms.
type memory struct {
	mu           sync.Mutex
	records      []audit.Record
	transactions int
	err          error
}

func (m *memory) AppendAudit(_ context.Context, records []audit.Record) (head audit.Head, err error) {
	time.Sleep(10 * time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return audit.Head{}, m.err
	}
	m.transactions++
	var last muster.Time
	if n := len(m.records); n > 0 {
		head, last = audit.Head{Seq: m.records[n-1].Seq, Hash: m.records[n-1].Hash}, m.records[n-1].At
	}
	for i := range records {
		head = audit.Append(head, last, &records[i])
		last = records[i].At
		m.records = append(m.records, records[i])
	}
	return head, nil
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *memory) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.records)
}

// sum returns the occurrences with an outcome.
func (m *memory) sum(o audit.Outcome) (n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.records {
		if m.records[i].Outcome == o {
			n += m.records[i].Count
		}
	}
	return n
}

// run runs test with a Recorder in virtual time. stop ends the Recorder.
func run(t *testing.T, test func(t *testing.T, r *Recorder, m *memory, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		r := New(m, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = r.Run(ctx) })
		stop := func() {
			cancel()
			wg.Wait()
		}
		defer stop()
		test(t, r, m, stop)
	})
}

func now() muster.Time { return muster.NewTime(time.Now()) }

func change(i int) audit.Record {
	return audit.Record{At: now(), Key: "k1", Operation: "cancel-job", Object: fmt.Sprint("job/", i), Outcome: audit.Allowed}
}

func TestWriteReturnsWhenTheRecordIsStored(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, r *Recorder, m *memory, _ func()) {
		t.Helper()
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				r.Write(t.Context(), change(i))
				m.mu.Lock()
				defer m.mu.Unlock()
				for j := range m.records {
					if m.records[j].Object == change(i).Object {
						return
					}
				}
				t.Errorf("record %d is not stored", i)
			})
		}
		wg.Wait()
		if d := time.Since(start); m.len() != 100 || m.transactions > 3 || d > 50*time.Millisecond {
			t.Errorf("%d records in %d transactions and %s: they are not grouped", m.len(), m.transactions, d)
		}
	})
}

func TestAddIsStoredSoon(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, r *Recorder, m *memory, _ func()) {
		t.Helper()
		for i := range 50 {
			r.Add(change(i))
		}
		time.Sleep(FlushInterval + 20*time.Millisecond)
		synctest.Wait()
		if m.len() != 50 || m.transactions != 1 {
			t.Errorf("%d records in %d transactions", m.len(), m.transactions)
		}
	})
}

func TestStopWritesAllThatRemains(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, r *Recorder, m *memory, stop func()) {
		t.Helper()
		r.Add(change(1))
		for range 5 {
			r.Count(audit.Record{At: now(), Operation: "list-jobs", Outcome: audit.Denied, Status: 401})
		}
		r.Stop()
		stop()
		if n := m.len(); n != 4 || m.sum(audit.Denied) != 5 || m.sum(audit.Allowed) != 2 {
			t.Errorf("%d records: %+v", n, m.records)
		}
	})
}

func TestIdenticalDenialsAreOneRecordAMinute(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, r *Recorder, m *memory, stop func()) {
		t.Helper()
		for range 600 * 60 { // 600 a second for a minute
			r.Count(audit.Record{At: now(), Address: "192.0.2.1", Operation: "list-jobs", Outcome: audit.Denied, Status: 401})
			time.Sleep(time.Second / 600)
		}
		stop()
		if n, sum := m.len(), m.sum(audit.Denied); n > 4 || sum != 36_000 {
			t.Errorf("%d records stand for %d denials", n, sum)
		}
		if first := m.records[0]; first.Count != 1 || first.Until != 0 {
			t.Errorf("the first denial is not recorded by itself: %+v", first)
		}
		if second := m.records[1]; second.Count < 30_000 || second.Until.Sub(second.At) < muster.Duration(50*time.Second) {
			t.Errorf("the others: %+v", second)
		}
	})
}

// A flood of different denials is bounded, loses no count, and does not hide the denial of a known key.
func TestFloodIsBounded(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, r *Recorder, m *memory, stop func()) {
		t.Helper()
		const floods = 100_000
		for i := range floods {
			r.Count(audit.Record{At: now(), Address: fmt.Sprint("192.0.2.", i), Operation: "list-jobs", Outcome: audit.Denied, Status: 401})
			time.Sleep(time.Millisecond * 6)
		}
		r.Count(audit.Record{At: now(), Key: "k1", Operation: "create-key", Outcome: audit.Denied, Status: 403})
		stop()
		// In 10 minutes: the burst, one for each 5 s, and one for all others each minute.
		if n, sum := m.len(), m.sum(audit.Denied); n > 200+120+11+5 || sum != floods+1 {
			t.Errorf("%d records stand for %d denials", n, sum)
		}
		found := false
		for i := range m.records {
			found = found || m.records[i].Operation == "create-key"
		}
		if !found {
			t.Error("the denial of a known key is hidden")
		}
	})
}

// While records cannot be written, changes are refused, and what was recorded is written later.
func TestAFailingStoreStopsChanges(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, r *Recorder, m *memory, _ func()) {
		t.Helper()
		m.fail(muster.Errorf(muster.StorageFull, "no space left"))
		start := time.Now()
		r.Write(t.Context(), change(1))
		if d := time.Since(start); d < writeTimeout || d > writeTimeout+time.Second {
			t.Errorf("Write returned after %s", d)
		}
		if err := r.Ready(); muster.CodeOf(err) != muster.StorageFull {
			t.Errorf("ready: %v", err)
		}
		for range 100 {
			r.Count(audit.Record{At: now(), Address: fmt.Sprint(time.Now()), Operation: "list-jobs", Outcome: audit.Denied})
		}
		m.fail(nil)
		time.Sleep(2 * time.Second)
		if err := r.Ready(); err != nil || m.len() == 0 || m.records[0].Object != "job/1" {
			t.Errorf("%v, %d records", err, m.len())
		}
	})
}

func TestPendingRecordsAreBounded(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, r *Recorder, m *memory, stop func()) {
		t.Helper()
		m.fail(errors.New("broken"))
		for i := range maxPending {
			r.Add(change(i))
		}
		if err := r.Ready(); err == nil {
			t.Error("changes are accepted")
		}
		r.Count(audit.Record{At: now(), Operation: "list-jobs", Outcome: audit.Denied})
		if len(r.pending) != maxPending {
			t.Errorf("%d pending", len(r.pending))
		}
		m.fail(nil)
		time.Sleep(time.Minute)
		stop()
		if m.len() != maxPending+1 || m.sum(audit.Denied) != 1 {
			t.Errorf("%d records, %d denials", m.len(), m.sum(audit.Denied))
		}
	})
}

package bridge

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

// TestClosedJobsAreForgotten checks that a bridge removes old closed jobs in memory and on disk.
func TestClosedJobsAreForgotten(t *testing.T) {
	b, err := New(Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	now := time.Now()
	var records []*record
	for i := range maxClosedJobs + closedSlack {
		records = append(records, &record{ID: strconv.Itoa(i), State: stateReported, At: muster.NewTime(now.Add(-time.Duration(i) * time.Second))})
	}
	records[10].At = muster.NewTime(now.Add(-closedTTL - time.Hour))
	if err := b.outbox.put(records...); err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		b.track(r)
	}
	open := &record{ID: "open", State: stateAccepted, Spec: &muster.Spec{}}
	if err := b.outbox.put(open); err != nil {
		t.Fatal(err)
	}
	b.track(open)
	j := b.jobs["open"]
	if err := b.update(j, func(r *record) { r.State = stateReported }); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.pruneNeeded:
	default:
		t.Error("that there are too many is not noticed")
	}
	b.pruneClosed(now)
	list, err := readRecords(b.outbox.db)
	if err != nil || len(list) != maxClosedJobs || len(b.closed) != maxClosedJobs {
		t.Errorf("%d are on disk, %d in memory, %v", len(list), len(b.closed), err)
	}
	if b.Known("10") || b.Known(strconv.Itoa(maxClosedJobs+5)) || !b.Known("open") || !b.Known("0") {
		t.Error("others are remembered than the newest")
	}
}

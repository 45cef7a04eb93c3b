package engine_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/tasklog"
)

// fullLogs stores only the first bytes of each log while full is set, like a full disk.
type fullLogs struct {
	engine.Logs

	full atomic.Bool
}

const fits = 4

func (l *fullLogs) AppendChunk(ctx context.Context, a muster.AttemptID, c *tasklog.Chunk, limit int64) (int64, error) {
	if !l.full.Load() || c.End() <= fits {
		return l.Logs.AppendChunk(ctx, a, c, limit)
	}
	size, err := l.Logs.AppendChunk(ctx, a, &tasklog.Chunk{Offset: c.Offset, Data: c.Data[:max(0, fits-c.Offset)]}, limit)
	if err != nil {
		return size, err
	}
	return size, muster.Errorf(muster.StorageFull, "no space left for the log of %s", a)
}

// TestFullLogDiskDelaysOnlyLogs checks that log bytes without space are refused with a pause,
// while the rest of their frame is accepted and the session continues.
func TestFullLogDiskDelaysOnlyLogs(t *testing.T) {
	logs := &fullLogs{}
	r := start(t, func(cfg *engine.Config) {
		logs.Logs = cfg.Logs
		cfg.Logs = logs
	})
	p := r.connect(t)
	id := r.submit(t, 2)
	p.next(t, "an offer", assigns)
	logs.full.Store(true)
	first := muster.AttemptID{Task: muster.TaskID{Job: id}, N: 1}
	second := muster.AttemptID{Task: muster.TaskID{Job: id, Num: 1}, N: 1}
	err := p.Handle(t.Context(), &link.ToServer{
		Logs: []link.LogChunk{
			{Attempt: first, Data: []byte("some bytes")},
			{Attempt: first, Offset: 10, Data: []byte("and more")},
			{Attempt: second, Data: []byte("fits")},
		},
		Finished: []muster.Report{succeeded(first), succeeded(second)},
	})
	if err != nil {
		t.Fatalf("the session ended: %v", err)
	}
	ack := p.next(t, "a log acknowledgement", func(f *link.ToWorker) bool { return len(f.LogAck) > 0 }).LogAck
	if len(ack) != 3 || ack[0].Size != fits || ack[0].Pause <= 0 || ack[1].Size != fits || ack[2] != (link.LogAck{Attempt: second, Size: fits}) {
		t.Errorf("the logs are acknowledged by %+v", ack)
	}
	acked := p.next(t, "acknowledged results", func(f *link.ToWorker) bool { return len(f.FinishedAck) > 0 })
	if len(acked.FinishedAck) != 2 {
		t.Errorf("acknowledged are %v", acked.FinishedAck)
	}
	logs.full.Store(false)
	if err := p.Handle(t.Context(), &link.ToServer{Logs: []link.LogChunk{{Attempt: first, Offset: ack[0].Size, Data: []byte(" bytesand more")}}}); err != nil {
		t.Fatal(err)
	}
	ack = p.next(t, "a log acknowledgement", func(f *link.ToWorker) bool { return len(f.LogAck) > 0 }).LogAck
	if ack[0] != (link.LogAck{Attempt: first, Size: 18}) {
		t.Errorf("after there is space: %+v", ack)
	}
}

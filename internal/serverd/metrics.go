package serverd

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/eventbus"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/sweeper"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/traceparent"
)

// registerMetrics registers the server's metrics. Gauges are read from components that are created later.
func (s *Server) registerMetrics() {
	if s.cfg.Metrics == nil {
		s.cfg.Metrics = obs.NewRegistry(obs.Build{Version: s.cfg.Version})
	}
	s.metrics = obs.NewServer(s.cfg.Metrics, s.sample)
}

// sample returns the current values of the gauges.
func (s *Server) sample(ctx context.Context) obs.ServerSample {
	sample := obs.ServerSample{
		Inbox: s.engine.Backlog(), Sessions: s.engine.Sessions(), StoreSize: s.storeSize(), Disk: obs.DiskUsage(s.dataDisk()),
	}
	if s.certs != nil {
		sample.Ends = s.certs.Ends()
	}
	if s.engine.Health() == nil {
		sample.Fleet, _ = s.engine.Fleet(ctx) // nil after an error
		// Zero after an error, like Fleet.
		sample.Removals.Waiting, sample.Removals.LastPass, _ = s.sweeper.Progress(ctx)
	}
	return sample
}

// storeSize returns the size of the database files in bytes, 0 if it is unknown.
func (s *Server) storeSize() (size int64) {
	for _, name := range []string{"muster.db", "muster.db-wal"} {
		info, err := os.Stat(filepath.Join(s.cfg.Data, name))
		switch {
		case err == nil:
			size += info.Size()
		case !os.IsNotExist(err):
			return 0
		}
	}
	return size
}

// observeDeleted counts what a batch of the sweeper deleted.
func (s *Server) observeDeleted(d sweeper.Deleted) {
	for what, n := range map[string]int64{
		"jobs": d.Jobs, "tasks": d.Tasks, "logs": d.Logs, "artifacts": d.Artifacts, "late_reports": d.LateReports, "workers": d.Workers, "blobs": d.Blobs,
	} {
		s.metrics.Removed(what, n)
	}
	s.metrics.Freed(d.LogBytes, d.BlobBytes)
}

// observeBatch is called for each batch of the engine.
func (s *Server) observeBatch(b sched.Batch) {
	s.metrics.ObserveBatch(&b)
	if !s.cfg.Tracer.QueueBatch(&b) {
		s.metrics.SpansDropped()
	}
	if s.log.Enabled(context.Background(), slog.LevelDebug) {
		s.logBatch(&b)
	}
}

// logBatch logs accepted jobs and the ends of attempts and jobs.
func (s *Server) logBatch(b *sched.Batch) {
	if b.Failed {
		return
	}
	for i := range b.Submitted {
		j := &b.Submitted[i]
		s.log.Debug("job submitted", slog.String("job", j.Job.String()), slog.String("trace_id", traceparent.TraceText(j.UID)))
	}
	for i := range b.Effects.AttemptsEnded {
		e := &b.Effects.AttemptsEnded[i]
		s.log.Debug("attempt ended", slog.String("attempt", e.Attempt.String()), slog.String("worker", string(e.Worker)),
			slog.String("outcome", string(e.Outcome)), slog.String("reason", string(e.Reason)), slog.String("trace_id", traceparent.TraceText(e.UID)))
	}
	for i := range b.Effects.JobsEnded {
		j := &b.Effects.JobsEnded[i]
		s.log.Debug("job ended", slog.String("job", j.Job.String()), slog.String("state", string(j.State)), slog.String("trace_id", traceparent.TraceText(j.UID)))
	}
}

// countingBus is an event bus that counts events.
type countingBus struct {
	*eventbus.Bus

	metrics *obs.Server
}

// Publish implements engine.Publisher.
func (c countingBus) Publish(events []muster.Event) {
	c.metrics.Published(events)
	c.Bus.Publish(events)
}

// countingLogs counts the stored bytes of logs.
type countingLogs struct {
	*tasklog.Dir

	metrics *obs.Server
}

// AppendChunk implements engine.Logs.
func (c countingLogs) AppendChunk(ctx context.Context, a muster.AttemptID, chunk *tasklog.Chunk, limit int64) (int64, error) {
	size, err := c.Dir.AppendChunk(ctx, a, chunk, limit)
	if err == nil {
		c.metrics.LogBytes(len(chunk.Data))
	}
	return size, err
}

// countingConn counts the frames of a worker's session.
type countingConn struct {
	link.ServerConn

	metrics  *obs.Server
	rejected func(error) // for the errors of Recv
}

// watchedFrames passes the errors of Read to rejected.
type watchedFrames struct {
	link.FrameConn

	rejected func(error)
}

// Read implements link.FrameConn.
func (c watchedFrames) Read(ctx context.Context) ([]byte, error) {
	b, err := c.FrameConn.Read(ctx)
	if err != nil {
		c.rejected(err)
	}
	return b, err
}

// Send implements link.ServerConn.
func (c countingConn) Send(ctx context.Context, f *link.ToWorker) error {
	err := c.ServerConn.Send(ctx, f)
	if err == nil {
		c.metrics.FrameOut()
	}
	return err
}

// Recv implements link.ServerConn.
func (c countingConn) Recv(ctx context.Context) (*link.ToServer, error) {
	f, err := c.ServerConn.Recv(ctx)
	if err != nil {
		c.rejected(err)
		return f, err
	}
	renewed := 0
	if f.Renew != nil {
		renewed = len(f.Renew.Held)
	}
	c.metrics.FrameIn(renewed)
	return f, nil
}

// countingBlobs counts transferred bytes of blobs.
type countingBlobs struct {
	blob.Store

	metrics *obs.Server
}

// Open implements blob.Store.
func (c countingBlobs) Open(ctx context.Context, sha256 string) (io.ReadSeekCloser, error) {
	r, err := c.Store.Open(ctx, sha256)
	if err != nil {
		return nil, err
	}
	return &countingReadSeeker{r, c.metrics}, nil
}

// Quarantine implements blob.Store.
func (c countingBlobs) Quarantine(ctx context.Context, sha256 string, read io.ReadSeekCloser) (bool, error) {
	if counting, ok := read.(*countingReadSeeker); ok {
		read = counting.ReadSeekCloser
	}
	return c.Store.Quarantine(ctx, sha256, read)
}

// Put implements blob.Store.
func (c countingBlobs) Put(ctx context.Context, sha256 string, offset int64, r io.Reader) error {
	return c.Store.Put(ctx, sha256, offset, countingReader{r, c.metrics})
}

// ForOwner implements blob.Store.
func (c countingBlobs) ForOwner(owner string) blob.Uploader {
	return countingUploads{c.Store.ForOwner(owner), c.metrics}
}

type countingUploads struct {
	blob.Uploader

	metrics *obs.Server
}

// Put implements blob.Uploader.
func (c countingUploads) Put(ctx context.Context, sha256 string, offset int64, r io.Reader) error {
	return c.Uploader.Put(ctx, sha256, offset, countingReader{r, c.metrics})
}

type countingReadSeeker struct {
	io.ReadSeekCloser

	metrics *obs.Server
}

func (c *countingReadSeeker) Read(b []byte) (int, error) {
	n, err := c.ReadSeekCloser.Read(b)
	c.metrics.BlobBytesOut(n)
	return n, err
}

type countingReader struct {
	io.Reader

	metrics *obs.Server
}

func (c countingReader) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.metrics.BlobBytesIn(n)
	return n, err
}

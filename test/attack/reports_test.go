//go:build linux

package attack

import (
	"bytes"
	"context"
	"io/fs"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/mustertest/testworker"
	"github.com/muster-dev/muster/internal/tasklog"
)

// rawConn is a worker's session whose frames need not be valid.
type rawConn struct {
	e     *env
	conn  link.FrameConn
	codec link.WorkerCodec
}

// textFrames are the messages of a WebSocket.
type textFrames struct{ ws *websocket.Conn }

func (f textFrames) Write(ctx context.Context, b []byte, _ bool) error {
	return f.ws.Write(ctx, websocket.MessageText, b)
}

func (f textFrames) Read(ctx context.Context) ([]byte, error) {
	_, b, err := f.ws.Read(ctx)
	return b, err
}

func (f textFrames) Close() error { return f.ws.CloseNow() }

func (e *env) dialRaw(worker testworker.Worker) *rawConn {
	e.t.Helper()
	credential, err := worker.Current(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	header, seal := http.Header{"Authorization": {"Bearer " + credential.Token}}, link.OfferSeal(credential.Secret, "")
	seal.SetNonce(header)
	ws, resp, err := websocket.Dial(e.t.Context(), e.url(link.PathSocket), &websocket.DialOptions{HTTPClient: e.http, HTTPHeader: header})
	if err != nil {
		e.t.Fatal(err, resp)
	}
	ws.SetReadLimit(link.MaxSealed)
	e.t.Cleanup(func() { _ = ws.CloseNow() })
	conn, err := seal.Worker(textFrames{ws}, resp.Header)
	if err != nil {
		e.t.Fatal(err)
	}
	return &rawConn{e: e, conn: conn}
}

// send sends a frame after it was spoiled: old is replaced in its JSON.
func (c *rawConn) send(f *link.ToServer, old, spoiled string) {
	c.e.t.Helper()
	b, err := c.codec.Encode(f)
	if err != nil {
		c.e.t.Fatal(err)
	}
	if !bytes.Contains(b, []byte(old)) {
		c.e.t.Fatalf("%s is not in %s", old, b)
	}
	if err := c.conn.Write(c.e.t.Context(), bytes.Replace(b, []byte(old), []byte(spoiled), 1), false); err != nil {
		c.e.t.Fatal(err)
	}
}

// receive reads frames until one is what is awaited.
func (c *rawConn) receive(desc string, match func(*link.ToWorker) bool) *link.ToWorker {
	c.e.t.Helper()
	ctx, cancel := context.WithTimeout(c.e.t.Context(), awaitTimeout)
	defer cancel()
	for {
		b, err := c.conn.Read(ctx)
		if err != nil {
			c.e.t.Fatalf("waiting for %s: %v", desc, err)
		}
		f, err := c.codec.Decode(b)
		if err != nil {
			c.e.t.Fatal(err)
		}
		if match(f) {
			return f
		}
	}
}

// TestAbsurdPricesAreRefused has workers that ask for more than there is, or for less than nothing: they are not connected.
func TestAbsurdPricesAreRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, price := range []string{"1e308", "-1", "1e999", "10000000", "2.5"} {
		worker := e.join("w")
		conn := e.dialRaw(worker)
		h := hello(worker, "w")
		h.Price = 1.25
		conn.send(&link.ToServer{Hello: h}, `"price":1.25`, `"price":`+price)
		if f := conn.receive("an answer", func(*link.ToWorker) bool { return true }); (f.Welcome != nil) != (price == "2.5") {
			t.Errorf("a worker with a price of %s is answered %+v", price, f)
		}
	}
}

// TestAbsurdReportsDoNoHarm reports sizes and usage beyond all measure: the session ends, and the job does not.
func TestAbsurdReportsDoNoHarm(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for spoiled, old := range map[string]string{`"log_size":4611686018427387904`: `"log_size":7`, `"log_size":-1`: `"log_size":7`, `"cost":1e308`: `"cost":1.5`, `"cost":-1`: `"cost":1.5`, `"wall_seconds":1e999`: `"wall_seconds":1`} {
		worker := e.join("w")
		conn := e.dialRaw(worker)
		conn.send(&link.ToServer{Hello: hello(worker, "w")}, "", "")
		conn.receive("a welcome", func(f *link.ToWorker) bool { return f.Welcome != nil })
		conn.send(&link.ToServer{Ready: &link.Ready{}}, "", "")
		job, err := e.Client.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindNoop}}}, client.SubmitOptions{})
		if err != nil {
			t.Fatal(err)
		}
		id := muster.AttemptID{}
		conn.receive("an assignment", func(f *link.ToWorker) bool {
			for _, a := range f.Assign {
				if a.Attempt.Task.Job == job.ID {
					id = a.Attempt
				}
			}
			return id != muster.AttemptID{}
		})
		report := muster.Report{Attempt: id, Outcome: muster.AttemptSucceeded, LogSize: 7, Usage: &muster.Usage{WallSeconds: 1, Cost: 1.5}, FinishedAt: muster.NewTime(time.Now())}
		conn.send(&link.ToServer{Finished: []muster.Report{report}}, old, spoiled)
		conn.receive("a goodbye to "+spoiled, func(f *link.ToWorker) bool { return f.Goodbye != nil })
		if got, err := e.Client.Job(t.Context(), job.ID); err != nil || got.State.Final() || got.Cost > 1e6 {
			t.Errorf("%s: the job is %s and costs %g, %v", spoiled, got.State, got.Cost, err)
		}
		if _, err := e.Client.Cancel(t.Context(), job.ID, nil); err != nil {
			t.Error(err)
		}
	}
}

// TestLogOfAnAttemptIsBounded sends more log than a job's log_cap and the 256 MiB for samples, and continues after the attempt has ended.
func TestLogOfAnAttemptIsBounded(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	_, conn := e.connect("w")
	job, err := e.Client.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindProcess, Run: &muster.Command{Shell: "true"}, LogCap: 1 << 20}}}, client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	id := e.assignment(conn, job.ID)
	record := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Stdout, Data: make([]byte, 1<<20-1000)})
	offset := int64(0)
	push := func() {
		e.send(conn, &link.ToServer{Logs: []link.LogChunk{{Attempt: id, Offset: offset, Data: record}}})
		e.receive(conn, "an acknowledgement", func(f *link.ToWorker) bool { return len(f.LogAck) > 0 })
		offset += int64(len(record))
	}
	stored := func() (size int64) {
		t.Helper()
		err := filepath.WalkDir(filepath.Join(e.DataDir, "logs"), func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				info, errInfo := d.Info()
				if errInfo == nil {
					size += info.Size()
				}
				err = errInfo
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return size
	}
	for range 280 {
		push()
	}
	before := stored()
	if before > 258<<20 || before < 200<<20 {
		t.Errorf("the server stored %d of %d MiB", before>>20, offset>>20)
	}
	e.send(conn, &link.ToServer{Finished: []muster.Report{{Attempt: id, Outcome: muster.AttemptSucceeded, FinishedAt: muster.NewTime(time.Now())}}})
	e.Wait(job.ID, awaitTimeout)
	for range 5 {
		push()
	}
	if after := stored(); after > before {
		t.Errorf("the server stored %d bytes more after the end", after-before)
	}
}

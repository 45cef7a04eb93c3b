package trainforge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/trainforge/project"
)

const (
	maxPending = 20     // jobs in one pending list
	maxTickets = 10_000 // that may be claimed
)

// externalBeat is a heartbeat of worker C. One of an unknown worker is refused, so that it registers again.
func (g *Gateway) externalBeat(q *request) error {
	var body beat
	if err := q.decode(&body); err != nil {
		return err
	}
	w, err := g.known(q, q.r.PathValue("id"))
	if err != nil {
		return err
	}
	w.Touch(nil)
	if body.CurrentJob != "" {
		if t := g.task(q, body.CurrentJob); t != nil && t.Worker() == w {
			g.track(t).sign()
		}
	}
	return q.answer(map[string]any{"success": true, "message": "Heartbeat received", "worker_id": w.ID(), "timestamp": epoch(time.Now())})
}

// pending lists what may be claimed. Who asks is not known: each entry has a ticket, and the claim decides which task it stands for.
func (g *Gateway) pending(q *request) error {
	if err := mayWork(q); err != nil {
		return err
	}
	type offered struct {
		task *fleet.Task
		near int
	}
	var open []offered
	remote := q.remote()
	for _, w := range g.fleet.Workers() {
		f := w.Facts()
		if f.Labels[formLabel] != external || gone(w) || f.Key != q.caller.Key {
			continue
		}
		if time.Since(w.Seen()) > g.time.silence && g.idle(w) {
			continue
		}
		for _, t := range w.Tasks() {
			if g.claimable(t) && g.offer(t, 0) {
				open = append(open, offered{t, distance(f.Remote, remote)})
			}
		}
	}
	slices.SortStableFunc(open, func(a, b offered) int {
		return cmp.Or(cmp.Compare(a.near, b.near), a.task.Offered().Compare(b.task.Offered()))
	})
	list := []job{}
	for _, o := range open {
		if len(list) >= maxPending {
			break
		}
		list = append(list, g.taskJob(o.task, g.ticket()))
	}
	g.nudge()
	return q.answer(list)
}

func distance(a, b netip.Addr) int {
	if a == b {
		return 0
	}
	return 1
}

// claimable reports whether nobody claimed a task.
func (g *Gateway) claimable(t *fleet.Task) bool {
	return !t.Began() && g.track(t).get().Ticket == ""
}

// ticket makes an id for an entry of a pending list.
func (g *Gateway) ticket() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.tickets) >= maxTickets {
		clear(g.tickets) // those who hold one ask again
	}
	id := newID()
	g.tickets[id] = time.Now()
	return id
}

// claim gives the job of a ticket to a worker: the oldest of those that the server placed on it.
func (g *Gateway) claim(q *request) error {
	var body claim
	if err := q.decode(&body); err != nil {
		return err
	}
	if body.WorkerID == "" {
		return &failure{http.StatusBadRequest, "worker_id is required"}
	}
	if err := mayWork(q); err != nil {
		return err
	}
	w, err := g.known(q, body.WorkerID)
	if err != nil {
		return err
	}
	if formOf(w) != external {
		return &failure{http.StatusBadRequest, "only workers that registered with a worker_id claim jobs"}
	}
	w.Touch(nil)
	id := q.r.PathValue("id")
	t, err := g.await(q.r.Context(), w, id)
	if err != nil {
		return err
	}
	answer := claimed{Success: true, Message: "Job claimed successfully", JobID: id, WorkerID: w.ID()}
	if gang := t.Run().Gang; gang != nil {
		answer.Distributed = true
		answer.Dist = &dist{Rank: gang.Rank, WorldSize: gang.Size, MasterAddr: gang.Master, MasterPort: gang.Port}
	}
	return q.answer(answer)
}

// await binds a ticket as soon as there is a task for the worker.
func (g *Gateway) await(ctx context.Context, w *fleet.Worker, ticket string) (*fleet.Task, error) {
	end := time.Now().Add(g.time.hold)
	for {
		t, err := g.bind(w, ticket)
		if !errors.Is(err, errNoTask) {
			return t, err
		}
		if w.Facts().Labels["worker_type"] == bridgeType || time.Now().After(end) || ctx.Err() != nil {
			return nil, allocated()
		}
		pauseFor(ctx, g.time.hold/20)
	}
}

// errNoTask says that a ticket may be claimed, and that the server placed no task on the worker.
var errNoTask = errors.New("no task")

func allocated() error { return &failure{http.StatusBadRequest, "Job already fully allocated"} }

// bind makes a ticket the name of a task of w. It is done at most once for a ticket and once for a task; a repetition by the same worker, whose answer was lost, is
// answered alike.
func (g *Gateway) bind(w *fleet.Worker, ticket string) (*fleet.Task, error) {
	if t := g.fleet.Task(g.resolve(ticket)); t != nil {
		if t.Worker() == w && !t.Began() && g.track(t).get().Ticket == ticket {
			return t, nil
		}
		return nil, allocated()
	}
	g.mu.Lock()
	_, valid := g.tickets[ticket]
	_, used := g.bound[ticket]
	g.mu.Unlock()
	switch {
	case used:
		return nil, allocated()
	case !valid:
		return nil, jobNotFound()
	}
	if !g.idle(w) && w.Facts().Resources.MaxTasks == 1 {
		w.Idle() // it would not claim a job while it runs one; what it ran is given up when it stays silent
	}
	for _, t := range w.Tasks() {
		at := g.track(t)
		at.mu.Lock()
		ready := at.ready
		at.mu.Unlock()
		if !ready || !g.claimable(t) {
			continue
		}
		return t, g.seal(t, at, ticket)
	}
	return nil, errNoTask
}

// seal binds a ticket, on disk too: the worker knows its job by nothing else.
func (g *Gateway) seal(t *fleet.Task, at *track, ticket string) error {
	g.mu.Lock()
	if _, valid := g.tickets[ticket]; !valid {
		g.mu.Unlock()
		return allocated()
	}
	delete(g.tickets, ticket)
	g.bound[ticket] = t.ID()
	g.mu.Unlock()
	taken := false
	err := at.note(func(n *noted) {
		if taken = n.Ticket != ""; !taken {
			n.Ticket = ticket
		}
	})
	if err == nil && taken {
		err = allocated()
	}
	if err != nil {
		g.mu.Lock()
		delete(g.bound, ticket)
		g.mu.Unlock()
		return err
	}
	at.mu.Lock()
	at.shown = time.Now() // from now on it is the worker's to begin
	at.mu.Unlock()
	return nil
}

// remembered reports whether there was a task of this id.
func (g *Gateway) remembered(id string) bool {
	g.mu.Lock()
	_, was := g.bound[id]
	g.mu.Unlock()
	return was || g.late(id)
}

// report is worker C's word on a job.
func (g *Gateway) report(q *request) error {
	var body update
	if err := q.decode(&body); err != nil {
		return err
	}
	if strings.TrimSpace(body.Status) == "" {
		return &failure{http.StatusBadRequest, "status is required"}
	}
	id := q.r.PathValue("id")
	ok := map[string]any{"success": true, "job_id": id, "status": cut(body.Status, 40)}
	t := g.task(q, id)
	if t == nil {
		if final(body.Status) && g.late(id) || g.remembered(id) {
			return q.answer(ok)
		}
		return jobNotFound()
	}
	t.Worker().Touch(nil)
	if err := g.hear(q, t, &body, nil); err != nil {
		return err
	}
	return q.answer(ok)
}

func final(status string) bool {
	return status == statusCompleted || status == statusFailed || status == statusCancelled
}

// files is a job's project: of a worker's task, or of a client's job.
func (g *Gateway) files(q *request) error {
	id := q.r.PathValue("id")
	t := g.task(q, id)
	if t == nil {
		return g.submitted(q, id)
	}
	t.Worker().Touch(nil)
	if err := g.begin(t, g.track(t)); err != nil { // the worker for Kaggle says nothing else before it has installed packages
		if muster.CodeOf(err) == muster.Conflict {
			return jobNotFound()
		}
		return err
	}
	folder, err := t.Folder(q.r.Context())
	if err != nil {
		return err
	}
	p, err := project.New(t.Run(), id, q.base(), folder, deviceNumbers(t.Run().Grant), false)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(g.uploadsDir(), "files-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // at the next start at the latest
	defer f.Close()
	if err := p.Write(q.r.Context(), f, project.Most); err != nil {
		return err
	}
	return q.attach(f, "project.zip")
}

// attach answers with a zip file.
func (q *request) attach(f *os.File, name string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "application/zip")
	q.w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
	http.ServeContent(q.w, q.r, "", info.ModTime(), f)
	return nil
}

// logBatch is lines of worker C.
func (g *Gateway) logBatch(q *request) error {
	var body logBatch
	if err := q.decode(&body); err != nil {
		return err
	}
	if len(body.Logs) == 0 {
		return &failure{http.StatusBadRequest, "logs array is required"}
	}
	if len(body.Logs) > maxLogLines {
		return muster.Errorf(muster.TooLarge, "a batch has at most %s lines", strconv.Itoa(maxLogLines))
	}
	var lines []string
	for _, l := range body.Logs {
		lines = append(lines, splitLines(l.Message)...)
	}
	return g.takeLines(q, lines)
}

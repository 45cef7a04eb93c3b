package trainforge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/dialect/trainforge/project"
	"github.com/muster-dev/muster/internal/wake"
)

const (
	maxPending = 20     // jobs in one pending list
	maxTickets = 10_000 // that may be claimed
)

// externalHeartbeat is a heartbeat of worker C. One of an unknown worker is refused, so that it registers again.
func (g *Gateway) externalHeartbeat(req *request, w *fleet.Worker, body *heartbeat) error {
	if body.CurrentJob != "" {
		if t := g.task(req, body.CurrentJob); t != nil && t.Worker() == w {
			g.state(t).touch()
		}
	}
	return req.reply(map[string]any{"success": true, "message": "Heartbeat received", "worker_id": w.ID(), "timestamp": lenient.UnixSeconds(time.Now())})
}

// pending lists what may be claimed. The caller is unknown: each entry has a ticket, which a claim binds to a task.
func (g *Gateway) pending(req *request) error {
	if err := req.caller.CanJoinWorkers(); err != nil {
		return err
	}
	type offered struct {
		task     *fleet.Task
		distance int
	}
	var open []offered
	remote := dialect.RemoteAddr(req.r)
	for _, w := range g.Fleet.Workers() {
		f := w.Facts()
		if f.Labels[labelForm] != formExternal || isInactive(w) || f.Key != req.caller.Key {
			continue
		}
		if time.Since(w.LastSeen()) > g.timeouts.silence && isIdle(w) {
			continue
		}
		distance := 1
		if f.Remote == remote {
			distance = 0
		}
		for _, t := range w.Tasks() {
			if g.isClaimable(t) && g.recordOffer(t, 0) {
				open = append(open, offered{t, distance})
			}
		}
	}
	slices.SortStableFunc(open, func(a, b offered) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), a.task.OfferedAt().Compare(b.task.OfferedAt()))
	})
	list := []job{}
	for _, o := range open[:min(len(open), maxPending)] {
		list = append(list, g.taskJob(o.task, g.ticket()))
	}
	wake.Set(g.wake)
	return req.reply(list)
}

func (g *Gateway) isClaimable(t *fleet.Task) bool {
	return !t.Started() && g.state(t).snapshot().Ticket == ""
}

// ticket makes an id for an entry of a pending list.
func (g *Gateway) ticket() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.tickets) >= maxTickets {
		clear(g.tickets) // those who hold one ask again
	}
	id := dialect.NewUUID()
	g.tickets[id] = time.Now()
	return id
}

// claim gives the job of a ticket to a worker: the oldest of those that the server placed on it.
func (g *Gateway) claim(req *request, w *fleet.Worker, _ *claimRequest) error {
	if workerForm(w) != formExternal {
		return &statusError{http.StatusBadRequest, "only workers that registered with a worker_id claim jobs"}
	}
	id := req.r.PathValue("id")
	t, err := g.awaitTask(req.r.Context(), w, id)
	if err != nil {
		return err
	}
	answer := claimAnswer{Success: true, Message: "Job claimed successfully", JobID: id, WorkerID: w.ID()}
	if gang := t.Run().Gang; gang != nil {
		answer.Distributed = true
		answer.Dist = &dist{Rank: gang.Rank, WorldSize: gang.Size, MasterAddr: gang.Master, MasterPort: gang.Port}
	}
	return req.reply(answer)
}

// awaitTask binds a ticket as soon as there is a task for the worker.
func (g *Gateway) awaitTask(ctx context.Context, w *fleet.Worker, ticket string) (*fleet.Task, error) {
	end := time.Now().Add(g.timeouts.claimHold)
	for {
		t, err := g.bindTask(w, ticket)
		if !errors.Is(err, errNoTask) {
			return t, err
		}
		if w.Facts().Labels["worker_type"] == bridgeType || time.Now().After(end) || ctx.Err() != nil {
			return nil, errAllocated()
		}
		_ = backoff.Sleep(ctx, g.timeouts.claimHold/20)
	}
}

// errNoTask says that a ticket may be claimed, and that the server placed no task on the worker.
var errNoTask = errors.New("no task")

func errAllocated() error { return &statusError{http.StatusBadRequest, "Job already fully allocated"} }

// bindTask makes a ticket the name of a task of w. It is done at most once for a ticket and once for a task; a repetition by the same worker, whose answer was lost, is
// answered alike.
func (g *Gateway) bindTask(w *fleet.Worker, ticket string) (*fleet.Task, error) {
	if t := g.Fleet.Task(g.resolve(ticket)); t != nil {
		if t.Worker() == w && !t.Started() && g.state(t).snapshot().Ticket == ticket {
			return t, nil
		}
		return nil, errAllocated()
	}
	g.mu.Lock()
	_, valid := g.tickets[ticket]
	_, bound := g.boundTickets[ticket]
	g.mu.Unlock()
	switch {
	case bound:
		return nil, errAllocated()
	case !valid:
		return nil, jobNotFound()
	}
	if !isIdle(w) && w.Facts().Resources.MaxTasks == 1 {
		w.MarkIdle() // it would not claim a job while it runs one; what it ran is given up when it stays silent
	}
	for _, t := range w.Tasks() {
		if ts := g.state(t); ts.ready.Load() && g.isClaimable(t) {
			return t, g.bindTicket(t, ts, ticket)
		}
	}
	return nil, errNoTask
}

// bindTicket binds a ticket, on disk too: the worker knows its job by nothing else.
func (g *Gateway) bindTicket(t *fleet.Task, ts *taskState, ticket string) error {
	g.mu.Lock()
	if _, valid := g.tickets[ticket]; !valid {
		g.mu.Unlock()
		return errAllocated()
	}
	delete(g.tickets, ticket)
	g.boundTickets[ticket] = t.ID()
	g.mu.Unlock()
	bound := false
	err := ts.save(func(n *savedState) {
		if bound = n.Ticket != ""; !bound {
			n.Ticket = ticket
		}
	})
	if err == nil && bound {
		err = errAllocated()
	}
	if err != nil {
		g.mu.Lock()
		delete(g.boundTickets, ticket)
		g.mu.Unlock()
		return err
	}
	ts.mu.Lock()
	ts.offeredAt = time.Now() // from now on it is the worker's to begin
	ts.mu.Unlock()
	return nil
}

// wasTask reports whether there was a task of this id. One that has not ended belongs to another key.
func (g *Gateway) wasTask(id string) bool {
	if g.Fleet.Task(g.resolve(id)) != nil {
		return false
	}
	g.mu.Lock()
	_, bound := g.boundTickets[id]
	g.mu.Unlock()
	return bound || g.isLate(id)
}

// externalJobStatus handles PUT /api/jobs/{id}/status, a job status of worker C.
func (g *Gateway) externalJobStatus(req *request, body *update) error {
	if strings.TrimSpace(body.Status) == "" {
		return &statusError{http.StatusBadRequest, "status is required"}
	}
	id := req.r.PathValue("id")
	ok := map[string]any{"success": true, "job_id": id, "status": lenient.Text(body.Status, 40)}
	t := g.task(req, id)
	if t == nil {
		if isFinal(body.Status) && g.isLate(id) || g.wasTask(id) {
			return req.reply(ok)
		}
		return jobNotFound()
	}
	t.Worker().Touch(nil)
	if err := g.applyStatus(req, t, body, nil); err != nil {
		return err
	}
	return req.reply(ok)
}

func isFinal(status string) bool {
	return status == statusCompleted || status == statusFailed || status == statusCancelled
}

// files is a job's project: of a worker's task, or of a client's job.
func (g *Gateway) files(req *request) error {
	id := req.r.PathValue("id")
	t := g.task(req, id)
	if t == nil {
		return g.sendProject(req, id)
	}
	t.Worker().Touch(nil)
	if err := g.markStarted(t, g.state(t)); err != nil { // the worker for Kaggle says nothing else before it has installed packages
		if muster.CodeOf(err) == muster.Conflict {
			return jobNotFound()
		}
		return err
	}
	folder, err := t.FetchInputs(req.r.Context())
	if err != nil {
		return err
	}
	p, err := project.New(t.Run(), id, req.externalURL(), folder, deviceNumbers(t.Run().Grant), false)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(g.uploadsDir(), "files-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // at the next start at the latest
	defer f.Close()
	if err := p.Write(req.r.Context(), f, project.MaxBytes); err != nil {
		if errors.Is(err, fs.ErrNotExist) { // the task has just ended, and its folder is removed
			return jobNotFound()
		}
		return err
	}
	return req.sendFile(f, "project.zip")
}

func (req *request) sendFile(f *os.File, name string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	req.w.Header().Set("Content-Type", "application/zip")
	req.w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
	http.ServeContent(req.w, req.r, "", info.ModTime(), f)
	return nil
}

func (g *Gateway) addLogBatch(req *request, body *logBatch) error {
	if len(body.Logs) == 0 {
		return &statusError{http.StatusBadRequest, "logs array is required"}
	}
	if len(body.Logs) > maxLogLines {
		return muster.Errorf(muster.TooLarge, "a batch has at most %s lines", strconv.Itoa(maxLogLines))
	}
	var lines []string
	for _, l := range body.Logs {
		lines = append(lines, splitLines(l.Message)...)
	}
	return g.appendLines(req, lines)
}

package mlochost

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// claim is what a delivery is about.
type claim struct {
	task    *fleet.Task // the attempt that it is of; nil if it is of none that runs
	known   bool        // the task is one of this host
	settled bool        // and nothing may be changed any more: the delivery is late, or of another worker
}

// running returns the attempt of a task, by the id that workers know, that runs now. After a restart of the gateway the
// attempt's own token finds it before its worker was heard of.
func (g *Gateway) running(id, token string) *fleet.Task {
	g.mu.Lock()
	d := g.dispatches[id]
	g.mu.Unlock()
	if d != nil {
		return d.task
	}
	if t := g.fleet.Task(token); t != nil && g.wireID(t) == id {
		return t
	}
	return nil
}

// claimOf finds out whose delivery a request is. token is what it carries as X-Muster-Task or as bearer token, worker the
// id in its body; both may be absent, as in what users send by hand.
func (g *Gateway) claimOf(id, token, worker string) claim {
	t := g.running(id, token)
	_, known := g.ledger.get(id)
	c := claim{task: t, known: known || t != nil}
	switch {
	case t != nil && token != "" && token != t.ID(), t != nil && worker != "" && worker != t.Worker().ID():
		c.task, c.settled = nil, true
	case t == nil && (known || token != ""):
		c.settled = true
	}
	return c
}

// deliverer says whether a request may deliver for a task: with the token of its attempt, or as a client.
func (g *Gateway) deliverer(r *http.Request, id string) (token string, err error) {
	b := bearer(r)
	if t := g.running(id, b); t != nil && b == t.ID() {
		return b, nil
	}
	return r.Header.Get(headerTask), g.allowed(r, true)
}

// arrived notes that the result of an attempt is here.
func (g *Gateway) arrived(t *fleet.Task, id string) error {
	t.Worker().Touch(nil)
	if _, record := g.ledger.get(id); !record {
		return nil
	}
	_, err := g.ledger.change(id, func(rec *task) error { rec.Attempt = t.Run().Attempt.N; return nil })
	return err
}

// delivered reports whether the result of a dispatched task is here.
func (g *Gateway) delivered(d *dispatch) bool {
	if d.record {
		t, _ := g.ledger.get(d.id)
		return t.Attempt == d.task.Run().Attempt.N
	}
	_, err := g.results.get(d.id) // its id is of this attempt alone
	return err == nil
}

// postResult takes the result of a task. One that is late is answered like any other, and has no effect.
func (g *Gateway) postResult(w http.ResponseWriter, r *http.Request) error {
	if g.closed() && bearer(r) == "" {
		if err := g.allowed(r, true); err != nil { // before anything is read
			return err
		}
	}
	b, err := dialect.ReadBody(r, mloc.MaxResult+64<<10)
	if err != nil {
		return err
	}
	in, err := readDelivery(b)
	if err != nil {
		return err
	}
	token, err := g.deliverer(r, in.TaskID)
	if err != nil {
		return err
	}
	c := g.claimOf(in.TaskID, token, in.WorkerID)
	at := path.Join("results", mloc.SafeID(in.TaskID), mloc.FileResponses)
	if c.settled {
		g.figures.count(&g.figures.late)
		answer(w, http.StatusOK, mloc.Object{"ok": true, "path": at})
		return nil
	}
	in.ReceivedAt = mloc.Stamp(time.Now()) // the clocks of workers may be wrong
	if at, err = g.results.put(in, c.known, func(name string) string { return g.link(in.TaskID, name) }, time.Now()); err != nil {
		return err
	}
	if c.task != nil {
		if err := g.arrived(c.task, in.TaskID); err != nil {
			return err
		}
	}
	answer(w, http.StatusOK, mloc.Object{"ok": true, "path": at})
	return nil
}

// postFile takes a file of a task: multipart/form-data with a field file.
func (g *Gateway) postFile(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	token, err := g.deliverer(r, id)
	if err != nil {
		return err
	}
	if !mloc.GoodID(id) {
		return muster.Errorf(muster.Invalid, "invalid task id")
	}
	r.Body = http.MaxBytesReader(w, r.Body, mloc.MaxFile+1<<20)
	form, err := r.MultipartReader()
	if err != nil {
		return missing("file")
	}
	for range 16 {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return missing("file")
		}
		if err != nil {
			return muster.Errorf(muster.Invalid, "the body is no form: %w", err)
		}
		if part.FormName() != "file" {
			continue
		}
		_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		name, isFile := params["filename"]
		if err != nil || !isFile {
			return missing("file")
		}
		if !mloc.GoodFile(name) {
			return muster.Errorf(muster.Invalid, "invalid filename")
		}
		c := g.claimOf(id, token, "")
		at := path.Join("results", mloc.SafeID(id), mloc.FolderArtifacts, name)
		if c.settled {
			g.figures.count(&g.figures.late)
			if _, err := io.Copy(io.Discard, part); err != nil {
				return muster.Errorf(muster.Invalid, "the body broke off: %w", err)
			}
			answer(w, http.StatusOK, mloc.Object{"ok": true, "path": at})
			return nil
		}
		if at, err = g.results.putFile(r.Context(), id, name, c.known, g.link(id, name), part, mloc.MaxFile); err != nil {
			return err
		}
		answer(w, http.StatusOK, mloc.Object{"ok": true, "path": at})
		return nil
	}
	return missing("file")
}

// getFile sends a file of a task: one that a worker of MLOC posted, or an artifact of the Muster task that was one.
func (g *Gateway) getFile(w http.ResponseWriter, r *http.Request) error {
	id, name := r.PathValue("id"), r.PathValue("name")
	if err := g.allowed(r, false); err != nil && !g.granter(r, id) {
		return err
	}
	gone := muster.Errorf(muster.NotFound, "artifact not found")
	f, err := g.results.open(id, name)
	if err == nil {
		defer func() { _ = f.Close() }()
		st, err := f.Stat()
		if err != nil {
			return gone
		}
		attachment(w, name)
		http.ServeContent(w, r, name, st.ModTime(), f)
		return nil
	}
	t, known := g.ledger.get(id)
	if !known || t.Job == 0 || t.State != mloc.StateDone || !mloc.GoodFile(name) {
		return gone
	}
	task := muster.TaskID{Job: t.Job}
	list, err := g.api.Artifacts(r.Context(), task)
	if err != nil {
		return err
	}
	for _, a := range list {
		if a.Name != name {
			continue
		}
		attachment(w, name)
		w.Header().Set("Content-Length", strconv.FormatInt(a.Size, 10))
		if r.Method == http.MethodHead {
			return nil
		}
		if err := g.api.ReadArtifact(r.Context(), task, a, w); err != nil {
			panic(http.ErrAbortHandler) // the caller notices that it is not whole
		}
		return nil
	}
	return gone
}

// attachment says of a file that it is to be stored and not shown: it is what others made.
func attachment(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Disposition", "attachment; filename*=UTF-8''"+url.PathEscape(name))
}

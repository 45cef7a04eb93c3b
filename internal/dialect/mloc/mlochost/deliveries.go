package mlochost

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// runningTask returns the attempt of a task, by the id that workers know, that runs now. After a restart of the gateway the
// attempt's own token finds it before its worker was heard of.
func (g *Gateway) runningTask(id, token string) *fleet.Task {
	g.mu.Lock()
	d := g.dispatches[id]
	g.mu.Unlock()
	if d != nil {
		return d.task
	}
	if t := g.Fleet.Task(token); t != nil && g.wireID(t) == id {
		return t
	}
	return nil
}

// findTarget returns the attempt whose delivery a request is, nil if it does not run; whether the task is one of this
// host; and whether nothing may be changed any more, because the delivery is late or of another worker. token is what it carries as
// X-Muster-Task or as bearer token, worker the id in its body; both may be absent, as in what users send by hand.
func (g *Gateway) findTarget(id, token, worker string) (t *fleet.Task, known, ignored bool) {
	t = g.runningTask(id, token)
	_, submitted := g.tasks.get(id)
	if t == nil {
		return nil, submitted, submitted || token != ""
	}
	if token != "" && token != t.ID() || worker != "" && worker != t.Worker().ID() {
		return nil, true, true
	}
	return t, true, false
}

// authorizeDelivery says whether a request may deliver for a task: with the token of its attempt, or as a client.
func (g *Gateway) authorizeDelivery(r *http.Request, id string) (token string, err error) {
	b := auth.Bearer(r.Header.Get("Authorization"))
	if t := g.runningTask(id, b); t != nil && b == t.ID() {
		return b, nil
	}
	return r.Header.Get(headerTask), g.authorize(r, true)
}

// recordDelivery notes that the result of an attempt is here.
func (g *Gateway) recordDelivery(t *fleet.Task, id string) error {
	t.Worker().Touch(nil)
	if _, record := g.tasks.get(id); !record {
		return nil
	}
	_, err := g.tasks.update(id, func(rec *task) error { rec.Attempt = t.Run().Attempt.N; return nil })
	return err
}

// isDelivered reports whether the result of a dispatched task is here.
func (g *Gateway) isDelivered(d *dispatch) bool {
	if d.fromClient {
		t, _ := g.tasks.get(d.id)
		return t.Attempt == d.task.Run().Attempt.N
	}
	_, err := g.results.get(d.id) // its id is of this attempt alone
	return err == nil
}

// postResult takes the result of a task. One that is late is answered like any other, and has no effect.
func (g *Gateway) postResult(w http.ResponseWriter, r *http.Request) error {
	if g.requiresToken() && auth.Bearer(r.Header.Get("Authorization")) == "" {
		if err := g.authorize(r, true); err != nil { // before anything is read
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
	token, err := g.authorizeDelivery(r, in.TaskID)
	if err != nil {
		return err
	}
	task, known, ignored := g.findTarget(in.TaskID, token, in.WorkerID)
	at := path.Join("results", mloc.SafeID(in.TaskID), mloc.FileResponses)
	if ignored {
		g.metrics.count(&g.metrics.counters.Late, 1)
	} else if err := g.results.put(in, known, func(name string) string { return g.fileURL(in.TaskID, name) }); err != nil {
		return err
	}
	if task != nil {
		if err := g.recordDelivery(task, in.TaskID); err != nil {
			return err
		}
	}
	return reply(w, mloc.Object{"ok": true, "path": at})
}

// postFile takes a file of a task: multipart/form-data with a field file.
func (g *Gateway) postFile(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	token, err := g.authorizeDelivery(r, id)
	if err != nil {
		return err
	}
	if !mloc.ValidID(id) {
		return muster.Errorf(muster.Invalid, "invalid task id")
	}
	r.Body = http.MaxBytesReader(w, r.Body, mloc.MaxFile+1<<20)
	form, err := r.MultipartReader()
	if err != nil {
		return missingField("file")
	}
	for range 16 {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return missingField("file")
		}
		if err != nil {
			return muster.Errorf(muster.Invalid, "the body is not a form: %w", err)
		}
		if part.FormName() != "file" {
			continue
		}
		_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		name, isFile := params["filename"]
		if err != nil || !isFile {
			return missingField("file")
		}
		if !mloc.ValidFileName(name) {
			return muster.Errorf(muster.Invalid, "invalid filename")
		}
		_, known, ignored := g.findTarget(id, token, "")
		at := path.Join("results", mloc.SafeID(id), mloc.FolderArtifacts, name)
		if ignored {
			g.metrics.count(&g.metrics.counters.Late, 1)
			if _, err := io.Copy(io.Discard, part); err != nil {
				return muster.Errorf(muster.Invalid, "the body broke off: %w", err)
			}
		} else if err := g.results.putFile(r.Context(), id, name, known, g.fileURL(id, name), part, mloc.MaxFile); err != nil {
			return err
		}
		return reply(w, mloc.Object{"ok": true, "path": at})
	}
	return missingField("file")
}

// getFile sends a file of a task: one that a worker of MLOC posted, or an artifact of the Muster task that was one.
func (g *Gateway) getFile(w http.ResponseWriter, r *http.Request) error {
	id, name := r.PathValue("id"), r.PathValue("name")
	if err := g.authorize(r, false); err != nil && !g.hasGrant(r, id) {
		return err
	}
	notFound := muster.Errorf(muster.NotFound, "artifact not found")
	f, err := g.results.open(id, name)
	if err == nil {
		defer func() { _ = f.Close() }()
		st, err := f.Stat()
		if err != nil {
			return notFound
		}
		attachment(w, name)
		http.ServeContent(w, r, name, st.ModTime(), f)
		return nil
	}
	t, known := g.tasks.get(id)
	if !known || t.Job == 0 || t.State != mloc.StateDone || !mloc.ValidFileName(name) {
		return notFound
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
	return notFound
}

// attachment says of a file that it is to be stored and not shown: it is what others made.
func attachment(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment; filename*=UTF-8''"+url.PathEscape(name))
}

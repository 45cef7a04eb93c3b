//go:build unix

package attack

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/testworker"
	"github.com/muster-dev/muster/internal/store"
)

// token makes a join token.
func (e *env) token(k client.NewKey) client.MadeKey {
	e.t.Helper()
	k.Name, k.Role = "guests", string(auth.Join)
	made, err := e.Client.CreateKey(e.t.Context(), k)
	if err != nil {
		e.t.Fatal(err)
	}
	return made
}

// joinBy joins as a worker by a token, and returns the status and the text of the answer.
func (e *env) joinBy(token, name string) (joined testworker.Worker, status int, answer string) {
	e.t.Helper()
	joined, err := testworker.Join(e.t.Context(), e.http, e.url(""), token, name)
	if refusal, ok := errors.AsType[*testworker.StatusError](err); ok {
		return joined, refusal.Status, refusal.Body
	}
	if err != nil {
		e.t.Fatal(err)
	}
	return joined, http.StatusOK, ""
}

// mustJoin joins as a worker by a token.
func (e *env) mustJoin(token, name string) testworker.Worker {
	e.t.Helper()
	joined, status, answer := e.joinBy(token, name)
	if status != http.StatusOK {
		e.t.Fatalf("join: %d %s", status, answer)
	}
	return joined
}

// greet opens the session of a worker with a hello that change may change, and returns the server's first frame.
func (e *env) greet(worker testworker.Worker, name string, change func(*link.Hello)) (link.WorkerConn, *link.ToWorker) {
	e.t.Helper()
	conn := e.dial(worker)
	h := hello(worker, name)
	if change != nil {
		change(h)
	}
	e.send(conn, &link.ToServer{Hello: h})
	return conn, e.receive(conn, "the first frame", func(*link.ToWorker) bool { return true })
}

// worker returns a worker as the API shows it.
func (e *env) worker(id muster.WorkerID) muster.Worker {
	e.t.Helper()
	w, err := e.Client.Worker(e.t.Context(), string(id))
	if err != nil {
		e.t.Fatal(err)
	}
	return w
}

// noop submits a job of one task for a worker.
func (e *env) noop(project, worker string) muster.JobID {
	e.t.Helper()
	return e.Submit(&muster.Spec{Project: project, Tasks: []muster.TaskSpec{{Kind: muster.KindNoop, Where: muster.Where{Workers: []string{worker}}}}}).ID
}

// explanation returns why the task of a job waits, as text.
func (e *env) explanation(job muster.JobID) string {
	e.t.Helper()
	rec := e.do(e.request(http.MethodGet, "/api/v1/tasks/"+muster.TaskID{Job: job}.String()+"/explain", mustertest.AdminToken, nil))
	return rec.Body.String()
}

// TestJoinTokensWorkAsOftenAsTheySay: of 30 machines that join at once by a token for five, five get in. The token is used up after a restart, too.
func TestJoinTokensWorkAsOftenAsTheySay(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	token := e.token(client.NewKey{Uses: 5})
	var joins sync.WaitGroup
	var joined atomic.Int32
	for range 30 {
		joins.Go(func() {
			switch _, status, answer := e.joinBy(token.Secret, "guest"); {
			case status == http.StatusOK:
				joined.Add(1)
			case status != http.StatusForbidden || !strings.Contains(answer, "used up"):
				t.Errorf("a join too many: %d %s", status, answer)
			}
		})
	}
	joins.Wait()
	if joined.Load() != 5 {
		t.Errorf("%d workers joined by a token for 5", joined.Load())
	}
	e.Server.Kill()
	e.StartServer()
	if _, status, _ := e.joinBy(token.Secret, "guest"); status != http.StatusForbidden {
		t.Errorf("a join by a used-up token after a crash of the server: %d", status)
	}
}

// TestUsedUpTokensKeepTheirWorkers: the last use of a token ends no session, and a worker needs no use to connect again.
func TestUsedUpTokensKeepTheirWorkers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	worker := e.mustJoin(e.token(client.NewKey{Uses: 1}).Secret, "guest")
	for range 2 {
		conn, f := e.greet(worker, "guest", nil)
		if f.Welcome == nil {
			t.Fatalf("the worker was answered %+v", f)
		}
		_ = conn.Close()
	}
}

// TestJoinTokensAreBoundToAddresses: a token that was copied to a machine of another network lets no worker join there, nor download the program.
func TestJoinTokensAreBoundToAddresses(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	far := e.token(client.NewKey{Addresses: []string{"192.0.2.0/24", "2001:db8::1"}})
	if _, status, answer := e.joinBy(far.Secret, "guest"); status != http.StatusForbidden || !strings.Contains(answer, "may not be used from 127.0.0.1") || !strings.Contains(answer, "192.0.2.0/24, 2001:db8::1/128") {
		t.Errorf("a join from another network: %d %s", status, answer)
	}
	if rec := e.do(e.request(http.MethodGet, "/api/v1/whoami", far.Secret, nil)); rec.Code != http.StatusForbidden {
		t.Errorf("another request from there: %d", rec.Code)
	}
	r := e.request(http.MethodPost, link.PathJoin, far.Secret, strings.NewReader(`{"name":"guest"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Forwarded-For", "192.0.2.7")
	r.Header.Set("Forwarded", "for=192.0.2.7")
	if rec := e.do(r); rec.Code != http.StatusForbidden {
		t.Errorf("a join with the address of that network in a header: %d", rec.Code)
	}
	near := e.token(client.NewKey{Addresses: []string{"192.0.2.0/24", "127.0.0.0/8"}})
	if _, status, answer := e.joinBy(near.Secret, "guest"); status != http.StatusOK {
		t.Errorf("a join from the network: %d %s", status, answer)
	}
}

// TestWorkersKeepTheAddressesOfTheirToken: an identity.json that was copied to another network opens no session there, and transfers no file.
func TestWorkersKeepTheAddressesOfTheirToken(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	token := e.token(client.NewKey{Addresses: []string{"127.0.0.2"}})
	here := e.http
	there := e.transport()
	there.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext
	e.http = &http.Client{Transport: there}
	t.Cleanup(e.http.CloseIdleConnections)
	worker := e.mustJoin(token.Secret, "guest")
	if _, f := e.greet(worker, "guest", nil); f.Welcome == nil {
		t.Errorf("the worker was answered %+v", f)
	}
	e.http = here
	d := &wslink.Dialer{Server: e.url(""), Credentials: worker, HTTP: e.http}
	if conn, err := d.Dial(t.Context()); muster.CodeOf(err) != muster.Forbidden {
		_ = conn.Close()
		t.Errorf("a session from another address: %v", err)
	}
	if rec := e.do(e.request(http.MethodPost, "/api/v1/blobs/missing", worker.Key, strings.NewReader(`{"sha256":[]}`))); rec.Code != http.StatusForbidden {
		t.Errorf("a transfer from another address: %d", rec.Code)
	}
}

// TestTokensGiveTheirTags: a worker has the tags of its token, in its hello and after a new offer, whatever it says.
func TestTokensGiveTheirTags(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	worker := e.mustJoin(e.token(client.NewKey{Tags: []string{"trusted"}}).Secret, "guest")
	conn, _ := e.greet(worker, "guest", func(h *link.Hello) { h.Tags = []string{"mine"} })
	if tags := e.worker(worker.Worker).Tags; !slices.Equal(tags, []string{"trusted", "mine"}) {
		t.Errorf("the worker has the tags %q", tags)
	}
	offer := hello(worker, "guest").Offer
	offer.Tags = []string{"other"}
	e.send(conn, &link.ToServer{Offer: &offer})
	e.send(conn, &link.ToServer{Ping: true})
	e.receive(conn, "a pong", func(f *link.ToWorker) bool { return f.Pong })
	if tags := e.worker(worker.Worker).Tags; !slices.Equal(tags, []string{"trusted", "other"}) {
		t.Errorf("after an offer the worker has the tags %q", tags)
	}
}

// TestTagsOfTokensAreReserved: a worker that joined by another token cannot give itself a tag that a token gives, neither in its hello nor in an
// offer, and gets none of the tasks that ask for it. The tag stays reserved when the token is revoked.
func TestTagsOfTokensAreReserved(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	token := e.token(client.NewKey{Tags: []string{"trusted"}})
	e.mustJoin(token.Secret, "one")
	e.revoke(token.Key.ID)
	liar := e.join("liar")
	claim := []string{"linux", "trusted"}
	conn, _ := e.greet(liar, "liar", func(h *link.Hello) { h.Tags = claim })
	e.send(conn, &link.ToServer{Ready: &link.Ready{}})
	job := e.Submit(&muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindNoop, Where: muster.Where{Tags: []string{"trusted"}}}}}).ID
	offer := hello(liar, "liar").Offer
	offer.Tags = claim
	e.send(conn, &link.ToServer{Offer: &offer})
	e.send(conn, &link.ToServer{Ping: true})
	e.receive(conn, "a pong", func(f *link.ToWorker) bool {
		if len(f.Assign) > 0 {
			t.Errorf("the worker that claims a reserved tag was assigned %s", f.Assign[0].Attempt)
		}
		return f.Pong
	})
	if tags := e.worker(liar.Worker).Tags; !slices.Equal(tags, []string{"linux"}) {
		t.Errorf("the worker has the tags %q", tags)
	}
	if text := e.explanation(job); !strings.Contains(text, "trusted") {
		t.Errorf("explain: %s", text)
	}
}

// TestTokensDoNotTakeTagsFromWorkers: a tag that a worker has by itself cannot be reserved, because it would lose it.
func TestTokensDoNotTakeTagsFromWorkers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.greet(e.join("old"), "old", func(h *link.Hello) { h.Tags = []string{"gpu"} })
	_, err := e.Client.CreateKey(t.Context(), client.NewKey{Name: "x", Role: string(auth.Join), Tags: []string{"gpu"}})
	if muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), "worker old has the tag gpu") {
		t.Errorf("reserving a tag of a worker: %v", err)
	}
}

// TestProjectAdminsReserveNoTags: an administrator of a project makes tokens for it, and takes no tags from other projects.
func TestProjectAdminsReserveNoTags(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	admin := e.key(string(auth.Admin), "alpha", 0).Secret
	for body, want := range map[string]int{
		`{"name":"x","role":"join"}`:                      http.StatusCreated,
		`{"name":"x","role":"join","project":"beta"}`:     http.StatusForbidden,
		`{"name":"x","role":"join","tags":["trusted"]}`:   http.StatusForbidden,
		`{"name":"x","role":"submitter","uses":3}`:        http.StatusBadRequest,
		`{"name":"x","role":"viewer","approval":true}`:    http.StatusBadRequest,
		`{"name":"x","role":"join","addresses":["10.0"]}`: http.StatusBadRequest,
	} {
		r := e.request(http.MethodPost, "/api/v1/keys", admin, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if rec := e.do(r); rec.Code != want {
			t.Errorf("%s: %d %s", body, rec.Code, rec.Body)
		}
	}
}

// TestWorkersOfAProjectTakeItsTasksOnly: a worker that joined by a token of one project gets no task of another one, whatever its hello says.
func TestWorkersOfAProjectTakeItsTasksOnly(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	worker := e.mustJoin(e.token(client.NewKey{Project: "beta"}).Secret, "guest")
	conn, _ := e.greet(worker, "guest", nil)
	e.send(conn, &link.ToServer{Ready: &link.Ready{}})
	foreign, own := e.noop("alpha", "guest"), e.noop("beta", "guest")
	f := e.receive(conn, "an assignment", func(f *link.ToWorker) bool { return len(f.Assign) > 0 })
	if len(f.Assign) != 1 || f.Assign[0].Attempt.Task.Job != own {
		t.Errorf("the worker was assigned %+v", f.Assign)
	}
	if text := e.explanation(foreign); !strings.Contains(text, "takes tasks of project beta only") {
		t.Errorf("explain: %s", text)
	}
	other := e.mustJoin(e.token(client.NewKey{Project: "beta"}).Secret, "other")
	if _, f := e.greet(other, "other", func(h *link.Hello) { h.Projects = []string{"alpha"} }); f.Goodbye == nil || f.Goodbye.Code != muster.Forbidden {
		t.Errorf("a worker of beta that takes tasks of alpha was answered %+v", f)
	}
}

// TestPendingWorkersGetNoTasks: a worker that joined by a token with approval has a session and is shown as pending. It gets no task, and reads and writes
// no blob, until it is approved, also after the server was killed.
func TestPendingWorkersGetNoTasks(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	worker := e.mustJoin(e.token(client.NewKey{Approval: true}).Secret, "guest")
	e.Server.Kill()
	e.StartServer()
	current, err := worker.Request(t.Context(), e.http, e.url(""))
	if err != nil {
		t.Fatal(err)
	}
	worker.Key, worker.Secret = current.Token, current.Secret
	conn, f := e.greet(worker, "guest", nil)
	if f.Welcome == nil || !f.Welcome.Pending {
		t.Fatalf("the worker was answered %+v", f)
	}
	e.send(conn, &link.ToServer{Ready: &link.Ready{}})
	job := e.noop("", "guest")
	if w := e.worker(worker.Worker); w.State != muster.WorkerPending {
		t.Errorf("the worker is %s", w.State)
	}
	if text := e.explanation(job); !strings.Contains(text, "waits for approval (muster workers approve guest)") {
		t.Errorf("explain: %s", text)
	}
	if rec := e.do(e.request(http.MethodPost, "/api/v1/blobs/missing", worker.Key, strings.NewReader(`{"sha256":[]}`))); rec.Code != http.StatusForbidden {
		t.Errorf("a pending worker asked for blobs: %d", rec.Code)
	}
	if _, err := e.Client.ApproveWorker(t.Context(), "guest"); err != nil {
		t.Fatal(err)
	}
	approved, assigned := false, false
	e.receive(conn, "the approval and an assignment", func(f *link.ToWorker) bool {
		approved = approved || f.Approved
		assigned = assigned || len(f.Assign) > 0 && f.Assign[0].Attempt.Task.Job == job
		return approved && assigned
	})
	_ = conn.Close()
	if _, f := e.greet(worker, "guest", nil); f.Welcome == nil || f.Welcome.Pending {
		t.Errorf("an approved worker that reconnects was answered %+v", f)
	}
}

// TestPendingWorkersAreRemovedAtOnce: refusing a worker ends its session and its key.
func TestPendingWorkersAreRemovedAtOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	worker := e.mustJoin(e.token(client.NewKey{Approval: true}).Secret, "guest")
	conn, _ := e.greet(worker, "guest", nil)
	if err := e.Client.RemoveWorker(t.Context(), "guest"); err != nil {
		t.Fatal(err)
	}
	if f := e.receive(conn, "a goodbye", func(f *link.ToWorker) bool { return f.Goodbye != nil }); f.Goodbye.Code != muster.Forbidden {
		t.Errorf("the removed worker received %+v", f.Goodbye)
	}
	if _, err := e.Client.Worker(t.Context(), string(worker.Worker)); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("the removed worker: %v", err)
	}
}

// TestFewWorkersWaitForApproval: a token with approval cannot fill the list of workers.
func TestFewWorkersWaitForApproval(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	token := e.token(client.NewKey{Approval: true})
	for range store.MaxPending {
		e.mustJoin(token.Secret, "guest")
	}
	if _, status, answer := e.joinBy(token.Secret, "guest"); status != http.StatusServiceUnavailable || !strings.Contains(answer, "wait for approval") {
		t.Errorf("a pending worker too many: %d %s", status, answer)
	}
	e.join("other") // by a token without approval
}

// TestRevokedTokensNameTheirWorkers: workers and their keys show the token by which they joined. Its revocation ends their sessions only with
// --workers, later as well, and no other session.
func TestRevokedTokensNameTheirWorkers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	token := e.token(client.NewKey{})
	worker := e.mustJoin(token.Secret, "guest")
	conn, _ := e.greet(worker, "guest", nil)
	_, other := e.connect("other")
	if w := e.worker(worker.Worker); w.Token != token.Key.ID {
		t.Errorf("the worker shows the token %q, want %q", w.Token, token.Key.ID)
	}
	keys, err := e.Client.Keys(t.Context())
	if err != nil || !slices.ContainsFunc(keys, func(k client.Key) bool { return k.Worker == worker.Worker && k.JoinedBy == token.Key.ID }) {
		t.Errorf("no key names the token: %+v, %v", keys, err)
	}
	e.revoke(token.Key.ID)
	e.send(conn, &link.ToServer{Ping: true})
	e.receive(conn, "a pong", func(f *link.ToWorker) bool { return f.Pong })
	if err := e.Client.RevokeJoinToken(t.Context(), token.Key.ID); err != nil {
		t.Fatalf("revoking its workers: %v", err)
	}
	if f := e.receive(conn, "a goodbye", func(f *link.ToWorker) bool { return f.Goodbye != nil }); f.Goodbye.Code != muster.Forbidden {
		t.Errorf("the worker received %+v", f.Goodbye)
	}
	e.send(other, &link.ToServer{Ping: true})
	e.receive(other, "a pong", func(f *link.ToWorker) bool { return f.Pong })
	if err := e.Client.RevokeJoinToken(t.Context(), token.Key.ID); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("revoking them again: %v", err)
	}
}

// TestExpiredTokensLetNoWorkerJoin: the answer to a join by an expired token has the time.
func TestExpiredTokensLetNoWorkerJoin(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	token := e.token(client.NewKey{TTL: 1})
	if _, status, answer := e.joinBy(token.Secret, "guest"); status != http.StatusUnauthorized || !strings.Contains(answer, "expired at") {
		t.Errorf("a join by an expired token: %d %s", status, answer)
	}
}

// TestWorkersDoNotGetTheIDOfAnother lets a worker ask for an id by which another one is known, whose tasks, history and reports it would get: it is refused.
func TestWorkersDoNotGetTheIDOfAnother(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	join := func(id muster.WorkerID) (link.Joined, error) {
		var joined link.Joined
		request := testworker.JoinRequest(mustertest.JoinToken, "thief", newKeyPair(t))
		request.Worker = id
		err := testworker.Post(t.Context(), e.http, e.url(link.PathJoin), mustertest.JoinToken, request, &joined)
		return joined, err
	}
	chosen, err := join("rack-1_a")
	if err != nil || chosen.Worker != "rack-1_a" {
		t.Fatalf("a new id: %+v, %v", chosen, err)
	}
	victim, removed := e.join("victim"), e.join("removed")
	if _, f := e.greet(victim, "called-victim", nil); f.Welcome == nil {
		t.Fatalf("the victim is answered %+v", f)
	}
	conn, f := e.greet(removed, "removed", nil)
	if f.Welcome == nil {
		t.Fatalf("the other worker is answered %+v", f)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	e.Await("the worker is removed", awaitTimeout, func() error { return e.Client.RemoveWorker(t.Context(), string(removed.Worker)) })
	for name, id := range map[string]muster.WorkerID{
		"that has not connected yet": chosen.Worker, "of a connected worker": victim.Worker, "of a removed worker": removed.Worker,
		"that is a name": "called-victim",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := join(id)
			refusedBy(t, "a join", err, http.StatusConflict, "choose another --worker-id")
		})
	}
}

// TestNoWorkerHasTheIDOfAnotherAsItsName lets a worker take the id of another one as its name, as which it would get the tasks that are for that
// worker only: it is refused.
func TestNoWorkerHasTheIDOfAnotherAsItsName(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	victim, thief := e.join("victim"), e.join("thief")
	if _, f := e.greet(victim, "victim", nil); f.Welcome == nil {
		t.Fatalf("the victim is answered %+v", f)
	}
	if _, f := e.greet(thief, string(victim.Worker), nil); f.Goodbye == nil || f.Goodbye.Code != muster.Invalid {
		t.Errorf("a worker named as the victim's id is answered %+v", f)
	}
	if _, f := e.greet(thief, string(thief.Worker), nil); f.Welcome == nil {
		t.Errorf("a worker named as its own id is answered %+v", f.Goodbye)
	}
}

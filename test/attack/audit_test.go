//go:build unix

package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// records lists the records of the audit log, the oldest first.
func (e *env) records(q client.AuditQuery) []client.AuditRecord {
	e.t.Helper()
	q.Oldest, q.Page = true, 1000
	var list []client.AuditRecord
	for r, err := range e.Client.Audit(e.t.Context(), q) {
		if err != nil {
			e.t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// awaitRecord waits for a record, and returns the last one.
func (e *env) awaitRecord(q client.AuditQuery) (last client.AuditRecord) {
	e.t.Helper()
	e.Await(fmt.Sprintf("the audit log has a record of %+v", q), 10*time.Second, func() error {
		list := e.records(q)
		if len(list) == 0 {
			return errors.New("it has none")
		}
		last = list[len(list)-1]
		return nil
	})
	return last
}

// verify verifies the log, which must be intact, and returns the result.
func (e *env) verify(head string) client.AuditVerification {
	e.t.Helper()
	v, err := e.Client.VerifyAudit(e.t.Context(), head)
	if err != nil || !v.Intact {
		e.t.Fatalf("the audit log is not intact: %+v, %v", v, err)
	}
	return v
}

// export returns the whole log as text.
func (e *env) export() string {
	e.t.Helper()
	var text []byte
	if err := e.Client.ExportAudit(e.t.Context(), func(r io.Reader) (err error) {
		text, err = io.ReadAll(r)
		return err
	}); err != nil {
		e.t.Fatal(err)
	}
	return string(text)
}

// with returns a client with a key.
func (e *env) with(token string) *client.Client {
	e.t.Helper()
	c, err := client.New(e.URL, token, client.Options{})
	if err != nil {
		e.t.Fatal(err)
	}
	return c
}

// A change has a record that says who made it, from where, what, on what, in which project, and that it was allowed, before it is acknowledged.
func TestAChangeIsRecordedWithWhoWhereAndWhat(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	key := e.key("submitter", "a", 0)
	job := e.job("a")
	if _, err := e.with(key.Secret).Cancel(t.Context(), job, nil); err != nil {
		t.Fatal(err)
	}
	list := e.records(client.AuditQuery{Operation: "cancel-job"}) // at once
	want := client.AuditRecord{
		Key: key.Key.ID, KeyName: key.Key.Name, Role: "submitter", Address: "127.0.0.1", Operation: "cancel-job", Object: "job/" + job.String(), Project: "a",
		Outcome: audit.Allowed, Status: http.StatusOK, Count: 1,
	}
	if len(list) != 1 {
		t.Fatalf("%d records", len(list))
	}
	got := list[0]
	if age := time.Since(got.At.Std()); age < 0 || age > time.Minute {
		t.Errorf("it is of %s", got.At)
	}
	got.Seq, got.At, got.Hash, got.Request = 0, 0, audit.Hash{}, ""
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	submitted := e.awaitRecord(client.AuditQuery{Operation: "submit-job"})
	if submitted.Object != "job/"+job.String() || submitted.Project != "a" || submitted.Outcome != audit.Allowed || submitted.Role != "admin" {
		t.Errorf("the submission: %+v", submitted)
	}
}

// Every operation of the API that can change something is recorded, whether it succeeds or fails, and so are new ones.
func TestEveryChangingOperationIsRecorded(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	o := &objects{project: "a", job: e.job("a")}
	admin := &caller{auth.Principal{Role: auth.Admin}, mustertest.AdminToken}
	unchanging := []string{"plan-job", "missing-blobs", "check-blob", "delete-session", "begin-device-sign-in", "create-worker-session"}
	var want []string
	for _, rt := range api.Routes() {
		changes := !slices.Contains([]string{"", http.MethodGet, http.MethodHead}, rt.Method)
		if got := rt.Audits(rt.Method) != rest.AuditDenials; changes && got == slices.Contains(unchanging, rt.ID) {
			t.Errorf("%s is recorded: %t", rt.ID, got)
		}
		if rt.Audits(rt.Method) == rest.AuditDenials {
			continue
		}
		if o.any = o.job; strings.HasSuffix(rt.ID, "-job") {
			o.any = e.job(o.project)
		}
		e.call(&rt, admin, o)
		want = append(want, rt.ID)
	}
	if !slices.Contains(want, "backup") || !slices.Contains(want, "exec-task") || len(want) < 25 {
		t.Errorf("only %v are recorded", want)
	}
	for _, id := range want {
		e.awaitRecord(client.AuditQuery{Operation: id})
	}
	e.verify("")
}

// Every operation has a record of its denial: without a key, and with a key that may not use it.
func TestEveryDenialIsRecorded(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	o := &objects{project: "a", job: e.job("a")}
	o.any = o.job
	nobody := &caller{}
	join := &caller{auth.Principal{Role: auth.Join}, e.key("join", "", 0).Secret}
	// denial is what its record must have.
	type denial struct {
		operation, key string
		status         int
		reason         bool
	}
	var denials []denial
	for _, rt := range api.Routes() {
		if rt.Public || rt.Verb == "" {
			continue
		}
		for _, who := range []*caller{nobody, join} {
			status, _ := e.call(&rt, who, o)
			if status != http.StatusUnauthorized && status != http.StatusForbidden {
				continue
			}
			d := denial{operation: rt.ID, status: status, reason: rt.Verb != auth.ConnectWorker}
			if who == join {
				d.key = "a join"
			}
			denials = append(denials, d)
		}
	}
	if len(denials) < 100 {
		t.Errorf("only %d requests were denied", len(denials))
	}
	e.Await("every denial is recorded", 10*time.Second, func() error {
		records := e.records(client.AuditQuery{Outcome: string(audit.Denied)})
		for _, d := range denials {
			if !slices.ContainsFunc(records, func(r client.AuditRecord) bool {
				return r.Operation == d.operation && r.KeyName == d.key && r.Status == d.status && r.Address == "127.0.0.1" && (r.Detail != "" || !d.reason)
			}) {
				return fmt.Errorf("that of %+v is not", d)
			}
		}
		return nil
	})
}

// A denial that is answered as if the object did not exist is recorded as what it is, in the project of the object.
func TestAHiddenDenialIsRecorded(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	key, job := e.key("submitter", "b", 0), e.job("a")
	if _, err := e.with(key.Secret).Cancel(t.Context(), job, nil); muster.CodeOf(err) != muster.NotFound {
		t.Fatalf("another project's job: %v", err)
	}
	r := e.awaitRecord(client.AuditQuery{Operation: "cancel-job", Outcome: "denied"})
	if r.Key != key.Key.ID || r.Project != "a" || r.Object != "job/"+job.String() || r.Status != http.StatusNotFound || !strings.Contains(r.Detail, `for project "b" only`) {
		t.Errorf("%+v", r)
	}
	other := e.key("viewer", "a", 0)
	if err := e.with(e.key("admin", "b", 0).Secret).RevokeKey(t.Context(), other.Key.ID); muster.CodeOf(err) != muster.NotFound {
		t.Fatalf("another project's key: %v", err)
	}
	if r := e.awaitRecord(client.AuditQuery{Operation: "revoke-key", Outcome: "denied"}); r.Project != "a" || r.Object != "key/"+other.Key.ID {
		t.Errorf("%+v", r)
	}
}

// Only administrators read the log, whatever others ask for.
func TestOnlyAdministratorsReadTheAuditLog(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	job := e.job("a")
	for _, who := range e.callers(job) {
		if who.Role == auth.Admin {
			continue
		}
		for _, path := range []string{"/api/v1/audit", "/api/v1/audit?project=a", "/api/v1/audit/verify", "/api/v1/audit/export"} {
			rec := e.do(e.request(http.MethodGet, path, who.token, nil))
			if want := map[bool]int{true: http.StatusUnauthorized, false: http.StatusForbidden}[who.token == ""]; rec.Code != want || strings.Contains(rec.Body.String(), "submit-job") {
				t.Errorf("%s as %s: %d %s", path, &who, rec.Code, rec.Body)
			}
		}
	}
}

// An administrator of a project reads the records of that project only, and cannot verify or export the log of all.
func TestAProjectAdministratorReadsItsProjectOnly(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	own, other := e.job("a"), e.job("b")
	e.awaitRecord(client.AuditQuery{Object: "job/" + other.String()})
	admin := e.with(e.key("admin", "a", 0).Secret)
	for _, q := range []client.AuditQuery{{}, {Project: "a"}, {Project: "b"}, {Object: "job/" + other.String()}, {Operation: "create-key"}} {
		seen := map[string]bool{}
		for r, err := range admin.Audit(t.Context(), q) {
			if err != nil {
				t.Fatal(err)
			}
			if seen[r.Object] = true; r.Project != "a" {
				t.Errorf("%+v shows %+v", q, r)
			}
		}
		if (q.Project == "a" || q == client.AuditQuery{}) && !seen["job/"+own.String()] {
			t.Errorf("%+v does not show its own records", q)
		}
	}
	if _, err := admin.VerifyAudit(t.Context(), ""); muster.CodeOf(err) != muster.Forbidden {
		t.Errorf("verify: %v", err)
	}
	if err := admin.ExportAudit(t.Context(), func(io.Reader) error { return nil }); muster.CodeOf(err) != muster.Forbidden {
		t.Errorf("export: %v", err)
	}
}

// No record has a token or a value of a job's environment, wherever the client puts them.
func TestNoRecordHasASecret(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const secret = "value-of-a-variable-0123456789"
	const pasted = "mst_admin_abcdefghijklmnopqrstuvwxyz234567" // where a name belongs
	tokens := []string{mustertest.AdminToken, mustertest.JoinToken, e.key("viewer", "a", 0).Secret, e.join(pasted).Key, pasted}
	send := func(method, path, token, body string) {
		r := e.request(method, path, token, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		e.do(r)
	}
	for _, token := range tokens {
		send(http.MethodDelete, "/api/v1/keys/"+token, mustertest.AdminToken, "")
		send(http.MethodPost, "/api/v1/keys/"+token+"/rotate", mustertest.AdminToken, "")
		send(http.MethodGet, "/api/v1/jobs?key="+token, token, "")
		send(http.MethodGet, "/api/v1/"+token, "", "")
		send(http.MethodPost, "/api/v1/session", "", `{"token":"`+token+`"}`)
		send(http.MethodPost, "/api/v1/session", "", `{"token":"`+token+`x"}`)
		send(http.MethodGet, "/api/v1/whoami", token+"x", "")
	}
	env := `,"env":{"PASSWORD":"` + secret + `"}`
	send(http.MethodPost, "/api/v1/jobs", mustertest.AdminToken, `{"kind":"process","run":"true"`+env+`}`)
	send(http.MethodPost, "/api/v1/jobs", mustertest.AdminToken, `{"kind":"process"`+env+`}`)
	send(http.MethodPost, "/api/v1/jobs", mustertest.AdminToken, `{"kind":"process","run":"true","env":{"A=B":"`+secret+`","C":{"x":"`+secret+`"}}}`)
	send(http.MethodPost, "/api/v1/jobs", tokens[2], `{"kind":"process","run":"true"`+env+`}`)
	send(http.MethodPut, "/api/v1/projects/a/notify", mustertest.AdminToken, `{"notify":[{"url":"https://example.org/`+secret+`"}]}`)
	last := e.key("viewer", "", 0) // after all of them
	e.awaitRecord(client.AuditQuery{Object: "key/" + last.Key.ID})
	e.awaitRecord(client.AuditQuery{Operation: "create-session", Outcome: "denied"})
	text := e.export()
	for _, s := range append(tokens, secret) {
		if strings.Contains(text, s) {
			t.Errorf("a record has %s", s)
		}
	}
}

// The join of a worker, the start of its session, and a session with a revoked key are recorded.
func TestWorkersAreRecorded(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := e.join("gpu1")
	joined := e.awaitRecord(client.AuditQuery{Operation: "join-worker"})
	if joined.Role != "join" || joined.Object != "worker/"+string(w.Worker) || joined.Detail != "name gpu1" {
		t.Errorf("the join: %+v", joined)
	}
	_ = e.dial(w)
	started := e.awaitRecord(client.AuditQuery{Operation: audit.OpStartSession})
	if started.Worker != string(w.Worker) || started.Object != "worker/"+string(w.Worker) || started.Address != "127.0.0.1" {
		t.Errorf("the session: %+v", started)
	}
	e.revoke(started.Key)
	e.do(e.request(http.MethodPost, "/link/v1/poll", w.Key, nil))
	if r := e.awaitRecord(client.AuditQuery{Operation: "poll-worker", Outcome: "denied"}); r.Status != http.StatusForbidden && r.Status != http.StatusUnauthorized {
		t.Errorf("the denied session: %+v", r)
	}
}

// The sign-in of a browser is recorded with its key, and a failed one as denied.
func TestSignInsAreRecorded(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	key := e.key("viewer", "a", 0)
	for _, token := range []string{key.Secret, "not-a-token-of-this-server"} {
		r := e.request(http.MethodPost, "/api/v1/session", "", strings.NewReader(fmt.Sprintf(`{"token":%q}`, token)))
		r.Header.Set("Content-Type", "application/json")
		e.do(r)
	}
	if r := e.awaitRecord(client.AuditQuery{Operation: "create-session", Outcome: "allowed"}); r.Key != key.Key.ID {
		t.Errorf("%+v", r)
	}
	if r := e.awaitRecord(client.AuditQuery{Operation: "create-session", Outcome: "denied"}); r.Key != "" || r.Status != http.StatusUnauthorized {
		t.Errorf("%+v", r)
	}
}

// The address of a record is that of the connection: no header replaces it, neither those of proxies nor those of gateways in the server's process.
func TestNoHeaderForgesTheAddress(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, token := range []string{"", mustertest.AdminToken} {
		r := e.request(http.MethodPost, "/api/v1/keys", token, strings.NewReader(`{"name":"x","role":"viewer"}`))
		r.Header.Set("Content-Type", "application/json")
		for _, h := range []string{"X-Forwarded-For", "X-Real-Ip", "Forwarded", "Muster-Client-Address", "Muster-Gateway"} {
			r.Header.Set(h, "192.0.2.7")
		}
		e.do(r)
	}
	e.awaitRecord(client.AuditQuery{Operation: "create-key", Outcome: "denied"})
	if text := e.export(); strings.Contains(text, "192.0.2.7") {
		t.Errorf("a header is in the log: %s", text)
	}
}

// What a gateway's client does is recorded as its own: with its key, and the gateway. A request that is denied is one record: of the server if that denied it
// on behalf of the client, otherwise of the gateway.
func TestClientsOfGatewaysAreRecorded(t *testing.T) {
	t.Parallel()
	port := mustertest.ReservePort(t)
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--dialect", "qubix=" + port + ",key=required"}}))
	key, viewer := e.key("submitter", "", 0), e.key("viewer", "", 0)
	const wrong = "mst_submitter_wrongwrongwrongwrong" // the gateway asks the server once
	for _, token := range []string{key.Secret, wrong, wrong, viewer.Secret} {
		body := `{"modelType":"mnist_training","computeNeeded":1}`
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+port+"/k/"+token+"/api/jobs/create", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := e.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		t.Logf("%d %s", resp.StatusCode, answer)
	}
	r := e.awaitRecord(client.AuditQuery{Operation: "submit-job", Outcome: "allowed"})
	if r.Key != key.Key.ID || r.Via != "qubix" || r.Address != "127.0.0.1" {
		t.Errorf("%+v", r)
	}
	for _, operation := range []string{"whoami", "gateway-qubix", "submit-job"} {
		r := e.awaitRecord(client.AuditQuery{Operation: operation, Outcome: "denied"})
		if r.Via != "qubix" || r.Address != "127.0.0.1" || r.Count > 1 || strings.Contains(r.Detail, "wrongwrong") {
			t.Errorf("%+v", r)
		}
	}
	if list := e.records(client.AuditQuery{Outcome: "denied"}); len(list) != 3 {
		t.Errorf("three denied requests are %d records: %+v", len(list), list)
	}
}

// A flood of denials from one address is a bounded number of records, which stand for all of them, and hides no other denial.
func TestAFloodOfDenialsIsBounded(t *testing.T) {
	t.Parallel()
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--rate-limit-address", "0"}})) // so that all of them are denied
	const senders, each = 8, 500
	viewer := e.key("viewer", "a", 0)
	before := len(e.records(client.AuditQuery{}))
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				r := e.request(http.MethodGet, fmt.Sprintf("/api/v1/jobs/%d", i), fmt.Sprintf("guess-%d-%d-0123456789", s, i), nil)
				if resp, err := e.http.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
		})
	}
	wg.Wait()
	if _, err := e.with(viewer.Secret).CreateKey(t.Context(), client.NewKey{Name: "x", Role: "admin"}); muster.CodeOf(err) != muster.Forbidden {
		t.Fatal(err)
	}
	e.awaitRecord(client.AuditQuery{Operation: "create-key", Outcome: "denied"})
	if after := len(e.records(client.AuditQuery{})); after-before > 10 {
		t.Errorf("%d denials made %d records", senders*each, after-before)
	}
	e.Server.Signal(interrupt) // which writes what was counted
	<-e.Server.Done()
	e.StartServer()
	var sum int64
	for _, r := range e.records(client.AuditQuery{Operation: "get-job", Outcome: "denied"}) {
		sum += r.Count
	}
	if sum != senders*each {
		t.Errorf("the records stand for %d denials of %d", sum, senders*each)
	}
	e.verify("")
}

// After kill -9 the chain is intact, all changes that were acknowledged have their records, except submissions of the last 100 ms.
func TestKillLeavesAValidChain(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	type ack struct {
		object string
		at     time.Time
	}
	var mu sync.Mutex
	var acks, created []ack
	var wg sync.WaitGroup
	for range 4 {
		c := e.with(mustertest.AdminToken)
		wg.Go(func() {
			for {
				job, err := c.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindNoop}}}, client.SubmitOptions{})
				if err != nil {
					return
				}
				mu.Lock()
				acks = append(acks, ack{"job/" + job.ID.String(), time.Now()})
				mu.Unlock()
			}
		})
		wg.Go(func() {
			for {
				k, err := c.CreateKey(t.Context(), client.NewKey{Name: "x", Role: "viewer"})
				if err != nil {
					return
				}
				mu.Lock()
				created = append(created, ack{"key/" + k.Key.ID, time.Now()})
				mu.Unlock()
			}
		})
	}
	e.Await("there are some changes", time.Minute, func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(acks) < 50 || len(created) < 50 {
			return fmt.Errorf("%d and %d", len(acks), len(created))
		}
		return nil
	})
	killed := time.Now()
	e.Server.Kill()
	wg.Wait()
	e.StartServer()
	e.verify("")
	recorded := map[string]bool{}
	for _, r := range e.records(client.AuditQuery{Outcome: "allowed"}) {
		recorded[r.Object] = true
	}
	for _, k := range created {
		if !recorded[k.object] {
			t.Errorf("%s was acknowledged and is not recorded", k.object)
		}
	}
	const window = 250 * time.Millisecond // 100 ms, and a busy machine
	for _, a := range acks {
		if !recorded[a.object] && a.at.Before(killed.Add(-window)) {
			t.Errorf("%s was acknowledged %s before the kill and is not recorded", a.object, killed.Sub(a.at))
		}
	}
}

// Retention removes the oldest records, says so in the log, and leaves it verifiable; a head that was noted before still matches.
func TestRetentionLeavesAVerifiableLog(t *testing.T) {
	t.Parallel()
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--keep-audit", "1000"}}))
	for range 1100 {
		e.job("a")
	}
	e.Await("all submissions are recorded", 10*time.Second, func() error {
		if n := len(e.records(client.AuditQuery{Operation: "submit-job"})); n != 1100 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	noted := e.verify("")
	e.Server.Kill()
	e.StartServer() // a pass of retention begins with the server
	e.Await("the oldest records are removed", time.Minute, func() error {
		if n := len(e.records(client.AuditQuery{})); n > 1020 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	after := e.verify(noted.Head)
	if strings.HasSuffix(after.Base, "@0") || after.Records > 1020 {
		t.Errorf("%+v", after)
	}
	if r := e.awaitRecord(client.AuditQuery{Operation: audit.OpRemoveRecords}); !strings.Contains(r.Detail, "@") || r.Role != audit.Server {
		t.Errorf("%+v", r)
	}
}

// A backup has the log, a restored server continues it, and its first record there is that of the restore.
func TestARestoredServerContinuesTheChain(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.job("a")
	e.awaitRecord(client.AuditQuery{Operation: "submit-job"})
	file, data := filepath.Join(t.TempDir(), "backup.tar"), filepath.Join(t.TempDir(), "data")
	noted := e.verify("").Head
	e.muster("backup", file)
	e.Server.Kill()
	e.muster("restore", file, "--data", data)
	restored := newEnvFor(t, mustertest.New(t, data))
	if r := restored.awaitRecord(client.AuditQuery{Operation: audit.OpRestoreBackup}); !strings.Contains(r.Detail, "backup of muster") {
		t.Errorf("%+v", r)
	}
	restored.verify(noted)
	n := len(restored.records(client.AuditQuery{Operation: audit.OpRestoreBackup}))
	restored.Server.Kill()
	restored.StartServer()
	if again := len(restored.records(client.AuditQuery{Operation: audit.OpRestoreBackup})); n != 1 || again != 1 {
		t.Errorf("the restore has %d and after a restart %d records", n, again)
	}
}

// An export is verified without a server, and a changed one is not intact.
func TestAnExportIsVerifiedOffline(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.key("viewer", "a", 0)
	text := e.export()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var head wire.AuditHead
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &head); err != nil || len(lines) < 5 {
		t.Fatalf("%s: %v", text, err)
	}
	if out, err := e.verifyFile(text, "--head", head.Head.String()); err != nil {
		t.Errorf("the export: %v %s", err, out)
	}
	for name, changed := range map[string]string{
		"altered":   strings.Replace(text, `"role viewer"`, `"role admin"`, 1),
		"removed":   strings.Join(slices.Delete(slices.Clone(lines), 2, 3), "\n"),
		"cut":       strings.Join(lines[:len(lines)-1], "\n"),
		"shortened": strings.Join(append(slices.Clone(lines[:len(lines)-2]), lines[len(lines)-1]), "\n"),
		"swapped":   strings.Join(append([]string{lines[0], lines[2], lines[1]}, lines[3:]...), "\n"),
	} {
		if out, err := e.verifyFile(changed); err == nil {
			t.Errorf("%s: %s", name, out)
		}
	}
}

package api_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/execwire"
	"github.com/muster-dev/muster/internal/testkit"
)

// runningTask submits a task with a submitter's key of project p, and starts it.
func runningTask(t *testing.T, s *apitest.Server) (owner, task string) {
	t.Helper()
	owner = s.CreateKey(t, auth.Submitter, "p", "")
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", token: owner, body: `{"name":"a","project":"p","run":"x"}`}, 201)
	id := s.ConnectWorker(t, "w1").StartNext().Task
	testkit.Await(t, "the task to run", func() bool {
		got, err := s.Client(t).Task(t.Context(), id)
		return err == nil && got.State == muster.Running
	})
	return owner, id.String()
}

var upgrade = map[string]string{
	"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==", "Sec-WebSocket-Protocol": execwire.Subprotocol,
}

func TestExecRefusals(t *testing.T) {
	s := apitest.Start(t, nil)
	owner, task := runningTask(t, s)
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", body: `{"name":"waits","run":"x","where":{"tags":["nowhere"]}}`}, 201)
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", body: `{"name":"ends","run":"x","where":{"tags":["nowhere"]}}`}, 201)
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs/3/cancel", body: `{}`}, 200)
	foreign := map[string]string{"Origin": "https://evil.example"}
	maps.Copy(foreign, upgrade)
	for name, c := range map[string]struct {
		token, task string
		header      map[string]string
		status      int
		text        string
	}{
		"a viewer":          {token: s.CreateKey(t, auth.Viewer, "", ""), header: upgrade, status: 403, text: "may not execute commands in tasks"},
		"another submitter": {token: s.CreateKey(t, auth.Submitter, "", ""), header: upgrade, status: 403, text: "belongs to another key"},
		"another project":   {token: s.CreateKey(t, auth.Submitter, "q", ""), header: upgrade, status: 404, text: "no job"},
		"a worker":          {token: s.CreateKey(t, auth.Worker, "", "w1"), header: upgrade, status: 403},
		"a link":            {token: share(t, s, "1").Secret, header: upgrade, status: 403},
		"a queued task":     {task: "2.0", header: upgrade, status: 409, text: "task 2.0 is queued: commands run only in running tasks"},
		"an ended task":     {task: "3.0", header: upgrade, status: 409, text: "task 3.0 has ended (cancelled)"},
		"no task":           {task: "1.7", header: upgrade, status: 404},
		"no WebSocket":      {token: owner, status: 400, text: "needs a WebSocket"},
		"a foreign page":    {header: foreign, status: 403},
	} {
		if c.task == "" {
			c.task = task
		}
		resp, body := send(t, s, request{method: "GET", path: "/api/v1/tasks/" + c.task + "/exec", token: c.token, header: c.header})
		if resp.StatusCode != c.status || !strings.Contains(string(body), c.text) {
			t.Errorf("%s: %d, want %d with %q: %s", name, resp.StatusCode, c.status, c.text, body)
		}
	}
}

// A command of the owner of the job reaches the worker, and ends with its key.
func TestExecEndsWithItsKey(t *testing.T) {
	s := apitest.Start(t, nil)
	owner, task := runningTask(t, s)
	id, err := muster.ParseTaskID(task)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := s.ClientWith(t, owner).Exec(ctx, id, &execwire.Start{Command: &execwire.Command{Argv: []string{"true"}}})
	if err != nil {
		t.Fatal(err)
	}
	expectStatus(t, s, request{method: "DELETE", path: "/api/v1/keys/" + owner}, 204)
	var last *execwire.Error
	err = conn.Run(ctx, func(f *execwire.Frame) error {
		last = f.Error
		return nil
	})
	if last == nil || last.Code != muster.Unavailable || !strings.Contains(last.Message, "key was revoked") || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the connection ended with %v, and the last frame is %+v", err, last)
	}
}

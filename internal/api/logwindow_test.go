package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/tasklog"
)

// A window of a running task is done when the attempt has ended and its whole log has arrived.
func TestLogWindowFollows(t *testing.T) {
	s := apitest.Start(t, nil)
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", body: `{"run":"x"}`}, http.StatusCreated)
	getWindow := func(query string) (window wire.LogWindow) {
		t.Helper()
		if err := json.Unmarshal(expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/logs/window" + query}, http.StatusOK), &window); err != nil {
			t.Fatal(err)
		}
		return window
	}
	if got := getWindow(""); got.Attempt != 0 || got.Done || got.Records == nil {
		t.Errorf("before the first attempt: %+v", got)
	}
	w := s.ConnectWorker(t, "w1")
	id := w.StartNext()
	if got := getWindow(""); got.Attempt != 1 || got.Done || len(got.Records) != 0 {
		t.Errorf("before the first line: %+v", got)
	}
	var lines []byte
	for i := range 100 {
		lines = append(lines, apitest.EncodeRecord(tasklog.Stdout, fmt.Sprintf("line %d\n", i))...)
	}
	appendLog(t, s, id, lines)
	last := getWindow("?direction=backward&bytes=24")
	if len(last.Records) != 3 || last.Records[2].Text != "line 99\n" || last.Done || last.Last != int64(len(lines)) {
		t.Errorf("the end is %+v", last)
	}
	if got := getWindow(fmt.Sprintf("?direction=backward&bytes=8&offset=%d", last.First)); len(got.Records) != 1 || got.Records[0].Text != "line 96\n" {
		t.Errorf("before it is %+v", got)
	}
	if got := getWindow(fmt.Sprintf("?offset=%d", last.Records[1].Offset+3)); len(got.Records) != 2 || got.First != last.Records[1].Offset {
		t.Errorf("from the middle of a record: %+v", got)
	}
	w.Finish(id, muster.AttemptSucceeded, int64(len(lines))+18)
	eventuallyTrue(t, func() bool {
		task, err := s.Store.Task(t.Context(), id.Task)
		return err == nil && task.State.Final()
	})
	if got := getWindow(fmt.Sprintf("?offset=%d", last.Last)); got.Done {
		t.Errorf("the window is done before the last line has arrived: %+v", got)
	}
	appendLog(t, s, id, apitest.EncodeRecord(tasklog.Stdout, "the end\n"))
	if got := getWindow(fmt.Sprintf("?offset=%d", last.Last)); !got.Done || len(got.Records) != 1 || got.Records[0].Text != "the end\n" {
		t.Errorf("the last line is %+v", got)
	}
	if got := getWindow("?offset=1000000000"); !got.Done || len(got.Records) != 0 || got.First != got.Size {
		t.Errorf("after the end: %+v", got)
	}
	expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/logs/window?attempt=2"}, http.StatusNotFound)
	expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/logs/window?bytes=0"}, http.StatusBadRequest)
	expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/logs/search?q=" + strings.Repeat("x", 1001)}, http.StatusBadRequest)
	expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/logs/search?q=x&errors=true"}, http.StatusBadRequest)
}

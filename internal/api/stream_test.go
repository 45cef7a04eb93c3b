package api_test

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/tasklog"
)

func submit(t *testing.T, s *apitest.Server, spec string) {
	t.Helper()
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", body: spec}, http.StatusCreated)
}

// appendLog appends records to an attempt's log and returns its size.
func appendLog(t *testing.T, s *apitest.Server, id muster.AttemptID, records ...[]byte) int64 {
	t.Helper()
	size, err := s.Logs.Size(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if size, err = s.Logs.Append(t.Context(), id, size, r); err != nil {
			t.Fatal(err)
		}
	}
	return size
}

func line(attempt int, offset int64, stream, text string) []string {
	return []string{
		"event: output", "id: " + strconv.Itoa(attempt) + "-" + strconv.FormatInt(offset, 10),
		`data: {"stream":"` + stream + `","at":"TIME","text":"` + text + `"}`,
	}
}

// A follower gets the output of an attempt as it arrives, waits for output that a
// report has overtaken, and continues with the next attempt.
func TestFollowAcrossARetry(t *testing.T) {
	s := apitest.Start(t, nil)
	submit(t, s, `{"run":"x","retries":{"max":1,"backoff":0}}`)
	st := openStream(t, s, "/api/v1/tasks/1.0/logs", nil)
	w := s.ConnectWorker(t, "w1")
	first := w.StartNext()
	st.expect("event: attempt", "id: 1-0", `data: {"attempt":1}`)
	hello := apitest.EncodeRecord(tasklog.Stdout, "hello\n")
	size := appendLog(t, s, first, hello)
	st.expect(line(1, size, "stdout", `hello\n`)...)
	tail := apitest.EncodeRecord(tasklog.Stderr, "tail\n")
	w.Finish(first, muster.AttemptFailed, size+int64(len(tail)))
	second := w.StartNext()
	appendLog(t, s, second, apitest.EncodeRecord(tasklog.Stdout, "again\n"))
	appendLog(t, s, first, tail[:7]) // the rest of the first one comes late, and in pieces
	appendLog(t, s, first, tail[7:])
	st.expect(line(1, size+int64(len(tail)), "stderr", `tail\n`)...)
	st.expect("event: retry", "id: 1-"+strconv.FormatInt(size+int64(len(tail)), 10), `data: {"attempt":1}`)
	st.expect("event: attempt", "id: 2-0", `data: {"attempt":2}`)
	st.expect(line(2, 16, "stdout", `again\n`)...)
	w.Finish(second, muster.AttemptSucceeded, 16)
	st.expect("event: end", `data: {"attempt":2,"state":"succeeded"}`)
	st.expectEnd()
}

func TestFollowResumesAfterLastEvent(t *testing.T) {
	s := apitest.Start(t, nil)
	submit(t, s, `{"run":"x"}`)
	w := s.ConnectWorker(t, "w1")
	id := w.StartNext()
	one := appendLog(t, s, id, apitest.EncodeRecord(tasklog.Stdout, "one\n"))
	two := appendLog(t, s, id, apitest.EncodeRecord(tasklog.Stdout, "two\n"))
	st := openStream(t, s, "/api/v1/tasks/1.0/logs?tail=1", map[string]string{"Last-Event-ID": "1-" + strconv.FormatInt(one, 10)})
	st.expect("event: attempt", "id: 1-14", `data: {"attempt":1}`)
	st.expect(line(1, two, "stdout", `two\n`)...)
	w.Finish(id, muster.AttemptSucceeded, two)
	st.expect("event: end", `data: {"attempt":1,"state":"succeeded"}`)
	for id, want := range map[string]int{"": http.StatusOK, "x": http.StatusBadRequest, "1-3": http.StatusNotFound, "2-0": http.StatusNotFound} {
		for _, accept := range []string{"", "text/event-stream"} { // what follows does not wait for what never comes
			expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/logs", header: map[string]string{"Last-Event-ID": id, "Accept": accept}}, want)
		}
	}
}

// A plain read of a finished task waits for output that its report has overtaken.
func TestPlainLogIsComplete(t *testing.T) {
	s := apitest.Start(t, nil)
	submit(t, s, `{"run":"x"}`)
	w := s.ConnectWorker(t, "w1")
	id := w.StartNext()
	hello, tail := apitest.EncodeRecord(tasklog.Stdout, "hello\n"), apitest.EncodeRecord(tasklog.Stdout, "tail\n")
	size := appendLog(t, s, id, hello)
	w.Finish(id, muster.AttemptSucceeded, size+int64(len(tail)))
	eventuallyTrue(t, func() bool {
		return strings.Contains(string(expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0"}, http.StatusOK)), `"state":"succeeded"`)
	})
	late := time.AfterFunc(100*time.Millisecond, func() { appendLog(t, s, id, tail) })
	defer late.Stop()
	if got := string(expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/logs"}, http.StatusOK)); got != "hello\ntail\n" {
		t.Errorf("the log reads %q", got)
	}
}

func TestFollowTaskThatNeverRan(t *testing.T) {
	s := apitest.Start(t, nil)
	submit(t, s, `{"run":"x"}`)
	st := openStream(t, s, "/api/v1/tasks/1.0/logs", nil)
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs/1/cancel"}, http.StatusOK)
	st.expect("event: end", `data: {"attempt":0,"state":"cancelled"}`)
	st.expectEnd()
}

// A read does not wait for the log of a lost attempt.
func TestFollowAcrossALostAttempt(t *testing.T) {
	s := apitest.Start(t, nil)
	submit(t, s, `{"run":"x"}`)
	w := s.ConnectWorker(t, "w1")
	id := w.StartNext()
	size := appendLog(t, s, id, apitest.EncodeRecord(tasklog.Stdout, "half\n"))
	st := openStream(t, s, "/api/v1/tasks/1.0/logs", nil)
	st.expect("event: attempt", "id: 1-0", `data: {"attempt":1}`)
	st.expect(line(1, size, "stdout", `half\n`)...)
	w.Goodbye()
	s.ConnectWorker(t, "w2").StartNext()
	st.expect("event: retry", "id: 1-"+strconv.FormatInt(size, 10), `data: {"attempt":1}`)
	st.expect("event: attempt", "id: 2-0", `data: {"attempt":2}`)
}

func TestLogSelections(t *testing.T) {
	s := apitest.Start(t, nil)
	submit(t, s, `{"run":"x"}`)
	w := s.ConnectWorker(t, "w1")
	id := w.StartNext()
	first := appendLog(t, s, id, apitest.EncodeRecord(tasklog.Stdout, "1\n"))
	appendLog(t, s, id, apitest.EncodeRecord(tasklog.Stderr, "2\n"), apitest.EncodeRecord(tasklog.Stdout, "3 half,"), apitest.EncodeRecord(tasklog.Stdout, " 3 whole\n"),
		apitest.EncodeRecord(tasklog.System, "cut here\n"), apitest.EncodeRecord(tasklog.Stdout, "4 no end"))
	for _, tt := range []struct{ query, want string }{
		{"", "1\n2\n3 half, 3 whole\ncut here\n4 no end"},
		{"?stream=stdout", "1\n3 half, 3 whole\n4 no end"},
		{"?stream=stderr", "2\n"},
		{"?tail=1", "4 no end"},
		{"?stream=stdout&tail=2", "3 half, 3 whole\n4 no end"},
		{"?tail=100", "1\n2\n3 half, 3 whole\ncut here\n4 no end"},
		{"?offset=" + strconv.FormatInt(first, 10), "2\n3 half, 3 whole\ncut here\n4 no end"},
		{"?attempt=1&offset=100000", ""},
	} {
		got := expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/logs" + tt.query}, http.StatusOK)
		if string(got) != tt.want {
			t.Errorf("logs%s = %q, want %q", tt.query, got, tt.want)
		}
	}
	expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/logs?attempt=2"}, http.StatusNotFound)
	expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/logs?offset=3"}, http.StatusNotFound)
	expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/logs?tail=0"}, http.StatusBadRequest)
}

// Output that is not UTF-8 arrives unchanged.
func TestBinaryOutput(t *testing.T) {
	s := apitest.Start(t, nil)
	submit(t, s, `{"run":"x"}`)
	w := s.ConnectWorker(t, "w1")
	id := w.StartNext()
	size := appendLog(t, s, id, apitest.EncodeRecord(tasklog.Stdout, "\xff\x00\n"))
	w.Finish(id, muster.AttemptSucceeded, size)
	st := openStream(t, s, "/api/v1/tasks/1.0/logs?follow=false", nil)
	st.expect("event: attempt", "id: 1-0", `data: {"attempt":1}`)
	st.expect("event: output", "id: 1-13", `data: {"stream":"stdout","at":"TIME","bytes":"/wAK"}`)
}

func TestEvents(t *testing.T) {
	s := apitest.Start(t, nil)
	submit(t, s, `{"kind":"noop"}`)
	all := openStream(t, s, "/api/v1/events", nil)
	second := openStream(t, s, "/api/v1/events?job=2", nil)
	jobs := openStream(t, s, "/api/v1/events?type=job&type=worker", nil)
	for _, st := range []*stream{all, second, jobs} {
		if line := <-st.lines; line != "event: resync" {
			t.Fatalf("the first event is %q", line)
		}
	}
	id := strings.TrimPrefix(<-all.lines, "id: ")
	submit(t, s, `{"kind":"noop","name":"second"}`)
	<-second.lines
	<-second.lines
	eventuallyTrue(t, func() bool {
		line := <-second.lines
		if strings.HasPrefix(line, "data:") && !strings.Contains(line, `"job":2`) && !strings.Contains(line, `"task":"2.0"`) {
			t.Errorf("an event of another job: %s", line)
		}
		return strings.HasPrefix(line, "data:") && strings.Contains(line, `"type":"job"`)
	})
	s.ConnectWorker(t, "w1").StartNext()
	<-jobs.lines
	<-jobs.lines
	eventuallyTrue(t, func() bool {
		line := <-jobs.lines
		if line == "event: task" {
			t.Error("an event of a task that was not requested")
		}
		return strings.HasPrefix(line, "data:") && strings.Contains(line, `"state":"running"`)
	})
	later := openStream(t, s, "/api/v1/events", map[string]string{"Last-Event-ID": id})
	if line := <-later.lines; line == "event: resync" {
		t.Error("a known Last-Event-ID was answered with a resync")
	}
	old := openStream(t, s, "/api/v1/events", map[string]string{"Last-Event-ID": "epoch0-12"})
	if line := <-old.lines; line != "event: resync" {
		t.Errorf("an id of another epoch was answered with %q", line)
	}
}

func sample(at int, cpu string) string {
	return `{"at":"2020-01-02T15:04:` + strconv.Itoa(10+at) + `.000Z","cpu":` + cpu + `}`
}

// Usage is followed over attempts like output, and the two streams are separate.
func TestFollowUsage(t *testing.T) {
	s := apitest.Start(t, nil)
	submit(t, s, `{"run":"x","retries":{"max":1,"backoff":0}}`)
	st := openStream(t, s, "/api/v1/tasks/1.0/usage", map[string]string{"Accept": "text/event-stream"})
	w := s.ConnectWorker(t, "w1")
	first := w.StartNext()
	st.expect("event: attempt", "id: 1-0", `data: {"attempt":1}`)
	taken := func(place, cpu string) []string {
		return []string{"event: sample", "id: " + place, `data: {"at":"TIME","cpu":` + cpu + `}`}
	}
	appendLog(t, s, first, apitest.EncodeRecord(tasklog.Stdout, "hello\n"))
	one := appendLog(t, s, first, apitest.EncodeRecord(tasklog.Usage, sample(1, "0.5")))
	st.expect(taken("1-"+strconv.FormatInt(one, 10), "0.5")...)
	appendLog(t, s, first, apitest.EncodeRecord(tasklog.Usage, "no sample"), apitest.EncodeRecord(tasklog.Usage, `{"at":"x`+strings.Repeat("x", 20_000)+`"}`))
	two := appendLog(t, s, first, apitest.EncodeRecord(tasklog.Usage, sample(2, "1.5")))
	st.expect(taken("1-"+strconv.FormatInt(two, 10), "1.5")...)
	w.Finish(first, muster.AttemptFailed, two)
	st.expect("event: retry", "id: 1-"+strconv.FormatInt(two, 10), `data: {"attempt":1}`)
	second := w.StartNext()
	st.expect("event: attempt", "id: 2-0", `data: {"attempt":2}`)
	three := appendLog(t, s, second, apitest.EncodeRecord(tasklog.Usage, sample(3, "2.5")))
	st.expect(taken("2-"+strconv.FormatInt(three, 10), "2.5")...)

	w.Finish(second, muster.AttemptSucceeded, three)
	st.expect("event: end", `data: {"attempt":2,"state":"succeeded"}`)
	st.expectEnd()

	// A client resumes after a series, with or without later attempts.
	var series wire.Series
	if err := json.Unmarshal(expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/usage?attempt=1"}, http.StatusOK), &series); err != nil {
		t.Fatal(err)
	}
	if series.Next != "1-"+strconv.FormatInt(two, 10) || len(series.Samples) != 2 || *series.Samples[1].CPU != 1.5 {
		t.Errorf("the series of the first attempt is %+v", series)
	}
	only := openStream(t, s, "/api/v1/tasks/1.0/usage?attempt=1", map[string]string{"Accept": "text/event-stream", "Last-Event-ID": "1-" + strconv.FormatInt(one, 10)})
	only.expect("event: attempt", "id: 1-"+strconv.FormatInt(one, 10), `data: {"attempt":1}`)
	only.expect(taken(series.Next, "1.5")...)
	only.expect("event: end", `data: {"attempt":1,"state":"succeeded"}`)
	only.expectEnd()
	out := openStream(t, s, "/api/v1/tasks/1.0/logs?attempt=1", nil)
	out.expect("event: attempt", "id: 1-0", `data: {"attempt":1}`)
	out.expect(line(1, 16, "stdout", `hello\n`)...)
	out.expect("event: end", `data: {"attempt":1,"state":"succeeded"}`)
}

// Samples between records of output do not affect offsets and tail.
func TestLogSelectionsBetweenSamples(t *testing.T) {
	s := apitest.Start(t, nil)
	submit(t, s, `{"run":"x"}`)
	id := s.ConnectWorker(t, "w1").StartNext()
	used := apitest.EncodeRecord(tasklog.Usage, sample(1, "1")+"\n")
	for _, text := range []string{"1\n", "2\n", "3 half,", " 3 whole\n", "4 no end"} {
		appendLog(t, s, id, used, apitest.EncodeRecord(tasklog.Stdout, text), used)
	}
	for query, want := range map[string]string{
		"": "1\n2\n3 half, 3 whole\n4 no end", "?tail=1": "4 no end", "?tail=2": "3 half, 3 whole\n4 no end", "?tail=4": "1\n2\n3 half, 3 whole\n4 no end",
		"?stream=stderr": "", "?stream=stdout&tail=3": "2\n3 half, 3 whole\n4 no end",
	} {
		if got := expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/logs" + query}, http.StatusOK); string(got) != want {
			t.Errorf("logs%s = %q, want %q", query, got, want)
		}
	}
	expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/logs?stream=usage"}, http.StatusBadRequest)
}

// A long series is reduced to few points that keep its peaks; averages include all
// samples.
func TestLongSeries(t *testing.T) {
	const samples = 3000
	s := apitest.Start(t, nil)
	submit(t, s, `{"run":"x"}`)
	id := s.ConnectWorker(t, "w1").StartNext()
	begin := time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC)
	var log []byte
	for i := range samples {
		cpu := 1.0
		if i%1000 == 500 {
			cpu = 4 // three peaks of one sample each
		}
		b, err := json.Marshal(muster.Sample{At: muster.NewTime(begin.Add(time.Duration(i) * 5 * time.Second)), CPU: &cpu})
		if err != nil {
			t.Fatal(err)
		}
		log = append(log, apitest.EncodeRecord(tasklog.Usage, string(b))...)
	}
	appendLog(t, s, id, log)
	for _, points := range []int{10, 100, 5000} {
		var series wire.Series
		if err := json.Unmarshal(expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/usage?points=" + strconv.Itoa(points)}, http.StatusOK), &series); err != nil {
			t.Fatal(err)
		}
		peaks := 0
		for _, p := range series.Samples {
			if *p.CPU == 4 {
				peaks++
			}
		}
		if len(series.Samples) > points || series.Taken != samples || peaks != 3 && points > 10 || peaks == 0 || series.Usage.CPUPeak != 4 || !series.SoFar {
			t.Errorf("%d points: %d samples of %d, %d peaks, usage %+v", points, len(series.Samples), series.Taken, peaks, series.Usage)
		}
		if avg, want := series.Usage.CPUAvg, 1+3*3.0/samples; math.Abs(avg-want) > 1e-3 {
			t.Errorf("%d points: %g cores on average, want %g", points, avg, want)
		}
	}
	expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/usage?points=1"}, http.StatusBadRequest)
}

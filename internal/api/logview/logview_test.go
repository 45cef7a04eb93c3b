package logview_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/logview"
	"github.com/muster-dev/muster/internal/tasklog"
)

var attempt = muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}

// write writes a log of records in a folder, and returns where each begins and where the last one ends.
func write(tb testing.TB, records []tasklog.Record, indexed bool) (logs *tasklog.Dir, offsets []int64) {
	tb.Helper()
	open := tasklog.OpenDir
	if indexed {
		open = tasklog.OpenIndexedDir
	}
	logs, err := open(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = logs.Close() })
	at := int64(0)
	var pending []byte
	flush := func() {
		if _, err := logs.Append(tb.Context(), attempt, at-int64(len(pending)), pending); err != nil {
			tb.Fatal(err)
		}
		pending = pending[:0]
	}
	for _, r := range records {
		offsets = append(offsets, at)
		before := len(pending)
		pending = tasklog.AppendRecord(pending, r)
		at += int64(len(pending) - before)
		if len(pending) > 1<<20 {
			flush()
		}
	}
	flush()
	return logs, append(offsets, at)
}

func matchAny(tasklog.Record) bool { return true }

func stdout(r tasklog.Record) bool { return r.Stream == tasklog.Stdout }

// drawLog draws records of all lengths: some logs have several steps.
func drawLog(t *rapid.T) []tasklog.Record {
	lengths := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(0, 40_000), rapid.SampledFrom([]int{0, 1, 300_000}))
	records := make([]tasklog.Record, rapid.IntRange(0, 60).Draw(t, "records"))
	for i := range records {
		records[i] = tasklog.Record{
			Stream: rapid.SampledFrom([]tasklog.Stream{tasklog.Stdout, tasklog.Stderr, tasklog.System, tasklog.Usage}).Draw(t, "stream"),
			At:     time.UnixMilli(int64(i)).UTC(),
			Data:   append(fmt.Appendf(nil, "line %d ", i), bytes.Repeat([]byte{'x'}, lengths.Draw(t, "length"))...),
		}
	}
	return records
}

// Consecutive windows, in both directions and from any offset, have each selected record once and in order.
func TestWindowsCoverTheLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		records := drawLog(rt)
		logs, offsets := write(t, records, rapid.Bool().Draw(rt, "indexed"))
		end := offsets[len(offsets)-1]
		size := rapid.IntRange(1, 100_000).Draw(rt, "size")
		start := rapid.Int64Range(0, end+10).Draw(rt, "start")
		begin := end // of the record in which start lies
		for i := range records {
			if start < offsets[i+1] {
				begin = offsets[i]
				break
			}
		}
		var got []logview.Record
		q := logview.Query{Attempt: attempt, Offset: start, Filter: stdout}
		for n := 0; ; n++ {
			w := window(rt, logs, q, size)
			if n == 0 && w.First != begin {
				rt.Fatalf("the window from %d begins at %d, want %d", start, w.First, begin)
			}
			got = append(got, w.Records...)
			if w.AtEnd {
				break
			}
			q.Offset = w.Last
		}
		q = logview.Query{Attempt: attempt, Offset: start, Filter: stdout, Backward: true}
		for n := 0; ; n++ {
			w := window(rt, logs, q, size)
			if n == 0 && (w.Last != begin || w.AtEnd != (begin == end)) {
				rt.Fatalf("the window before %d ends at %d, want %d; at the end: %v", start, w.Last, begin, w.AtEnd)
			}
			got = slices.Concat(w.Records, got)
			if w.First == 0 {
				break
			}
			q.Offset = w.First
		}
		i := 0
		for k, r := range records {
			if !stdout(r) {
				continue
			}
			if i >= len(got) || got[i].Offset != offsets[k] || !bytes.Equal(got[i].Data, r.Data) || !got[i].At.Equal(r.At) {
				rt.Fatalf("record %d at %d is missing or wrong, of %d records", k, offsets[k], len(got))
			}
			i++
		}
		if i != len(got) {
			rt.Fatalf("%d records, want %d", len(got), i)
		}
	})
}

func window(t *rapid.T, logs tasklog.Store, q logview.Query, size int) logview.Window {
	t.Helper()
	w, err := logview.Read(context.Background(), logs, q, size)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, r := range w.Records {
		sum += len(r.Data)
	}
	if sum > size && len(w.Records) > 1 {
		t.Fatalf("a window of %d bytes has %d", size, sum)
	}
	return w
}

// Consecutive searches find each matching record once, in the order of their direction.
func TestSearchesCoverTheLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		records := drawLog(rt)
		logs, offsets := write(t, records, rapid.Bool().Draw(rt, "indexed"))
		limit := logview.Limits{Matches: rapid.IntRange(1, 10).Draw(rt, "matches"), Bytes: rapid.Int64Range(1, 500_000).Draw(rt, "bytes"), Time: time.Minute}
		find := fmt.Sprintf("LINE %d", rapid.IntRange(0, 9).Draw(rt, "digit"))
		var want []int64
		for i, r := range records {
			if stdout(r) && strings.Contains(string(r.Data), strings.ToLower(find)) {
				want = append(want, offsets[i])
			}
		}
		for _, backward := range []bool{false, true} {
			q := logview.Query{Attempt: attempt, Filter: stdout, Backward: backward}
			if backward {
				q.Offset = logview.End
			}
			var got []int64
			for {
				f, err := logview.Search(context.Background(), logs, q, logview.Text(find, false), limit)
				if err != nil {
					rt.Fatal(err)
				}
				for _, m := range f.Matches {
					got = append(got, m.Offset)
				}
				if len(f.Matches) > limit.Matches {
					rt.Fatalf("%d matches, at most %d were wanted", len(f.Matches), limit.Matches)
				}
				if f.Done {
					break
				}
				if f.ScannedTo == q.Offset {
					rt.Fatalf("a search at %d makes no progress", q.Offset)
				}
				q.Offset = f.ScannedTo
			}
			if backward {
				slices.Reverse(got)
			}
			if !slices.Equal(got, want) {
				rt.Fatalf("backward %v: found %v, want %v", backward, got, want)
			}
		}
	})
}

// An incomplete record is not part of a window.
func TestUnfinishedRecord(t *testing.T) {
	logs, offsets := write(t, []tasklog.Record{{Stream: tasklog.Stdout, Data: []byte("whole\n")}}, true)
	rest := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Stdout, Data: []byte("part\n")})
	size, err := logs.Append(t.Context(), attempt, offsets[1], rest[:12])
	if err != nil {
		t.Fatal(err)
	}
	for _, backward := range []bool{false, true} {
		q := logview.Query{Attempt: attempt, Offset: 0, Backward: backward, Filter: matchAny}
		if backward {
			q.Offset = logview.End
		}
		w, err := logview.Read(t.Context(), logs, q, 1000)
		if err != nil || w.Size != size || w.First != 0 || w.Last != offsets[1] || !w.AtEnd || len(w.Records) != 1 {
			t.Errorf("backward %v: %+v, %v", backward, w, err)
		}
	}
}

func TestNoLog(t *testing.T) {
	logs, _ := write(t, nil, true)
	w, err := logview.Read(t.Context(), logs, logview.Query{Attempt: attempt, Offset: logview.End, Backward: true, Filter: matchAny}, 1000)
	if err != nil || w.Size != 0 || !w.AtEnd || w.Records == nil || len(w.Records) != 0 {
		t.Errorf("%+v, %v", w, err)
	}
	f, err := logview.Search(t.Context(), logs, logview.Query{Attempt: attempt, Offset: 5, Filter: matchAny}, logview.Errors(), logview.Limits{Matches: 1, Bytes: 1, Time: time.Second})
	if err != nil || !f.Done || f.ScannedTo != 0 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestErrors(t *testing.T) {
	match := logview.Errors()
	for line, want := range map[string]bool{
		"Traceback (most recent call last):\n":                          true,
		"ValueError: bad shape\n":                                       true,
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate": true,
		"RuntimeError: CUDA error: device-side assert triggered":        true,
		"KeyboardInterruptException":                                    true,
		"java.lang.NullPointerException: null":                          true,
		"main.c:3:5: error: expected ';'":                               true,
		"error[E0382]: borrow of moved value":                           true,
		"panic: runtime error: index out of range":                      true,
		"2026-01-02 15:04:05 ERROR worker: no":                          true,
		"[FATAL] cannot start":                                          true,
		"level=ERROR msg=\"no\"":                                        true,
		"sh: 1: frobnicate: command not found":                          true,
		"Killed\n":                                                      true,
		"Segmentation fault (core dumped)":                              true,
		"train.py: Assertion `x' failed.":                               true,
		"fatal: not a git repository":                                   true,
		"0 errors, 0 warnings":                                          false,
		"error=0.12 step=3":                                             false,
		"error: 0.12":                                                   false,
		"mean absolute error 0.3":                                       false,
		"epoch 3 loss 0.2":                                              false,
		"the job was not killed":                                        false,
		"failed 0 of 10":                                                false,
	} {
		if _, _, got := match([]byte(line)); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}

func TestText(t *testing.T) {
	for _, tt := range []struct {
		q     string
		exact bool
		line  string
		want  bool
	}{
		{"loss", false, "Epoch 1: LOSS 0.3", true}, {"loss", true, "Epoch 1: LOSS 0.3", false}, {"LOSS", true, "Epoch 1: LOSS 0.3", true},
		{"straße", false, "STRAßE", true}, {"straße", true, "STRAßE", false}, {"a.c", false, "abc", false}, {"", false, "any", true},
	} {
		if _, _, got := logview.Text(tt.q, tt.exact)([]byte(tt.line)); got != tt.want {
			t.Errorf("%q in %q, exact %v: %v", tt.q, tt.line, tt.exact, got)
		}
	}
	if _, err := logview.Pattern("a(", false); muster.CodeOf(err) != muster.Invalid {
		t.Errorf("a wrong pattern is %v", err)
	}
	m, err := logview.Pattern("^a|b$", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok := m([]byte("xB")); !ok {
		t.Error("^a|b$ does not match xB")
	}
}

// A pattern with a large automaton is rejected before it is compiled, and the match of a long record has a time limit.
func TestExpensivePatterns(t *testing.T) {
	for _, q := range []string{strings.Repeat("(x?){999}", 100), `(\pL?){600}`, `.{0,999}z`, `((a{10}){10}){6}`} {
		if _, err := logview.Pattern(q, false); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%.20q: %v", q, err)
		}
	}
	for _, q := range []string{`[0-9a-f]{64}`, `loss=\d{1,6}\.\d{1,10}`, `^.{0,120}error`, `(GET|POST) /[^ ]* \d{3}`} {
		if _, err := logview.Pattern(q, false); err != nil {
			t.Error(err)
		}
	}
	costly, err := logview.Pattern(strings.Repeat("(x?){9}", 12)+"z", false)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, _, found := costly(bytes.Repeat([]byte{'x'}, tasklog.MaxRecordData))
	if took := time.Since(start); found || took > 10*time.Second { // 500 ms on an idle machine; without a limit it is minutes
		t.Errorf("found %v after %s", found, took)
	}
	quick, err := logview.Pattern("[ab]{400}z|needle", false)
	if err != nil {
		t.Fatal(err)
	}
	if from, to, ok := quick(append(bytes.Repeat([]byte{'y'}, 50_000), "needle"...)); !ok || from != 50_000 || to != 50_006 {
		t.Errorf("found %v from %d to %d", ok, from, to)
	}
}

// TestPatternOfALine checks that ^ and $ match the ends of a line, for all kinds of line ends.
func TestPatternOfALine(t *testing.T) {
	t.Parallel()
	var records []tasklog.Record
	for _, line := range []string{"out 500\n", "out 500 more\n", "out 500\r\n", "out 500", "an out 500\n", "\n"} {
		records = append(records, tasklog.Record{Stream: tasklog.Stdout, Data: []byte(line)})
	}
	logs, offsets := write(t, records, false)
	for q, want := range map[string][]int64{"out 500$": {offsets[0], offsets[2], offsets[3], offsets[4]}, "^out 500$": {offsets[0], offsets[2], offsets[3]}, "^$": {offsets[5]}} {
		match, err := logview.Pattern(q, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, backward := range []bool{false, true} {
			from := offsets[0]
			if backward {
				from = offsets[len(offsets)-1]
			}
			found, err := logview.Search(t.Context(), logs, logview.Query{Attempt: attempt, Offset: from, Backward: backward, Filter: matchAny}, match, logview.Limits{Matches: 10, Bytes: 1 << 20, Time: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			var got []int64
			for _, m := range found.Matches {
				got = append(got, m.Offset)
				if strings.ContainsAny(m.Text, "\r\n") {
					t.Errorf("%q: the text is %q", q, m.Text)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%q, backward %v: found at %v, want %v", q, backward, got, want)
			}
		}
	}
}

func TestExcerpt(t *testing.T) {
	long := append(bytes.Repeat([]byte("é"), 10_000), []byte("needle\n")...)
	logs, _ := write(t, []tasklog.Record{{Stream: tasklog.Stdout, Data: long}, {Stream: tasklog.Stdout, Data: append([]byte("needle"), bytes.Repeat([]byte{0xff}, 5000)...)}}, true)
	f, err := logview.Search(t.Context(), logs, logview.Query{Attempt: attempt, Filter: matchAny}, logview.Text("NEEDLE", false), logview.Limits{Matches: 10, Bytes: 1 << 20, Time: time.Minute})
	if err != nil || len(f.Matches) != 2 {
		t.Fatalf("%+v, %v", f, err)
	}
	for _, m := range f.Matches {
		if !strings.Contains(m.Text, "needle") || len(m.Text) > logview.MaxText || strings.HasSuffix(m.Text, "\n") {
			t.Errorf("the excerpt is %q", m.Text)
		}
	}
}

func FuzzSearch(f *testing.F) {
	f.Add([]byte("o\x00\x00\x00\x00\x00\x00\x00\x00\x05hello"), "ell", int64(3), true)
	f.Add([]byte("e\x00\x00\x00\x00\x00\x00\x00\xff\x05hello"), "(?i)x|", int64(-1), false)
	f.Fuzz(func(t *testing.T, data []byte, q string, offset int64, backward bool) {
		logs, err := tasklog.OpenIndexedDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = logs.Close() }()
		if _, err := logs.Append(t.Context(), attempt, 0, data); err != nil {
			t.Fatal(err)
		}
		query := logview.Query{Attempt: attempt, Offset: max(offset, logview.End), Backward: backward, Filter: matchAny}
		w, err := logview.Read(t.Context(), logs, query, 100)
		if err != nil && muster.CodeOf(err) != muster.Invalid {
			t.Fatal(err)
		}
		if err == nil && (w.First < 0 || w.Last < w.First || w.Last > int64(len(data))) {
			t.Fatalf("the window is %+v of %d bytes", w, len(data))
		}
		match, err := logview.Pattern(q, false)
		if err != nil {
			match = logview.Text(q, false)
		}
		found, err := logview.Search(t.Context(), logs, query, match, logview.Limits{Matches: 3, Bytes: 1000, Time: time.Second})
		if err != nil && muster.CodeOf(err) != muster.Invalid {
			t.Fatal(err)
		}
		for _, m := range found.Matches {
			if m.Offset < 0 || m.Offset >= int64(len(data)) || len(m.Text) > logview.MaxText {
				t.Fatalf("the match is %+v", m)
			}
		}
	})
}

// bigLog writes a log of so many bytes with lines of a training, and an error at the end.
func bigLog(tb testing.TB, bytes int64) *tasklog.Dir {
	tb.Helper()
	logs, err := tasklog.OpenIndexedDir(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = logs.Close() })
	var b []byte
	at := int64(0)
	for n := 0; at < bytes; n++ {
		b = tasklog.AppendRecord(b, tasklog.Record{Stream: tasklog.Stdout, At: time.UnixMilli(int64(n)), Data: fmt.Appendf(nil, "step %9d: train loss 0.%06d, learning rate 3.0e-4, 512 tokens in 0.02 s\n", n, n%1_000_000)})
		if len(b) > 4<<20 || at+int64(len(b)) >= bytes {
			if at+int64(len(b)) >= bytes {
				b = tasklog.AppendRecord(b, tasklog.Record{Stream: tasklog.Stderr, At: time.UnixMilli(int64(n)), Data: []byte("RuntimeError: the needle\n")})
			}
			if at, err = logs.Append(tb.Context(), attempt, at, b); err != nil {
				tb.Fatal(err)
			}
			b = b[:0]
		}
	}
	return logs
}

// Windows and searches of a log of 256 MB take a few MB of memory, and the searches end.
func TestMemoryOfALongLog(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 256 MB: not for -short")
	}
	const size = 256 << 20
	logs := bigLog(t, size)
	base := heap()
	peak := func(name string, f func()) {
		t.Helper()
		done, limit := make(chan struct{}), make(chan uint64)
		go func() {
			high := uint64(0)
			for {
				select {
				case <-done:
					limit <- high
					return
				case <-time.After(2 * time.Millisecond):
					high = max(high, heap())
				}
			}
		}()
		f()
		close(done)
		if high := <-limit; high > base+16<<20 {
			t.Errorf("%s takes %d bytes of memory in addition to %d", name, high-min(base, high), base)
		}
	}
	query := func(q logview.Query) logview.Window {
		t.Helper()
		w, err := logview.Read(t.Context(), logs, q, 64<<10)
		if err != nil || len(w.Records) < 500 {
			t.Fatalf("%d records, %v", len(w.Records), err)
		}
		return w
	}
	peak("windows", func() {
		for i := range int64(200) {
			query(logview.Query{Attempt: attempt, Offset: i * (size / 201), Filter: matchAny})
		}
		w := query(logview.Query{Attempt: attempt, Offset: logview.End, Backward: true, Filter: matchAny})
		if last := w.Records[len(w.Records)-1]; !w.AtEnd || !strings.Contains(string(last.Data), "needle") {
			t.Errorf("the last record is %q", last.Data)
		}
	})
	for _, backward := range []bool{false, true} {
		peak("a search", func() {
			q := logview.Query{Attempt: attempt, Filter: matchAny, Backward: backward}
			if backward {
				q.Offset = logview.End
			}
			for found := 0; ; {
				f, err := logview.Search(t.Context(), logs, q, logview.Errors(), logview.Limits{Matches: 100, Bytes: 64 << 20, Time: 2 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				if found += len(f.Matches); f.Done {
					if found != 1 {
						t.Errorf("%d errors found, want 1", found)
					}
					return
				}
				q.Offset = f.ScannedTo
			}
		})
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkLongLog(b *testing.B) {
	const size = 1 << 30
	logs := bigLog(b, size)
	b.Run("window in the middle", func(b *testing.B) {
		for i := int64(0); b.Loop(); i++ {
			if _, err := logview.Read(b.Context(), logs, logview.Query{Attempt: attempt, Offset: (i*7919<<16)%size | 12345, Filter: matchAny}, 64<<10); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("window at the end", func(b *testing.B) {
		for b.Loop() {
			if _, err := logview.Read(b.Context(), logs, logview.Query{Attempt: attempt, Offset: logview.End, Backward: true, Filter: matchAny}, 64<<10); err != nil {
				b.Fatal(err)
			}
		}
	})
	pattern, err := logview.Pattern(`needle \d+`, false)
	if err != nil {
		b.Fatal(err)
	}
	for name, match := range map[string]logview.Matcher{"text": logview.Text("no such text", false), "errors": logview.Errors(), "pattern": pattern} {
		b.Run("search for "+name, func(b *testing.B) {
			b.SetBytes(64 << 20)
			for b.Loop() {
				if _, err := logview.Search(b.Context(), logs, logview.Query{Attempt: attempt, Filter: matchAny}, match, logview.Limits{Matches: 100, Bytes: 64 << 20, Time: time.Minute}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

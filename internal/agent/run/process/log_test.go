package process

import (
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// slowProc is a Proc whose log blocks until it is released.
type slowProc struct {
	run.Proc // the rest is not asked for
	called   chan struct{}
	release  chan struct{}
}

func (p *slowProc) AppendLog(tasklog.Stream, []byte) {
	p.called <- struct{}{}
	<-p.release
}

func (p *slowProc) LogSize() int64 {
	p.called <- struct{}{}
	<-p.release
	return 7
}

// A supervisor that is slow to write a record, or to return the size, does not delay other tasks.
func TestLogIsNotLockedWhileTheShimWrites(t *testing.T) {
	t.Parallel()
	p := &slowProc{called: make(chan struct{}), release: make(chan struct{})}
	l := &attemptLog{}
	if err := l.handOver(func(int64) (run.Proc, error) { return p, nil }); err != nil {
		t.Fatal(err)
	}
	waits := map[string]func(){
		"a record is written": func() { l.logLine("a word") },
		"its size is asked":   func() { l.size() },
	}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer close(p.release)
	for while, wait := range waits {
		waiting.Go(wait)
		<-p.called
		free := make(chan error, 1)
		go func() { free <- l.failure() }()
		select {
		case err := <-free:
			if err != nil {
				t.Errorf("while %s: %v", while, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the log is locked while %s", while)
		}
	}
}

package process

import (
	"testing"

	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// slowProc is a Proc whose log takes nothing until it is let.
type slowProc struct {
	run.Proc // the rest is not asked for
	called   chan struct{}
	let      chan struct{}
}

func (p *slowProc) Record(tasklog.Stream, []byte) {
	p.called <- struct{}{}
	<-p.let
}

func (*slowProc) LogSize() int64 { return 7 }

// A supervisor that is slow to write one record holds up nobody else.
func TestALogIsNotLockedWhileTheSupervisorWrites(t *testing.T) {
	t.Parallel()
	p := &slowProc{called: make(chan struct{}), let: make(chan struct{})}
	l := &attemptLog{}
	if err := l.handOver(func(int64) (run.Proc, error) { return p, nil }); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.say("a word")
	}()
	<-p.called
	if l.size() != 7 || l.failure() != nil {
		t.Errorf("size %d, failure %v", l.size(), l.failure())
	}
	close(p.let)
	<-done
}

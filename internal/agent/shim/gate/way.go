package gate

import (
	"context"
	"net"
)

// Way is the way out of one task's network, from before its start to its end. The zero Way is of a task
// that has none.
type Way struct {
	rules *Rules
	say   func(line string)
	end   context.CancelFunc
	ended chan struct{}
}

// Plan reads what a task may reach, which is nothing for no hosts. say is for its log.
func Plan(hosts []string, say func(line string)) (w Way, err error) {
	if len(hosts) > 0 {
		w.rules, err = Parse(hosts)
		w.say = say
	}
	return w, err
}

// Planned reports whether Open is to be called.
func (w *Way) Planned() bool { return w.rules != nil }

// Open lets the task out by what listens in its network, until Close. start starts what runs on.
func (w *Way) Open(l net.Listener, start func(func())) {
	ctx, cancel := context.WithCancel(context.Background())
	w.end, w.ended = cancel, make(chan struct{})
	start(func() {
		defer close(w.ended)
		New(w.rules, w.say).Run(ctx, l)
	})
}

// Close ends the task's connections, and returns when nothing is left of them.
func (w *Way) Close() {
	if w.end != nil {
		w.end()
		<-w.ended
	}
}

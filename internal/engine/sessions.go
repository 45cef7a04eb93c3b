package engine

import "github.com/muster-dev/muster"

// sessions are the open sessions of workers.
type sessions struct {
	byWorker map[muster.WorkerID]*session
	names    map[string]int // number of sessions by the name of their worker
}

func newSessions() sessions {
	return sessions{byWorker: map[muster.WorkerID]*session{}, names: map[string]int{}}
}

// set makes s the session of its worker, and returns the previous one, if any.
func (l *sessions) set(s *session) (old *session) {
	if old = l.byWorker[s.worker]; old != nil {
		l.remove(old)
	}
	l.byWorker[s.worker] = s
	l.names[s.name]++
	return old
}

// remove removes the session of a worker.
func (l *sessions) remove(s *session) {
	delete(l.byWorker, s.worker)
	if l.names[s.name]--; l.names[s.name] == 0 {
		delete(l.names, s.name)
	}
}

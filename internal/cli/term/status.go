package term

import (
	"context"
	"io"
	"sync"
	"time"
)

// StatusLine is one line at the bottom of a live screen that is redrawn in place
// while other output scrolls above it. On a screen that is not live it draws
// nothing. Its methods may be called at the same time.
type StatusLine struct {
	screen Screen

	mu      sync.Mutex
	drawn   string // what stands there now
	midLine bool   // output above stopped in the middle of a line
}

// NewStatusLine makes a status line of a screen.
func NewStatusLine(s Screen) *StatusLine { return &StatusLine{screen: s} }

const redrawInterval = 100 * time.Millisecond

// Run keeps the line up to date with what line returns, ten times a second,
// until ctx ends; then it takes the line away. It returns nil.
func (s *StatusLine) Run(ctx context.Context, line func() string) error {
	if !s.screen.Interactive {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(redrawInterval)
	defer tick.Stop()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.clear()
	}()
	for {
		s.draw(line())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// WriterAbove returns a writer to w that keeps clear of the status line.
func (s *StatusLine) WriterAbove(w Screen) io.Writer {
	if !s.screen.Interactive || !w.Interactive {
		return w
	}
	return aboveWriter{s, w}
}

// Suspend takes the line away, and holds back all output above it while do runs:
// for a question.
func (s *StatusLine) Suspend(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	fn()
}

func (s *StatusLine) draw(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// One column stays free: some terminals wrap when the last one is used.
	text = Truncate(Sanitize(text), s.screen.Width-1)
	if s.midLine || text == s.drawn {
		return
	}
	s.drawn = text
	_, _ = io.WriteString(s.screen, "\r\x1b[K"+s.screen.Paint(Dim, text)) // a lost status line is no failure
}

func (s *StatusLine) clear() {
	if s.drawn != "" {
		s.drawn = ""
		_, _ = io.WriteString(s.screen, "\r\x1b[K") // a lost status line is no failure
	}
}

type aboveWriter struct {
	status *StatusLine
	w      io.Writer
}

func (a aboveWriter) Write(p []byte) (int, error) {
	a.status.mu.Lock()
	defer a.status.mu.Unlock()
	a.status.clear()
	if len(p) > 0 {
		a.status.midLine = p[len(p)-1] != '\n'
	}
	return a.w.Write(p)
}

package term

import (
	"context"
	"io"
	"sync"
	"time"
)

// Status is one line at the bottom of a live screen that is redrawn in place
// while other output scrolls above it. On a screen that is not live it draws
// nothing. Its methods may be called at the same time.
type Status struct {
	screen Screen

	mu     sync.Mutex
	drawn  string // what stands there now
	inLine bool   // output above stopped in the middle of a line
}

// NewStatus makes a status line of a screen.
func NewStatus(s Screen) *Status { return &Status{screen: s} }

const redraw = 100 * time.Millisecond

// Run keeps the line up to date with what line returns, ten times a second,
// until ctx ends; then it takes the line away. It returns nil.
func (s *Status) Run(ctx context.Context, line func() string) error {
	if !s.screen.Live {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hide()
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

// Above returns a writer to w that keeps clear of the status line.
func (s *Status) Above(w Screen) io.Writer {
	if !s.screen.Live || !w.Live {
		return w
	}
	return above{s, w}
}

// Hold takes the line away, and holds back all output above it while do runs:
// for a question.
func (s *Status) Hold(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hide()
	do()
}

func (s *Status) draw(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// One column stays free: some terminals wrap when the last one is used.
	text = Fit(Clean(text), s.screen.Width-1)
	if s.inLine || text == s.drawn {
		return
	}
	s.drawn = text
	_, _ = io.WriteString(s.screen, "\r\x1b[K"+s.screen.Paint(Dim, text)) // a lost status line is no failure
}

func (s *Status) hide() {
	if s.drawn != "" {
		s.drawn = ""
		_, _ = io.WriteString(s.screen, "\r\x1b[K") // a lost status line is no failure
	}
}

type above struct {
	status *Status
	w      io.Writer
}

func (a above) Write(p []byte) (int, error) {
	a.status.mu.Lock()
	defer a.status.mu.Unlock()
	a.status.hide()
	if len(p) > 0 {
		a.status.inLine = p[len(p)-1] != '\n'
	}
	return a.w.Write(p)
}

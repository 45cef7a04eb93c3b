package term

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// StatusLine is a line at the bottom of an interactive screen that is redrawn in place
// while other output scrolls above it. On other screens it draws nothing. Its methods may be called concurrently.
type StatusLine struct {
	screen Screen

	mu      sync.Mutex
	drawn   string    // the visible text
	midLine bool      // the output above ends in the middle of a line
	last    io.Writer // of that output
}

// NewStatusLine returns a status line of a screen.
func NewStatusLine(s Screen) *StatusLine { return &StatusLine{screen: s} }

const redrawInterval = 100 * time.Millisecond

// Run redraws the line ten times a second until ctx ends, then removes it and ends an open line of the output above. It returns nil.
func (s *StatusLine) Run(ctx context.Context, line func() string) error {
	if !s.screen.Interactive {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(redrawInterval)
	defer tick.Stop()
	defer s.Suspend(s.endLine)
	for {
		s.draw(line())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Above returns w with its output above the status line.
func (s *StatusLine) Above(w Screen) Screen {
	if s.screen.Interactive && w.Interactive {
		w.Writer = aboveWriter{s, w.Writer}
	}
	return w
}

// Suspend removes the line and blocks output above it while fn runs, for a prompt.
func (s *StatusLine) Suspend(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	fn()
}

func (s *StatusLine) draw(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Some terminals wrap when the last column is used.
	text = Truncate(Sanitize(text), s.screen.Width-1)
	if s.midLine || text == s.drawn {
		return
	}
	s.drawn = text
	_, _ = io.WriteString(s.screen.Writer, "\r\x1b[K"+s.screen.Render(s.screen.Paint(Dim, text))) // the status line is best effort
}

func (s *StatusLine) clear() {
	if s.drawn != "" {
		s.drawn = ""
		_, _ = io.WriteString(s.screen.Writer, "\r\x1b[K") // the status line is best effort
	}
}

// endLine ends an open line of the output above, so that what follows has a line of its own.
func (s *StatusLine) endLine() {
	if s.midLine {
		s.midLine = false
		_, _ = io.WriteString(s.screen.Writer, "\n") // as the status line
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
	if a.status.last != a.w { // messages do not continue a line of the output
		a.status.endLine()
	}
	if len(p) > 0 {
		a.status.last = a.w
		a.status.midLine = p[len(p)-1] != '\n'
	}
	return a.w.Write(p)
}

// Prompt writes a question to w and returns the line typed at the terminal of the process,
// trimmed and in lower case. It returns the error of ctx when ctx ends.
func Prompt(ctx context.Context, w io.Writer, question string) (string, error) {
	tty, err := os.OpenFile(terminalDevice, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("no terminal for the prompt: %w", err)
	}
	defer tty.Close()
	// A deadline in the past ends the read.
	defer context.AfterFunc(ctx, func() { _ = tty.SetReadDeadline(time.Unix(1, 0)) })()
	if _, err := io.WriteString(w, question); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(tty).ReadString('\n')
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read answer: %w", err)
	}
	return strings.ToLower(strings.TrimSpace(answer)), nil
}

// ReadSecret writes a question to w and returns the line typed at the terminal of the process, which does not show it. It returns the
// error of ctx when ctx ends; the terminal is restored in any case.
func ReadSecret(ctx context.Context, w io.Writer, question string) (string, error) {
	tty, err := os.OpenFile(terminalDevice, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("no terminal for the prompt: %w", err)
	}
	defer tty.Close()
	fd := int(tty.Fd())
	before, err := term.MakeRaw(fd) // what is typed before ReadPassword is not shown either
	if err != nil {
		return "", fmt.Errorf("no terminal for the prompt: %w", err)
	}
	if _, err := io.WriteString(w, question); err != nil {
		return "", errors.Join(err, term.Restore(fd, before))
	}
	type answer struct {
		text []byte
		err  error
	}
	read := make(chan answer, 1)
	go func() { // a read of a terminal cannot be interrupted: after ctx it lasts until the process exits
		text, err := term.ReadPassword(fd)
		read <- answer{text, err}
	}()
	select {
	case a := <-read:
		a.err = errors.Join(a.err, term.Restore(fd, before))
		_, _ = io.WriteString(w, "\n")
		if a.err != nil && !errors.Is(a.err, io.EOF) {
			return "", fmt.Errorf("read answer: %w", a.err)
		}
		return strings.TrimSpace(string(a.text)), nil
	case <-ctx.Done():
		err := errors.Join(ctx.Err(), term.Restore(fd, before))
		_, _ = io.WriteString(w, "\n")
		return "", err
	}
}

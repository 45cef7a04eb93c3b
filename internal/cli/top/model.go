package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

const (
	tickInterval   = 250 * time.Millisecond
	maxFPS         = 30                     // for keys
	minReadGap     = 500 * time.Millisecond // between two reads of a page
	readTimeout    = 15 * time.Second
	messageTimeout = 8 * time.Second
	maxRows        = 1000 // of a list

	minWidth, minHeight = 60, 15
)

var tabNames = [...]string{"jobs", "tasks", "workers", "gpus"}

// page is one screen.
type page interface {
	// name is the page's part of the displayed path.
	name() string
	// load returns a command that reads stale data, nil if there is none.
	load(m *model) tea.Cmd
	// invalidate marks data as stale.
	invalidate(b live.Batch)
	// handleKey handles a key, and reports whether the page uses it.
	handleKey(m *model, k string) (tea.Cmd, bool)
	// draw returns at most height lines of at most width columns.
	draw(m *model, width, height int) []string
	// hints returns the keys for the last line.
	hints() []hint
	// close stops background reads of the page.
	close()
}

// hint is a key and its action.
type hint struct{ key, action string }

// searcher is a page with a search or a filter.
type searcher interface {
	// prompt returns the label of the prompt and the current text.
	prompt() (label, text string)
	// search sets the text, or shows an error.
	search(m *model, text string)
}

// poller is a page that follows the events of its job.
type poller interface {
	// poll reports whether the page must be drawn again.
	poll() bool
}

// model is the state of the program.
type model struct {
	ctx    context.Context //nolint:containedctx // commands of bubbletea have no context
	group  *errgroup.Group
	api    *client.Client // reports a lost connection at once
	feed   *live.Feed
	screen term.Screen // for the sequences of styles, and to remove others
	role   string      // the role of the key

	width, height int
	now           time.Time
	tab           int
	tabs          [len(tabNames)]page
	stack         []page // above the tab
	head          header
	names         names
	loss          live.Loss
	notice        message
	question      *question
	input         *prompt
	help          bool

	dirty   bool   // the frame is out of date
	drawnAt int64  // Unix time of the frame
	frame   string // the visible frame; "" means draw it
}

// message is the text of the status line.
type message struct {
	text    string
	isError bool
	until   time.Time
}

// question waits for y or n.
type question struct {
	text string
	yes  tea.Cmd
}

type tickMsg time.Time

// updateFunc is the result of a command: a change of the model.
type updateFunc func(m *model) tea.Cmd

func newModel(ctx context.Context, group *errgroup.Group, api *client.Client, s term.Screen) *model {
	m := &model{ctx: ctx, group: group, api: api, screen: s, width: 80, height: 24, now: time.Now(), dirty: true}
	m.tabs = [...]page{newJobs(), newTasks(), newWorkers(), newGPUs()}
	return m
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return tea.Batch(tea.RequestWindowSize, nextTick()) }

func nextTick() tea.Cmd {
	return tea.Tick(tickInterval, func(t time.Time) tea.Msg { return tickMsg(t) })
}

// current returns the visible page.
func (m *model) current() page {
	if n := len(m.stack); n > 0 {
		return m.stack[n-1]
	}
	return m.tabs[m.tab]
}

// push opens a page.
func (m *model) push(p page) tea.Cmd {
	m.stack = append(m.stack, p)
	return p.load(m)
}

// pop closes the visible page, and reports whether there was one above the tab.
func (m *model) pop() bool {
	n := len(m.stack)
	if n == 0 {
		return false
	}
	m.stack[n-1].close()
	m.stack = m.stack[:n-1]
	return true
}

func (m *model) selectTab(tab int) tea.Cmd {
	for m.pop() {
	}
	m.tab = (tab + len(m.tabs)) % len(m.tabs)
	return m.current().load(m)
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.frame = ""
		return m, m.current().load(m)
	case tickMsg:
		return m, tea.Batch(nextTick(), m.tick(time.Time(msg)))
	case updateFunc:
		m.dirty = true
		return m, msg(m)
	case tea.PasteMsg:
		if m.input != nil {
			m.frame = ""
			m.input.insert(msg.Content)
		}
		return m, nil
	case tea.KeyPressMsg:
		m.frame = "" // draw at once
		return m, m.handleKeyPress(msg)
	}
	return m, nil
}

// tick applies the changes since the last tick.
func (m *model) tick(now time.Time) tea.Cmd {
	m.now = now
	if m.feed != nil {
		b := m.feed.Pop()
		if b.Resync || len(b.Events) > 0 {
			m.head.stale = true
			for _, p := range m.tabs {
				p.invalidate(b)
			}
			for _, p := range m.stack {
				p.invalidate(b)
			}
		}
		if loss := m.feed.Loss(); loss != m.loss {
			m.loss, m.dirty = loss, true
		}
	}
	if t, ok := m.current().(poller); ok && t.poll() {
		m.dirty = true
	}
	if m.notice.text != "" && now.After(m.notice.until) {
		m.notice, m.dirty = message{}, true
	}
	if m.dirty || now.Unix() != m.drawnAt { // ages change every second
		m.frame = ""
	}
	if m.loss.Err != nil {
		return nil // stale data is read after the feed has reconnected
	}
	return tea.Batch(m.head.load(m), m.names.load(m), m.current().load(m))
}

// notify shows a message.
func (m *model) notify(format string, args ...any) {
	m.notice = message{text: fmt.Sprintf(format, args...), until: m.now.Add(messageTimeout)}
}

// notifyError shows an error, except for a lost connection, which the status line shows.
func (m *model) notifyError(err error) {
	if errors.Is(err, context.Canceled) || live.IsTemporary(err) && m.loss.Err != nil {
		return
	}
	m.notice = message{text: err.Error(), isError: true, until: m.now.Add(2 * messageTimeout)}
}

// request returns a command that queries the server and then changes the model.
func (m *model) request(fetch func(ctx context.Context) (updateFunc, error)) tea.Cmd {
	ctx := m.ctx
	return func() tea.Msg {
		ctx, stop := context.WithTimeout(ctx, readTimeout)
		defer stop()
		finish, err := fetch(ctx)
		return updateFunc(func(m *model) tea.Cmd {
			if err != nil {
				m.notifyError(err)
			}
			if finish == nil {
				return nil
			}
			return finish(m)
		})
	}
}

// handleKeyPress handles a key.
func (m *model) handleKeyPress(k tea.KeyPressMsg) tea.Cmd {
	key := k.String()
	switch {
	case key == "ctrl+c":
		return tea.Quit
	case m.input != nil:
		return m.handleInput(k)
	case m.question != nil:
		return m.answerQuestion(key)
	case m.help:
		m.help = false
		return nil
	}
	m.notice = message{}
	if cmd, ok := m.current().handleKey(m, key); ok {
		return cmd
	}
	switch key {
	case "q", "f10":
		return tea.Quit
	case "?", "h", "f1":
		m.help = true
	case "esc", "backspace":
		m.escape()
	case "tab", "right":
		return m.selectTab(m.tab + 1)
	case "shift+tab", "left":
		return m.selectTab(m.tab - 1)
	case "1", "2", "3", "4":
		return m.selectTab(int(key[0] - '1'))
	case "/", "f3", "f4":
		m.openPrompt()
	case "ctrl+l":
		return tea.ClearScreen
	}
	return nil
}

// escape removes the filter, or else closes the page.
func (m *model) escape() {
	if s, ok := m.current().(searcher); ok {
		if _, text := s.prompt(); text != "" {
			s.search(m, "")
			return
		}
	}
	m.pop()
}

// openPrompt opens the prompt for a filter or search.
func (m *model) openPrompt() {
	s, ok := m.current().(searcher)
	if !ok {
		return
	}
	m.input = newPrompt(s.prompt())
}

// handleInput passes a key to the prompt.
func (m *model) handleInput(k tea.KeyPressMsg) tea.Cmd {
	switch k.String() {
	case "esc":
		m.input = nil
	case "enter":
		text := strings.TrimSpace(m.input.value())
		m.input = nil
		if s, ok := m.current().(searcher); ok {
			s.search(m, text)
		}
		return m.current().load(m)
	default:
		m.input.press(k)
	}
	return nil
}

// confirm asks a question before it runs yes.
func (m *model) confirm(yes tea.Cmd, format string, args ...any) {
	m.question = &question{text: fmt.Sprintf(format, args...), yes: yes}
}

func (m *model) answerQuestion(key string) tea.Cmd {
	q := m.question
	switch key {
	case "y", "Y":
		m.question = nil
		return q.yes
	case "n", "N", "esc", "q":
		m.question = nil
		m.notify("aborted")
	}
	return nil
}

// runAction returns a command that changes something, and shows done or the error.
func runAction[T any](m *model, done string, fn func(ctx context.Context) (T, error)) tea.Cmd {
	return m.request(func(ctx context.Context) (updateFunc, error) {
		_, err := fn(ctx)
		return func(m *model) tea.Cmd {
			m.head.stale = true
			m.current().invalidate(live.Batch{Resync: true})
			if err == nil {
				m.notify("%s", done)
			}
			return nil
		}, err
	})
}

// pacer limits the rate of reads.
type pacer struct {
	stale        bool
	interval     time.Duration // of reads without events; 0 means none
	inFlight     bool
	lastRead     time.Time // end of the last read
	lastDuration time.Duration
	loaded       bool
	gen          int // results of earlier generations are dropped
}

// due reports whether it is time to read.
func (r *pacer) due(now time.Time) bool {
	if r.inFlight {
		return false
	}
	since := now.Sub(r.lastRead)
	if !r.loaded && r.lastRead.IsZero() {
		return true
	}
	minGap := max(minReadGap, 4*r.lastDuration)
	return r.stale && since >= minGap || r.interval > 0 && since >= max(r.interval, minGap)
}

// forceReload drops the result of a read in flight, and makes the next one due.
func (r *pacer) forceReload() {
	r.gen++
	r.inFlight, r.stale, r.lastRead, r.lastDuration = false, true, time.Time{}, 0
}

// read returns a command that fetches and applies a value, nil if no read is due.
func read[T any](m *model, r *pacer, fetch func(ctx context.Context) (T, error), apply func(m *model, v T)) tea.Cmd {
	if m.loss.Err != nil || !r.due(m.now) {
		return nil
	}
	r.inFlight, r.stale = true, false
	gen, requested := r.gen, m.now
	return m.request(func(ctx context.Context) (updateFunc, error) {
		start := time.Now()
		v, err := fetch(ctx)
		took := time.Since(start)
		finish := func(m *model) tea.Cmd {
			if gen != r.gen {
				return nil
			}
			r.inFlight, r.lastRead, r.lastDuration = false, requested.Add(took), took
			switch {
			case err != nil && live.IsTemporary(err):
				r.stale = true
			case err == nil:
				r.loaded = true
				apply(m, v)
			}
			return nil
		}
		return finish, err
	})
}

package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/client"
)

const (
	tick     = 250 * time.Millisecond // between two looks at what changed
	frames   = 30                     // a second at most, for keys
	gap      = 500 * time.Millisecond // between two reads of the same page
	readTime = 15 * time.Second       // that one read may take
	notice   = 8 * time.Second        // that a message stays
	listMax  = 1000                   // rows that a list holds

	leastWidth, leastHeight = 60, 15
)

var tabNames = [...]string{"jobs", "tasks", "workers", "gpus"}

// page is one screen.
type page interface {
	// name is its part of the path that the screen shows.
	name() string
	// load returns a command that reads what is stale; nil if nothing is.
	load(m *model) tea.Cmd
	// changed notes what has become stale.
	changed(b live.Batch)
	// key handles a key, and reports whether the key means something here.
	key(m *model, k string) (tea.Cmd, bool)
	// draw returns at most height lines of at most width columns.
	draw(m *model, width, height int) []string
	// hints are the keys that the last line shows.
	hints() []hint
	// close ends what the page has started.
	close()
}

// hint is a key and what it does.
type hint struct{ key, does string }

// searcher is a page with a text that is searched or filtered for.
type searcher interface {
	// prompt says what is asked for, and what it is now.
	prompt() (label, text string)
	// search takes the answer, or tells the user what is wrong with it.
	search(m *model, text string)
}

// ticker is a page that has news without events, such as lines of a log.
type ticker interface {
	// news reports whether the page must be drawn again.
	news() bool
}

// model is the state of the program.
type model struct {
	ctx     context.Context //nolint:containedctx // of the run: commands of bubbletea have no other
	group   *errgroup.Group
	api     *client.Client // reports a lost connection at once
	patient *client.Client // for logs: resumes where the connection broke
	feed    *live.Feed
	color   bool
	who     string // the role of the key

	width, height int
	now           time.Time
	tab           int
	tabs          [len(tabNames)]page
	opened        []page // above the tab
	head          header
	names         names
	loss          live.Loss
	say           message
	ask           *question
	input         *textinput.Model
	help          bool

	dirty bool   // the frame no longer shows what is known
	drawn int64  // the second at which the frame was drawn
	frame string // what stands on the screen
}

// message is the text of the status line.
type message struct {
	text  string
	wrong bool
	until time.Time
}

// question waits for y or n.
type question struct {
	text string
	yes  tea.Cmd
}

type tickMsg time.Time

// applied is the result of a command: it changes the model.
type applied func(m *model) tea.Cmd

func newModel(ctx context.Context, group *errgroup.Group, api, patient *client.Client, color bool) *model {
	m := &model{ctx: ctx, group: group, api: api, patient: patient, color: color, width: 80, height: 24, now: time.Now(), dirty: true}
	m.tabs = [...]page{newJobs(), newTasks(), newWorkers(), newGPUs()}
	return m
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return tea.Batch(tea.RequestWindowSize, next()) }

func next() tea.Cmd { return tea.Tick(tick, func(t time.Time) tea.Msg { return tickMsg(t) }) }

// top is the page that is shown.
func (m *model) top() page {
	if n := len(m.opened); n > 0 {
		return m.opened[n-1]
	}
	return m.tabs[m.tab]
}

// open shows a page above the one that is shown.
func (m *model) open(p page) tea.Cmd {
	m.opened = append(m.opened, p)
	return p.load(m)
}

// back takes the page that is shown away, and reports whether there was one below.
func (m *model) back() bool {
	n := len(m.opened)
	if n == 0 {
		return false
	}
	m.opened[n-1].close()
	m.opened = m.opened[:n-1]
	return true
}

func (m *model) show(tab int) tea.Cmd {
	for m.back() {
	}
	m.tab = (tab + len(m.tabs)) % len(m.tabs)
	return m.top().load(m)
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.frame = ""
		return m, m.top().load(m)
	case tickMsg:
		return m, tea.Batch(next(), m.tick(time.Time(msg)))
	case applied:
		m.dirty = true
		return m, msg(m)
	case tea.PasteMsg:
		m.frame = ""
		return m, m.typed(msg)
	case tea.KeyPressMsg:
		m.frame = "" // keys show at once
		return m, m.press(msg)
	}
	return m, nil
}

// tick looks at what changed since the last one.
func (m *model) tick(now time.Time) tea.Cmd {
	m.now = now
	if m.feed != nil {
		b := m.feed.Take()
		if b.All || len(b.Events) > 0 {
			m.head.stale = true
			for _, p := range m.tabs {
				p.changed(b)
			}
			for _, p := range m.opened {
				p.changed(b)
			}
		}
		if loss := m.feed.Loss(); loss != m.loss {
			m.loss, m.dirty = loss, true
		}
	}
	if t, ok := m.top().(ticker); ok && t.news() {
		m.dirty = true
	}
	if m.say.text != "" && now.After(m.say.until) {
		m.say, m.dirty = message{}, true
	}
	if m.dirty || now.Unix() != m.drawn { // ages grow
		m.frame = ""
	}
	if m.loss.Err != nil {
		return nil // the feed connects again, and then what is stale is read
	}
	return tea.Batch(m.head.load(m), m.names.load(m), m.top().load(m))
}

// tell shows a message.
func (m *model) tell(format string, args ...any) {
	m.say = message{text: fmt.Sprintf(format, args...), until: m.now.Add(notice)}
}

// fail shows an error. A lost connection is shown by itself.
func (m *model) fail(err error) {
	if errors.Is(err, context.Canceled) || live.Temporary(err) && m.loss.Err != nil {
		return
	}
	m.say = message{text: err.Error(), wrong: true, until: m.now.Add(2 * notice)}
}

// do makes a command that asks the server and then changes the model.
func (m *model) do(read func(ctx context.Context) (applied, error)) tea.Cmd {
	ctx := m.ctx
	return func() tea.Msg {
		ctx, stop := context.WithTimeout(ctx, readTime)
		defer stop()
		then, err := read(ctx)
		return applied(func(m *model) tea.Cmd {
			if err != nil {
				m.fail(err)
			}
			if then == nil {
				return nil
			}
			return then(m)
		})
	}
}

// press handles a key.
func (m *model) press(k tea.KeyPressMsg) tea.Cmd {
	key := k.String()
	switch {
	case key == "ctrl+c":
		return tea.Quit
	case m.input != nil:
		return m.typed(k)
	case m.ask != nil:
		return m.answer(key)
	case m.help:
		m.help = false
		return nil
	}
	m.say = message{} // it was read
	if cmd, ok := m.top().key(m, key); ok {
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
		return m.show(m.tab + 1)
	case "shift+tab", "left":
		return m.show(m.tab - 1)
	case "1", "2", "3", "4":
		return m.show(int(key[0] - '1'))
	case "/", "f3", "f4":
		m.begin()
	case "ctrl+l":
		return tea.ClearScreen
	}
	return nil
}

// escape goes one step back: a filter is removed, then the page is left.
func (m *model) escape() {
	if s, ok := m.top().(searcher); ok {
		if _, text := s.prompt(); text != "" {
			s.search(m, "")
			return
		}
	}
	m.back()
}

// begin asks for a text to filter or search for.
func (m *model) begin() {
	s, ok := m.top().(searcher)
	if !ok {
		return
	}
	label, text := s.prompt()
	in := textinput.New()
	in.Prompt = label + ": "
	in.CharLimit = 200
	in.SetStyles(textinput.Styles{})
	in.SetValue(text)
	in.CursorEnd()
	in.Focus() // its command only makes the cursor blink
	m.input = &in
}

// typed passes input to the prompt.
func (m *model) typed(msg tea.Msg) tea.Cmd {
	if m.input == nil {
		return nil
	}
	if k, ok := msg.(tea.KeyPressMsg); ok {
		switch k.String() {
		case "esc":
			m.input = nil
			return nil
		case "enter":
			text := strings.TrimSpace(m.input.Value())
			m.input = nil
			if s, ok := m.top().(searcher); ok {
				s.search(m, text)
			}
			return m.top().load(m)
		}
	}
	in, _ := m.input.Update(msg) // its commands only make the cursor blink
	m.input = &in
	return nil
}

// confirm asks before something is done.
func (m *model) confirm(yes tea.Cmd, format string, args ...any) {
	m.ask = &question{text: fmt.Sprintf(format, args...), yes: yes}
}

func (m *model) answer(key string) tea.Cmd {
	q := m.ask
	switch key {
	case "y", "Y":
		m.ask = nil
		return q.yes
	case "n", "N", "esc", "q":
		m.ask = nil
		m.tell("nothing was done")
	}
	return nil
}

// act makes a command that changes something, and says how that went.
func (m *model) act(done string, do func(ctx context.Context) error) tea.Cmd {
	return m.do(func(ctx context.Context) (applied, error) {
		err := do(ctx)
		return func(m *model) tea.Cmd {
			m.head.stale = true
			m.top().changed(live.Batch{All: true})
			if err == nil {
				m.tell("%s", done)
			}
			return nil
		}, err
	})
}

// reader paces the reads of one thing.
type reader struct {
	stale  bool
	every  time.Duration // reads it without an event; 0 means never
	busy   bool
	last   time.Time // when the last read ended
	took   time.Duration
	loaded bool
	gen    int // a result of an earlier generation is dropped
}

// due reports whether it is time to read.
func (r *reader) due(now time.Time) bool {
	if r.busy {
		return false
	}
	since := now.Sub(r.last)
	if !r.loaded && r.last.IsZero() {
		return true
	}
	rest := max(gap, 4*r.took)
	return r.stale && since >= rest || r.every > 0 && since >= max(r.every, rest)
}

// again forgets what is read now: what is wanted has changed.
func (r *reader) again() {
	r.gen++
	r.busy, r.stale, r.last, r.took = false, true, time.Time{}, 0
}

// read makes the command that reads, if it is time to. take gets the result.
func read[T any](m *model, r *reader, get func(ctx context.Context) (T, error), take func(m *model, v T)) tea.Cmd {
	if m.loss.Err != nil || !r.due(m.now) {
		return nil
	}
	r.busy, r.stale = true, false
	gen, began := r.gen, m.now
	return m.do(func(ctx context.Context) (applied, error) {
		start := time.Now()
		v, err := get(ctx)
		took := time.Since(start)
		then := func(m *model) tea.Cmd {
			if gen != r.gen {
				return nil
			}
			r.busy, r.last, r.took = false, began.Add(took), took
			switch {
			case err != nil && live.Temporary(err):
				r.stale = true
			case err == nil:
				r.loaded = true
				take(m, v)
			}
			return nil
		}
		return then, err
	})
}

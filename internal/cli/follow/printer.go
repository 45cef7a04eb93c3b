package follow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// MaxConcurrent limits the tasks whose output is read concurrently.
const MaxConcurrent = 16

// Printer writes the output of tasks to two streams.
type Printer struct {
	Timestamps bool // prefix each line with its time, in the user's zone
	Failed     bool // print only tasks that failed or timed out

	server *client.Client

	mu       sync.Mutex // protects writes to out and err
	out, err term.Screen
	retries  int // so far
}

// NewPrinter returns a printer that writes the tasks' standard output to out, and everything else to err. Terminals get only text, other
// outputs each byte as the task wrote it.
func NewPrinter(server *client.Client, out, err term.Screen) *Printer {
	return &Printer{server: server, out: out, err: err}
}

// Print prints the output of the selected tasks. With o.Follow it follows MaxConcurrent tasks at a time, and
// prints the outcome of each stage of a job with several stages.
func (p *Printer) Print(ctx context.Context, sels []remote.Selector, o client.LogOptions) error {
	jobs, err := remote.LoadTaskJobs(ctx, p.server, sels)
	if err != nil {
		return err
	}
	return p.print(ctx, jobs, sels, o)
}

// followJob follows the output of all tasks of a job that was read since it was submitted.
func (p *Printer) followJob(ctx context.Context, job *muster.Job) error {
	if job.Counts.Total() == 1 { // the task of a job with one task has number 0
		return p.printTask(ctx, muster.TaskID{Job: job.ID}, app.TaskAddress(job, muster.TaskID{Job: job.ID}), client.LogOptions{Follow: true}, "")
	}
	return p.print(ctx, remote.TaskJobs{job.ID: job}, []remote.Selector{{Job: job.ID}}, client.LogOptions{Follow: true})
}

func (p *Printer) print(ctx context.Context, jobs remote.TaskJobs, sels []remote.Selector, o client.LogOptions) error {
	prefixed, stages := jobs.Multiple(sels), newStages(jobs, sels)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(1) // do not mix the lines
	if o.Follow {
		group.SetLimit(MaxConcurrent)
	}
	tasks, selected := remote.Tasks(ctx, p.server, sels, nil), 0
	switch {
	case p.Failed:
		tasks = remote.Tasks(ctx, p.server, sels, []muster.TaskState{muster.Failed, muster.TimedOut})
	case prefixed && !o.Follow && o.Attempt == 0:
		tasks = remote.AttemptedTasks(ctx, p.server, sels)
	}
	for t, err := range tasks {
		if err != nil {
			cancel()
			return errors.Join(err, ignoreCancel(group.Wait()))
		}
		selected++
		prefix := ""
		if prefixed {
			prefix = stages.label(&t) + " | "
		}
		group.Go(func() error {
			if !hasNoOutput(&t) {
				if err := p.printTask(ctx, t.ID, jobs.Address(t.ID), o, prefix); err != nil {
					return err
				}
			}
			if !o.Follow {
				return nil
			}
			return stages.taskEnded(ctx, p.server, t.ID, func(line string) { (&lineWriter{printer: p, w: p.err}).emit([]byte(line)) })
		})
	}
	if p.Failed && selected == 0 {
		(&lineWriter{printer: p, w: p.err}).emit([]byte("muster: no selected task has failed\n"))
	}
	return group.Wait()
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// hasNoOutput reports whether a task certainly has no output, which saves a request for many tasks of large arrays: it
// never started, or its only attempt reported the size of its log.
func hasNoOutput(t *muster.Task) bool {
	return t.State.Final() && t.LogSize == 0 && (t.Attempt == 0 || t.Attempt == 1 && (t.State == muster.Succeeded || t.ExitCode != nil))
}

// printTask prints the output of one task, with a prefix before each line. The address is its name in messages.
func (p *Printer) printTask(ctx context.Context, id muster.TaskID, address string, o client.LogOptions, prefix string) error {
	out, errs := p.newLineWriter(p.out, prefix), p.newLineWriter(p.err, prefix)
	defer out.flush()
	defer errs.flush()
	o.OnRetry = func(attempt int) {
		if text := p.retryNotice(ctx, id, address, attempt); text != "" {
			out.flush()
			errs.message([]byte(text))
		}
	}
	for l, err := range p.server.Logs(ctx, id, o) {
		if err != nil {
			return err
		}
		out.at, errs.at = l.At, l.At
		switch l.Stream {
		case client.Stdout:
			out.write(l.Data)
		case client.System:
			errs.message(append([]byte("muster: "), l.Data...))
		default:
			errs.write(l.Data)
		}
	}
	return ctx.Err()
}

// maxRetryNotices limits the retries that are printed.
const maxRetryNotices = 20

// retryNotice returns the line about an attempt that is followed by another one, "" for none: if its worker did not accept it, or if
// too many were printed.
func (p *Printer) retryNotice(ctx context.Context, id muster.TaskID, address string, attempt int) string {
	all, err := p.server.Attempts(ctx, id)
	if err != nil {
		return ""
	}
	i := slices.IndexFunc(all, func(a muster.Attempt) bool { return a.ID.N == attempt })
	if i < 0 || all[i].Outcome == muster.AttemptRejected {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.retries++; {
	case p.retries == maxRetryNotices+1:
		return "muster: more retries are not shown: muster explain " + address + " has the attempts\n"
	case p.retries > maxRetryNotices:
		return ""
	default:
		return fmt.Sprintf("muster: %s is tried again: attempt %d (after %s)\n", address, attempt+1, formatOutcome(&all[i]))
	}
}

// formatOutcome describes how an attempt ended.
func formatOutcome(a *muster.Attempt) string {
	message := term.Sanitize(app.LocalTimes(a.Message))
	switch {
	case a.Reason == muster.ExitCode && a.ExitCode != nil:
		return fmt.Sprintf("exit code %d", *a.ExitCode)
	case a.Reason == muster.NoReason:
		return string(a.Outcome)
	case message == "":
		return string(a.Reason)
	case a.Reason == muster.Signal:
		return string(a.Reason) + ": " + term.Sanitize(app.Headline(a.Message)) // its output has been printed
	default:
		return string(a.Reason) + ": " + message
	}
}

// lineWriter writes output unchanged or, with a prefix or times, in whole lines. On a terminal it writes only text.
type lineWriter struct {
	printer *Printer
	w       io.Writer
	prefix  string
	filter  *term.Filter // of the output; nil: it is written as it is
	at      muster.Time  // of what is written
	partial []byte       // incomplete line
	began   muster.Time  // time of partial
}

// maxPartial limits the length of an incomplete line.
const maxPartial = 64 << 10

func (p *Printer) newLineWriter(s term.Screen, prefix string) *lineWriter {
	w := &lineWriter{printer: p, w: s, prefix: prefix, filter: s.NewFilter(term.Text)}
	if w.filter != nil {
		w.w = s.Writer // which the filter permits
	}
	return w
}

// message writes a line that is not a part of what came before.
func (w *lineWriter) message(line []byte) {
	w.flush()
	if w.filter != nil {
		w.filter.Reset()
		if text, ended := strings.CutSuffix(string(line), "\n"); ended {
			line = []byte(term.Lines(text) + "\n")
		}
	}
	w.write(line)
}

// write ignores errors: SIGPIPE ends the program if standard output is closed.
func (w *lineWriter) write(data []byte) {
	if w.filter != nil {
		data = w.filter.Append(nil, data)
	}
	if w.prefix == "" && !w.printer.Timestamps {
		w.emit(data)
		return
	}
	if len(w.partial) == 0 {
		w.began = w.at
	}
	w.partial = append(w.partial, data...)
	for {
		line, rest, ok := bytes.Cut(w.partial, []byte("\n"))
		if !ok {
			break
		}
		w.emitLine(line)
		w.partial, w.began = rest, w.at
	}
	if len(w.partial) > maxPartial {
		w.flush()
	}
}

func (w *lineWriter) flush() {
	if len(w.partial) > 0 {
		w.emitLine(w.partial)
		w.partial = nil
	}
}

// timeLayout is RFC 3339 with milliseconds, in the user's zone.
const timeLayout = "2006-01-02T15:04:05.000Z07:00"

func (w *lineWriter) emitLine(line []byte) {
	if w.filter != nil {
		line = visible(line)
	}
	b := []byte(w.prefix)
	if w.printer.Timestamps {
		b = append(w.began.Std().Local().AppendFormat(b, timeLayout), ' ')
	}
	w.emit(append(append(b, line...), '\n'))
}

// visible returns what a terminal would show of a line: the text after the last carriage return. It cannot move back into what is before it.
func visible(line []byte) []byte {
	line = bytes.TrimRight(line, "\r")
	return bytes.ReplaceAll(line[bytes.LastIndexByte(line, '\r')+1:], []byte("\b"), nil)
}

func (w *lineWriter) emit(data []byte) {
	w.printer.mu.Lock()
	defer w.printer.mu.Unlock()
	_, _ = w.w.Write(data) // see write
}

// stages has the job of the tasks, if it is a single one that is selected as a whole and has several stages.
type stages struct {
	jobs remote.TaskJobs
	job  *muster.Job // nil: tasks are named without their stage

	mu        sync.Mutex
	remaining map[int]int  // unfinished tasks by stage
	reported  map[int]bool // stages whose outcome was printed
}

func newStages(jobs remote.TaskJobs, sels []remote.Selector) *stages {
	s := &stages{jobs: jobs, remaining: map[int]int{}, reported: map[int]bool{}}
	if len(sels) != 1 || sels[0].Spans != nil || len(jobs[sels[0].Job].Groups) < 2 {
		return s
	}
	s.job = jobs[sels[0].Job]
	for i := range s.job.Groups {
		s.remaining[s.job.Groups[i].Index] = s.job.Groups[i].Size
	}
	return s
}

// label returns the prefix of a task's lines: train, train.3, 17_2 or 17.2.
func (s *stages) label(t *muster.Task) string {
	g := app.StageOf(s.job, t.ID)
	switch {
	case g == nil:
		return term.Sanitize(s.jobs.Address(t.ID))
	case t.Element != "":
		return term.Sanitize(g.Name + "." + t.Element)
	case g.Size > 1:
		return term.Sanitize(g.Name) + "." + strconv.Itoa(t.ID.Num-g.First)
	default:
		return term.Sanitize(g.Name)
	}
}

// taskLabel returns the name of a task in messages: its address, with the stage if its job has several: 17.2 (train).
func taskLabel(job *muster.Job, id muster.TaskID) string {
	address := term.Sanitize(app.TaskAddress(job, id))
	if g := app.StageOf(job, id); g != nil && len(job.Groups) > 1 && address == id.String() {
		return fmt.Sprintf("%s (%s)", address, term.Sanitize(g.Name))
	}
	return address
}

// taskEnded counts a finished task. After the last one of a stage, it reports the outcome of the stage, after those of
// earlier stages that have ended.
func (s *stages) taskEnded(ctx context.Context, server *client.Client, id muster.TaskID, report func(line string)) error {
	g := app.StageOf(s.job, id)
	if g == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.remaining[g.Index]--; s.remaining[g.Index] > 0 {
		return nil
	}
	job, err := server.Job(ctx, id.Job)
	if err != nil {
		return err
	}
	for i := range job.Groups {
		g := &job.Groups[i]
		switch {
		case s.reported[g.Index] || !g.Counts.State().Final():
		case s.remaining[g.Index] > 0:
			return nil // its last task calls taskEnded, too
		default:
			s.reported[g.Index] = true
			report(stageOutcome(g))
		}
	}
	return nil
}

// stageOutcome describes how a stage ended.
func stageOutcome(g *muster.Group) string {
	counts := strings.ReplaceAll(app.FormatCounts(g.Counts, false), "_", " ")
	if g.Size == 1 {
		counts = strings.TrimPrefix(counts, "1 ")
	}
	return fmt.Sprintf("muster: stage %s: %s\n", term.Sanitize(g.Name), counts)
}

package sched

import (
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
)

// queue holds all tasks that may be placed: lanes of interchangeable ones.
type queue struct {
	lanes  map[laneKey]*lane
	lines  map[lineKey]*line
	levels [muster.MaxPriority + 1][]*line // by priority; lines in the order of their making
	shapes map[string]*shape
	idle   []*shape // without lanes, oldest first: kept for a while, since their index is dear
	parked []*shape // that have parked lanes
	aside  []*item  // of this Place: tasks whose only workers have just rejected them
}

// idleShapes is how many shapes without a queued task are remembered.
const idleShapes = 64

func newQueue() queue {
	return queue{lanes: map[laneKey]*lane{}, lines: map[lineKey]*line{}, shapes: map[string]*shape{}}
}

// item is a place in a lane: of one task, or of a group's rest, whose number is
// that of its next element.
type item struct {
	job   muster.JobID
	num   int
	pos   int
	lane  *lane // nil while it is not queued
	task  *task
	group *group
}

func (i *item) seat() *int { return &i.pos }

func (i *item) before(o *item) bool {
	if i.job != o.job {
		return i.job < o.job
	}
	return i.num < o.num
}

// stage returns the item's group.
func (i *item) stage() *group {
	if i.task != nil {
		return i.task.group
	}
	return i.group
}

// size returns how many tasks the item stands for.
func (i *item) size() int {
	if i.task != nil {
		return 1
	}
	return i.group.rest()
}

type laneKey struct {
	lineKey
	shape *shape
}

// lane is a queue, by age, of tasks with equal priority, project and need. If
// the first one cannot be placed, none of them can.
type lane struct {
	key    laneKey
	line   *line
	items  heap[*item]
	pos    int
	parked bool // tried in vain, and no worker changed since
}

func (l *lane) seat() *int          { return &l.pos }
func (l *lane) before(o *lane) bool { return l.items[0].before(o.items[0]) }

type lineKey struct {
	priority int
	project  *project
}

// line is all lanes of one project at one priority.
type line struct {
	key   lineKey
	lanes heap[*lane] // that are worth trying, by the age of their first task
	all   int         // lanes, with those that are parked
	pos   int
	share float64 // of the project, during a Place
}

func (l *line) seat() *int { return &l.pos }

func (l *line) before(o *line) bool {
	if l.share != o.share {
		return l.share < o.share
	}
	if a, b := l.lanes[0].items[0], o.lanes[0].items[0]; a.job != b.job || a.num != b.num {
		return a.before(b)
	}
	return strings.Compare(l.key.project.name, o.key.project.name) < 0
}

// enqueue puts a queued task, or a group's rest, into its lane.
func (s *State) enqueue(it *item) {
	g := it.stage()
	q := &s.queue
	key := laneKey{lineKey{g.job.row.Priority, g.job.project}, s.shapeOf(g)}
	l := q.lanes[key]
	if l == nil {
		l = &lane{key: key, line: q.line(key.lineKey)}
		l.line.all++
		q.lanes[key] = l
		q.use(key.shape)
	}
	it.lane = l
	if it.group != nil {
		it.num = g.row.First + g.row.Next
	}
	l.items.push(it)
	switch {
	case l.parked:
	case l.pos == 0:
		l.line.lanes.push(l)
	default:
		l.line.lanes.fix(l)
	}
}

// dequeue takes the item out of its lane.
func (s *State) dequeue(it *item) {
	l := it.lane
	it.lane = nil
	l.items.remove(it)
	s.reorder(l)
}

// requeueRest corrects the place of a group's rest after Next or the number of
// elements without rows changed.
func (s *State) requeueRest(g *group) {
	if g.rest() == 0 {
		s.dequeue(&g.item)
		s.armGroup(g)
		return
	}
	g.item.num = g.row.First + g.row.Next
	g.item.lane.items.fix(&g.item)
	s.reorder(g.item.lane)
}

// reorder corrects the place of a lane in its line after its first item changed,
// and drops the lane if it is empty.
func (s *State) reorder(l *lane) {
	q := &s.queue
	if len(l.items) > 0 {
		if !l.parked {
			l.line.lanes.fix(l)
		}
		return
	}
	if l.parked {
		q.unpark(l)
	} else {
		l.line.lanes.remove(l)
	}
	delete(q.lanes, l.key)
	l.line.all--
	if l.line.all == 0 {
		q.dropLine(l.line)
	}
	q.leave(l.key.shape)
}

func (q *queue) line(key lineKey) *line {
	l := q.lines[key]
	if l == nil {
		l = &line{key: key}
		q.lines[key] = l
		q.levels[key.priority] = append(q.levels[key.priority], l)
	}
	return l
}

func (q *queue) dropLine(l *line) {
	delete(q.lines, l.key)
	q.levels[l.key.priority] = without(q.levels[l.key.priority], l)
}

// park sets a lane aside until a worker changes to fit its shape.
func (q *queue) park(l *lane) {
	l.line.lanes.remove(l)
	l.parked = true
	sh := l.key.shape
	if len(sh.parked) == 0 {
		q.parked = append(q.parked, sh)
	}
	sh.parked = append(sh.parked, l)
}

// unpark takes a lane out of its shape's list.
func (q *queue) unpark(l *lane) {
	sh := l.key.shape
	l.parked = false
	sh.parked = without(sh.parked, l)
	if len(sh.parked) == 0 {
		q.parked = without(q.parked, sh)
	}
}

// shapeOf returns the shape that stands for the need of the group's tasks.
func (s *State) shapeOf(g *group) *shape {
	if g.shape == nil || g.shape.forgotten {
		need := place.NewNeed(g.spec())
		sh := s.queue.shapes[need.Key()]
		if sh == nil {
			sh = &shape{need: need}
			s.queue.shapes[need.Key()] = sh
			s.queue.rest(sh)
		}
		g.shape = sh
	}
	return g.shape
}

// use counts one more lane of a shape.
func (q *queue) use(sh *shape) {
	if sh.lanes == 0 {
		q.idle = without(q.idle, sh)
	}
	sh.lanes++
}

// leave counts one lane less of a shape.
func (q *queue) leave(sh *shape) {
	sh.lanes--
	if sh.lanes > 0 {
		return
	}
	q.rest(sh)
}

// rest lists a shape that has no lane, and forgets the one that had none for
// longest.
func (q *queue) rest(sh *shape) {
	q.idle = append(q.idle, sh)
	if len(q.idle) > idleShapes {
		q.idle[0].forgotten = true
		delete(q.shapes, q.idle[0].need.Key())
		q.idle = append(q.idle[:0], q.idle[1:]...)
	}
}

// without returns the list with x taken out, in place and in order.
func without[T comparable](list []T, x T) []T {
	for i, y := range list {
		if y == x {
			copy(list[i:], list[i+1:])
			var none T
			list[len(list)-1] = none
			return list[:len(list)-1]
		}
	}
	return list
}

// share is the project's dominant share: the greatest part that it holds of
// anything that there is.
func (s *State) share(p *project) float64 {
	t := &s.fleet
	return max(part(p.slots, t.slots), part(p.mcpu, t.mcpu), part(p.memory, t.memory), part(p.mgpu, t.mgpu))
}

func part(n, of int64) float64 {
	if of <= 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// hold adds a grant to what the project holds, or, with sign -1, takes it off.
func (p *project) hold(g *muster.Grant, w *worker, sign int64) {
	p.slots += sign * int64(g.Slots)
	p.mcpu += sign * place.Milli(g.CPUs)
	p.memory += sign * int64(g.Memory)
	for _, uuid := range g.GPUs {
		p.mgpu += sign * partOfDevice(w, uuid, g.GPUMemory)
	}
}

// partOfDevice returns how many thousandths of a device are granted.
func partOfDevice(w *worker, uuid string, memory muster.Size) int64 {
	if memory == 0 {
		return 1000
	}
	for i := range w.row.Resources.GPUs {
		if d := &w.row.Resources.GPUs[i]; d.UUID == uuid && d.Memory > 0 {
			return int64(float64(memory) / float64(d.Memory) * 1000)
		}
	}
	return 1000
}

package queue

import (
	"cmp"

	"github.com/muster-dev/muster"
)

// Item is a queue entry: one task, or many with consecutive numbers from Num. Set Job,
// Num and Owner before it is added.
type Item struct {
	Job   muster.JobID
	Num   int
	Owner Owner

	pos    int
	bucket *bucket // nil while it is not queued
}

// Owner is the task or group of an Item.
type Owner interface {
	Size() int              // number of tasks
	CountBelow(num int) int // number of tasks with a lower number
}

// Queued reports whether the item is in the queue.
func (i *Item) Queued() bool { return i.bucket != nil }

// Shape returns the shape under which the item is queued.
func (i *Item) Shape() *Shape { return i.bucket.key.shape }

// HeapIndex makes Item a Node.
func (i *Item) HeapIndex() *int { return &i.pos }

// Before orders by age: by job, then by number.
func (i *Item) Before(o *Item) bool { return i.compare(o) < 0 }

func (i *Item) compare(o *Item) int {
	return cmp.Or(cmp.Compare(i.Job, o.Job), cmp.Compare(i.Num, o.Num))
}

type bucketKey struct {
	projectKey
	shape *Shape
}

// bucket is a queue, by age, of tasks with equal priority, project and need. If the first
// one cannot be placed, none of them can.
type bucket struct {
	key          bucketKey
	projectQueue *projectQueue
	items        Heap[*Item]
	pos          int
	parked       bool // not placeable, and no worker changed since

	blockedSince muster.Time // first failed try since something of it was placed, or end of its last unsuccessful reservation, or 0
	timer        starvationTimer
	starving     bool      // blocked for longer than the starvation timeout: it is in Queue.starving
	reserved     []*Worker // for its first task: one, or as many as a gang needs
	reservedAt   muster.Time
	freeAt       muster.Time     // estimate of when these will have room, by what they held at reservedAt
	holdFor      muster.Duration // how long the reservation is kept, even if other workers would be better
	reconsider   bool            // holdFor is over: check whether other workers are better
}

func (l *bucket) HeapIndex() *int       { return &l.pos }
func (l *bucket) Before(o *bucket) bool { return l.items[0].Before(o.items[0]) }

type projectKey struct {
	priority int
	project  *Project
}

// projectQueue is all buckets of one project at one priority.
type projectQueue struct {
	key     projectKey
	buckets Heap[*bucket] // not parked, by the age of their first task
	total   int           // buckets, including parked ones
	pos     int
	share   float64 // of the project, during a Place
}

func (l *projectQueue) HeapIndex() *int { return &l.pos }

func (l *projectQueue) Before(o *projectQueue) bool {
	return cmp.Or(cmp.Compare(l.share, o.share), l.buckets[0].items[0].compare(o.buckets[0].items[0]), cmp.Compare(l.key.project.Name, o.key.project.Name)) < 0
}

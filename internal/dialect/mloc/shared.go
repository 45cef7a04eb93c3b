package mloc

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/muster-dev/muster"
)

// What both directions have in common, for package mlocbridge. The types of the wire are declared once, in wire.go.
type (
	Object      = object
	Document    = document
	TaskMessage = taskMessage
	TaskEvent   = taskEvent
	WorkerEvent = workerEvent
	WorkerHash  = workerHash
	Hardware    = hardware
	GPUDevice   = gpuDevice
	Control     = control
	Manifest    = manifest
)

// Keys, channels, statuses, states, events and bounds: see wire.go.
const (
	KeyWorkers      = keyWorkers
	TopicTasks      = topicTasks
	TopicWorkers    = topicWorker
	StatusStarting  = statusStarting
	StatusIdle      = statusIdle
	StatusRunning   = statusRunning
	StatePending    = statePending
	StateDispatched = stateDispatched
	StateDone       = stateDone
	StateFailed     = stateFailed
	EventStarted    = eventStarted
	EventSucceeded  = eventSucceeded
	EventFailed     = eventFailed
	EventRegister   = eventRegister
	EventStatus     = eventStatus
	EventHeartbeat  = eventHeartbeat
	EventUnregister = eventUnregister
	MaxMessage      = maxMessage
	MaxResult       = maxResult
	MaxFile         = maxFile
	MaxText         = maxText
	FileResponses   = fileResponses
	FileManifest    = fileManifest
	FolderLogs      = folderLogs
	FolderArtifacts = folderArtifacts
)

// WorkerKey is the hash of a worker's facts, HeartbeatKey the string whose time to live is its life.
func WorkerKey(id string) string { return workerKey(id) }

// HeartbeatKey is the string whose time to live is the life of a worker.
func HeartbeatKey(id string) string { return heartbeatKey(id) }

// TaskType returns spec.taskType of a task, "" if there is none.
func TaskType(d Document) string { return d.taskType() }

// HashFields returns what a worker writes into its hash when it registers.
func HashFields(h WorkerHash) map[string]string { return h.fields() }

// Decode reads one JSON value of at most limit bytes; numbers stay as they are written.
func Decode(b []byte, limit int, into any) error { return decode(b, limit, into) }

// Mistyped reports whether Decode failed only because of a value's type: the rest was read.
func Mistyped(err error) bool { return mistyped(err) }

// Encode writes JSON as the programs of MLOC do.
func Encode(v any) ([]byte, error) { return encode(v) }

// Compact is Encode for values that can always be written.
func Compact(v any) string { return compact(v) }

// ReadTask reads a message of the channel of tasks.
func ReadTask(b []byte) (TaskMessage, error) { return readTask(b) }

// Stamp writes a time as both sides do.
func Stamp(t time.Time) string { return stamp(t) }

// GoodID says whether a foreign id may be used, SafeID makes it the name of a folder.
func GoodID(id string) bool { return goodID(id) }

// SafeID is the name of a task's folder.
func SafeID(id string) string { return safeID(id) }

// GoodFile says whether a name may be that of a file.
func GoodFile(name string) bool { return goodFile(name) }

// Cut shortens a text to at most n bytes, at a rune.
func Cut(s string, n int) string { return cut(s, n) }

// Text returns v if it is a string.
func Text(v any) string { return text(v) }

// Under returns the object at a path of keys, nil if there is none.
func Under(o Object, path ...string) Object { return under(o, path...) }

// OrObject returns o, an empty one if it is nil.
func OrObject(o Object) Object { return orObject(o) }

// PythonFloat writes a number as Python does.
func PythonFloat(f float64) string { return pythonFloat(f) }

// WholeNumber reads a number without a fraction, which may be written as a text.
func WholeNumber(v any) (int64, bool) { return wholeNumber(v) }

// Needed is what a task's spec asks of a worker.
func Needed(spec Object) muster.Request { return needed(spec) }

// ToMuster returns the stage of a Muster job that does what a task says.
func ToMuster(d Document) (muster.TaskSpec, error) { return toMuster(d, "") }

// FromMuster returns the result that a task has at MLOC, of what a task of Muster returned in so many seconds.
func FromMuster(d Document, taskID string, result json.RawMessage, seconds float64) Object {
	return fromMuster(d, taskID, result, nil, seconds)
}

// Cannot is the error of a task that Muster's kinds cannot carry out.
func Cannot(format string, args ...any) error { return cannot(format, args...) }

// Only fails if an object has other fields than these and those that say how any task is run.
func Only(spec Object, at string, fields ...string) error {
	return only(spec, at, append(fields, common...)...)
}

// Escape writes texts so that Muster takes ${…} in them literally.
func Escape(v any) any { return escape(v) }

// CopyFields copies the fields that are there, under the names that follow them.
func CopyFields(to, from Object, fields ...string) { copyFields(to, from, fields...) }

// MakeManifest looks at a task's folder.
func MakeManifest(ctx context.Context, dir, taskID string, declared []string, now time.Time) (Manifest, error) {
	return makeManifest(ctx, dir, taskID, declared, now)
}

// Declared returns the names of spec.output.artifacts.
func Declared(spec Object) []string { return declared(spec) }

// ReplaceFile writes a file so that after a crash it is there as a whole or as it was.
func ReplaceFile(root *os.Root, name string, data []byte) error { return replaceFile(root, name, data) }

// DialControl makes a connection to a Redis database. It does not wait for the server.
func DialControl(url, name string) (*Control, error) { return dialControl(url, name) }

// URL is the database's address without its password.
func (c *control) URL() string { return c.url }

// Away makes an error of Redis one for people.
func (c *control) Away(err error) error { return c.away(err) }

// Listen subscribes to channels and calls f with each message until ctx ends or the connection breaks.
func (c *control) Listen(ctx context.Context, ready func(), f func(channel string, message []byte), channels ...string) error {
	return c.listen(ctx, ready, f, channels...)
}

// Tell publishes a message and returns how many connections received it.
func (c *control) Tell(ctx context.Context, channel string, v any) (int64, error) {
	return c.publish(ctx, channel, v)
}

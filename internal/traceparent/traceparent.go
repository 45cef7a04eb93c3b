// Package traceparent derives the trace of a job from its UID, in the terms of W3C Trace Context.
//
// The UID of a job that was submitted with a traceparent contains it; the trace of any other job is
// derived from the UID. The ids of a job's spans are derived from the UID and the subject of the span. So the server and all
// workers, also after restarts, agree on all ids without storing them.
package traceparent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"strings"
)

// EnvVar is the name of the environment variable that carries a Parent.
const EnvVar = "TRACEPARENT"

// Parent is a span of another program's trace.
type Parent struct {
	Trace [16]byte
	Span  [8]byte
	Flags byte
}

// sampled is the flag of a recorded trace.
const sampled = 1

// Sampled reports whether the trace is recorded.
func (p Parent) Sampled() bool { return p.Flags&sampled != 0 }

// Parse parses the value of a traceparent header of version 00, or the compatible part of a later version.
func Parse(s string) (p Parent, ok bool) {
	if len(s) < 55 || len(s) > 256 || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" || s[:2] == "00" && len(s) != 55 || len(s) > 55 && s[55] != '-' {
		return Parent{}, false
	}
	var version, flags [1]byte
	for _, part := range []struct {
		to   []byte
		from string
	}{{version[:], s[:2]}, {p.Trace[:], s[3:35]}, {p.Span[:], s[36:52]}, {flags[:], s[53:55]}} {
		if strings.ToLower(part.from) != part.from {
			return Parent{}, false
		}
		if _, err := hex.Decode(part.to, []byte(part.from)); err != nil {
			return Parent{}, false
		}
	}
	p.Flags = flags[0]
	if p.Trace == [16]byte{} || p.Span == [8]byte{} {
		return Parent{}, false
	}
	return p, true
}

// String returns the value of a traceparent header.
func (p Parent) String() string {
	return "00-" + hex.EncodeToString(p.Trace[:]) + "-" + hex.EncodeToString(p.Span[:]) + "-" + hex.EncodeToString([]byte{p.Flags})
}

type contextKey struct{}

// NewContext returns a context with the parent span of submitted jobs.
func NewContext(ctx context.Context, p Parent) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// FromContext returns the parent that NewContext added.
func FromContext(ctx context.Context) (p Parent, ok bool) {
	p, ok = ctx.Value(contextKey{}).(Parent)
	return p, ok
}

// randomSize is how many bytes of a UID are random.
const randomSize = 10

// tracedPrefix is the prefix of the UID of a job with a parent. Other UIDs begin with another letter.
const tracedPrefix = "t"

var encoding = base32.StdEncoding.WithPadding(base32.NoPadding) //nolint:gochecknoglobals // constant

// NewUID returns a new UID for a job that is submitted in ctx: see muster.Job. It has lower-case letters and digits, begins with a letter, and has at
// most 64 bytes.
func NewUID(ctx context.Context) string {
	var b [randomSize]byte
	_, _ = rand.Read(b[:]) // never fails
	p, ok := FromContext(ctx)
	if !ok {
		return "j" + hex.EncodeToString(b[:])
	}
	all := make([]byte, 0, len(p.Trace)+len(p.Span)+1+randomSize)
	all = append(all, p.Trace[:]...)
	all = append(all, p.Span[:]...)
	all = append(all, p.Flags)
	all = append(all, b[:]...)
	return tracedPrefix + strings.ToLower(encoding.EncodeToString(all))
}

// ParentOf returns the parent span of a job. It does not allocate for a job without one.
func ParentOf(uid string) (p Parent, ok bool) {
	if !strings.HasPrefix(uid, tracedPrefix) {
		return Parent{}, false
	}
	all, err := encoding.DecodeString(strings.ToUpper(uid[len(tracedPrefix):]))
	if err != nil || len(all) != len(p.Trace)+len(p.Span)+1+randomSize {
		return Parent{}, false
	}
	copy(p.Trace[:], all)
	copy(p.Span[:], all[len(p.Trace):])
	p.Flags = all[len(p.Trace)+len(p.Span)]
	return p, true
}

// TraceID returns the trace of a job.
func TraceID(uid string) [16]byte {
	if p, ok := ParentOf(uid); ok {
		return p.Trace
	}
	sum := sha256.Sum256([]byte("muster trace\x00" + uid))
	return [16]byte(sum[:])
}

// TraceText returns the trace of a job in hex.
func TraceText(uid string) string {
	id := TraceID(uid)
	return hex.EncodeToString(id[:])
}

// SpanID returns the id of a span of a job. subject is such as "attempt 17.0#1".
func SpanID(uid, subject string) [8]byte {
	sum := sha256.Sum256([]byte("muster span\x00" + uid + "\x00" + subject))
	return [8]byte(sum[:])
}

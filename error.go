package muster

import (
	"errors"
	"fmt"
)

// Code says what sort of failure an Error is. Each edge translates it once: the
// API to an HTTP status, the command line to an exit status.
type Code string

// The codes. They are stable: clients match on them.
const (
	Invalid         Code = "invalid"         // the request is malformed: HTTP 400, exit 2
	InvalidSpec     Code = "invalid_spec"    // the job spec is wrong: HTTP 422, exit 6
	Unauthenticated Code = "unauthenticated" // no or unknown token: HTTP 401, exit 4
	Forbidden       Code = "forbidden"       // known, but not allowed: HTTP 403, exit 4
	NotFound        Code = "not_found"       // HTTP 404, exit 3
	Conflict        Code = "conflict"        // not in this state: HTTP 409, exit 5
	TooLarge        Code = "too_large"       // HTTP 413, exit 2
	Unavailable     Code = "unavailable"     // not done, safe to retry: HTTP 503, exit 7
	StorageFull     Code = "storage_full"    // not done, no space: HTTP 507, exit 7
	Undetermined    Code = "undetermined"    // no answer in time, it may have been done: HTTP 504, exit 7
	Internal        Code = "internal"        // a bug: HTTP 500, exit 1
)

// Error is the one error type that crosses package borders.
type Error struct {
	Code    Code
	Message string       // one sentence for the user: what, where, what to do
	Fields  []FieldError // what is wrong in a document, if that is the matter
	Err     error        // the cause, if there is one; Message tells it already
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error. A %w verb keeps its operand as the cause, whose text
// is then part of the message. There may be several.
func Errorf(code Code, format string, args ...any) *Error {
	wrapped := fmt.Errorf(format, args...)
	cause := errors.Unwrap(wrapped)
	if _, multi := wrapped.(interface{ Unwrap() []error }); multi {
		cause = wrapped
	}
	return &Error{Code: code, Message: wrapped.Error(), Err: cause}
}

// CodeOf returns the code of the first Error in err's chain, and Internal if
// there is none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}

// FieldError is one thing wrong at one place of a document.
type FieldError struct {
	Path    string `json:"path"`             // such as "tasks[1].resources.memory"
	Line    int    `json:"line,omitempty"`   // from 1, where known
	Column  int    `json:"column,omitempty"` // from 1, where known
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // such as the nearest known field
}

// String returns "line:column: path: message (hint)" with what is known.
func (f FieldError) String() string {
	s := f.Message
	if f.Path != "" {
		s = f.Path + ": " + s
	}
	if f.Line > 0 {
		s = fmt.Sprintf("line %d, column %d: %s", f.Line, f.Column, s)
	}
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}
